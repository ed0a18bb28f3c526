"""A candidate held against the champion on the same rows: overall and slice by slice, with what chance can explain.

A metric fails when the interval of (candidate - champion) lies wholly beyond the tolerance on the bad side. Looking at
many slices finds a bad one by luck, so the slices' p values are corrected together by Holm's method (Holm, "A simple
sequentially rejective multiple test procedure", 1979), which costs nothing when there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.bootstrap import Difference, paired, resampling_units
from headway.errors import DataError
from headway.gate_config import GateConfig, absolute
from headway.metrics import columns, slice_rows
from headway.monitor import Monitor
from headway.ranked import NO_GROUP, codes_of
from headway.tasks import HIGHER_IS_BETTER, RANKED, Task
from headway.words import counted, number, signed

CLASS_ROWS = 20
"""An AUC over fewer rows of either class is too shaky to hold against anybody."""
LEAST_GROUPS = 20
"""So is the spread of a few groups: that of a single one is none at all, and any difference would seem certain."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One metric on one set of rows. `column` and `value` are None for all rows."""

    column: str | None
    value: str | None
    rows: int
    found: Difference
    tolerance: float
    interval: tuple[float, float] | None
    p: float | None
    p_adjusted: float | None
    failed: bool

    @property
    def subject(self) -> str:
        return f"{self.column}={self.value} ({counted(self.rows, 'row')}): " if self.column else ""

    def sentence(self, champion: str, confidence: float) -> str:
        """What happened to the metric, with numbers."""
        found = self.found
        verb = "fell" if (found.difference or 0) < 0 else "rose"
        text = f"{self.subject}{found.metric} {verb} from {number(found.champion)} ({champion}) "
        text += f"to {number(found.candidate)}: {signed(found.difference)}, {_interval(self.interval, confidence)}"
        if self.failed:
            text += f", wholly beyond the tolerance of {number(self.tolerance)}"
            if self.column:
                text += f" (p {number(self.p_adjusted)} after correcting for all slices)"
        return text

    def as_json(self) -> dict[str, Any]:
        where = {"slice": self.column, "value": self.value} if self.column else {}
        return where | {
            "rows": self.rows,
            "metric": self.found.metric,
            "candidate": self.found.candidate,
            "champion": self.found.champion,
            "difference": self.found.difference,
            "interval": list(self.interval) if self.interval else None,
            "tolerance": self.tolerance,
            "p": self.p,
            "p_adjusted": self.p_adjusted,
            "failed": self.failed,
        }


def _interval(interval: tuple[float, float] | None, confidence: float) -> str:
    if interval is None:
        return "no interval"
    return f"{confidence:.4g} interval {signed(interval[0])} to {signed(interval[1])}".replace("0.95 ", "95% ")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    overall: tuple[Compared, ...]
    slices: tuple[Compared, ...]
    left_out: tuple[dict[str, Any], ...] = field(default=())
    confidence: float

    def failures(self, champion: str) -> list[str]:
        """One sentence for each comparison that failed, overall first."""
        return [c.sentence(champion, self.confidence) for c in (*self.overall, *self.slices) if c.failed]

    def notes(self, champion: str) -> list[str]:
        """What did not fail, in one or two sentences."""
        fine = [c for c in self.overall if not c.failed]
        notes = []
        if fine:
            each = [
                f"{c.found.metric} {signed(c.found.difference)}, {_interval(c.interval, self.confidence)}" for c in fine
            ]
            notes.append(f"no worse than {champion} overall within the tolerance: " + "; ".join(each))
        looked = {(c.column, c.value) for c in self.slices}
        if looked and not any(c.failed for c in self.slices):
            notes.append(f"none of the {len(looked)} slices with enough rows is worse than with {champion}")
        return notes

    def as_json(self) -> dict[str, Any]:
        return {
            "overall": [c.as_json() for c in self.overall],
            "slices": [c.as_json() for c in self.slices],
            "left_out": list(self.left_out),
        }


