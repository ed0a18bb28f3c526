"""Compares a candidate with another model by tolerances, on the same rows: over all of them and on slices.

    margins = Margins(task, {"auc": 0.002, "loss": "5% of gain"}, label, rows.predicted(others), judging=metrics)
    found = within_tolerances(table, rows, rows.predicted(others), margins=margins, config=GateConfig(), monitor=monitor)
    found.of("auc").outcome, found.checks("champion", "version 3")

The interval is of (candidate - champion), with the sign turned so that up is good. A metric's outcome is

    better             the interval is wholly above 0
    within the limit   it reaches no further down than the tolerance
    cannot tell        it reaches further down than the tolerance
    beyond the limit   it is wholly beyond the tolerance: the candidate is blocked
    not compared       there is no interval, or there are too few rows for one (`headway.evaluation.units`)

Among many slices one looks bad by chance. So the slices' p values are corrected together (`holm`); one alone stays as it is.

A tolerance is a number in the metric's unit, a percentage of the champion's value, or a share of the champion's gain
over the constant baseline on the same rows. With a rare class a log loss has so little to gain that a fixed margin
would forgive the loss of all of it: 0.002 is 4% of what a model gains at 20% positives, and 440% at 0.1%.

The same tolerances tell whether a champion has become worse since its promotion (`decay_checks`). At that time the
champion was judged on other rows, so the interval is for a difference of two samples. If a constant prediction has
the metric too, the gains over the constant are compared, each on its own rows. For example, a log loss rises for
every model when a class becomes more frequent, which does not make the champion worse.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from headway.evaluation.baseline import constant, constant_predictions
from headway.evaluation.compare import Difference, compare
from headway.evaluation.config import OF_GAIN, GateConfig, parse_tolerance
from headway.evaluation.intervals import holm
from headway.evaluation.slices import slice_rows
from headway.evaluation.verdict import (
    BETTER,
    BEYOND,
    CANNOT_TELL,
    DECAY,
    NOT_COMPARED,
    WITHIN,
    Check,
    LeftOut,
    MetricsWithErrors,
    ShareOf,
)
from headway.metrics.base import Metric, Rows
from headway.metrics.classification import ORDER, orders_of_parts, with_order
from headway.monitor import Monitor
from headway.tasks.base import LabelFacts, Task

WITHOUT_GAIN = 1.0
"""The margin in percent of the champion's value, in place of a share of its gain that is not known or not positive."""


class Margin(NamedTuple):
    """How much worse a metric may be, in the metric's unit, and what that is a share of. `Check` has fields of the same names."""

    allowed: float
    share: float | None = None
    """Percent of `share_of`; None: the tolerance is a plain number."""
    share_of: ShareOf | None = None
    gain: float | None = None
    """The champion's gain over the constant, where the margin is a share of it."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The checks of a candidate against another model: one for each metric, over all rows and on each slice."""

    overall: tuple[Check, ...]
    slices: tuple[Check, ...]
    left_out: tuple[LeftOut, ...] = ()

    def of(self, metric: str) -> Check:
        """Returns the check of one metric over all rows."""
        return next(check for check in self.overall if check.metric == metric)

    def checks(self, name: str, against: str) -> list[Check]:
        """Returns all checks, with `name` and `against` (the other model's name) filled in. Checks over all rows come first."""
        named = {"name": name, "against": against}
        return [check.model_copy(update=named) for check in (*self.overall, *self.slices)]

    def too_few(self) -> dict[str, list[str]]:
        """Returns the names of the metrics that could not be compared over all rows, by the reason why."""
        whys: dict[str, list[str]] = {}
        for check in self.overall:
            if check.outcome == NOT_COMPARED:
                whys.setdefault(check.why, []).append(str(check.metric))
        return whys


