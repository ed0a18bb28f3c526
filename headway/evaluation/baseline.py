"""The constant baseline: the predictions of a model that ignores every column, scored on the candidate's rows; and how other
baselines compare.

    facts = LabelFacts(counts=(880, 120))                        # of the train rows
    constant(task, facts, rows, task.metrics)                    # {"auc": 0.5, "loss": 0.367, "accuracy": 0.88, ...}

The constant is the best one for each metric that the train labels allow: the classes' shares for log loss, calibration and
AUC (0.5: every row ties), the most frequent class for accuracy, the mean for squared errors, the median for absolute
errors, one score for all rows for ndcg (the mean over all orders), and a random order for mrr. The facts of train labels
count rows by their weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headway.evaluation.compare import compare
from headway.evaluation.units import CLASS_ROWS, FIRST_CLASS_ROWS, units, why_not_comparable
from headway.evaluation.verdict import Check
from headway.metrics.base import Floats, Metric, Rows
from headway.tasks.base import LabelFacts, Task

CONSTANT = "constant"
"""The name of this baseline."""
ENOUGH_ROWS = 1000
"""From so many rows (or groups, or twice the rows of the rarer class for auc) on, a gain has to be beyond chance."""


def constant(task: Task, facts: LabelFacts, rows: Rows, metrics: Sequence[Metric]) -> dict[str, float | None] | None:
    """Returns the value of each metric for the constant on these rows; None when the train labels are not known."""
    if task.constant(facts, len(rows)) is None:
        return None
    values: dict[str, float | None] = {}
    for metric in metrics:
        predicted = constant_predictions(task, facts, metric, len(rows))
        values[metric.name] = None if predicted is None else metric.cached_value(rows.predicted(predicted))
    return values


def constant_predictions(
    task: Task, facts: LabelFacts, metric: Metric, rows: int, best_by: str | None = None
) -> Floats | None:
    """Returns the predictions of the constant that is best by `metric`, or by the metric `best_by`. For ranking metrics
    the predictions order nothing. None if the labels' facts do not give a constant."""
    return _order(metric.name, rows) if metric.unit == "groups" else task.constant(facts, rows, best_by or metric.name)


Outcome = Literal["better", "worse", "cannot tell", "too few rows"]


@dataclass(frozen=True)
class BaselineTest:
    """The result of a test of the candidate against a baseline."""

    outcome: Outcome
    decisive: Check | None
    """The check of the metric that decides; None: the rows are too few for any."""
    beside: Check | None = None
    """The check of the primary metric, where another one decides."""


def compare_with_baseline(
    rows: Rows,
    others: Floats,
    metric: Metric,
    *,
    name: str,
    confidence: float,
    seed: int = 0,
    check: Callable[[], None] = lambda: None,
    first: bool = False,
) -> Check | None:
    """Returns the check of one metric against a baseline on the same rows; None where the difference has no value.

    Args:
        others: the predictions of the baseline.
        first: whether it is a first model, which may be compared with the constant on fewer rows of a class.
    """
    options: dict[str, Any] = {"class_rows": FIRST_CLASS_ROWS if first else CLASS_ROWS, "seed": seed, "check": check}
    difference = compare(rows, rows.predicted(others), metrics=(metric,), **options)[metric.name]
    if difference.difference is None:
        return None
    facts = {"against": name, "outcome": "too few rows", "rows": len(rows)}
    found = difference.check(f"{name} baseline", metric, confidence, **facts)
    if found.upward is None:
        return found
    outcome = "better" if found.upward[0] > 0 else "worse" if found.worse else "cannot tell"
    return found.model_copy(update={"outcome": outcome})


