"""Merges the output of a span's ranges, in the order of the ranges: names shards, merges statistics, adds up counts.

result = merge_ranges(request, results, merging)
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.ingest.range_worker import SHARD, STATISTICS
from beam_jobs.ingest.request import NOTES, IngestRequest
from beam_jobs.runners.spans import RangeResult, SpanMerger
from headway.leakage import key_index
from headway.records.encode import feature_spec, total_rows
from headway.schema.columns import Column
from headway.sources.base import InputFile, Range
from headway.statistics.split_statistics import merge_all
from headway.storage.manifest import Counts
from headway.tabular import quarantine


def shard_name(split: str, index: int, total: int) -> str:
    """Returns the file name of a split's shard: `index` is that of its range, `total` the number of ranges in the span."""
    return f"{split}-{index:05d}-of-{total:05d}.tfrecord"


def merge_ranges(request: IngestRequest, done: Sequence[RangeResult], merging: SpanMerger) -> dict[str, Any]:
    """Merge the files of a span's ranges into the output of the span. Returns the result of ingest as JSON values.

    Raises:
        DataError: the counts do not add up.
        OSError: the output cannot be written.
    """
    columns = request.columns()
    if done:
        key_index.merge([merging.fetch(each, NOTES) for each in done], merging.out / NOTES)
    else:
        none = key_index.KeyIndex(request.split, request.read, request.row_columns(), by_place=request.by_place)
        none.save(merging.out / NOTES)
    splits = {split: _split(split, columns, done, merging) for split in request.split.names()}
    counts = {
        "read": sum(each.facts["rows"] for each in done),
        "written": sum(split["rows"] for split in splits.values()),
        "quarantined": quarantine.write(
            merging.out / quarantine.FILE_NAME, quarantined_rows(request.files, done, merging)
        ),
        "filtered": sum(each.facts["filtered"] for each in done),
    }
    Counts(**counts)
    return {
        "span": request.span,
        "feature_spec": feature_spec(request.record_columns()),
        "columns": [column.model_dump(mode="json") for column in columns],
        "unit": request.unit,
        "splits": splits,
        "counts": counts,
    }


def _split(split: str, columns: tuple[Column, ...], done: Sequence[RangeResult], merging: SpanMerger) -> dict[str, Any]:
    """Put a split's shards into the output and merge its statistics. Returns the split's entry in the result of ingest."""
    shards: list[dict[str, Any]] = []
    saved: list[Path] = []
    for each in done:
        if split in each.facts["records"]:
            name = shard_name(split, each.piece.index, len(done))
            merging.copy_to_output(each, f"{split}/{SHARD}", name)
            saved.append(merging.fetch(each, f"{split}/{STATISTICS}"))
            shards.append({"file": name, "rows": each.facts["records"][split]})
    statistics = merging.out / "statistics" / split
    statistics.parent.mkdir(exist_ok=True)
    if len(saved) == 1:
        shutil.copytree(saved[0], statistics)
    else:
        merge_all(saved, columns, spill=merging.spill).save(statistics)
    rows = sum(total_rows(shard["rows"]) for shard in shards)
    return {"rows": rows, "shards": shards, "statistics": f"statistics/{split}"}


def quarantined_rows(
    files: Sequence[InputFile], done: Sequence[RangeResult], merging: SpanMerger
) -> Iterator[pa.Table]:
    """Yields a table of each range's rejected rows, with each row's file and its number in that file, from 1."""
    names = file_names(files)
    befores = rows_before([each.piece for each in done], [each.facts["rows"] for each in done])
    for each, before in zip(done, befores, strict=True):
        if each.facts["quarantined"]:
            folder = merging.fetch(each, quarantine.FILE_NAME).parent
            yield rows_in_files(quarantine.read(folder), each.piece, names, before)


def rows_in_files(rejected: pa.Table, piece: Range, names: Sequence[str], before: int) -> pa.Table:
    """Returns rejected rows with file name and row number in the file, from 1. `before` rows of the file precede the range."""
    if piece.row_per_file:
        files = pa.array([names[piece.file + row] for row in rejected.column("row").to_pylist()], pa.string())
        rows = pa.array([1] * rejected.num_rows, pa.int64())
    else:
        rows = pc.add(rejected.column("row"), before + 1)
        files = pa.array([names[piece.file]] * rejected.num_rows, pa.string())
    return rejected.set_column(0, "file", files).set_column(1, "row", rows)


def rows_before(ranges: Sequence[Range], rows: Sequence[int | None]) -> Iterator[Any]:
    """Yields for each range the number of rows before it in its file; None if an earlier range's rows are unknown."""
    file, before = -1, None
    for piece, count in zip(ranges, rows, strict=True):
        if piece.file != file or piece.row_per_file:
            file, before = piece.file, 0
        yield before
        before = None if before is None or count is None else before + count


def file_names(files: Sequence[InputFile]) -> list[str]:
    """Returns the path of each file relative to the folder that all files share. Moving that folder then changes no byte of the
    output."""
    folder = os.path.commonpath([Path(file.path).parent for file in files]) if files else ""
    return [Path(file.path).relative_to(folder).as_posix() for file in files]
