"""Confidence intervals of the difference between two models: a paired bootstrap over the rows that both predicted.

    differences = paired(rows, champion, metrics=(AUC, LOSS), samples=200)
    differences["auc"].difference, differences["auc"].standard_error         # candidate - champion

From `LINEAR_UNITS` rows on, the standard error follows from the metric's derivative by the weight of each row
(`Metric.influence`), where it has one: it is what the replicates come to, without their noise of 5%.
Else each replicate draws every row (or, given groups, every group with all its rows) Poisson(1) times, the same draw for
both models, so what makes the rows easy or hard cancels. Scores are sorted once; a replicate only adds up weights.
Draws come from Philox's raw bits through a table, so the same seed gives the same numbers on every machine and NumPy.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.metrics.base import Draws, Floats, Metric, Rows, unit_weights
from headway.metrics.ranking import NO_GROUP
from headway.tabular.list_arrays import value_numbers

SAMPLES = 200
"""Replicates of a bootstrap."""
ROUNDING = 1e-6
"""A difference of no more than this part of the values is none: predictions are float32, and equal models that round otherwise
would differ beyond chance on every row."""
LINEAR_UNITS = 20_000
"""Rows, or groups that are drawn together."""
MOST_PARTS = 64
"""A metric that is the sum of more, such as a bias over many classes, is drawn: the product of all of them would cost more."""
CELLS = 1 << 20
"""Replicates are worked on together up to this many drawn rows at a time."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """candidate - champion of one metric on the same rows; None where the metric is undefined on them."""

    metric: str
    candidate: float | None
    champion: float | None
    difference: float | None
    standard_error: float | None
    freedom: float = math.inf
    """Degrees of freedom of the standard error: of few groups it is itself uncertain."""

    def interval(self, confidence: float) -> tuple[float, float] | None:
        """The two-sided interval around the difference: normal, or Student's t for few groups."""
        if self.difference is None or self.standard_error is None:
            return None
        reach = quantile(0.5 + confidence / 2, self.freedom) * self.standard_error
        return self.difference - reach, self.difference + reach

    def detectable(self, confidence: float, tolerance: float = 0.0, power: float = 0.8) -> float | None:
        """The smallest true loss that a comparison with this spread would call beyond the tolerance in `power` of all cases.

        It is tolerance + (z(0.5 + confidence / 2) + z(power)) * standard_error, z being the quantile of the normal
        distribution: at 95% and 80%, tolerance + 2.80 standard errors. Of few groups it is Student's, and the standard error is
        that which the true one is below in four of five cases, since what is estimated is more often too small than too large.
        """
        if self.standard_error is None:
            return None
        reach = quantile(0.5 + confidence / 2, self.freedom) + quantile(power, self.freedom)
        return tolerance + reach * self.standard_error * _at_most(self.freedom)

    def probability_below(self, bound: float) -> float | None:
        """The one-sided p value of "the true difference is at least `bound`": small when it is clearly below."""
        if self.difference is None or self.standard_error is None:
            return None
        return tail(self.difference - bound, self.standard_error, self.freedom)

    def probability_above(self, bound: float) -> float | None:
        """The one-sided p value of "the true difference is at most `bound`": small when it is clearly above."""
        if self.difference is None or self.standard_error is None:
            return None
        return tail(bound - self.difference, self.standard_error, self.freedom)


def quantile(probability: float, freedom: float) -> float:
    """The quantile of Student's t distribution, of the normal one where `freedom` is infinite; from 2 degrees on good to
    5% (Wallace, "Bounds on normal approximations to Student's and the chi-square distributions", 1959)."""
    z = NormalDist().inv_cdf(probability)
    if math.isinf(freedom):
        return z
    exponent = (z * (8 * freedom + 3) / (8 * freedom + 1)) ** 2 / freedom
    return math.copysign(math.sqrt(freedom * math.expm1(min(exponent, 700.0))), z)


def _at_most(freedom: float, probability: float = 0.8) -> float:
    """By how much a true standard deviation is greater than its estimate at most, in `probability` of all cases: by chi-square
    (Wilson and Hilferty, "The distribution of chi-square", 1931)."""
    if math.isinf(freedom):
        return 1.0
    part = 2 / (9 * freedom)
    return max(1 - part - NormalDist().inv_cdf(probability) * math.sqrt(part), 0.1) ** -1.5