def within_tolerances(
    table: pa.Table,
    rows: Rows,
    before: Rows,
    *,
    margins: "Margins",
    config: GateConfig,
    slices: Sequence[str] = (),
    seed: int = 0,
    monitor: Monitor,
) -> Comparison:
    """Returns a check of each metric against its tolerance, over all rows and on each slice that has enough rows.

    Args:
        table: the candidate's predictions, with the columns of the slices.
        rows: the candidate's predictions as `Rows`, with their resampling units.
        before: `rows.predicted(...)` with the predictions of the other model.
        margins: how much worse each metric may be; these metrics are compared.
    """
    compared = margins.metrics

    def test(after: Rows, before: Rows, column: str | None = None, value: str | None = None) -> list[Check]:
        differences = compare(after, before, metrics=[*compared.values()], seed=seed, check=monitor.check)
        where = {"slice": column, "slice_value": value, "rows": len(before)}
        found = []
        for name, measured in differences.items():
            margin = margins.of(compared[name], before, measured.other)
            found.append(tolerance_check(compared[name], measured, margin, config.confidence, **where))
        return found

    after, before = rows.keeping(ORDER), before.keeping(ORDER)
    overall = test(after, before)
    after, before = after.keeping(ORDER), before.keeping(ORDER)  # the rest of what is cached takes memory
    rows.memo.update(after.memo)
    of_slices: list[Check] = []
    left_out: list[LeftOut] = []
    for column in slices:
        every = [*slice_rows(table, column)]
        parts = [(value, at) for value, at in every if len(at) >= config.slice_min_rows]
        small = len(every) - len(parts)
        orders = zip(*(orders_of_parts(each, [at for _, at in parts]) for each in (after, before)), strict=True)
        for (value, at), (order_after, order_before) in zip(parts, orders, strict=True):
            monitor.check()
            some = with_order(after.at(at), order_after)
            whys: dict[str, list[str]] = {}
            for each in test(some, with_order(some.predicted(before.prediction[at]), order_before), column, value):
                if not each.why:
                    of_slices.append(each)
                else:
                    whys.setdefault(each.why, []).append(str(each.metric))
            for why, names in whys.items():
                which = "" if len(names) == len(compared) else f"{', '.join(names)}: "
                left_out.append(LeftOut(slice=column, value=value, why=which + why))
        if small:
            left_out.append(LeftOut(slice=column, values=small, why=f"fewer than {config.slice_min_rows:,} rows"))
    return Comparison(overall=tuple(overall), slices=tuple(corrected(of_slices)), left_out=tuple(left_out))


def tolerance_check(metric: Metric, measured: Difference, margin: Margin, confidence: float, **where: Any) -> Check:
    """Returns the check of one metric on some rows, with an outcome from the list at the top of this module.

    Args:
        where: fields of the check that say which rows these are.
    """
    if metric.higher_is_better:
        p = measured.p_value_below(-margin.allowed)
    else:
        p = measured.p_value_above(margin.allowed)
    detectable = measured.detectable(confidence, margin.allowed)
    facts = {"p": p, "detectable": detectable, "outcome": "", **margin._asdict(), **where}
    return _with_outcome(measured.check("", metric, confidence, **facts), p)


def _with_outcome(check: Check, p: float | None) -> Check:
    """Returns the check with the outcome that follows from the p value `p`, raw or corrected."""
    # the interval is two-sided, and only one side is bad
    failed = p is not None and p < (1 - (check.confidence or 0.0)) / 2
    if failed:
        outcome = BEYOND
    elif check.improvement is None:
        outcome = NOT_COMPARED
    elif check.improvement[0] > 0:
        outcome = BETTER
    else:
        outcome = WITHIN if check.surely_within else CANNOT_TELL
    return check.model_copy(update={"p_adjusted": p, "outcome": outcome, "passed": not failed})


def corrected(checks: Sequence[Check]) -> list[Check]:
    """Returns the checks with p values corrected for the number of checks, and with outcomes by the corrected p values."""
    chances = {i: check.p for i, check in enumerate(checks) if check.p is not None}
    adjusted = dict(zip(chances, holm([*chances.values()]), strict=True))
    return [_with_outcome(check, adjusted.get(i)) for i, check in enumerate(checks)]


def allowed_worsening(tolerance: float | str, value: float, gain: float | None) -> float:
    """Returns a tolerance in the metric's unit: "1%" is a share of `value`, "5% of gain" of `gain` (over the constant)."""
    share, unit = parse_tolerance(tolerance)
    if not unit:
        return share
    if unit == "%":
        return abs(value) * share / 100
    return gain * share / 100 if gain is not None and gain > 0 else abs(value) * WITHOUT_GAIN / 100


