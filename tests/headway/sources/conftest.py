"""Files of any format on disk, and what a source makes of them."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from headway.records import wire
from headway.records.tfrecord import frame
from headway.sources.base import InputFile, Source
from headway.sources.config import SourceConfig
from headway.sources.spans import files, open_source
from tests.small_ranges import small_ranges, usual_ranges

__all__ = ["usual_ranges"]

Opened = tuple[Source, tuple[InputFile, ...]]


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., Opened]:
    """opened("jsonl", b"...", name="a.jsonl", jsonl={...}) -> (source, its files); ranges may be smaller than users'."""

    def make(format: str, *datas: bytes, names: tuple[str, ...] = (), small: int | None = None, **more: Any) -> Opened:
        folder = tmp_path / "raw"
        folder.mkdir(exist_ok=True)
        endings = {"examples": "tfrecord"}
        for i, data in enumerate(datas):
            (folder / (names[i] if names else f"{i}.{endings.get(format, format)}")).write_bytes(data)
        config = SourceConfig(format=format, path=str(folder), **more)  # type: ignore[arg-type]
        if small is not None:
            small_ranges(small, config.format)
        return open_source(config), files(config, "all")

    return make


def read_all(opened: Opened, types: dict[str, Any], columns: list[str] | None = None) -> tuple[list[Any], list[Any]]:
    """(rows as (number in the file, values...), malformed as (number, column, reason)), files one behind the other."""
    source, found = opened
    columns = columns or list(types)
    rows: list[Any] = []
    malformed: list[Any] = []
    before, file = 0, -1
    for piece in source.ranges(found):
        if piece.file != file:
            before, file = 0, piece.file
        count = 0
        for chunk in source.read(piece, columns, {name: kind for name, kind in types.items() if kind is not None}):
            assert chunk.batch.schema.names == columns
            at = [before + int(i) for i in chunk.positions()]
            rows += [(i, *row.values()) for i, row in zip(at, chunk.batch.to_pylist(), strict=True)]
            malformed += [(before + bad.row, bad.column, bad.reason) for bad in chunk.malformed]
            count += chunk.batch.num_rows + len(chunk.malformed)
        before += count
    return rows, malformed


@pytest.fixture(name="read_all")
def _read_all() -> Callable[..., tuple[list[Any], list[Any]]]:
    return read_all


def in_format(format: str, table: pa.Table) -> bytes:
    """A file with a table's rows; of images one, of Examples the columns of integers."""
    out = pa.BufferOutputStream()
    if format == "parquet":
        pq.write_table(table, out, row_group_size=30)
    elif format == "arrow":
        with pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table, max_chunksize=30)
    elif format == "images":
        image = io.BytesIO()
        Image.new("RGB", (8, 8)).save(image, "PNG")
        out.write(image.getvalue())
    else:
        if format == "csv":
            out.write(f"{','.join(table.column_names)}\n".encode())
        for row in table.to_pylist():
            numbers = {name: value for name, value in row.items() if isinstance(value, int)}
            entries = (
                wire.entry(wire.field(name.encode()), wire.field(wire.field(wire.varint(value)), wire.INTS))
                for name, value in numbers.items()
            )
            texts = {"csv": ",".join(map(str, row.values())), "jsonl": json.dumps(row)}
            out.write(frame(wire.example(entries)) if format == "examples" else f"{texts[format]}\n".encode())
    return out.getvalue().to_pybytes()
