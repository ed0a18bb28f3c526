"""The stage that merges the statistics of a window's spans, split by split.

Transforms read train only; validation sees each split.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from headway.config import Frozen
from headway.monitor import Monitor
from headway.schema.columns import Column
from headway.statistics.split_statistics import merge_all, summary
from headway.statistics.tfmd_proto import to_proto

VERSION = 6


class StatisticsRequest(Frozen):
    """The stored columns, and for each split of the window the saved statistics it is made of, in window order."""

    columns: tuple[Column, ...]
    splits: dict[str, tuple[Path, ...]]


def merge(request: StatisticsRequest, out: Path, monitor: Monitor) -> dict[str, Any]:
    """Write out/<split>/ and out/statistics.pb; returns rows and a summary of each column by split."""
    merged = {}
    total = sum(len(folders) for folders in request.splits.values())
    done = 0
    spill = out / ".spill"
    try:
        for split, folders in request.splits.items():
            monitor.check()
            merged[split] = merge_all(folders, request.columns, spill=spill)
            merged[split].save(out / split)
            done += len(folders)
            monitor.progress(done, total, "spans")
        (out / "statistics.pb").write_bytes(to_proto(merged).SerializeToString(deterministic=True))
        return {
            "rows": {split: statistics.rows for split, statistics in merged.items()},
            "columns": {split: summary(statistics) for split, statistics in merged.items()},
        }
    finally:
        shutil.rmtree(spill, ignore_errors=True)
