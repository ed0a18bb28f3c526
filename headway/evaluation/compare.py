"""Compares a candidate with the champion on the same rows, overall and per slice, with confidence intervals.

With the interval of (candidate - champion) turned so that up is good, a metric's outcome is

    better             the interval is wholly above 0
    within the limit   it reaches no further down than the tolerance
    cannot tell        it reaches further down than the tolerance
    beyond the limit   it is wholly beyond the tolerance: the candidate is blocked
    not compared       there is no interval, or there are too few rows for one (`headway.evaluation.sample_size`)

Looking at many slices finds a bad one by luck, so the slices' p values are corrected together by Holm's method (Holm, "A
simple sequentially rejective multiple test procedure", 1979), which costs nothing when there is one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headway.evaluation.bootstrap import Difference, paired
from headway.evaluation.gate_config import GateConfig
from headway.evaluation.margins import Margin, Margins
from headway.evaluation.metrics import rows_of
from headway.evaluation.sample_size import uncompared, upward
from headway.evaluation.slices import slice_rows
from headway.evaluation.units import EACH_ROW, SplitUnits, drawn_together
from headway.evaluation.verdict import BETTER, BEYOND, CANNOT_TELL, NOT_COMPARED, WITHIN, Check, LeftOut
from headway.metrics.base import Metric
from headway.monitor import Monitor
from headway.tasks.base import LabelFacts, Task


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One metric on one set of rows. `column` and `value` are None for all rows."""

    column: str | None
    value: str | None
    rows: int
    metric: Metric
    measured: Difference
    margin: Margin
    interval: tuple[float, float] | None
    p: float | None
    p_adjusted: float | None
    failed: bool
    detectable: float | None = None
    """The smallest true loss that would have been blocked in 80% of all cases."""
    few: str | None = None
    """Why there are too few rows to compare by."""

    @property
    def outcome(self) -> str:
        """One of the words at the top of this module."""
        if self.failed:
            return BEYOND
        interval = upward(self.metric, self.interval)
        if interval is None:
            return NOT_COMPARED
        if interval[0] > 0:
            return BETTER
        return WITHIN if interval[0] >= -self.margin.value else CANNOT_TELL

    def check(self, name: str, against: str, confidence: float) -> Check:
        """What the verdict keeps of it.

        Args:
            name: of the check.
            against: the other model.
        """
        measured = self.measured
        return Check(
            name=name,
            metric=measured.metric,
            slice=self.column,
            slice_value=self.value,
            against=against,
            value=measured.candidate,
            before=measured.champion,
            change=measured.difference,
            interval=self.interval,
            confidence=confidence,
            error=measured.standard_error,
            better=self.metric.better,
            allowed=self.margin.value,
            share=self.margin.share,
            share_of=self.margin.share_of,
            gain=self.margin.gain,
            p=self.p,
            p_adjusted=self.p_adjusted,
            detectable=self.detectable,
            outcome=self.outcome,
            passed=not self.failed,
            rows=self.rows,
        )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    overall: tuple[Compared, ...]
    slices: tuple[Compared, ...]
    left_out: tuple[LeftOut, ...] = ()
    confidence: float
    drawn_by: str | None = None
    """What rows are drawn by, where it is not one by one."""

    def of(self, metric: str) -> Compared:
        """The comparison by one metric over all rows."""
        return next(c for c in self.overall if c.measured.metric == metric)

    def checks(self, name: str, against: str) -> list[Check]:
        """Each comparison as a check of the gate, over all rows first."""
        return [c.check(name, against, self.confidence) for c in (*self.overall, *self.slices)]

    def too_few(self) -> dict[str, list[str]]:
        """{why: metrics that could not be compared over all rows}"""
        whys: dict[str, list[str]] = {}
        for compared in self.overall:
            if compared.outcome == NOT_COMPARED:
                whys.setdefault(compared.few or "", []).append(compared.measured.metric)
        return whys


def is_better(compared: Sequence[Check], primary: str) -> bool:
    """Whether a candidate is better than the champion, whatever its data: the primary metric is better beyond chance, or surely
    within its limit while another one is better; and none is worse beyond chance that is not surely within its limit.

    Args:
        compared: each metric over all rows.
    """
    decisive = next(check for check in compared if check.metric == primary)
    gained = any(check.outcome == BETTER for check in compared)
    lost = any(check.worse and not check.surely_within for check in compared)
    return (decisive.outcome == BETTER or (decisive.surely_within and gained)) and not lost