def tail(distance: float, error: float, freedom: float) -> float:
    """The chance of a value below `distance`, with this standard error, where 0 is expected; from 4 degrees on it is not too
    small."""
    if error == 0:
        return 0.0 if distance < 0 else 1.0
    z = distance / error
    if not math.isinf(freedom):  # the inverse of `quantile`
        z = math.copysign(math.sqrt(freedom * math.log1p(z * z / freedom)), z) * (8 * freedom + 1) / (8 * freedom + 3)
    # erfc, not 1 - cdf: it keeps its precision in the far tail
    return 0.5 * math.erfc(-z / math.sqrt(2))


def paired(
    rows: Rows,
    champion: Floats,
    *,
    metrics: Sequence[Metric],
    samples: int = SAMPLES,
    seed: int = 0,
    check: Callable[[], None] = lambda: None,
) -> dict[str, Difference]:
    """The difference of each of `metrics` and its bootstrap standard error, by name.

    Args:
        rows: with the candidate's predictions. Rows of one group are drawn together; of a single group there is no
            standard error.
        champion: predictions of the same rows.
        check: called now and then; may raise to stop.
    """
    models = (rows, rows.predicted(champion))
    errors = _errors(metrics, models, (1.0, -1.0), samples=samples, seed=seed, check=check)
    units = effective_groups(rows)
    return {
        metric.name: _difference(metric.name, (metric.on(models[0]), metric.on(models[1])), error, units)
        for metric, error in zip(metrics, errors, strict=True)
    }


