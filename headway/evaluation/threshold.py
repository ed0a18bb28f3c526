"""The threshold of a binary model, chosen by a rule.

    evaluation: {threshold: f1}                  # or {recall: 0.9}, {precision: 0.8}, 0.3
    evaluation: {threshold: {cost: {false_positive: 1, false_negative: 10}}}

    decided = decide_rows(rule, rows)
    decided.threshold, decided.rows              # 0.31, and the rows with 1 or 0 as predictions

A threshold looks better than it is on the rows that chose it, and a model looks better on its train rows. So the eval rows
are cut into five folds (groups stay whole), and each fold is decided by the threshold that the other four choose. Precision,
recall and cost then come from rows that did not choose their threshold. The final threshold is chosen on all eval rows; it
gives the flagged share, and the test split uses it. It lies halfway between two predictions, so that rounding decides nothing.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator

from headway.config import Frozen
from headway.evaluation.intervals import Interval, intervals
from headway.evaluation.units import resampling_units
from headway.messages import number
from headway.metrics.base import Floats, Metric, MomentMetric, Rows
from headway.metrics.classification import ACCURACY, F1, PRECISION, RECALL, f1_of, scores, weights_by_score

FOLDS = 5
FOLD = "/fold"
AS_CONFIGURED = "as configured"
"""The text of the rule where the config names the threshold itself."""


class Costs(Frozen):
    """The costs of the two kinds of wrong decisions, in any unit."""

    false_positive: float = Field(ge=0, allow_inf_nan=False, description="the cost of a negative row that is flagged")
    false_negative: float = Field(
        ge=0, allow_inf_nan=False, description="the cost of a positive row that is not flagged"
    )

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.false_positive + self.false_negative > 0:
            raise ValueError(
                "one of the costs has to be more than 0: where nothing costs anything, no threshold is best"
            )
        return self


class ThresholdRule(Frozen):
    """The rule that chooses the threshold: exactly one of these fields is set."""

    f1: bool = Field(default=False, description="the largest F1")
    recall: float | None = Field(default=None, gt=0, le=1, description="the highest threshold with this recall")
    precision: float | None = Field(default=None, gt=0, le=1, description="the lowest threshold with this precision")
    cost: Costs | None = Field(default=None, description="the least cost: {false_positive: 1, false_negative: 10}")
    value: float | None = Field(default=None, ge=0, le=1, description="this threshold")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        """Accept the short forms of a rule: `f1`, and a number."""
        if isinstance(given, str):
            if given != "f1":
                raise ValueError("write f1, {recall: 0.9}, {precision: 0.8}, {cost: {...}} or a number")
            return {"f1": True}
        return {"value": given} if isinstance(given, int | float) and not isinstance(given, bool) else given

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.f1 + sum(rule is not None for rule in (self.recall, self.precision, self.cost, self.value)) != 1:
            raise ValueError("a threshold has one rule: f1, {recall: 0.9}, {precision: 0.8}, {cost: {...}} or a number")
        return self

    def __str__(self) -> str:
        if self.cost is not None:
            costs = number(self.cost.false_positive), number(self.cost.false_negative)
            return f"least cost, {costs[0]} for a false positive and {costs[1]} for a false negative"
        if self.recall is not None:
            return f"a recall of {number(self.recall)}"
        if self.precision is not None:
            return f"a precision of {number(self.precision)}"
        return "the largest F1" if self.f1 else AS_CONFIGURED


def choose(rule: ThresholdRule, rows: Rows) -> float | None:
    """Returns the threshold that the rule chooses on these rows; predictions that reach it are decided positive.
    Among equally good thresholds it is the highest, or for a precision the lowest. None if no threshold satisfies the
    rule, a prediction is not a number, or no row has weight. A given value is returned as it is."""
    if rule.value is not None:
        return rule.value
    if not (rows.total > 0 and rows.known):
        return None
    weighty = rows if rows.weight.min() > 0 else rows.at(rows.weight > 0)
    positive, negative = weights_by_score(weighty)
    falling = scores(weighty)[::-1]
    # flagged are the rows of so many of the highest scores: none, one, ..., all
    right, wrong = (np.append(0.0, np.cumsum(weights[::-1])) for weights in (positive, negative))
    at = _best(rule, right, wrong)
    if at is None:
        return None
    edges = np.concatenate([[1.0 if falling[0] < 1.0 else 2.0], falling, [min(0.0, 2 * falling[-1])]])
    return float((edges[at] + edges[at + 1]) / 2)


def _best(rule: ThresholdRule, right: Floats, wrong: Floats) -> int | None:
    """Returns how many of the highest distinct scores the rule decides positive; None if no number satisfies the rule."""
    positives = right[-1]
    if rule.cost is not None:
        lost = wrong * rule.cost.false_positive + (positives - right) * rule.cost.false_negative
        return int(lost.argmin())
    if not positives > 0:
        return None
    if rule.f1:
        return int(f1_of(right, wrong, positives - right).argmax())
    if rule.recall is not None:
        return int((right >= rule.recall * positives * (1 - 1e-12)).argmax())
    flagged = right + wrong
    good = np.flatnonzero((flagged > 0) & (right >= (rule.precision or 0.0) * flagged * (1 - 1e-12)))
    return int(good[-1]) if len(good) else None


@dataclass(frozen=True, eq=False)
class DecidedRows:
    """Rows with the decisions by a threshold, and the metrics that judge the decisions."""

    threshold: float
    """The threshold for use: chosen on all rows, unless it was given."""
    rows: Rows
    """The rows with decisions, 1 or 0, as predictions."""
    chosen_on: str
    metrics: tuple[Metric, ...]
    """The metrics that judge the decisions."""
    kept: Rows
    """The rows with the decisions by `threshold`, which `FLAGGED` and the confusion matrix count."""
    judged: tuple[Rows, tuple[Metric, ...]]
    """Rows and metrics for the intervals: the metrics choose the threshold anew on each resample, unless it was given."""

    def intervals(self, confidence: float, seed: int) -> dict[str, Interval | None]:
        """Returns each metric's confidence interval for the final threshold on new rows, by name; None: it has none."""
        chosen = intervals(*self.judged, confidence=confidence, seed=seed)
        # where hardly a part of the rows chooses a threshold, or all choose the same
        fixed = {} if all(chosen.values()) else intervals(self.rows, self.metrics, confidence=confidence, seed=seed)
        flagged = intervals(self.kept, (FLAGGED,), confidence=confidence, seed=seed)
        return {name: interval or fixed[name] for name, interval in chosen.items()} | flagged


