"""Standard errors and confidence intervals of one model's metrics, and of the differences between two models.

    intervals(rows, metrics)                       # {"auc": (0.70, 0.74), "loss": (0.41, 0.44), ...}
    spread_of(AUC, [Sample(ours), Sample(theirs)])     # of the difference on the same rows

The standard error comes from each row's influence, how much the metric moves with the row's weight (`Metric.influence`). Where
rows are resampled together, their influence is summed by unit. A bootstrap of the rows converges to the same error. Intervals
use Student's t. The variance of the variance gives its degrees of freedom (Satterthwaite, 1946): for a share of 2%, twice the
rows of the rarer class. In a heavy tail the largest influence is raised (`with_likely_max`). The interval around a value is for

    a share              Wilson's score interval of as many rows as have this error (Franco et al., "Comparative study of
                         confidence intervals for proportions in complex sample surveys", 2019)
    a sum of distances   ece, miscoverage, bias: chance alone makes them positive; see `distance_interval`
    a ratio, an r2       symmetric in the logarithm of it, or of 1 - r2; longer above where that is still skewed
    any other            corrected for skewness (Hall, "On the removal of skewness by transformation", 1992)

The interval around a difference is symmetric. A metric without a derivative, such as a user's own, is computed twenty
times, each time without another twentieth of the rows (the delete-a-group jackknife: Kott, "The delete-a-group jackknife",
2001). A metric that jumps as rows change, such as one at a chosen threshold, is computed on twenty random thirds of the
rows (Shao and Wu, "A general theory for jackknife variance estimation", 1989). Of many rows both use a sample.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.evaluation.units import effective_units, resampling_units, why_not_comparable
from headway.messages import agree, listed
from headway.metrics.base import Floats, Metric, Rows, unit_sums

Interval = tuple[float, float]
DRAWS = 1000
"""The number of draws from a normal distribution, for sums of distances."""
TAIL = 1.5
"""The number of units in the tail, as a multiple of the square root of all."""
LEAST_TAIL, MOST_TAIL = 5, 0.2
MOST_REACH = 1.5
"""The most by which `with_likely_max` multiplies the largest value."""
BLOCKS = 20
"""Parts of the rows, each of which is left out once."""
MOST_UNITS = 50_000
"""If there are more units (rows or groups), a random sample of this many gives the standard errors."""
MOST_PARTS = 64
"""The most parts of a metric that is a sum of |parts|. With more, such as a bias over many classes, it is treated as
differentiable: the covariance of all parts would cost more."""
PRECISE = 0.01
"""The relative error that a sample's standard error may have in two of three cases, compared with all rows."""
FEW = 5
"""If no more than so many rows carry half of the variance, rare rows decide it."""


@dataclass(frozen=True)
class Spread:
    """The uncertainty of an estimate."""

    error: float
    """The standard error."""
    freedom: float
    """Degrees of freedom of the standard error."""
    skewness: float
    """The skewness of the estimate."""


def intervals(
    rows: Rows, metrics: Sequence[Metric], *, confidence: float = 0.95, seed: int = 0
) -> dict[str, Interval | None]:
    """Returns the two-sided confidence interval of each metric, by name.

    The interval is None where the metric has no value or no standard error, and where rows are too few
    (`why_not_comparable`). Rows of one unit are resampled together."""
    sample = Sample(rows, seed)
    return {
        metric.name: None if why_not_comparable(metric, rows) else _interval(metric, sample, (1 + confidence) / 2)
        for metric in metrics
    }


