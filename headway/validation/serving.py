"""Computes statistics of rows without labels, to compare with train: of a file of serving rows, or a span's raw files.

    served = serving_rows(Path("requests.jsonl"), feature_columns)
    served.statistics, served.unfit          # of the rows that fit; the number of the other rows, with the first one's reason

A file of serving rows holds one row per line as JSON ({"carrier": "AA", "distance": 733}), or is a TFRecord of tf.Examples. Both
are read as ingest reads them. A feature that no row names counts as missing in all rows.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headway.errors import DataError
from headway.monitor import Monitor
from headway.schema.columns import Column
from headway.sources.base import Chunk, InputFile
from headway.sources.config import SourceConfig
from headway.sources.spans import files, open_source
from headway.statistics.split_statistics import SplitStatistics
from headway.storage import filesystem
from headway.storage.filesystem import open_file, reading
from headway.tabular.coerce import coerce, raw_types
from headway.tabular.expressions import parse
from headway.tabular.quarantine import PLACE

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class ServingRows:
    rows: int
    statistics: SplitStatistics
    unfit: tuple[int, str]
    """The number of rows that are broken or do not fit; and the number and reason of the first such row, as text."""


def checksum(path: Path) -> dict[str, int | str]:
    """Returns the size ("bytes") and the CRC ("crc32c") of a file of serving rows. DataError if the file cannot be read."""
    size, crc = filesystem.checksum(str(path))
    return {"bytes": size, "crc32c": crc}


def serving_rows(path: Path, columns: Sequence[Column]) -> ServingRows:
    """Returns statistics of serving rows. A broken row, or one with a value that does not fit, is left out.

    Raises:
        DataError: the file holds no row that fits, or a TFRecord is damaged.
    """
    statistics = SplitStatistics.create(columns)
    read_as = [column.model_copy(update={"nullable": True}) for column in columns]
    rows, unfit, first = 0, 0, ""
    for chunk, before in _chunks(path, columns):
        coerced, at = coerce(chunk.batch, read_as), chunk.positions()
        statistics.update(coerced.batch)
        rows += chunk.batch.num_rows + len(chunk.malformed)
        bad = [(row.row, row.column, row.text, re.sub(PLACE, "", row.reason)) for row in chunk.malformed]
        bad += [(int(at[b["row"]]), b["column"], b["value"], b["reason"]) for b in coerced.rejected.to_pylist()]
        unfit += len(bad)
        if bad and not first:
            row, column, value, reason = min(bad, key=lambda each: each[0])
            first = f"row {before + row + 1:,}: {f'{column!r}: {value!r} ' if column else ''}{reason}"
    if unfit == rows:
        problem = f"none of its rows fits the schema; the first: {first}"
        raise DataError(
            problem if rows else "there is no row in the file",
            where=str(path),
            fix="log one JSON object of features per line, or leave it out",
        )
    return ServingRows(rows, statistics, (unfit, first))


def _chunks(path: Path, columns: Sequence[Column]) -> Iterator[tuple[Chunk, int]]:
    """Yields chunks of rows, each with the number of rows before its range: a chunk counts positions from its range's start."""
    with open_file(str(path)) as file:
        head, size = file.read(len(_GZIP)), file.size()
        file.seek(0)
        with reading(str(path)):
            head = (pa.CompressedInputStream(file, "gzip") if head == _GZIP else file).read(8)
    # a record begins with its length, some bytes of which are zero; text holds none
    source = SourceConfig(format="examples" if b"\0" in head else "jsonl", path=str(path))
    reader, before = open_source(source, columns=columns), 0
    for piece in reader.ranges([InputFile(path=str(path), bytes=size, crc32c="")]):
        rows = 0
        for chunk in reader.read(piece, [column.name for column in columns], raw_types(columns)):
            yield chunk, before
            rows += chunk.batch.num_rows + len(chunk.malformed)
        before += rows


def span_statistics(source: SourceConfig, span: str, columns: list[Column], monitor: Monitor) -> SplitStatistics:
    """Returns statistics of the raw columns of a span. Rows without a label are counted too.

    Args:
        columns: the columns to count, in their stored types. A row with a value that does not fit is left out.
    """
    reader, of_span = open_source(source, columns=columns), files(source, span)
    read = [column.model_copy(update={"nullable": True}) for column in columns]
    statistics = SplitStatistics.create(read)
    where = None if source.where is None else parse(source.where)
    ranges = reader.ranges(of_span)
    for done, piece in enumerate(ranges):
        monitor.check()
        monitor.progress(done, len(ranges), "ranges")
        extra = [] if where is None else [n for n in where.columns if n in reader.names(of_span[piece.file])]
        names = list(dict.fromkeys([*(column.name for column in read), *extra]))
        for chunk in reader.read(piece, names, raw_types(read)):
            batch: pa.RecordBatch = chunk.batch
            if where is not None and set(where.columns) <= set(batch.schema.names):
                batch = batch.filter(where.row_mask(batch))
            statistics.update(coerce(batch, read).batch)
    return statistics