def _errors(
    metrics: Sequence[Metric],
    models: Sequence[Rows],
    shares: Sequence[float],
    *,
    samples: int,
    seed: int,
    check: Callable[[], None],
) -> list[float | None]:
    """The standard error of the sum of each metric's values times the models' shares; None where it is undefined."""
    errors = {metric: _linear_error(metric, models, shares, samples, seed) for metric in metrics}
    drawn = [metric for metric in metrics if errors[metric] is None]
    for metric, replicates in zip(
        drawn, resampled(drawn, models, samples=samples, seed=seed, check=check), strict=True
    ):
        with np.errstate(invalid="ignore"):  # a replicate in which it is undefined
            sums = sum(share * values for share, values in zip(shares, replicates, strict=True))
        finite = np.asarray(sums)[np.isfinite(sums)]  # a replicate may have drawn one class only
        if len(finite) >= max(2, np.size(sums) // 2):
            errors[metric] = float(finite.std(ddof=1))
    return [errors[metric] for metric in metrics]


def _linear_error(
    metric: Metric, models: Sequence[Rows], shares: Sequence[float], samples: int, seed: int
) -> float | None:
    """The infinitesimal jackknife; None of few units, and of a metric without a derivative. Of a sum of |parts|, which has none
    where a part is 0, the parts are drawn with their covariance."""
    codes, units = drawn_units(models[0])
    if units < LINEAR_UNITS or not metric.smooth:
        return None
    found = [metric.parts(rows) for rows in models]
    parts = [each for each in found if each is not None]
    if parts and (len(parts) < len(models) or len(parts[0]) > MOST_PARTS):
        return None
    moved: list[Floats] = []
    for rows in models:
        each = (metric.moved_parts if parts else metric.moved)(rows, codes, units)
        if each is None:
            return None
        moved += [*np.atleast_2d(each.T)]
    stacked = np.stack(moved)
    covariance = stacked @ stacked.T
    weights = np.repeat(shares, len(moved) // len(models))
    if not parts:
        return math.sqrt(max(float(weights @ covariance @ weights), 0.0))
    by_model = np.concatenate([np.stack(parts)[..., None], stacked.reshape(len(models), -1, units)], 2)
    if not np.tensordot(np.asarray(shares), by_model, 1).any():  # equal models
        return 0.0
    values, vectors = np.linalg.eigh(covariance)
    scores = np.random.Generator(np.random.Philox(key=seed)).standard_normal((20 * samples, len(weights)))
    drawn = np.concatenate(parts) + scores * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    return float((np.abs(drawn) @ weights).std(ddof=1))


def single(
    rows: Rows,
    metric: Metric,
    *,
    samples: int = SAMPLES,
    seed: int = 0,
    check: Callable[[], None] = lambda: None,
) -> Difference:
    """One model's metric as a difference from nothing, with its bootstrap standard error."""
    [error] = _errors((metric,), (rows,), (1.0,), samples=samples, seed=seed, check=check)
    found = _difference(metric.name, (metric.on(rows), 0.0), error, effective_groups(rows))
    return replace(found, champion=None)


def resampled(
    metrics: Sequence[Metric],
    models: Sequence[Rows],
    *,
    samples: int,
    seed: int,
    check: Callable[[], None] = lambda: None,
) -> list[list[Floats]]:
    """Each metric of each model under the same `samples` draws of the rows; [metrics][models] of [samples], empty where
    there is one unit to draw or none."""
    rows = models[0]
    codes, units = drawn_units(rows)
    if units < 2 or not metrics:
        return [[np.zeros(0) for _ in models] for _ in metrics]
    replicate = [[metric.replicated(model) for model in models] for metric in metrics]
    equal = bool((rows.weight == rows.weight[0]).all())
    stream = np.random.Philox(key=seed)
    together = max(1, CELLS // len(rows))
    parts: list[list[list[Floats]]] = [[[] for _ in models] for _ in metrics]
    for start in range(0, samples, together):
        check()
        counts = _poisson(stream, min(together, samples - start), units)
        if codes is not None:
            counts = counts[:, codes]
        draws = Draws(counts, None if equal else rows.weight)
        for of_metric, into in zip(replicate, parts, strict=True):
            for of_model, values in zip(of_metric, into, strict=True):
                values.append(of_model(draws))
    return [[np.concatenate(values) for values in of_metric] for of_metric in parts]


def effective_groups(rows: Rows) -> float:
    """As how many groups of equal weight the groups count; infinite where rows are drawn one by one."""
    codes, units = drawn_units(rows)
    if codes is None or not rows.total > 0:
        return math.inf
    return float(rows.total**2 / (unit_weights(rows, codes, units) ** 2).sum())


def _difference(name: str, values: Sequence[float | None], error: float | None, units: float) -> Difference:
    a, b = values
    difference = a - b if a is not None and b is not None else None
    if a is not None and b is not None and abs(a - b) <= ROUNDING * max(abs(a), abs(b)):
        difference = 0.0
    return Difference(
        metric=name,
        candidate=a,
        champion=b,
        difference=difference,
        standard_error=None if a is None or b is None or error is None else error * _widening(units),
        freedom=max(units - 1, 0.5),
    )


def _widening(units: float) -> float:
    """A bootstrap divides by the number of groups where one less would be right."""
    return 1.0 if math.isinf(units) else math.sqrt(units / max(units - 1, 0.5))


def drawn_units(rows: Rows) -> tuple[NDArray[np.int64] | None, int]:
    """(which unit each row is drawn with, None where each is one by itself; how many there are), found once for these rows."""
    return rows.once_for_all("drawn", lambda: (None, len(rows)) if rows.drawn is None else resampling_units(rows.drawn))


def resampling_units(group: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
    """(which unit each row is drawn with; how many there are). A row without a group
    (`headway.metrics.ranking.NO_GROUP`) is one by itself."""
    codes, units = value_numbers(group)
    alone = np.flatnonzero(group == NO_GROUP)
    if len(alone):  # it is the greatest of the values
        codes[alone] = units - 1 + np.arange(len(alone))
        units += len(alone) - 1
    return codes, units


@functools.cache
def _poisson_table() -> NDArray[np.uint8]:
    """Poisson(1) by inversion of a 16-bit uniform number: exact to 2**-17 in every probability."""
    uniform = (np.arange(1 << 16) + 0.5) / (1 << 16)
    cumulative = np.cumsum([math.exp(-1) / math.factorial(k) for k in range(12)])
    return np.searchsorted(cumulative, uniform).astype(np.uint8)


def _poisson(stream: np.random.Philox, replicates: int, units: int) -> NDArray[np.uint8]:
    """Poisson(1) counts [replicates, units]; the stream goes on where the last call left it."""
    words = -(-units // 4)
    bits = stream.random_raw(replicates * words).astype("<u8", copy=False)
    return _poisson_table().take(bits.view("<u2")).reshape(replicates, 4 * words)[:, :units]
