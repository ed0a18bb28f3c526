"""Files of any format on disk, and what a source makes of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.sources.base import InputFile, Source
from headway.sources.config import SourceConfig
from headway.sources.discovery.spans import files, open_source
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
