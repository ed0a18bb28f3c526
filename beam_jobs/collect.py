"""Puts a span together from its ranges, in their order: shards get their names, statistics are merged, counts add up.

    result = collect(request, ranges, aside, out)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.aside import Aside
from beam_jobs.request import IngestRequest
from beam_jobs.span_range import SHARD, STATISTICS
from headway import quarantine
from headway.errors import DataError
from headway.schema import Column
from headway.sources.base import Range
from headway.statistics.split import SplitStatistics, merge_all


def collect(request: IngestRequest, ranges: Sequence[Range], aside: Aside, out: Path) -> dict[str, Any]:
    """Move what the ranges wrote from `aside` to its place in `out`; return the stage's result.

    Raises:
        DataError: the counts do not add up.
    """
    facts = [aside.facts(piece.index) for piece in ranges]
    columns = request.stored()
    splits: dict[str, Any] = {}
    for split in request.split.names():
        shards = []
        for piece, fact in zip(ranges, facts, strict=True):
            if split in fact["records"]:
                name = f"{split}-{piece.index:05d}-of-{len(ranges):05d}.tfrecord"
                os.replace(aside.of_range(piece.index) / split / SHARD, out / name)
                shards.append({"file": name, "rows": fact["records"][split]})
        saved = [aside.of_range(p.index) / split / STATISTICS for p, f in zip(ranges, facts, strict=True) if split in f["records"]]
        _statistics(saved, columns, out / "statistics" / split)
        rows = sum(sum(shard["rows"]) for shard in shards)
        splits[split] = {"rows": rows, "shards": shards, "statistics": f"statistics/{split}"}
    counts = {
        "read": sum(fact["rows"] for fact in facts),
        "written": sum(split["rows"] for split in splits.values()),
        "quarantined": quarantine.write(out / quarantine.FILE_NAME, _quarantine(ranges, facts, aside)),
        "filtered": sum(fact["filtered"] for fact in facts),
    }
    if counts["read"] != counts["written"] + counts["quarantined"] + counts["filtered"]:
        raise DataError(
            f"rows do not add up: {counts['read']} read, but {counts['written']} written + {counts['quarantined']} "
            f"quarantined + {counts['filtered']} filtered",
            where=f"span {request.span}",
            fix="this is a bug in Headway: please report it",
        )
    return {
        "span": request.span,
        "rows_per_record": request.records.rows,
        "columns": [column.model_dump(mode="json") for column in columns],
        "splits": splits,
        "counts": counts,
    }


def _statistics(saved: Sequence[Path], columns: tuple[Column, ...], folder: Path) -> None:
    folder.parent.mkdir(exist_ok=True)
    if len(saved) == 1:
        os.replace(saved[0], folder)
    else:
        merged: SplitStatistics = merge_all(saved, columns)
        merged.save(folder)


def _quarantine(ranges: Sequence[Range], facts: Sequence[dict[str, Any]], aside: Aside) -> Iterator[pa.Table]:
    """The ranges' rejected rows with their file's name, counted from 1 within the file."""
    file, before = -1, 0
    for piece, fact in zip(ranges, facts, strict=True):
        if piece.file != file:
            file, before = piece.file, 0
        if fact["quarantined"]:
            table = quarantine.read(aside.of_range(piece.index))
            rows = pc.add(table.column("row"), before + 1)
            names = pa.array([piece.path] * table.num_rows, pa.string())
            yield table.set_column(0, "file", names).set_column(1, "row", rows)
        before += fact["rows"]
