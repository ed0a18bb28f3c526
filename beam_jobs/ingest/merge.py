"""Merges the ranges of a span in their order: names shards, merges statistics, adds up counts.

result = collect(request, ranges, work_dir, out)
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.ingest.range_worker import NOTES, SHARD, STATISTICS
from beam_jobs.ingest.request import IngestRequest
from beam_jobs.runners.work_dir import WorkDir
from headway.errors import DataError
from headway.leakage import key_index
from headway.records.spec import feature_spec, total
from headway.schema.columns import Column
from headway.sources.base import InputFile, Range
from headway.statistics.split_statistics import merge_all
from headway.tabular import quarantine

Facts = dict[str, Any]
"""What `ingest_range` returned."""


def collect(request: IngestRequest, ranges: Sequence[Range], work_dir: WorkDir, out: Path) -> dict[str, Any]:
    """Move what the ranges wrote from `work_dir` to its place in `out`; return the stage's result.

    Raises:
        DataError: the counts do not add up.
        OSError: `out` cannot be written.
    """
    facts = [work_dir.facts(piece.index) for piece in ranges]
    columns = request.columns()
    with ThreadPoolExecutor(1, "notes") as other:  # they are copied, which takes no interpreter
        noted = other.submit(_notes, request, ranges, work_dir, out)
        splits = {split: _split(split, columns, facts, work_dir, out) for split in request.split.names()}
        noted.result()
    counts = {
        "read": sum(fact["rows"] for fact in facts),
        "written": sum(split["rows"] for split in splits.values()),
        "quarantined": quarantine.write(
            out / quarantine.FILE_NAME, quarantined_rows(request.files, ranges, facts, work_dir)
        ),
        "filtered": sum(fact["filtered"] for fact in facts),
    }
    check_counts(counts, where=f"span {request.span}")
    return {
        "span": request.span,
        "rows_per_record": request.records.rows,
        "feature_spec": feature_spec(request.record_columns(), request.records.rows),
        "columns": [column.model_dump(mode="json") for column in columns],
        **({"unit": True} if request.unit else {}),
        "splits": splits,
        "counts": counts,
    }


def check_counts(counts: Mapping[str, int], where: str) -> None:
    """Raise DataError unless the rows read are the sum of the rows written, quarantined and filtered."""
    if counts["read"] * 2 != sum(counts.values()):
        text = ", ".join(f"{count} {what}" for what, count in counts.items())
        raise DataError(f"rows do not add up: {text}", where=where, fix="a bug: please report it")


def _notes(request: IngestRequest, ranges: Sequence[Range], work_dir: WorkDir, out: Path) -> None:
    """Merge the ranges' key indexes into the span's."""
    shutil.rmtree(out / NOTES, ignore_errors=True)
    if ranges:
        key_index.merge([work_dir.of_range(piece.index) / NOTES for piece in ranges], out / NOTES)
    else:
        key_index.KeyIndex(request.split, request.read, request.row_columns(), by_place=request.by_place).save(
            out / NOTES
        )


def _split(
    split: str, columns: tuple[Column, ...], facts: Sequence[Facts], work_dir: WorkDir, out: Path
) -> dict[str, Any]:
    """Name the shards of one split, merge its statistics."""
    shards: list[dict[str, Any]] = []
    saved: list[Path] = []
    for index, fact in enumerate(facts):
        if split in fact["records"]:
            name = f"{split}-{index:05d}-of-{len(facts):05d}.tfrecord"
            folder = work_dir.of_range(index) / split
            (folder / SHARD).replace(out / name)
            saved.append(folder / STATISTICS)
            shards.append({"file": name, "rows": fact["records"][split]})
    statistics = out / "statistics" / split
    statistics.parent.mkdir(exist_ok=True)
    shutil.rmtree(statistics, ignore_errors=True)
    if len(saved) == 1:
        saved[0].replace(statistics)
    else:
        merge_all(saved, columns, spill=work_dir.folder / "spill").save(statistics)
    rows = sum(total(shard["rows"]) for shard in shards)
    return {"rows": rows, "shards": shards, "statistics": statistics.relative_to(out).as_posix()}


def quarantined_rows(
    files: Sequence[InputFile], ranges: Sequence[Range], facts: Sequence[Facts], work_dir: WorkDir
) -> Iterator[pa.Table]:
    """The ranges' rejected rows with their file's name, counted from 1 within the file."""
    names = file_names(files)
    befores = rows_before(ranges, [fact["rows"] for fact in facts])
    for piece, fact, before in zip(ranges, facts, befores, strict=True):
        if fact["quarantined"]:
            table = quarantine.read(work_dir.of_range(piece.index))
            if piece.row_per_file:
                files = pa.array([names[piece.file + row] for row in table.column("row").to_pylist()], pa.string())
                rows = pa.array([1] * table.num_rows, pa.int64())
            else:
                rows = pc.add(table.column("row"), before + 1)
                files = pa.array([names[piece.file]] * table.num_rows, pa.string())
            yield table.set_column(0, "file", files).set_column(1, "row", rows)


def rows_before(ranges: Sequence[Range], rows: Sequence[int | None]) -> Iterator[Any]:
    """The number of rows of its file before each range; None after a range whose rows are not known."""
    file, before = -1, None
    for piece, count in zip(ranges, rows, strict=True):
        if piece.file != file or piece.row_per_file:
            file, before = piece.file, 0
        yield before
        before = None if before is None or count is None else before + count


def file_names(files: Sequence[InputFile]) -> list[str]:
    """Paths relative to the folder of all of the span's files, so that moving it changes no byte of the output."""
    folder = os.path.commonpath([Path(file.path).parent for file in files]) if files else ""
    return [Path(file.path).relative_to(folder).as_posix() for file in files]
