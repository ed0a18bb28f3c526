"""Compares a candidate with the champion on the same rows, overall and per slice, with confidence intervals.

With the interval of (candidate - champion) turned so that up is good, a metric's outcome is

    better         the interval is wholly above 0
    equal          it holds 0 and reaches no further down than the tolerance
    cannot tell    it holds 0 and reaches further down than the tolerance
    worse          it is wholly below 0, but not wholly beyond the tolerance
    blocked        it is wholly beyond the tolerance
    not compared   there is no interval, or there are too few rows for one (`headway.evaluation.sample_size`)

Looking at many slices finds a bad one by luck, so the slices' p values are corrected together by Holm's method (Holm, "A
simple sequentially rejective multiple test procedure", 1979), which costs nothing when there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headway.evaluation.bootstrap import Difference, paired_means
from headway.evaluation.clusters import NOWHERE, ClusterSources, drawn_together
from headway.evaluation.further_labels import prefixed
from headway.evaluation.gate_config import GateConfig
from headway.evaluation.margins import Margin, Margins
from headway.evaluation.metrics import rows_of
from headway.evaluation.sample_size import uncompared, upward
from headway.evaluation.slices import named, slice_rows
from headway.messages import counted, listed, number, signed, some
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
    def subject(self) -> str:
        return f"{named(self.column, self.value)} ({counted(self.rows, 'row')}): " if self.column else ""

    @property
    def outcome(self) -> str:
        """One of the words at the top of this module."""
        if self.failed:
            return "blocked"
        interval = upward(self.metric, self.interval)
        if interval is None:
            return "not compared"
        low, high = interval
        if low > 0 or high < 0:
            return "better" if low > 0 else "worse"
        return "equal" if low >= -self.margin.value else "cannot tell"

    @property
    def why(self) -> str:
        """Why it is not compared."""
        return f"{self.few}; give eval more of them" if self.few else "a model has no value on these rows"

    def sentence(self, champion: str, confidence: float) -> str:
        """What happened to the metric, with numbers."""
        measured, interval = self.measured, _interval(self.interval, confidence)
        verb = "fell" if (measured.difference or 0) < 0 else "rose"
        moved = f"from {number(measured.champion)} ({champion}) to {number(measured.candidate)}: {signed(measured.difference)}"
        margin = self.margin
        match self.outcome:
            case "better":
                return f"{self.subject}{measured.metric} is better: {verb} {moved}, {interval}"
            case "equal":
                return f"{self.subject}{measured.metric} is equal within {margin}: {moved}, {interval}"
            case "worse":
                return f"{self.subject}{measured.metric} is worse, but not wholly beyond {margin}: {verb} {moved}, {interval}"
            case "cannot tell":
                return (
                    f"{self.subject}{measured.metric}: cannot tell whether it is worse by more than {margin}: {moved}, "
                    f"{interval}; the smallest loss that could have been detected is {number(self.detectable)}"
                )
            case "not compared":
                return f"{self.subject}{measured.metric} cannot be compared with {champion}: {self.why}"
        text = f"{self.subject}{measured.metric} {verb} {moved}, {interval}, wholly beyond {margin}"
        if self.column:
            text += f" (p {number(self.p_adjusted)} after correcting for all slices)"
        return text

    def as_json(self) -> dict[str, Any]:
        where = {"slice": self.column, "value": self.value} if self.column else {}
        facts = {name: getattr(self.measured, name) for name in ("metric", "candidate", "champion", "difference")}
        facts["better"], facts["error"] = self.metric.better, self.measured.standard_error
        facts["interval"] = list(self.interval) if self.interval else None
        margin = {"tolerance": self.margin.value, "tolerance_of": self.margin.of or None}
        if self.measured.seed_deviation is not None:
            facts["seed_deviation"] = self.measured.seed_deviation
        names = ("p", "p_adjusted", "failed", "outcome", "detectable")
        return where | {"rows": self.rows} | facts | margin | {name: getattr(self, name) for name in names}


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
    clusters: str | None = None
    """What rows are drawn by, where it is not one by one."""
    seeds: tuple[int, int] = (1, 1)
    """How many trainings of the candidate and of the champion the metrics are means of."""

    def of(self, metric: str) -> Compared:
        """The comparison by one metric over all rows."""
        return next(c for c in self.overall if c.measured.metric == metric)

    def failures(self, champion: str) -> list[str]:
        """One sentence for each comparison that failed, overall first."""
        return [c.sentence(champion, self.confidence) for c in (*self.overall, *self.slices) if c.failed]

    def uncompared(self, champion: str) -> list[str]:
        """One sentence for each reason why metrics could not be compared over all rows."""
        whys: dict[str, list[str]] = {}
        for compared in self.overall:
            if compared.outcome == "not compared":
                whys.setdefault(compared.why, []).append(compared.measured.metric)
        return [f"{listed(names)} cannot be compared with {champion}: {why}" for why, names in whys.items()]

    def notes(self, champion: str) -> list[str]:
        """What did not fail: a sentence for each metric, and one for the slices."""
        fine = [c for c in self.overall if c.outcome not in ("blocked", "not compared")]
        notes = [c.sentence(champion, self.confidence) for c in fine] + ([self.clusters] if self.clusters else [])
        notes += [self._seeds(champion)] if self.seeds != (1, 1) else []
        looked = {(c.column, c.value) for c in self.slices}
        if looked and not any(c.failed for c in self.slices):
            notes.append(
                f"on none of the {counted(len(looked), 'slice')} with enough rows is it worse than {champion} by more than "
                "the tolerance"
            )
        if self.left_out:
            notes.append(
                "slices that were not compared: " + some([_left_out(entry) for entry in self.left_out], 5, sep="; ")
            )
        return notes

    def _seeds(self, champion: str) -> str:
        """What was averaged, and how much it varies."""
        ours, theirs = self.seeds
        spread = [
            f"{c.measured.metric} {number(c.measured.seed_deviation)}"
            for c in self.overall
            if c.measured.seed_deviation is not None
        ]
        text = f"metrics compared are means over {counted(ours, 'seed')} of the candidate and {theirs} of {champion}"
        if theirs == 1:
            text += ", which is taken to vary as much as the candidate"
        return text + (f"; standard deviation between seeds, in the intervals: {', '.join(spread)}" if spread else "")

    def as_json(self) -> dict[str, Any]:
        return {
            "overall": [c.as_json() for c in self.overall],
            "slices": [c.as_json() for c in self.slices],
            "left_out": list(self.left_out),
        }


def allowing(comparison: Comparison, lucky: Mapping[str, float], config: GateConfig, whose: str) -> Comparison:
    """The comparison over all rows with wider margins: by how much chance favours the other model, by metric.

    Only what failed is tested again; slices stay as they are.
    """

    def again(test: Compared) -> Compared:
        luck = lucky.get(test.measured.metric, 0.0)
        if not test.failed or not luck:
            return test
        of = f"{number(test.margin.value)}, and {number(luck)} that chance favours {whose} by"
        margin = Margin(test.margin.value + luck, of)
        return _test(test.measured, test.metric, margin, config, test.rows, test.column, test.value)

    return replace(comparison, overall=tuple(map(again, comparison.overall)))


def with_further(comparison: Comparison, label: str, further: Comparison, config: GateConfig) -> Comparison:
    """The comparison with that of a further label, whose metrics are called by it; slices are corrected together."""

    def renamed(compared: Compared) -> Compared:
        name = prefixed(label, compared.measured.metric)
        return replace(compared, measured=replace(compared.measured, metric=name))

    slices = [*comparison.slices, *map(renamed, further.slices)]
    left_out = ({**entry, "why": f"{label}: {entry['why']}"} for entry in further.left_out if "values" not in entry)
    return replace(
        comparison,
        overall=(*comparison.overall, *map(renamed, further.overall)),
        slices=tuple(_holm(slices, config)),
        left_out=(*comparison.left_out, *left_out),
    )


def _left_out(entry: dict[str, Any]) -> str:
    if "values" in entry:
        return f"{counted(entry['values'], 'value')} of {entry['slice']} ({entry['why']})"
    return f"{named(entry['slice'], entry['value'])} ({entry['why']})"


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
    clusters: ClusterSources = NOWHERE,
    repeats: tuple[Sequence[pa.Table], Sequence[pa.Table]] = ((), ()),
    seed: int = 0,
    monitor: Monitor,
) -> Comparison:
    """Every tolerance tested on all rows and on each slice that has enough of them.

    Args:
        repeats: predictions of further trainings of the candidate and of the champion, which differ by their seed; the means
            of the metrics are compared.
        metrics: by name.
        tolerances: by metric; these are compared.
        group: the column whose equal values are a group, and drawn together.
        clusters: what rows are drawn by beside, or may be.
        label: of the train rows; with it a tolerance can be a share of the gain over the constant.
    """
    with_columns = any(metric.reads_columns for metric in metrics.values())
    rows, theirs = rows_of(candidate, task, group, columns=with_columns), rows_of(champion, task).prediction
    rows, drawn = drawn_together(clusters, candidate, rows, theirs, metrics.get("loss"), group=group)
    compared = [metrics[name] for name in tolerances]
    margins = Margins(task, tolerances, label, rows.predicted(theirs), judging=metrics)
    more, their_more = ([rows_of(table, task).prediction for table in side] for side in repeats)

    def test(at: Any, metrics: Sequence[Metric], column: str | None, value: str | None) -> list[Compared]:
        some_rows = rows.at(at)
        before = some_rows.predicted(theirs[at])
        differences = paired_means(
            [some_rows, *(some_rows.predicted(other[at]) for other in more)],
            [before, *(some_rows.predicted(other[at]) for other in their_more)],
            metrics=metrics,
            samples=config.bootstrap,
            seed=seed,
            check=monitor.check,
        )
        return [
            _test(measured, metric, margins.of(metric, before, measured.champion), config, len(before), column, value)
            for metric, measured in ((metric, differences[metric.name]) for metric in metrics)
        ]

    overall = [
        replace(of_all, few=why, failed=False, p=None, p_adjusted=None, interval=None, detectable=None)
        if (why := uncompared(of_all.metric, rows))
        else of_all
        for of_all in test(slice(None), compared, None, None)
    ]
    tested: list[Compared] = []
    left_out: list[dict[str, Any]] = []
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
                left_out.append({"slice": column, "value": value, "why": which + why})
            if enough:
                tested += test(at, enough, column, value)
        if small:
            left_out.append({"slice": column, "values": small, "why": f"fewer than {config.slice_min_rows:,} rows"})
    return Comparison(
        overall=tuple(overall),
        slices=tuple(_holm(tested, config)),
        left_out=tuple(left_out),
        confidence=config.confidence,
        clusters=drawn,
        seeds=(1 + len(more), 1 + len(their_more)),
    )


def _test(
    measured: Difference,
    metric: Metric,
    margin: Margin,
    config: GateConfig,
    rows: int,
    column: str | None,
    value: str | None,
) -> Compared:
    allowed = margin.value
    p = measured.probability_below(-allowed) if metric.higher_is_better else measured.probability_above(allowed)
    return Compared(
        column=column,
        value=value,
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
