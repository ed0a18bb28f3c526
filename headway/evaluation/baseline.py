"""The constant baseline: what a model that ignores every column predicts, measured on the same rows as the candidate.

    label = LabelFacts(counts=(880, 120))                        # of the train rows
    found = constant("binary", label, label_column, weight)      # {"auc": 0.5, "loss": 0.367, "accuracy": 0.88, ...}

The constant is the best one for each metric that the train labels allow: the classes' shares for log loss, calibration and
AUC (0.5: every row ties), the most frequent class for accuracy, the mean for squared errors, the median for absolute
errors, one score for all rows for ndcg (the mean over all orders), and a random order for mrr. It is fitted on unweighted
train rows; with a weight column it is therefore not quite the best constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.config import Frozen
from headway.evaluation.bootstrap import Difference, paired
from headway.evaluation.metrics import Floats, measure
from headway.evaluation.ranking_metrics import ranked
from headway.evaluation.sample_size import uncompared, units, upward
from headway.evaluation.tasks import HIGHER_IS_BETTER, RANKED, Task
from headway.messages import number, signed

ENOUGH_ROWS = 1000
"""From so many rows (or groups, or twice the rows of the rarer class for auc) on, a gain has to be beyond chance."""


class LabelFacts(Frozen):
    """The labels of the train rows."""

    counts: tuple[int, ...] = ()
    """Rows of each class, in the order of the classes; binary: negative, positive."""
    mean: float | None = None
    median: float | None = None


def prediction_of(task: Task, label: LabelFacts, rows: int, metric: str = "loss") -> Floats | None:
    """What the constant predicts for `rows` rows, [rows] or [rows, classes]; None when the labels' facts do not say."""
    if task == "regression":
        value = label.median if metric == "mae" and label.median is not None else label.mean
        return None if value is None else np.full(rows, value)
    if not sum(label.counts):
        return None
    shares = np.asarray(label.counts, np.float64) / sum(label.counts)
    return np.full(rows, shares[1]) if task == "binary" else np.broadcast_to(shares, (rows, len(shares)))


@dataclass(frozen=True, eq=False)
class Rows:
    """Evaluation rows as arrays: label, prediction and weight as `headway.evaluation.metrics.columns` has them."""

    label: Floats
    prediction: Floats
    weight: Floats
    groups: NDArray[np.int64] | None = None
    ndcg_at: int | None = None


def constant(task: Task, label: LabelFacts, rows: Rows) -> dict[str, float | None] | None:
    """Every metric of the constant on these rows; None when the train labels are not known."""
    predicted = prediction_of(task, label, len(rows.label))
    if predicted is None:
        return None
    metrics = measure(task, rows.label, predicted, rows.weight)
    if task == "regression" and (median := prediction_of(task, label, len(rows.label), "mae")) is not None:
        metrics["mae"] = measure(task, rows.label, median, rows.weight)["mae"]
    if rows.groups is not None and rows.ndcg_at is not None:
        for name in RANKED:
            score = _order(name, len(rows.label))
            metrics[name] = ranked(rows.label, score, rows.weight, rows.groups, k=rows.ndcg_at).mean()[name]
    return metrics


@dataclass(frozen=True, kw_only=True)
class Beaten:
    """Whether the candidate beats the constant baseline, with the sentence for the verdict."""

    passed: bool
    reason: str


def beats(
    task: Task,
    label: LabelFacts,
    rows: Rows,
    *,
    primary: str,
    metrics: tuple[str, ...],
    confidence: float,
    samples: int,
    seed: int = 0,
    check: Callable[[], None] = lambda: None,
) -> Beaten | None:
    """Whether the candidate beats the constant; None when nothing can be said.

    It does when its primary metric is better than the constant's: by its value alone on few rows, which reject no good
    model by chance, and beyond chance (the interval of the gain is wholly above 0) from 1,000 rows on, where a model that
    learned nothing would pass in half of all cases by its value. For auc the rows of the rarer class count twice, with
    groups the groups. It also does when the primary metric is not worse beyond chance and another of `metrics` is better
    beyond chance: a class of 95% leaves accuracy no room, and one outlier can decide an RMSE. Where a metric cannot be
    compared (`uncompared`: fewer than 20 rows, groups, or rows of a class) its value alone counts. A metric without a
    value on these rows is passed over; the next one that has a value stands in for the primary one.
    """

    def against(name: str) -> _Against | None:
        difference = _difference(task, label, rows, name, samples, seed, check)
        if difference is None or difference.difference is None:
            return None
        few = uncompared(name, rows.label, rows.weight, rows.groups)
        interval = None if few else difference.interval(confidence)
        return _Against(difference, upward(name, interval), units(name, rows.label, rows.weight, rows.groups))

    names = dict.fromkeys((primary, *metrics))
    comparable = filter(None, map(against, names))  # the others only where needed
    first = next(comparable, None)
    if first is None:
        return None
    if first.gain > 0 and (first.interval is None or first.units < ENOUGH_ROWS or first.interval[0] > 0):
        return Beaten(passed=True, reason=f"the candidate beats the constant baseline: {first}")
    if first.interval is None or first.interval[1] >= 0:
        for other in comparable:
            if (other.gain if other.interval is None else other.interval[0]) > 0:
                text = f"the candidate beats the constant baseline: {other}; {first.values}"
                return Beaten(passed=True, reason=text)
    return Beaten(passed=False, reason=f"the candidate does not beat the constant baseline: {first}")


@dataclass(frozen=True)
class _Against:
    """One metric of the candidate against the constant's."""

    paired: Difference
    interval: tuple[float, float] | None
    """With up for good."""
    units: int

    @property
    def gain(self) -> float:
        assert self.paired.difference is not None
        return self.paired.difference if self.paired.metric in HIGHER_IS_BETTER else -self.paired.difference

    @property
    def values(self) -> str:
        return f"{self.paired.metric} is {number(self.paired.candidate)} (constant {number(self.paired.champion)})"

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


def _difference(
    task: Task, label: LabelFacts, rows: Rows, name: str, samples: int, seed: int, check: Callable[[], None]
) -> Difference | None:
    predicted = prediction_of(task, label, len(rows.label), name)
    if predicted is None:
        return None
    if name in RANKED:
        predicted = _order(name, len(rows.label))
    differences = paired(
        task,
        rows.label,
        rows.prediction,
        predicted,
        rows.weight,
        metrics=(name,),
        samples=samples,
        seed=seed,
        group=rows.groups,
        ndcg_at=rows.ndcg_at,
        check=check,
    )
    return differences[name]
