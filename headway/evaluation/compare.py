"""Compares two models on the same rows: the difference of each metric, and how sure it is.

    differences = compare(rows, others, metrics=(AUC, LOSS))
    differences["auc"].difference, differences["auc"].interval(0.95)         # of rows' predictions - others
    differences["auc"].few                                                   # "under 20 rows of one class", or None

Whoever holds one model against another calls it: the gate beside the champion and the anchor, a baseline, a champion beside
itself of earlier, `headway compare`. What is hard or easy about the rows both models share, and cancels.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from headway.evaluation.intervals import Sample, Spread, quantile, spread_of, tail
from headway.evaluation.units import CLASS_ROWS, uncompared
from headway.evaluation.verdict import Check
from headway.metrics.base import Floats, Metric, Rows

ROUNDING = 1e-6
"""A difference of no more than this part of the values is none: predictions are float32, and equal models that round otherwise
would differ beyond chance on every row."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One metric of a model, less that of another one on the same rows; None where the metric is undefined on them."""

    metric: str
    value: float | None
    other: float | None
    """None also where there is no other model: the difference is the value."""
    difference: float | None
    error: float | None
    """Standard."""
    freedom: float = math.inf
    """Degrees of freedom of the standard error: of few units it is itself uncertain."""
    few: str | None = None
    """Why the rows are too few to compare by; there is no standard error then."""

    def check(self, name: str, metric: Metric, confidence: float, **facts: Any) -> Check:
        """Returns a check of it, with further facts."""
        return Check(
            name=name,
            metric=self.metric,
            value=self.value,
            before=self.other,
            change=self.difference,
            interval=self.interval(confidence),
            confidence=confidence,
            error=self.error,
            better=metric.better,
            why=self.few or "",
            **facts,
        )

    def interval(self, confidence: float) -> tuple[float, float] | None:
        """Returns the two-sided interval around the difference, by Student's t."""
        if self.difference is None or self.error is None:
            return None
        reach = quantile(0.5 + confidence / 2, self.freedom) * self.error
        return self.difference - reach, self.difference + reach

    def detectable(self, confidence: float, tolerance: float = 0.0, power: float = 0.8) -> float | None:
        """Returns the smallest true loss that a comparison with this spread would call beyond the tolerance in `power`
        of all cases.

        It is tolerance + (t(0.5 + confidence / 2) + t(power)) * standard error, t being the quantile of Student's distribution:
        of many rows, at 95% and 80%, tolerance + 2.80 standard errors. The standard error is that which the true one is below
        in four of five cases, since what is estimated is more often too small than too large.
        """
        if self.error is None:
            return None
        reach = quantile(0.5 + confidence / 2, self.freedom) + quantile(power, self.freedom)
        return tolerance + reach * self.error * _at_most(self.freedom)

    def probability_below(self, bound: float) -> float | None:
        """Returns the one-sided p value of "the true difference is at least `bound`": small when clearly below."""
        if self.difference is None or self.error is None:
            return None
        return tail(self.difference - bound, self.error, self.freedom)

    def probability_above(self, bound: float) -> float | None:
        """Returns the one-sided p value of "the true difference is at most `bound`": small when clearly above."""
        if self.difference is None or self.error is None:
            return None
        return tail(bound - self.difference, self.error, self.freedom)


def compare(
    rows: Rows,
    others: Floats | None,
    *,
    metrics: Sequence[Metric],
    class_rows: int = CLASS_ROWS,
    seed: int = 0,
    check: Callable[[], None] = lambda: None,
) -> dict[str, Difference]:
    """Returns the difference of each metric, by name.

    Args:
        rows: with the predictions of a model; rows of one unit are drawn together.
        others: the predictions of the same rows by another model; None: the model is held against nothing.
        class_rows: the rows of either class that a metric which rests on classes needs.
        check: called now and then; may raise to stop.
    """
    models = [rows] if others is None else [rows, rows.predicted(others)]
    samples = [Sample(each, seed) for each in models]
    found: dict[str, Difference] = {}
    for metric in metrics:
        check()
        values, few = [metric.on(each) for each in models], uncompared(metric, rows, class_rows)
        known = few is None and None not in values
        found[metric.name] = _difference(metric, values, spread_of(metric, samples) if known else None, few)
    return found


def _difference(metric: Metric, values: Sequence[float | None], spread: Spread | None, few: str | None) -> Difference:
    value, other = (*values, None)[:2]
    difference = value
    if len(values) > 1:
        difference = value - other if value is not None and other is not None else None
        if difference is not None and abs(difference) <= ROUNDING * max(abs(value or 0.0), abs(other or 0.0)):
            difference = 0.0
    freedom = math.inf if spread is None else spread.freedom
    error = None if spread is None else spread.error
    return Difference(
        metric=metric.name, value=value, other=other, difference=difference, error=error, freedom=freedom, few=few
    )


def _at_most(freedom: float, probability: float = 0.8) -> float:
    """By how much a true standard deviation is greater than its estimate at most, in `probability` of all cases: by chi-square
    (Wilson and Hilferty, "The distribution of chi-square", 1931)."""
    if math.isinf(freedom):
        return 1.0
    part = 2 / (9 * freedom)
    return max(1 - part - NormalDist().inv_cdf(probability) * math.sqrt(part), 0.1) ** -1.5
