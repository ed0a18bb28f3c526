"""Holds a candidate against another model within tolerances, on the same rows: overall and per slice.

    found = within_tolerances(task, candidate, champion, metrics=metrics, tolerances={"auc": 0.002, "loss": "5% of gain"}, ...)
    found.of("auc").outcome, found.checks("champion", "version 3")

With the interval of (candidate - champion) turned so that up is good, a metric's outcome is

    better             the interval is wholly above 0
    within the limit   it reaches no further down than the tolerance
    cannot tell        it reaches further down than the tolerance
    beyond the limit   it is wholly beyond the tolerance: the candidate is blocked
    not compared       there is no interval, or there are too few rows for one (`headway.evaluation.units`)

Looking at many slices finds a bad one by luck, so the slices' p values are corrected together (`holm`), which costs nothing when
there is one.

A tolerance that is a number is in the metric's unit, a percentage is of the champion's value. A share of the gain is of what the
champion gains over the constant baseline on the same rows: a rare class leaves a log loss so little to gain that a fixed margin
would forgive all of it (0.002 is 4% of what a model gains at 20% positives and 440% at 0.1%).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headway.evaluation.baseline import constant
from headway.evaluation.compare import Difference, compare, upward
from headway.evaluation.config import OF_GAIN, GateConfig, parse_tolerance
from headway.evaluation.intervals import holm
from headway.evaluation.predictions import rows_of
from headway.evaluation.slices import slice_rows
from headway.evaluation.units import EACH_ROW, SplitUnits, drawn_together
from headway.evaluation.verdict import (
    BETTER,
    BEYOND,
    CANNOT_TELL,
    NOT_COMPARED,
    WITHIN,
    Check,
    LeftOut,
    ShareOf,
)
from headway.metrics.base import Metric, Rows
from headway.monitor import Monitor
from headway.tasks.base import LabelFacts, Task

WITHOUT_GAIN = 1.0
"""Percent of the champion's value where the constant is not known, or the champion does not beat it."""


@dataclass(frozen=True)
class Margin:
    """A tolerance in the metric's unit, and what it is a share of."""

    value: float
    share: float | None = None
    """Percent; None: the margin is a number of its own."""
    share_of: ShareOf | None = None
    gain: float | None = None
    """Of the champion over the constant, where the margin is a share of it."""


@dataclass(frozen=True, kw_only=True)
class ToleranceTest:
    """One metric on one set of rows. `column` and `value` are None for all rows."""

    metric: Metric
    measured: Difference
    margin: Margin
    confidence: float
    rows: int = 0
    column: str | None = None
    value: str | None = None
    corrected: float | None = None
    """The p value, corrected for the number of slices; None: there is one test."""

    @property
    def interval(self) -> tuple[float, float] | None:
        return self.measured.interval(self.confidence)

    @property
    def p(self) -> float | None:
        """Small where the candidate is beyond the tolerance."""
        allowed = self.margin.value
        if self.metric.higher_is_better:
            return self.measured.probability_below(-allowed)
        return self.measured.probability_above(allowed)

    @property
    def p_adjusted(self) -> float | None:
        return self.p if self.corrected is None else self.corrected

    @property
    def failed(self) -> bool:
        """Beyond the tolerance: the interval is two-sided, and only one side is bad."""
        return self.p_adjusted is not None and self.p_adjusted < (1 - self.confidence) / 2

    @property
    def detectable(self) -> float | None:
        """The smallest true loss that would have been blocked in 80% of all cases."""
        return self.measured.detectable(self.confidence, self.margin.value)

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

    def check(self, name: str, against: str) -> Check:
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
            value=measured.value,
            before=measured.other,
            change=measured.difference,
            interval=self.interval,
            confidence=self.confidence,
            error=measured.error,
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
    overall: tuple[ToleranceTest, ...]
    slices: tuple[ToleranceTest, ...]
    left_out: tuple[LeftOut, ...] = ()

    def of(self, metric: str) -> ToleranceTest:
        """The test of one metric over all rows."""
        return next(test for test in self.overall if test.measured.metric == metric)

    def checks(self, name: str, against: str) -> list[Check]:
        """Each test as a check of the gate, over all rows first."""
        return [test.check(name, against) for test in (*self.overall, *self.slices)]

    def too_few(self) -> dict[str, list[str]]:
        """{why: metrics that could not be compared over all rows}"""
        whys: dict[str, list[str]] = {}
        for test in self.overall:
            if test.outcome == NOT_COMPARED:
                whys.setdefault(test.measured.few or "", []).append(test.measured.metric)
        return whys