def few_rows(rows: Rows, metrics: Sequence[Metric]) -> str | None:
    """Returns a warning that names the metrics with half of the variance in a few rows or units; None: there is no such
    metric. The intervals of these metrics may be too narrow, since a few rows do not tell how extreme such rows can be."""
    sample = Sample(rows, 0)
    found: dict[str, int] = {}
    for metric in metrics:
        moved = None if why_not_comparable(metric, rows) else sample.unit_influence(metric, metric.influence_by_unit)
        if moved is None:
            continue
        squares = moved**2
        half, largest = squares.sum() / 2, np.sort(np.partition(squares, -FEW)[-FEW:])[::-1]
        count = int(np.searchsorted(np.cumsum(largest), half)) + 1
        if half > 0 and count <= FEW and 20 * count <= sample.units:
            found[metric.name] = count
    if not found:
        return None
    count = max(found.values())
    what = "rows" if sample.codes is None else "units"
    few = f"{count} of {sample.units:,} {what} {agree(count, 'carries', 'carry')} half of the variance"
    return f"{agree(len(found), 'the interval', 'intervals')} of {listed([*found])} may be too narrow: {few}"


def spread_of_influence(rows: Rows, influence: Floats) -> Spread | None:
    """Returns an estimate's spread from its derivatives by the rows' weights, [rows]; None if all are 0 or one is not finite."""
    sample = Sample(rows, 0)
    moved = unit_sums(influence, rows, sample.codes, sample.units)
    return spread_of_sum(widened(moved, sample.effective), sample.effective)