def compare(
    task: Task,
    candidate: pa.Table,
    champion: pa.Table,
    *,
    config: GateConfig,
    slices: Sequence[str] = (),
    group: str | None = None,
    ndcg_at: int | None = None,
    seed: int = 0,
    monitor: Monitor,
) -> Comparison:
    """Every tolerance of `config` tested on all rows and on each slice that has enough of them."""
    label, ours, weight = columns(candidate, task)
    _, theirs, _ = columns(champion, task)
    groups = None
    if group is not None:
        if group not in candidate.column_names:
            raise DataError(f"the predictions have no column {group!r} to resample by")
        groups = codes_of(candidate.column(group))
    tolerances = config.tolerances(task, ranked=ndcg_at is not None)

    def test(rows: Any, metrics: Sequence[str], column: str | None, value: str | None) -> list[Compared]:
        found = paired(
            task,
            label[rows],
            ours[rows],
            theirs[rows],
            weight[rows],
            metrics=metrics,
            samples=config.bootstrap,
            seed=seed,
            group=None if groups is None else groups[rows],
            ndcg_at=ndcg_at,
            check=monitor.check,
        )
        return [_test(found[name], tolerances[name], config, len(label[rows]), column, value) for name in metrics]

    overall = test(slice(None), list(tolerances), None, None)
    tested: list[Compared] = []
    left_out: list[dict[str, Any]] = []
    for column in slices:
        few = 0
        for value, rows in slice_rows(candidate, column):
            monitor.check()
            if len(rows) < config.slice_min_rows:
                few += 1
                continue
            if groups is not None and resampling_units(groups[rows])[1] < LEAST_GROUPS:
                left_out.append({"slice": column, "value": value, "why": f"under {LEAST_GROUPS} groups"})
                continue
            metrics = list(tolerances)
            if "auc" in metrics and not _both_classes(label[rows]):
                metrics.remove("auc")
                left_out.append({"slice": column, "value": value, "why": f"auc: under {CLASS_ROWS} rows of one class"})
            ordered = [name for name in metrics if name in RANKED]
            if (
                ordered
                and groups is not None
                and _telling_groups(groups[rows], label[rows], weight[rows]) < LEAST_GROUPS
            ):
                metrics = [name for name in metrics if name not in ordered]
                why = f"{', '.join(ordered)}: under {LEAST_GROUPS} groups with a positive label"
                left_out.append({"slice": column, "value": value, "why": why})
            tested += test(rows, metrics, column, value)
        if few:
            left_out.append({"slice": column, "values": few, "why": f"fewer than {config.slice_min_rows:,} rows"})
    return Comparison(
        overall=tuple(overall),
        slices=tuple(_holm(tested, config)),
        left_out=tuple(left_out),
        confidence=config.confidence,
    )


def _telling_groups(group: NDArray[np.int64], label: np.ndarray, weight: np.ndarray) -> int:
    """Groups in which an order can be better or worse."""
    return len(np.unique(group[(label > 0) & (weight > 0) & (group != NO_GROUP)]))


def _both_classes(label: np.ndarray) -> bool:
    positives = int(label.sum())
    return min(positives, len(label) - positives) >= CLASS_ROWS


def _test(
    found: Difference, tolerance: float | str, config: GateConfig, rows: int, column: str | None, value: str | None
) -> Compared:
    allowed = absolute(tolerance, found.champion if found.champion is not None else 0.0)
    better_up = found.metric in HIGHER_IS_BETTER
    p = found.probability_below(-allowed) if better_up else found.probability_above(allowed)
    return Compared(
        column=column,
        value=value,
        rows=rows,
        found=found,
        tolerance=allowed,
        interval=found.interval(config.confidence),
        p=p,
        p_adjusted=p,
        failed=p is not None and p < _alpha(config),
    )


def _alpha(config: GateConfig) -> float:
    """The interval is two-sided and only one side is bad."""
    return (1 - config.confidence) / 2


def _holm(tests: Sequence[Compared], config: GateConfig) -> list[Compared]:
    """The tests with p values corrected for their number, and failed by those."""
    known = sorted((t.p, i) for i, t in enumerate(tests) if t.p is not None)
    adjusted: dict[int, float] = {}
    highest = 0.0
    for rank, (p, i) in enumerate(known):
        highest = max(highest, min(1.0, (len(known) - rank) * p))
        adjusted[i] = highest
    return [
        replace(t, p_adjusted=adjusted.get(i), failed=i in adjusted and adjusted[i] < _alpha(config))
        for i, t in enumerate(tests)
    ]