class Margins:
    """Computes how much worse than the champion's each metric may be on given rows.

    Args:
        tolerances: by the metric's name; models are compared by these metrics.
        facts: the facts of the train labels, which say what the constant predicts; None: the gain is not known.
        rows: all rows, with the champion's predictions.
        judging: every metric, by name.
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
        self.metrics = {name: judging[name] for name in tolerances}
        self._overall = {
            name: self._gain(metric, rows)
            for name, metric in self.metrics.items()
            if parse_tolerance(tolerances[name])[1] == OF_GAIN
        }

    def of(self, metric: Metric, rows: Rows, champion: float | None) -> Margin:
        """Returns a metric's margin on `rows`, which have the champion's predictions. `champion` is its value of the metric.

        A share of the gain is taken of the gain on these rows or on all rows, whichever is larger. Otherwise no loss
        would be small enough on a slice with nothing to gain."""
        tolerance, size = self._tolerances[metric.name], abs(champion or 0.0)
        share, unit = parse_tolerance(tolerance)
        if unit != OF_GAIN:
            value = allowed_worsening(tolerance, size, None)
            return Margin(value, share, "champion") if unit else Margin(value)
        gains = [gain for gain in (self._gain(metric, rows), self._overall[metric.name]) if gain is not None]
        gain = max(gains, default=0.0)
        value = allowed_worsening(tolerance, size, gain)
        if gain > 0:
            return Margin(value, share, "gain", gain)
        return Margin(value, WITHOUT_GAIN, "champion, no gain" if gains else "champion, the constant not known")

    def _gain(self, metric: Metric, rows: Rows) -> float | None:
        """Returns how much better than the constant the champion is by a metric; None where one of the two has no value."""
        if self._facts is None or not rows.total > 0:
            return None
        ours, theirs = metric.value(rows), (constant(self._task, self._facts, rows, (metric,)) or {}).get(metric.name)
        if ours is None or theirs is None:
            return None
        return ours - theirs if metric.higher_is_better else theirs - ours


# --- a champion beside itself at its promotion


def with_errors(
    task: Task,
    rows: Rows,
    metrics: Sequence[Metric],
    *,
    label: LabelFacts | None,
    seed: int,
    check: Callable[[], None] = lambda: None,
) -> MetricsWithErrors:
    """Returns each metric's value, gain over a constant prediction and standard error; metrics without an error are left out.

    Args:
        rows: rows with the model's predictions and with resampling units.
        label: the facts of the train rows' labels.
    """
    found: MetricsWithErrors = {}
    for metric in metrics:
        values = None if label is None or metric.of_the_mean else constant_predictions(task, label, metric, len(rows))
        against = None if values is None else rows.predicted(values)
        measured = compare(rows, against, metrics=(metric,), seed=seed, check=check)[metric.name]
        if measured.difference is None or measured.error is None:
            continue
        gain = None if against is None else measured.difference * (1 if metric.higher_is_better else -1)
        found[metric.name] = {
            "value": measured.value,
            "gain": gain,
            "error": measured.error,
            "freedom": None if math.isinf(measured.freedom) else measured.freedom,
        }
    return found


def decay_checks(
    then: MetricsWithErrors,
    today: MetricsWithErrors,
    tolerances: Mapping[str, float | str],
    judging: Mapping[str, Metric],
    *,
    version: int,
    confidence: float,
) -> list[Check]:
    """Returns a check of each metric that became worse since a model's promotion by more than the tolerance, beyond chance.

    `then` has the model's metrics at its promotion, `today` its metrics now. The confidence holds for all metrics
    together (Bonferroni). A check's `change` is the change of the gain over the constant where both gains are known,
    else the change of the metric. Its sign is the metric's: a positive change of a loss is worse."""
    both = [name for name in tolerances if name in then and name in today]
    shared = 1 - (1 - confidence) / max(len(both), 1)
    found = []
    for name in both:
        before, now, metric = then[name], today[name], judging[name]
        was, value, error, error_now = before["value"], now["value"], before["error"], now["error"]
        gained, gains = before["gain"], now["gain"]
        if was is None or value is None or error is None or error_now is None or (gained is None) != (gains is None):
            continue  # of one alone the constant is known
        up = 1 if metric.higher_is_better else -1
        rise = (value - was) * up if gained is None or gains is None else gains - gained
        measured = Difference(
            metric=name,
            value=value,
            other=was,
            difference=rise * up,
            error=math.hypot(error, error_now),
            freedom=min(math.inf if free is None else free for free in (before["freedom"], now["freedom"])),
        )
        margin, gains_of_both = allowed_worsening(tolerances[name], was, gained), None
        if gained is not None and gains is not None:
            gains_of_both = gained, gains
        facts = {"against": f"version {version} at its promotion", "allowed": margin, "gains": gains_of_both}
        check = measured.check(DECAY, metric, shared, outcome=BEYOND, **facts)
        if check.improvement is not None and check.improvement[1] < -margin:
            found.append(check)
    return found


def made_up_for(decay: Check, gained: float) -> bool:
    """Returns whether a candidate makes up for a champion's decay. The candidate is better than today's champion by
    `gained`; it must come within the tolerance of the champion's metric at promotion."""
    return decay.gained + gained >= -(decay.allowed or 0.0)