@dataclass(eq=False)
class Sample:
    """Rows with their resampling units, and random subsets of the rows for metrics without a derivative."""

    rows: Rows
    seed: int

    @property
    def codes(self) -> NDArray[np.int64] | None:
        """The unit of each row; None: each row is a unit."""
        return resampling_units(self.rows)[0]

    @property
    def units(self) -> int:
        return resampling_units(self.rows)[1]

    @cached_property
    def effective(self) -> float:
        """The effective number of units (`effective_units`); infinite where each row is a unit."""
        return effective_units(self.rows)

    def unit_influence(
        self, metric: Metric, of: Callable[[Rows, NDArray[np.int64] | None, int], Floats | None]
    ) -> Floats | None:
        """Returns how much each unit moves a metric, or the metric's parts, as `of` computes it. With very many units it
        takes a random sample, scaled to the variance of all units, if that gives the standard error to within `PRECISE`.
        Heavy metrics and ratios are never sampled: a ratio's denominator near 0 would change from sample to sample."""
        if self.units > 2 * MOST_UNITS and not metric.heavy and not metric.ratio:
            some, _ = self._looked_at
            codes, count = resampling_units(some)
            if (found := of(some, codes, count)) is not None:
                squares = (found**2).reshape(count, -1).sum(1)
                if (squares**2).sum() <= (4 * PRECISE**2 + 1 / count) * squares.sum() ** 2:
                    return found * math.sqrt(count / self.units)
        return of(self.rows, self.codes, self.units)

    @property
    def _looked_at(self) -> tuple[Rows, NDArray[np.int64]]:
        """The rows, or those of a random sample of `MOST_UNITS` units; and the position of each row's unit in a random order."""

        def chosen() -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
            random = np.random.Philox(key=self.seed).random_raw(self.units)
            most = min(MOST_UNITS, self.units)
            order = np.flatnonzero(random <= np.partition(random, most - 1)[most - 1])
            order = order[np.argsort(random[order], kind="stable")][:most]
            place = np.full(self.units, -1)
            place[order] = np.arange(most)
            of_row = place if self.codes is None else place[self.codes]
            return of_row >= 0, of_row[of_row >= 0]

        kept, place = self.rows.cached_for_all_models(("sample", self.seed), chosen)
        if len(place) == len(kept):
            return self.rows, place
        return self.rows.cached(("sample", self.seed), lambda: self.rows.at(kept)), place

    @cached_property
    def jackknifed(self) -> list[Rows]:
        """Twenty subsets of the rows, each without another twentieth of the units; of at most `MOST_UNITS` random units."""
        rows, place = self._looked_at
        return [rows.at(place % BLOCKS != number) for number in range(BLOCKS)]

    @cached_property
    def thirds(self) -> list[Rows]:
        """Twenty subsets of the rows, each with the rows of a random third of the units; of at most `MOST_UNITS` random units."""
        rows, place = self._looked_at
        count = min(self.units, MOST_UNITS)
        streams = (np.random.Philox(key=(self.seed, number + 1)) for number in range(BLOCKS))
        ranks = (np.argsort(np.argsort(stream.random_raw(count), kind="stable")) for stream in streams)
        return [rows.at(rank[place] < -(-count // 3)) for rank in ranks]

    def effective_of(self, metric: Metric) -> float:
        """Returns the effective number of units; for a metric whose `unit` is classes, that of the class with fewer units."""
        return self.effective if metric.unit != "classes" else self._effective_of_classes

    @cached_property
    def _effective_of_classes(self) -> float:
        positive = self.rows.label > 0.5
        return min(self._effective(positive), self._effective(~positive))

    def _effective(self, some: NDArray[np.bool_]) -> float:
        weight: NDArray[Any] = self.rows.weight * some
        weight = weight if self.codes is None else np.bincount(self.codes, weight, self.units)
        return float(weight.sum() ** 2 / max((weight**2).sum(), 1e-300))


def widened(moved: Floats, effective: float) -> Floats:
    """Returns `moved` times the square root of n / (n - 1) for an effective number of n units: the fewer, the wider."""
    if math.isinf(effective):
        return moved
    return moved * (math.sqrt(effective / (effective - 1)) if effective > 1 else math.inf)


def _interval(metric: Metric, sample: Sample, probability: float) -> Interval | None:
    if (value := metric.cached_value(sample.rows)) is None:
        return None
    parts = metric.parts(sample.rows)
    of_parts = None if parts is None else sample.unit_influence(metric, metric.influence_on_parts_by_unit)
    if parts is not None and of_parts is not None:
        effective = sample.effective_of(metric)
        moved = widened(of_parts, effective)
        return _clipped(metric, distance_interval(moved, parts, effective, probability, sample.seed))
    spread = spread_of(metric, (sample,))
    if spread is None or not (spread.error > 1e-12 * abs(value) and math.isfinite(spread.error)):
        return None
    reach = quantile(probability, spread.freedom)
    if metric.within == (0.0, 1.0):
        return _clipped(metric, wilson(value, spread.error, reach))
    end = metric.within[1] if math.isfinite(metric.within[1]) else 0.0
    if metric.ratio and value != end:
        size, sign = abs(value - end), math.copysign(1.0, value - end)
        error = spread.error / size
        # the logarithm takes so much of the skewness away
        left = Spread(error, spread.freedom, max(sign * spread.skewness - 1.5 * error, 0.0))
        further = max(reach * error, hall_interval(0.0, left, reach)[1])
        ends = sorted(end + sign * size * math.exp(min(each, 700.0)) for each in (-reach * error, further))
        return ends[0], ends[1]
    return _clipped(metric, hall_interval(value, spread, reach))


def _clipped(metric: Metric, interval: Interval | None) -> Interval | None:
    if interval is None:
        return None
    least, most = metric.within
    return max(interval[0], least), min(interval[1], most)


# --- the spread of a value, or of a difference


def spread_of(metric: Metric, samples: Sequence[Sample]) -> Spread | None:
    """Returns the spread of one model's metric, or of the difference between two models on the same rows; None if unknown."""
    first, alone = samples[0], len(samples) == 1
    effective = first.effective_of(metric)
    parts = [found for each in samples if (found := metric.parts(each.rows)) is not None]
    if len(parts) == len(samples) and len(parts[0]) <= MOST_PARTS:
        return _spread_of_parts(metric, samples, parts, effective)
    of_units = [
        each.unit_influence(metric, metric.influence_by_unit)
        if alone
        else metric.influence_by_unit(each.rows, each.codes, each.units)
        for each in samples
    ]
    known = [each for each in of_units if each is not None]
    if len(known) < len(samples):
        return _jackknifed(metric, samples)
    moved = known[0] if alone else known[0] - known[1]
    if not alone and not moved.any():  # equal models
        return Spread(0.0, math.inf, 0.0)
    moved = widened(moved, effective)
    return spread_of_sum(with_likely_max(moved) if alone and metric.heavy else moved, effective)


def _spread_of_parts(
    metric: Metric, samples: Sequence[Sample], parts: Sequence[Floats], effective: float
) -> Spread | None:
    """Returns the spread of a sum of |parts|, or of the difference between two models' sums; None if unknown. The sum has
    no derivative where a part is 0, so it is simulated with normally distributed parts that have the same covariance."""
    found = [metric.influence_on_parts_by_unit(each.rows, each.codes, each.units) for each in samples]
    by_model = [each.T for each in found if each is not None]
    if len(by_model) < len(samples):
        return None
    if len(parts) > 1 and not (np.subtract(*parts).any() or np.subtract(*by_model).any()):
        return Spread(0.0, math.inf, 0.0)
    moved = widened(np.concatenate(by_model), effective)
    scores = np.random.Generator(np.random.Philox(key=samples[0].seed)).standard_normal((4 * DRAWS, len(moved)))
    drawn = np.abs(np.concatenate(parts) + scores @ _root(moved @ moved.T))
    likely = spread_of_sum(np.sqrt((moved**2).sum(0)), effective)
    sums = drawn[:, : len(parts[0])].sum(1) - drawn[:, len(parts[0]) :].sum(1)
    return None if likely is None else Spread(float(sums.std(ddof=1)), likely.freedom, 0.0)


def _jackknifed(metric: Metric, samples: Sequence[Sample]) -> Spread | None:
    first, rows = samples[0], zip(*(each.jackknifed if metric.smooth else each.thirds for each in samples), strict=True)
    values = [[metric.cached_value(each) for each in models] for models in rows]
    known = np.asarray([of for of in values if None not in of], np.float64)
    if len(known) < BLOCKS // 2:
        return None
    values_or_differences = known[:, 0] - (known[:, 1] if len(samples) > 1 else 0.0)
    # the variance over samples without d of n units is d / (n - d) of the metric's; no unit is in two of the twentieths
    variance = float(values_or_differences.var(ddof=0 if metric.smooth else 1))
    variance *= len(known) - 1 if metric.smooth else 0.5
    freedom = min(BLOCKS, first.effective_of(metric)) - 1.0
    return Spread(math.sqrt(variance * min(first.units, MOST_UNITS) / first.units), freedom, 0.0)


# --- the forms: what skewness, heavy tails and distances from 0 make of an estimate and its standard error


def spread_of_sum(moved: Floats, effective: float) -> Spread | None:
    """Returns the spread of a sum from each unit's contribution (`moved`, [units]); None if all are 0 or one is not finite."""
    squares = moved**2
    total = float(squares.sum())
    if not (total > 0 and math.isfinite(total)):
        return None
    # the variance of the sum of the squares, of which the mean is taken away
    noise = float((squares**2).sum()) - total**2 / len(moved)
    freedom = min(2 * total**2 / noise if noise > 0 else math.inf, len(moved) - 1, effective - 1)
    skewness = float((squares * moved).sum()) / total**1.5
    return Spread(math.sqrt(total), max(freedom, 0.5), skewness)


def with_likely_max(moved: Floats) -> Floats:
    """Returns `moved` with its largest value raised to a size that a quarter of such samples exceed, up to `MOST_REACH` times.

    Where a few rows carry most of the variance, a sample that lacks such a row has too small an error and too little
    skewness. To tell how heavy the tail is, a generalized Pareto distribution is fitted to the largest values (Zhang
    and Stephens, "A new and efficient estimation method for the generalized Pareto distribution", 2009)."""
    size = np.abs(moved)
    count = min(int(MOST_TAIL * len(size)), int(TAIL * math.sqrt(len(size))))
    if count < LEAST_TAIL or not np.isfinite(size).all():
        return moved
    tail = np.sort(np.partition(size, len(size) - count - 1)[-count - 1 :])
    beyond = tail[1:] - tail[0]
    beyond = beyond[beyond > 1e-9 * tail[-1]]
    if (count := len(beyond)) < LEAST_TAIL:
        return moved
    steps = 30 + int(math.sqrt(count))
    quarter = beyond[int(count / 4 + 0.5) - 1]
    slopes = 1 / beyond[-1] + (1 - np.sqrt(steps / (np.arange(steps) + 0.5))) / (3 * quarter)
    shapes = np.log1p(-slopes[:, None] * beyond).mean(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        likelihood = np.nan_to_num(count * (np.log(-slopes / shapes) - shapes - 1), nan=-np.inf)
    weights = np.exp(likelihood - likelihood.max())
    slope = float(weights @ slopes / weights.sum())
    shape = float(np.log1p(-slope * beyond).mean())
    largest = tail[0] + math.expm1(-shape * math.log(-math.log(0.75) / count)) / -slope
    factor = min(max(largest / tail[-1], 1.0), MOST_REACH)
    return np.where(size == tail[-1], factor * moved, moved)


def hall_interval(mean: float, spread: Spread, reach: float) -> Interval:
    """Returns Hall's interval of a mean: Student's interval of mean +- `reach` standard errors, corrected for skewness."""
    skewness = spread.skewness

    def studentized(x: float) -> float:
        if abs(skewness) < 1e-6:
            return x
        return 3 / skewness * (float(np.cbrt(1 + skewness * (x - skewness / 6))) - 1)

    return mean - spread.error * studentized(reach), mean - spread.error * studentized(-reach)


def wilson(share: float, error: float, reach: float) -> Interval | None:
    rows = share * (1 - share) / error**2
    if not rows > 0:
        return None
    middle = (share + reach**2 / (2 * rows)) / (1 + reach**2 / rows)
    half = reach * math.sqrt(share * (1 - share) / rows + reach**2 / (4 * rows**2)) / (1 + reach**2 / rows)
    return middle - half, middle + half


def distance_interval(moved: Floats, parts: Floats, effective: float, probability: float, seed: int) -> Interval | None:
    """Returns the confidence interval of a sum of |parts|, which chance makes too large (Kumar, Liang and Ma,
    "Verified uncertainty calibration", 2019). It holds each true sum for which the observed sum lies between the
    quantiles 1 - `probability` and `probability`. None if all parts' errors are 0, or one is not finite.

    Sums of |true part + normal error| are simulated, with the parts' covariance. How the true sum is divided among
    the parts is not known. Chance adds most if few parts make up the sum, and least if all parts are equally many
    standard errors. The lower end divides the true sum in proportion to the parts' excess over chance. The upper end
    divides it in proportion to the standard errors, and is at least the one-sided end for parts of certain sign. A
    true sum below all upper ends is missed on one side only, so the lower end may miss it as often as both (Feldman
    and Cousins, "Unified approach to the classical statistical analysis of small signals", 1998).

    Args:
        moved: how much each unit moves each part, [units, parts].
        parts: [parts]
        effective: the effective number of units.
    """
    covariance = moved.T @ moved
    error = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    seen = float(np.abs(parts).sum())
    if not (np.isfinite(covariance).all() and error.sum() > 1e-12 * seen):
        return None
    # of few units the error is uncertain, that of many parts less so
    alike = float(np.trace(covariance) ** 2 / (covariance**2).sum())
    likely = spread_of_sum(np.sqrt((moved**2).sum(1)), (effective - 1) * alike + 1)
    freedom = math.inf if likely is None else likely.freedom
    drawn = _normal_scores(len(parts), seed) @ _root(covariance)
    drawn *= quantile(probability, freedom) / quantile(probability, math.inf)

    def true(share: Floats, at: float) -> float:
        """Returns the true sum, divided like `share`, for which the observed sum is the quantile `at` of the simulated sums."""
        share = np.where(parts < 0, -share, share)

        def above(factor: float) -> bool:
            return _quantile_of(np.abs(factor * share + drawn).sum(1), at) >= seen

        if above(0.0):
            return 0.0
        total = float(np.abs(share).sum())
        low, high = 0.0, (seen + 4 * float(error.sum())) / total
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (low, middle) if above(middle) else (middle, high)
        return high * total

    def reach(signs: Floats) -> float:
        one_sided = probability if len(parts) == 1 else 2 * probability - 1
        return quantile(one_sided, freedom) * math.sqrt(max(float(signs @ covariance @ signs), 0.0))

    signs = np.where(parts < 0, -1.0, 1.0)
    beyond = np.sqrt(np.maximum(parts**2 - 2 * error**2, 0.0))
    divided = beyond if beyond.any() else np.abs(parts)
    least = float(np.quantile(np.abs(drawn).sum(1), 0.25)) + reach(signs)
    low = min(true(divided, 2 * probability - 1), max(least, true(divided, probability)))
    return low, max(true(error, 1 - probability), seen + reach(signs))


def _root(covariance: Floats) -> Floats:
    """Returns the symmetric square root of a covariance matrix. Other roots depend on the signs and rotations of
    eigenvectors, which rounding can change."""
    values, vectors = np.linalg.eigh(covariance)
    root: Floats = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    return root


@lru_cache(8)
def _normal_scores(parts: int, seed: int) -> Floats:
    """Returns evenly spaced quantiles of the normal distribution, in another random order for each part, [draws, parts]."""
    of, random = NormalDist(), np.random.default_rng(seed)
    scores = np.array([of.inv_cdf((i + 0.5) / DRAWS) for i in range(DRAWS)])
    return np.stack([random.permutation(scores) for _ in range(parts)], 1)


def _quantile_of(values: Floats, at: float) -> float:
    """Returns what `numpy.quantile` returns, without the checks, which for few values take most of the time."""
    place = at * (len(values) - 1)
    low = min(int(place), len(values) - 2)
    below, above = np.partition(values, (low, low + 1))[low : low + 2].tolist()
    return float(below + (place - low) * (above - below))


# --- chances, by Student's t distribution


def quantile(probability: float, freedom: float) -> float:
    """Returns the quantile of Student's t distribution; infinite `freedom` means the normal one. From 2 degrees of freedom on it
    is within 5% up to 0.975 (Wallace, "Bounds on normal approximations to Student's and the chi-square distributions", 1959)."""
    z = NormalDist().inv_cdf(probability)
    if math.isinf(freedom):
        return z
    exponent = (z * (8 * freedom + 3) / (8 * freedom + 1)) ** 2 / freedom
    return math.copysign(math.sqrt(freedom * math.expm1(min(exponent, 700.0))), z)


def tail(distance: float, error: float, freedom: float) -> float:
    """Returns the probability, by Student's t, of an estimate below `distance` if the true value is 0. From 4 degrees
    of freedom on, the approximation is at most 0.3% too small."""
    if error == 0:
        return 0.0 if distance < 0 else 1.0
    z = distance / error
    if not math.isinf(freedom):  # the inverse of `quantile`
        z = math.copysign(math.sqrt(freedom * math.log1p(z * z / freedom)), z) * (8 * freedom + 1) / (8 * freedom + 3)
    # erfc, not 1 - cdf: it keeps its precision in the far tail
    return 0.5 * math.erfc(-z / math.sqrt(2))


def holm(chances: Sequence[float]) -> list[float]:
    """Returns the p values of several tests, corrected for the number of tests. The chance of any false finding is
    then no larger than in one test (Holm, "A simple sequentially rejective multiple test procedure", 1979)."""
    adjusted, highest = [1.0] * len(chances), 0.0
    for rank, place in enumerate(np.argsort(chances, kind="stable")):
        highest = max(highest, min(1.0, (len(chances) - rank) * chances[place]))
        adjusted[place] = highest
    return adjusted
