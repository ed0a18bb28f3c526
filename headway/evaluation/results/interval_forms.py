"""The forms of intervals: what skewness, heavy tails and distances from 0 make of an estimate and its standard error.

    spread = spread_of_sum(reaching(moved), math.inf)
    low, high = skewed(mean, spread, quantile(0.975, spread.freedom))

`moved` is how much each unit moves the estimate.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from headway.evaluation.bootstrap import quantile
from headway.metrics.base import Floats

Interval = tuple[float, float]
DRAWS = 1000
"""Of a normal distribution, for sums of distances."""
TAIL = 1.5
"""The tail are so many times the square root of the rows, or units."""
LEAST_TAIL, MOST_TAIL = 5, 0.2
MOST_REACH = 1.5
"""The largest error is taken to be at most so many times as large as it was."""


@dataclass(frozen=True)
class Spread:
    """How uncertain an estimate is."""

    error: float
    """Standard."""
    freedom: float
    """Degrees of freedom of the error."""
    skewness: float
    """Of the estimate."""


def spread_of_sum(moved: Floats, effective: float) -> Spread | None:
    """The spread of the sum over the units, [units], which count as `effective` of equal weight; None where there is none."""
    squares = moved**2
    total = float(squares.sum())
    if not (total > 0 and math.isfinite(total)):
        return None
    # the variance of the sum of the squares, of which the mean is taken away
    noise = float((squares**2).sum()) - total**2 / len(moved)
    freedom = 2 * total**2 / noise if noise > 0 else math.inf
    skewness = float((squares * moved).sum()) / total**1.5
    return Spread(math.sqrt(total), max(min(freedom, effective - 1), 0.5), skewness)


def reaching(moved: Floats) -> Floats:
    """The same, the largest being as large as the largest of so many is in one of four samples, if that is more.

    Where a few rows carry the variance, a sample without such a row has too small an error and too little skewness, and a heavy
    tail shows in the rows below the largest. A generalized Pareto distribution is fitted to them (Zhang and Stephens, "A new and
    efficient estimation method for the generalized Pareto distribution", 2009).
    """
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


def skewed(mean: float, spread: Spread, reach: float) -> Interval:
    """Hall's interval of a mean."""
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


def between_distances(moved: Floats, parts: Floats, effective: float, probability: float, seed: int) -> Interval | None:
    """The interval of a sum of |parts|, which chance makes greater than it is (Kumar, Liang and Ma, "Verified uncertainty
    calibration", 2019): the sums that would give the one seen, between the quantiles of `probability` on either side.

    Each is |true parts + a normal error|, drawn with the parts' covariance. How the true sum is divided among the parts is not
    known. Chance adds most where few parts have it, and least where all have as many standard errors: the lower end takes the
    parts without what chance explains, the upper one equal parts, but not less than the one-sided end where no sign is in doubt.
    A true sum below all upper ends is missed on one side alone, so the lower end may miss it as often as both (Feldman and
    Cousins, "Unified approach to the classical statistical analysis of small signals", 1998).

    Args:
        moved: [units, parts]
        parts: [parts]
        effective: as how many units of equal weight they count.
    """
    covariance = moved.T @ moved
    error = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    seen = float(np.abs(parts).sum())
    if not (np.isfinite(covariance).all() and error.sum() > 1e-12 * seen):
        return None
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, 0.0)
    # of few units the error is uncertain, that of many parts less so
    likely = spread_of_sum(
        np.sqrt((moved**2).sum(1)), (effective - 1) * float(values.sum() ** 2 / (values**2).sum()) + 1
    )
    freedom = math.inf if likely is None else likely.freedom
    # the symmetric root: the vectors' signs, and their rotation where values are equal, hang on the last bit of a sum
    root = vectors * np.sqrt(values) @ vectors.T
    drawn = _normal_scores(len(parts), seed) @ root
    drawn *= quantile(probability, freedom) / quantile(probability, math.inf)

    def true(share: Floats, at: float) -> float:
        """The sum, divided by `share`, of which the one seen is the quantile `at`."""
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


@lru_cache(8)
def _normal_scores(parts: int, seed: int) -> Floats:
    """A normal distribution of each part, in a random order, [draws, parts]."""
    of, random = NormalDist(), np.random.default_rng(seed)
    scores = np.array([of.inv_cdf((i + 0.5) / DRAWS) for i in range(DRAWS)])
    return np.stack([random.permutation(scores) for _ in range(parts)], 1)


def _quantile_of(values: Floats, at: float) -> float:
    """NumPy's `quantile` of few values, without its checks, which take most of its time."""
    place = at * (len(values) - 1)
    low = min(int(place), len(values) - 2)
    below, above = np.partition(values, (low, low + 1))[low : low + 2].tolist()
    return float(below + (place - low) * (above - below))
