"""The constant baseline, a model that ignores every column, scored on the candidate's rows; and the tests of a
candidate against the constant and other baselines.

    facts = LabelFacts(counts=(880, 120))                        # of the train rows
    constant(task, facts, rows, task.metrics)                    # {"auc": 0.5, "loss": 0.367, "accuracy": 0.88, ...}

For each metric, the constant is the best that the train labels allow: the classes' shares for log loss, calibration and AUC (0.5:
every row ties), the most frequent class for accuracy, the mean for squared errors, the median for absolute errors, one score for
all rows for ndcg (the mean over all orders), and a random order for mrr. The facts of train labels count rows by their weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headway.evaluation.compare import compare
from headway.evaluation.units import CLASS_ROWS, FIRST_CLASS_ROWS, count_units, why_not_comparable
from headway.evaluation.verdict import Check
from headway.metrics.base import Floats, Metric, Rows
from headway.tasks.base import LabelFacts, Task

CONSTANT = "constant"
"""The name of this baseline."""
ENOUGH_ROWS = 1000
"""From so many rows (or groups, or twice the rows of the rarer class for auc) on, a gain has to be beyond chance."""


def constant(task: Task, facts: LabelFacts, rows: Rows, metrics: Sequence[Metric]) -> dict[str, float | None] | None:
    """Returns each metric's value for the constant on these rows, by name; None if the train labels are not known."""
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
    """Returns the predictions of the constant that is best by `metric`, or by `best_by` if given. For ranking metrics
    they are scores that order nothing. None if the facts of the train labels give no constant."""
    return _order(metric.name, rows) if metric.unit == "groups" else task.constant(facts, rows, best_by or metric.name)


Outcome = Literal["better", "worse", "cannot tell", "too few rows"]


@dataclass(frozen=True)
class BaselineTest:
    """The result of a test of the candidate against a baseline."""

    outcome: Outcome
    decisive: Check | None
    """The check of the metric that decides; None: the rows are too few for any metric."""
    beside: Check | None = None
    """The check of the primary metric, where another metric decides."""


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
    """Returns the check of one metric against a baseline on the same rows; None if the metric has no value for one of the two.

    Args:
        others: the predictions of the baseline.
        first: whether the candidate is a first model, for which fewer rows of each class are enough for a comparison.
    """
    options: dict[str, Any] = {"class_rows": FIRST_CLASS_ROWS if first else CLASS_ROWS, "seed": seed, "check": check}
    difference = compare(rows, rows.predicted(others), metrics=(metric,), **options)[metric.name]
    if difference.difference is None:
        return None
    facts = {"against": name, "outcome": "too few rows", "rows": len(rows)}
    found = difference.check(f"{name} baseline", metric, confidence, **facts)
    if found.improvement is None:
        return found
    outcome = "better" if found.improvement[0] > 0 else "worse" if found.worse else "cannot tell"
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
    """Returns the test of a first model, which replaces none, against the constant; None if enough rows give no metric a value.

    The outcome is "worse" if a metric that the model was trained for is worse beyond chance; else "too few rows" if
    `why_not_comparable` names a reason; else "better" if the primary metric is better beyond chance, or not worse while another
    is better; else "cannot tell". The confidence holds for all metrics together (Bonferroni); few rows get Student's t.

    Args:
        metrics: the first is the primary one.
        trained_for: names of the metrics by which the model must not be worse than the constant that is best by the
            loss. (The mean of skewed labels never has as small an absolute error as their median.)
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
    """Returns the test of a later model against the constant, or of any model against `others`; None if no metric has a value.

    The candidate wins if its primary metric, the first of `metrics`, is better. On few rows (`count_units`) the value alone
    decides, so that chance rejects no good model. From 1,000 on, the metric must be better beyond chance (the interval of the
    gain is wholly above 0): else a model that learned nothing would pass in half of all cases. For auc, at most twice the rows
    of the rarer class count; for ranking metrics, the groups with a positive label. The candidate also wins if the primary
    metric is not worse beyond chance and another metric is better beyond chance: a class of 95% leaves accuracy no room, and
    one outlier decides an RMSE. Only the value counts if `why_not_comparable` gives a reason (too few rows, units, groups, or
    rows of a class). A metric without a value is skipped; the next metric replaces a primary one without a value.

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
    if first.gained > 0 and (
        first.improvement is None or count_units(metric, rows) < ENOUGH_ROWS or first.improvement[0] > 0
    ):
        return BaselineTest("better", first)
    if not first.worse:
        for other in comparable:
            if (other.gained if other.improvement is None else other.improvement[0]) > 0:
                return BaselineTest("better", other, first)
    return BaselineTest("worse" if first.worse else "cannot tell", first)


def _order(metric: str, rows: int) -> Floats:
    """Returns scores that order nothing: the same score for all rows. For mrr, where equal scores get less than a
    random order, the scores are random, but always the same."""
    if metric != "mrr":
        return np.full(rows, 0.5)
    return np.random.Philox(key=0).random_raw(rows) / 2.0**64
