"""Small spans on disk, and requests for them."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.ingest.request import IngestRequest
from headway.records.decode import decode
from headway.records.encode import unpacked
from headway.records.tfrecord import read_records
from headway.schema.columns import Column
from headway.sources.config import SourceConfig
from headway.sources.spans import files, spans
from headway.tabular.label import LabelConfig
from headway.tabular.splits import SplitConfig
from tests.small_ranges import small_ranges, usual_ranges

__all__ = ["usual_ranges"]

COLUMNS = (
    Column(name="id", type="int64", nullable=False, role="key"),
    Column(name="x", type="float32", nullable=True),
    Column(name="s", type="bytes", nullable=True, encoding="dictionary"),
    Column(name="y", type="float32", nullable=True),
)


def make_request(
    path: Path,
    *,
    span: str | None = None,
    where: str | None = None,
    range_size: int | None = None,
    label: Any = "y > 0",
    split: SplitConfig | None = None,
    rows: int = 16,
    columns: tuple[Column, ...] = COLUMNS,
    stored: tuple[str, ...] = ("id", "x", "s"),
) -> IngestRequest:
    """id, x and s are stored, the label is y > 0, the split a hash of id."""
    source = SourceConfig(format="csv" if path.suffix != ".parquet" else "parquet", path=str(path), where=where)
    if range_size is not None:
        small_ranges(range_size, source.format)
    split = split or SplitConfig(key=("id",))
    return request_of(source, columns, stored, label, split, span=span, rows_per_record=rows)


def request_of(
    source: SourceConfig,
    columns: tuple[Column, ...],
    stored: tuple[str, ...],
    label: Any,
    split: SplitConfig,
    span: str | None = None,
    **more: Any,
) -> IngestRequest:
    """The request for a span of a source, the first if none is named."""
    span = span or spans(source)[0]
    return IngestRequest(
        span=span,
        files=files(source, span),
        source=source,
        read=columns,
        stored=stored,
        label=LabelConfig.model_validate(label),
        split=split,
        **more,
    )


@pytest.fixture
def request_for() -> Callable[..., IngestRequest]:
    return make_request


@pytest.fixture
def write_csv(tmp_path: Path) -> Callable[..., Path]:
    """write_csv(rows, name): a CSV of `rows` good rows, a null here and there."""

    def write(rows: int, name: str = "raw.csv", first: int = 0) -> Path:
        path = tmp_path / "raw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = ["id,x,s,y"]
        for i in range(first, first + rows):
            x = "" if i % 7 == 0 else f"{i / 8}"
            s = "NA" if i % 11 == 0 else f"s{i % 5}"
            lines.append(f"{i},{x},{s},{i % 3 - 1}")
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


def rows_of(out: Path, result: dict[str, Any], split: str) -> list[dict[str, Any]]:
    """Every row of a split as it stands in the shards."""
    columns = [Column.model_validate(column) for column in result["columns"]]
    found: list[dict[str, Any]] = []
    for shard in result["splits"][split]["shards"]:
        for record, rows in zip(read_records(out / shard["file"]), unpacked(shard["rows"]), strict=True):
            batch = decode(record, columns)
            assert batch.num_rows == rows
            found += batch.to_pylist()
    return found


def digests(out: Path) -> dict[str, str]:
    """SHA-256 of each file."""
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(name="rows_of")
def _rows_of() -> Callable[..., list[dict[str, Any]]]:
    return rows_of


@pytest.fixture(name="digests")
def _digests() -> Callable[[Path], dict[str, str]]:
    return digests