def within_tolerances(
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
    rows, _ = drawn_together(units, candidate, rows, group=group)
    compared = {name: metrics[name] for name in tolerances}
    margins = Margins(task, tolerances, label, rows.predicted(theirs), judging=metrics)

    def test(at: Any, column: str | None = None, value: str | None = None) -> list[ToleranceTest]:
        some_rows = rows.at(at)
        before = some_rows.predicted(theirs[at])
        differences = compare(some_rows, theirs[at], metrics=[*compared.values()], seed=seed, check=monitor.check)
        return [
            ToleranceTest(
                metric=compared[name],
                measured=measured,
                margin=margins.of(compared[name], before, measured.other),
                confidence=config.confidence,
                rows=len(before),
                column=column,
                value=value,
            )
            for name, measured in differences.items()
        ]

    overall = test(slice(None))
    of_slices: list[ToleranceTest] = []
    left_out: list[LeftOut] = []
    for column in slices:
        small = 0
        for value, at in slice_rows(candidate, column):
            monitor.check()
            if len(at) < config.slice_min_rows:
                small += 1
                continue
            whys: dict[str, list[str]] = {}
            for each in test(at, column, value):
                if each.measured.few is None:
                    of_slices.append(each)
                else:
                    whys.setdefault(each.measured.few, []).append(each.metric.name)
            for why, names in whys.items():
                which = "" if len(names) == len(compared) else f"{', '.join(names)}: "
                left_out.append(LeftOut(slice=column, value=value, why=which + why))
        if small:
            left_out.append(LeftOut(slice=column, values=small, why=f"fewer than {config.slice_min_rows:,} rows"))
    return Comparison(overall=tuple(overall), slices=tuple(corrected(of_slices)), left_out=tuple(left_out))


def corrected(tests: Sequence[ToleranceTest]) -> list[ToleranceTest]:
    """The tests with p values corrected for their number, and failed by those."""
    chances = {i: test.p for i, test in enumerate(tests) if test.p is not None}
    adjusted = dict(zip(chances, holm([*chances.values()]), strict=True))
    return [replace(test, corrected=adjusted.get(i)) for i, test in enumerate(tests)]


def allowed(tolerance: float | str, value: float, gain: float | None) -> float:
    """The margin where only a model's value, and its gain over the constant, are known."""
    share, unit = parse_tolerance(tolerance)
    if not unit:
        return share
    if unit == "%":
        return abs(value) * share / 100
    return gain * share / 100 if gain is not None and gain > 0 else abs(value) * WITHOUT_GAIN / 100


class Margins:
    """The margin of each compared metric on any of the rows.

    Args:
        tolerances: by metric.
        facts: of the train labels, which say what the constant predicts.
        rows: all rows, with the champion's predictions.
    """

    def __init__(
        self,
        task: Task,
        tolerances: Mapping[str, float | str],
        facts: LabelFacts | None,
        rows: Rows,
        *,
        judging: Mapping[str, Metric],
    ):
        self._task, self._tolerances, self._facts = task, tolerances, facts
        self._overall = {
            name: self._gain(judging[name], rows)
            for name, tolerance in tolerances.items()
            if parse_tolerance(tolerance)[1] == OF_GAIN
        }

    def of(self, metric: Metric, rows: Rows, champion: float | None) -> Margin:
        """The margin on some of the rows, which have the champion's predictions.

        A share is of the gain on these rows, or of that on all rows where that is more: on a slice without anything to
        gain no difference would be small enough.
        """
        tolerance, size = self._tolerances[metric.name], abs(champion or 0.0)
        share, unit = parse_tolerance(tolerance)
        if unit != OF_GAIN:
            value = allowed(tolerance, size, None)
            return Margin(value, share, "champion") if unit else Margin(value)
        gains = [gain for gain in (self._gain(metric, rows), self._overall[metric.name]) if gain is not None]
        gain = max(gains, default=0.0)
        value = allowed(tolerance, size, gain)
        if gain > 0:
            return Margin(value, share, "gain", gain)
        return Margin(value, WITHOUT_GAIN, "champion, no gain" if gains else "champion, the constant not known")

    def _gain(self, metric: Metric, rows: Rows) -> float | None:
        """How much better than the constant the champion is; None where either has no value."""
        if self._facts is None or not rows.total > 0:
            return None
        ours, theirs = metric.value(rows), (constant(self._task, self._facts, rows, (metric,)) or {}).get(metric.name)
        if ours is None or theirs is None:
            return None
        return ours - theirs if metric.higher_is_better else theirs - ours