def compare(
    task: Task,
    candidate: pa.Table,
    champion: pa.Table,
    *,
    config: GateConfig,
    metrics: Mapping[str, Metric],
    tolerances: Mapping[str, float | str],
    label: LabelFacts | None = None,
    slices: Sequence[str] = (),
    group: str | None = None,
    units: SplitUnits = EACH_ROW,
    seed: int = 0,
    monitor: Monitor,
) -> Comparison:
    """Every tolerance tested on all rows and on each slice that has enough of them.

    Args:
        metrics: by name.
        tolerances: by metric; these are compared.
        group: the column whose equal values are a group, and drawn together.
        units: what the split keeps together.
        label: of the train rows; with it a tolerance can be a share of the gain over the constant.
    """
    with_columns = any(metric.reads_columns for metric in metrics.values())
    rows, theirs = rows_of(candidate, task, group, columns=with_columns), rows_of(champion, task).prediction
    rows, drawn = drawn_together(units, candidate, rows, group=group)
    compared = [metrics[name] for name in tolerances]
    margins = Margins(task, tolerances, label, rows.predicted(theirs), judging=metrics)

    def test(at: Any, metrics: Sequence[Metric], column: str | None, value: str | None) -> list[Compared]:
        some_rows = rows.at(at)
        before = some_rows.predicted(theirs[at])
        differences = paired(
            some_rows,
            theirs[at],
            metrics=metrics,
            seed=seed,
            check=monitor.check,
        )
        return [
            tested(
                measured, metric, margins.of(metric, before, measured.champion), config, len(before), (column, value)
            )
            for metric, measured in ((metric, differences[metric.name]) for metric in metrics)
        ]

    overall = [
        replace(of_all, few=why, failed=False, p=None, p_adjusted=None, interval=None, detectable=None)
        if (why := uncompared(of_all.metric, rows))
        else of_all
        for of_all in test(slice(None), compared, None, None)
    ]
    of_slices: list[Compared] = []
    left_out: list[LeftOut] = []
    for column in slices:
        small = 0
        for value, at in slice_rows(candidate, column):
            monitor.check()
            if len(at) < config.slice_min_rows:
                small += 1
                continue
            whys: dict[str, list[str]] = {}
            enough, some_rows = [], rows.at(at)
            for metric in compared:
                if why := uncompared(metric, some_rows):
                    whys.setdefault(why, []).append(metric.name)
                else:
                    enough.append(metric)
            for why, names in whys.items():
                which = "" if len(names) == len(compared) else f"{', '.join(names)}: "
                left_out.append(LeftOut(slice=column, value=value, why=which + why))
            if enough:
                of_slices += test(at, enough, column, value)
        if small:
            left_out.append(LeftOut(slice=column, values=small, why=f"fewer than {config.slice_min_rows:,} rows"))
    return Comparison(
        overall=tuple(overall),
        slices=tuple(_holm(of_slices, config)),
        left_out=tuple(left_out),
        confidence=config.confidence,
        drawn_by=drawn,
    )


def tested(
    measured: Difference,
    metric: Metric,
    margin: Margin,
    config: GateConfig,
    rows: int = 0,
    where: tuple[str | None, str | None] = (None, None),
) -> Compared:
    """A measured difference against its margin.

    Args:
        where: the slice and its value.
    """
    allowed = margin.value
    p = measured.probability_below(-allowed) if metric.higher_is_better else measured.probability_above(allowed)
    return Compared(
        column=where[0],
        value=where[1],
        rows=rows,
        metric=metric,
        measured=measured,
        margin=margin,
        interval=measured.interval(config.confidence),
        p=p,
        p_adjusted=p,
        failed=p is not None and p < _alpha(config),
        detectable=measured.detectable(config.confidence, allowed),
    )


def _alpha(config: GateConfig) -> float:
    """The interval is two-sided and only one side is bad."""
    return (1 - config.confidence) / 2


def _holm(tests: Sequence[Compared], config: GateConfig) -> list[Compared]:
    """The tests with p values corrected for their number, and failed by those."""
    ordered = sorted((t.p, i) for i, t in enumerate(tests) if t.p is not None)
    adjusted: dict[int, float] = {}
    highest = 0.0
    for rank, (p, i) in enumerate(ordered):
        highest = max(highest, min(1.0, (len(ordered) - rank) * p))
        adjusted[i] = highest
    return [
        replace(t, p_adjusted=adjusted.get(i), failed=i in adjusted and adjusted[i] < _alpha(config))
        for i, t in enumerate(tests)
    ]
