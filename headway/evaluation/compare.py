"""Compares two models on the same rows: the difference of each metric, and how sure it is.

    differences = compare(rows, rows.predicted(others), metrics=(AUC, LOSS))
    differences["auc"].difference, differences["auc"].interval(0.95)         # the model of rows, less others
    differences["auc"].few                                                   # "under 20 rows of one class", or None

The gate uses `compare` for the champion, the anchor (an older version) and the baselines, and `headway compare` for
two models. How hard the rows are is the same for both models, and cancels in the difference.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from headway.evaluation.intervals import Sample, Spread, quantile, spread_of, tail
from headway.evaluation.units import CLASS_ROWS, why_not_comparable
from headway.evaluation.verdict import Check
from headway.metrics.base import Metric, Rows

ROUNDING = 1e-6
"""A difference of at most this share of the values counts as 0: predictions are float32, and equal models that round
differently would differ beyond chance on every row."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The difference of a metric between two models on the same rows. A field is None where the metric has no value on them."""

    metric: str
    value: float | None
    other: float | None
    """None also if there is no other model; `difference` is then the value itself."""
    difference: float | None
    error: float | None
    """The standard error of the difference."""
    freedom: float = math.inf
    """Degrees of freedom of the standard error, which is itself uncertain if there are few units."""
    few: str | None = None
    """Why the rows are too few to compare the models; there is then no standard error."""

    def check(self, name: str, metric: Metric, confidence: float, **facts: Any) -> Check:
        """Returns the difference as a check of the gate, with `facts` as further fields."""
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
        """Returns the two-sided interval around the difference, by Student's t; None without a standard error."""
        if self.difference is None or self.error is None:
            return None
        reach = quantile(0.5 + confidence / 2, self.freedom) * self.error
        return self.difference - reach, self.difference + reach

    def detectable(self, confidence: float, tolerance: float = 0.0, power: float = 0.8) -> float | None:
        """Returns the smallest true worsening that a comparison with this standard error would find beyond the
        tolerance in `power` of all cases; None without a standard error.

        It is tolerance + (t(0.5 + confidence / 2) + t(power)) * standard error, where t is the quantile of Student's
        distribution. For many rows, at 95% and 80%, that is tolerance + 2.80 standard errors. An estimated standard error
        is too small more often than too large. So the formula takes an upper bound, which holds in four of five cases."""
        if self.error is None:
            return None
        reach = quantile(0.5 + confidence / 2, self.freedom) + quantile(power, self.freedom)
        return tolerance + reach * self.error * _at_most(self.freedom)

    def p_value_below(self, bound: float) -> float | None:
        """Returns the p value of the hypothesis that the true difference is `bound` or more; None without a standard error."""
        if self.difference is None or self.error is None:
            return None
        return tail(self.difference - bound, self.error, self.freedom)

    def p_value_above(self, bound: float) -> float | None:
        """Returns the p value of the hypothesis that the true difference is `bound` or less; None without a standard error."""
        if self.difference is None or self.error is None:
            return None
        return tail(bound - self.difference, self.error, self.freedom)


def compare(
    rows: Rows,
    other: Rows | None,
    *,
    metrics: Sequence[Metric],
    class_rows: int = CLASS_ROWS,
    seed: int = 0,
    check: Callable[[], None] = lambda: None,
) -> dict[str, Difference]:
    """Returns {metric: difference} between two models on the same rows; without a second model the metrics of `rows` alone.

    Args:
        rows: rows with one model's predictions; rows of one unit are resampled together.
        other: `rows.predicted(...)` with the predictions of another model; None: the metrics of `rows` alone.
        class_rows: the least number of rows of each class, for a metric whose `unit` is classes.
        check: called before each metric; may raise to stop.
    """
    models = [rows] if other is None else [rows, other]
    samples = [Sample(each, seed) for each in models]
    found: dict[str, Difference] = {}
    for metric in metrics:
        check()
        values, few = [metric.cached_value(each) for each in models], why_not_comparable(metric, rows, class_rows)
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
    """Returns the factor that bounds a standard deviation: in `probability` of all cases the true one is at most this
    factor times its estimate. By chi-square (Wilson and Hilferty, "The distribution of chi-square", 1931)."""
    if math.isinf(freedom):
        return 1.0
    part = 2 / (9 * freedom)
    return max(1 - part - NormalDist().inv_cdf(probability) * math.sqrt(part), 0.1) ** -1.5