def decide_rows(rule: ThresholdRule, rows: Rows, *, given: float | None = None, seed: int = 0) -> DecidedRows | None:
    """Returns the rows with decisions by the rule; None if the rule chooses no threshold on these rows, or no label is known.

    Args:
        rows: of a binary task.
        given: the threshold, if other rows chose it; None: it is the rule's fixed value, else it is chosen on `rows`.
    """
    fixed = given if given is not None else rule.value
    threshold = fixed if fixed is not None else choose(rule, rows)
    if threshold is None or not (rows.total > 0 and rows.known):
        return None
    metrics: tuple[Metric, ...] = (PRECISION, RECALL, F1, ACCURACY)
    if rule.cost is not None:
        metrics = (*metrics, _cost(rule.cost))
    chosen_on = "no rows: the config names it" if rule.value is not None else "the eval rows"
    kept = with_decisions(rows, threshold)
    if fixed is not None:
        return DecidedRows(threshold, kept, chosen_on, metrics, kept, (kept, metrics))
    codes, units = resampling_units(rows)
    random = np.random.Philox(key=(seed, 1)).random_raw(units)
    fold = np.argsort(np.argsort(random, kind="stable")) % FOLDS
    fold = fold if codes is None else fold[codes]
    folded = replace(rows, columns={FOLD: fold}, memo={})
    known = _chosen(rule, folded)
    if known is None:
        return None
    ends = " to ".join(dict.fromkeys(number(end) for end in (min(known), max(known))))
    chosen_on = f"all eval rows; the figures are of five folds, each decided by what the other four choose ({ends})"
    judged = folded, tuple(_CrossFitted(metric, rule, rows, _counted(rows, threshold)) for metric in metrics)
    return DecidedRows(threshold, with_decisions(rows, np.asarray(known)[fold]), chosen_on, metrics, kept, judged)


def _chosen(rule: ThresholdRule, rows: Rows) -> list[float] | None:
    """Returns the threshold of each fold, chosen on the other folds' rows; None if some fold gets no threshold."""
    assert rows.columns is not None
    found = [choose(rule, rows.at(rows.columns[FOLD] != number)) for number in range(FOLDS)]
    known = [each for each in found if each is not None]
    return known if len(known) == FOLDS else None


class _CrossFitted(Metric):
    """A metric of cross-fitted decisions, which chooses the thresholds anew on each resample of the rows.

    A resample chooses another final threshold than all rows do. How much this difference moves the metric of all rows
    is subtracted, since the interval is for the threshold that all rows chose."""

    smooth = False

    def __init__(self, metric: Metric, rule: ThresholdRule, rows: Rows, kept: Rows):
        self._metric, self._rule, self._all, self._kept = metric, rule, rows, kept
        self.name, self.higher_is_better, self.unit = metric.name, metric.higher_is_better, metric.unit
        self.within = metric.within

    def value(self, rows: Rows) -> float | None:
        def made() -> tuple[Rows, Rows, Rows] | None:
            known, threshold = _chosen(self._rule, rows), choose(self._rule, rows)
            if known is None or threshold is None:
                return None
            assert rows.columns is not None
            decisions = with_decisions(rows, np.asarray(known)[rows.columns[FOLD]])
            return decisions, self._kept, _counted(self._all, threshold)

        if (decided := rows.cached("decided", made)) is None:  # by every metric
            return None
        value, kept, here = (self._metric.cached_value(each) for each in decided)
        return None if value is None or kept is None or here is None else value + kept - here


def _counted(rows: Rows, threshold: float) -> Rows:
    """Returns the decisions by one threshold as four rows with summed weights, one for each pair of label and decision."""
    kind = 2 * (rows.prediction >= threshold) + (rows.label > 0.5)
    return Rows(
        np.array([0.0, 1, 0, 1]), np.array([0.0, 0, 1, 1]), np.bincount(kind, rows.weight, 4).astype(np.float64)
    )


def with_decisions(rows: Rows, threshold: Floats | float) -> Rows:
    """Returns all rows with decisions as predictions: 1 where a prediction reaches the threshold, else 0."""
    return rows.predicted((rows.prediction >= threshold).astype(np.float64))


FLAGGED = MomentMetric("flagged", lambda rows: rows.prediction[:, None], higher_is_better=None, within=(0.0, 1.0))
"""The share of rows that are decided to be positive."""


def _cost(costs: Costs) -> MomentMetric:
    def lost(rows: Rows) -> Floats:
        is_flagged, positive = rows.prediction >= 0.5, rows.label > 0.5
        cost = costs.false_positive * (is_flagged & ~positive) + costs.false_negative * (~is_flagged & positive)
        return cost[:, None]

    return MomentMetric("cost", lost, within=(0.0, np.inf))