def judge_first_model(
    task: Task,
    facts: LabelFacts,
    rows: Rows,
    *,
    metrics: Sequence[Metric],
    trained_for: Collection[str],
    confidence: float,
    seed: int = 0,
    check: Callable[[], None] = lambda: None,
) -> BaselineTest | None:
    """Returns the test of a model that replaces none against the constant; None where no metric has a value.

    It is better when its primary metric is better beyond chance, or is not worse and another metric is better. It is
    worse when a metric that it was trained for is worse beyond chance. Otherwise the outcome is "cannot tell", or "too
    few rows" if `why_not_comparable` names a reason. The metrics share the error of `confidence` (Bonferroni); few rows
    get Student's t.

    Args:
        metrics: the first is the primary one.
        trained_for: names of the metrics by which it must not be worse than the constant that is best by the loss. (The
            mean of skewed labels never has as small an absolute error as their median.)
    """
    shared = 1 - (1 - confidence) / len(metrics)

    def against(metric: Metric, best_by: str) -> Check | None:
        predicted = constant_predictions(task, facts, metric, len(rows), best_by)
        if predicted is None:
            return None
        options: dict[str, Any] = {"confidence": shared, "seed": seed, "check": check, "first": True}
        return compare_with_baseline(rows, predicted, metric, name=CONSTANT, **options)

    tested = {metric: each for metric in metrics if (each := against(metric, metric.name)) is not None}
    for metric, each in tested.items():
        if metric.name in trained_for and each.worse:
            by_loss = against(metric, "loss")
            if by_loss is not None and by_loss.worse:
                return BaselineTest("worse", by_loss)
    found = [*tested.values()]
    if why_not_comparable(metrics[0], rows, FIRST_CLASS_ROWS):
        return BaselineTest("too few rows", found[0] if found else None)
    if not found:
        return None
    better = [each for each in found if each.outcome == "better"]
    if better and not found[0].worse:
        return BaselineTest("better", better[0], None if better[0] is found[0] else found[0])
    shown = next((each for each in found if not each.worse), found[0])  # what chance can explain
    return BaselineTest("cannot tell", shown)


def judge_against_baseline(
    task: Task,
    facts: LabelFacts,
    rows: Rows,
    *,
    metrics: Sequence[Metric],
    confidence: float,
    seed: int = 0,
    check: Callable[[], None] = lambda: None,
    others: Floats | None = None,
    name: str = CONSTANT,
) -> BaselineTest | None:
    """Returns the test of a candidate against a baseline, where there is a champion; None where no metric has a value.

    The candidate wins if its primary metric, the first of `metrics`, is better. On few rows the value alone decides, so
    that chance rejects no good model. From 1,000 rows on it must be better beyond chance (the interval of the gain is
    wholly above 0): by its value, a model that learned nothing would pass in half of all cases. For auc, twice the rows
    of the rarer class are counted; with groups, the groups. The candidate also wins if the primary metric is not worse
    beyond chance and another of `metrics` is better beyond chance: a class of 95% leaves accuracy no room, and one
    outlier can decide an RMSE. Only the value counts where `why_not_comparable` gives a reason (fewer than 20 rows,
    groups, or rows of a class). A metric without a value is skipped; if it is the primary one, the next replaces it.

    Args:
        others: the predictions of the baseline; None: those of the constant.
        name: the name of the baseline.
    """

    def against(metric: Metric) -> Check | None:
        predicted = constant_predictions(task, facts, metric, len(rows)) if others is None else others
        if predicted is None:
            return None
        return compare_with_baseline(rows, predicted, metric, name=name, confidence=confidence, seed=seed, check=check)

    comparable = filter(None, map(against, metrics))  # each only where needed
    first = next(comparable, None)
    if first is None:
        return None
    (metric,) = (metric for metric in metrics if metric.name == first.metric)
    if first.gained > 0 and (first.upward is None or units(metric, rows) < ENOUGH_ROWS or first.upward[0] > 0):
        return BaselineTest("better", first)
    if not first.worse:
        for other in comparable:
            if (other.gained if other.upward is None else other.upward[0]) > 0:
                return BaselineTest("better", other, first)
    return BaselineTest("worse" if first.worse else "cannot tell", first)


def _order(metric: str, rows: int) -> Floats:
    """Returns scores that order nothing: the same for all rows; for mrr, which gives equal scores less than a random
    order, always the same random order."""
    if metric != "mrr":
        return np.full(rows, 0.5)
    return np.random.Philox(key=0).random_raw(rows) / 2.0**64
