"""The constant baseline: the predictions of a model that ignores every column, scored on the candidate's rows; and how other
baselines compare.

    facts = LabelFacts(counts=(880, 120))                        # of the train rows
    constant(task, facts, rows, task.metrics)                    # {"auc": 0.5, "loss": 0.367, "accuracy": 0.88, ...}

The constant is the best one for each metric that the train labels allow: the classes' shares for log loss, calibration and
AUC (0.5: every row ties), the most frequent class for accuracy, the mean for squared errors, the median for absolute
errors, one score for all rows for ndcg (the mean over all orders), and a random order for mrr. It is fitted on unweighted
train rows; with a weight column it is therefore not quite the best constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from headway.evaluation.bootstrap import Difference, paired
from headway.evaluation.sample_size import uncompared, units, upward
from headway.messages import number, signed
from headway.metrics.base import Floats, Metric, Rows
from headway.tasks.base import LabelFacts, Task

ENOUGH_ROWS = 1000
"""From so many rows (or groups, or twice the rows of the rarer class for auc) on, a gain has to be beyond chance."""


def constant(task: Task, facts: LabelFacts, rows: Rows, metrics: Sequence[Metric]) -> dict[str, float | None] | None:
    """Every metric of the constant on these rows; None when the train labels are not known."""
    if task.constant(facts, len(rows)) is None:
        return None
    values: dict[str, float | None] = {}
    for metric in metrics:
        predicted = constant_predictions(task, facts, metric, len(rows))
        values[metric.name] = None if predicted is None else metric.on(rows.predicted(predicted))
    return values


def constant_predictions(task: Task, facts: LabelFacts, metric: Metric, rows: int) -> Floats | None:
    """The predictions of the best constant by `metric`; None if the labels' facts do not give one."""
    return _order(metric.name, rows) if metric.unit == "groups" else task.constant(facts, rows, metric.name)


@dataclass(frozen=True, kw_only=True)
class Beaten:
    """Whether the candidate beats the constant baseline, with the sentence for the verdict."""

    passed: bool
    reason: str


def beats(
    task: Task,
    facts: LabelFacts,
    rows: Rows,
    *,
    metrics: Sequence[Metric],
    confidence: float,
    samples: int,
    seed: int = 0,
    check: Callable[[], None] = lambda: None,
    others: Floats | None = None,
    name: str = "constant",
) -> Beaten | None:
    """Whether the candidate beats the constant; None when nothing can be said.

    It does when its primary metric, the first of `metrics`, is better than the constant's: by its value alone on few rows,
    which reject no good model by chance, and beyond chance (the interval of the gain is wholly above 0) from 1,000 rows on,
    where a model that learned nothing would pass in half of all cases by its value. For auc the rows of the rarer class
    count twice, with groups the groups. It also does when the primary metric is not worse beyond chance and another of
    `metrics` is better beyond chance: a class of 95% leaves accuracy no room, and one outlier can decide an RMSE. Where a
    metric cannot be compared (`uncompared`: fewer than 20 rows, groups, or rows of a class) its value alone counts. A
    metric without a value on these rows is passed over; the next one that has a value stands in for the primary one.

    Args:
        others: the predictions of another baseline, in the constant's place.
        name: of the baseline, for the sentence.
    """

    def against(metric: Metric) -> _Against | None:
        predicted = constant_predictions(task, facts, metric, len(rows)) if others is None else others
        if predicted is None:
            return None
        return _against(
            rows, predicted, metric, confidence=confidence, samples=samples, seed=seed, check=check, name=name
        )

    comparable = filter(None, map(against, metrics))  # each only where needed
    first = next(comparable, None)
    if first is None:
        return None
    if first.gain > 0 and (first.interval is None or first.units < ENOUGH_ROWS or first.interval[0] > 0):
        return Beaten(passed=True, reason=f"the candidate beats the {name} baseline: {first}")
    if first.interval is None or first.interval[1] >= 0:
        for other in comparable:
            if (other.gain if other.interval is None else other.interval[0]) > 0:
                text = f"the candidate beats the {name} baseline: {other}; {first.values}"
                return Beaten(passed=True, reason=text)
    return Beaten(passed=False, reason=f"the candidate does not beat the {name} baseline: {first}")


def beside(
    rows: Rows,
    others: Floats,
    metric: Metric,
    *,
    name: str,
    confidence: float,
    samples: int,
    seed: int = 0,
    check: Callable[[], None] = lambda: None,
) -> str | None:
    """Which of the two is better by a metric, the candidate or another baseline, in a sentence; None when nothing can be
    said. The arguments are those of `beats`."""
    found = _against(rows, others, metric, confidence=confidence, samples=samples, seed=seed, check=check, name=name)
    if found is None:
        return None
    if found.interval is None:
        return f"beside the {name} baseline: {found}; the rows are too few to tell which is better"
    low, high = found.interval
    if low > 0:
        return f"the candidate beats the {name} baseline: {found}"
    if high < 0:
        return f"the {name} baseline beats the candidate: {found}"
    return f"the candidate and the {name} baseline cannot be told apart: {found}"


def _against(
    rows: Rows,
    others: Floats,
    metric: Metric,
    *,
    confidence: float,
    samples: int,
    seed: int,
    check: Callable[[], None],
    name: str,
) -> _Against | None:
    difference = paired(rows, others, metrics=(metric,), samples=samples, seed=seed, check=check)[metric.name]
    if difference.difference is None:
        return None
    interval = None if uncompared(metric, rows) else difference.interval(confidence)
    return _Against(metric, difference, upward(metric, interval), units(metric, rows), name)


@dataclass(frozen=True)
class _Against:
    """One metric of the candidate against a baseline's."""

    metric: Metric
    paired: Difference
    interval: tuple[float, float] | None
    """With up for good."""
    units: int
    name: str = "constant"
    """Of the baseline."""

    @property
    def gain(self) -> float:
        assert self.paired.difference is not None
        return self.paired.difference if self.metric.higher_is_better else -self.paired.difference

    @property
    def values(self) -> str:
        return f"{self.paired.metric} is {number(self.paired.candidate)} ({self.name} {number(self.paired.champion)})"

    def __str__(self) -> str:
        if self.interval is None:
            return self.values
        low, high = self.interval
        chance = ", which chance can explain" if low <= 0 <= high else ""
        return f"{self.values}, a gain of {signed(self.gain)}, interval {signed(low)} to {signed(high)}{chance}"


def _order(metric: str, rows: int) -> Floats:
    """Scores that know nothing: one for all rows; for mrr, which gives equal scores less than a random order has, a random
    order, always the same."""
    if metric != "mrr":
        return np.full(rows, 0.5)
    return np.random.Philox(key=0).random_raw(rows) / 2.0**64
