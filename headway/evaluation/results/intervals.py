"""Confidence intervals of one model's metrics, in one pass over the rows.

    intervals(rows, metrics)          # {"auc": (0.70, 0.74), "loss": (0.41, 0.44), ...}

The standard error comes from how much a metric moves with the weight of each row (`Metric.influence`), added up by unit where
rows are drawn together: what a bootstrap of the rows converges to, without drawing. Intervals are by Student's t, with as many
degrees of freedom as the variance of that variance leaves (Satterthwaite, 1946): of a share of 2% these are twice the rows of the
rarer class. What a metric is decides their form:

    a mean               a loss, and its root: corrected for skewness (Hall, "On the removal of skewness by transformation", 1992)
    a share              Wilson's score interval of as many rows as have this error (Franco et al., "Comparative study of
                         confidence intervals for proportions in complex sample surveys", 2019)
    a sum of distances   ece, miscoverage: chance alone makes them positive; see `_distances`
    a ratio, an r2       symmetric in its logarithm, in that of 1 - r2

A metric of the user's own has no derivative: it is computed twenty times, each time without a twentieth of the rows (the
delete-a-group jackknife: Kott, "The delete-a-group jackknife", 2001), of many rows on a sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headway.evaluation.bootstrap import effective_groups, quantile, resampling_units
from headway.evaluation.sample_size import uncompared
from headway.messages import agree, listed
from headway.metrics.base import Floats, Metric, MomentMetric, Rows

Interval = tuple[float, float]
BLOCKS = 20
"""Parts of the rows, each of which is left out once."""
MOST_UNITS = 50_000
"""A metric without a derivative is computed on so many rows, or groups, at most; the error of all follows from theirs."""
FEW = 5
"""So few rows carry half of the variance only where the rarest of them decide."""
DRAWS = 400
"""Of a normal distribution, for sums of distances."""


def intervals(
    rows: Rows, metrics: Sequence[Metric], *, confidence: float = 0.95, seed: int = 0
) -> dict[str, Interval | None]:
    """The two-sided interval of each metric, by name.

    None where a metric has no value or no spread, and on too few rows (`headway.evaluation.sample_size`). Rows of one unit
    are drawn together.
    """
    codes, units = (None, len(rows)) if rows.drawn is None else resampling_units(rows.drawn)
    sample = _Sample(rows, codes, units, effective_groups(rows), seed)
    return {
        metric.name: None if uncompared(metric, rows) else _interval(metric, sample, (1 + confidence) / 2)
        for metric in metrics
    }


def few_rows(rows: Rows, metrics: Sequence[Metric]) -> str | None:
    """A sentence, where a few rows or units carry half of the variance of a metric: how large such rows are is hardly known from
    so few of them, and intervals are too narrow."""
    codes, units = (None, len(rows)) if rows.drawn is None else resampling_units(rows.drawn)
    sample = _Sample(rows, codes, units, effective_groups(rows), 0)
    found: dict[str, int] = {}
    for metric in metrics:
        influence = None if uncompared(metric, rows) else metric.influence(rows)
        if influence is None:
            continue
        squares = np.sort(sample.moved(influence) ** 2)[::-1]
        count = int(np.searchsorted(np.cumsum(squares), squares.sum() / 2)) + 1
        if squares.sum() > 0 and count <= FEW and 20 * count <= units:
            found[metric.name] = count
    if not found:
        return None
    count = max(found.values())
    few = f"{count} of {units:,} {'rows' if codes is None else 'units'} {agree(count, 'carries', 'carry')} half of the variance"
    return f"{agree(len(found), 'the interval', 'intervals')} of {listed([*found])} may be too narrow: {few}"


def spread_of(rows: Rows, influence: Floats) -> Spread | None:
    """The spread of something by its derivative by the weight of each row, [rows]; None where it has none."""
    codes, units = (None, len(rows)) if rows.drawn is None else resampling_units(rows.drawn)
    sample = _Sample(rows, codes, units, effective_groups(rows), 0)
    return _spread(sample.moved(influence), sample.effective)


@dataclass(eq=False)
class _Sample:
    """Rows, and what they are drawn by."""

    rows: Rows
    codes: NDArray[np.int64] | None
    """The unit of each row; None: each row is one."""
    units: int
    effective: float
    """As how many units of equal weight they count; infinite where each row is one."""
    seed: int

    @cached_property
    def without(self) -> list[Rows]:
        """The rows without each twentieth of the units; of many units a sample."""
        random = np.random.Philox(key=self.seed).random_raw(self.units)
        place = np.argsort(random, kind="stable")[:MOST_UNITS]
        block = np.full(self.units, -1)
        block[place] = np.arange(len(place)) % BLOCKS
        of_row = block if self.codes is None else block[self.codes]
        kept = self.rows.at(of_row >= 0) if len(place) < self.units else self.rows
        of_row = of_row[of_row >= 0]
        return [kept.at(of_row != number) for number in range(BLOCKS)]

    def moved(self, influence: Floats) -> Floats:
        """How much each unit moves something, widened for few units: [rows] or [rows, width] -> [units] or [units, width]."""
        moved = influence * (self.rows.weight if influence.ndim == 1 else self.rows.weight[:, None])
        if self.codes is None:
            return moved
        columns = moved.reshape(len(moved), -1).T
        moved = np.stack([np.bincount(self.codes, column, self.units) for column in columns], 1)
        widening = math.sqrt(self.effective / (self.effective - 1)) if self.effective > 1 else math.inf
        return widening * (moved if influence.ndim > 1 else moved[:, 0])


def _interval(metric: Metric, sample: _Sample, probability: float) -> Interval | None:
    rows = sample.rows
    if (value := metric.on(rows)) is None:
        return None
    if (parts := metric.distances(rows)) is not None:
        return _clipped(metric, _distances(sample.moved(parts[1]), parts[0], sample, probability))
    mean = metric.mean_of(rows) if isinstance(metric, MomentMetric) and metric.within != (0.0, 1.0) else None
    influence = metric.influence(rows) if mean is None else (mean[0] - mean[1]) / rows.total
    if influence is None:
        error, freedom = _jackknifed(metric, sample), min(BLOCKS, sample.effective) - 1.0
        spread = None if error is None else Spread(error, freedom, 0.0)
    else:
        spread = _spread(sample.moved(influence), sample.effective)
    scale = abs(value) if mean is None else abs(mean[1])
    if spread is None or not (spread.error > 1e-12 * scale and math.isfinite(spread.error)):
        return None
    reach = quantile(probability, spread.freedom)
    if mean is not None:
        assert isinstance(metric, MomentMetric)
        return _clipped(metric, metric.ends(_skewed(mean[1], spread, reach)))
    if metric.within == (0.0, 1.0):
        return _clipped(metric, _wilson(value, spread.error, reach))
    end = metric.within[1] if math.isfinite(metric.within[1]) else 0.0
    if metric.ratio and value != end:
        factor = math.exp(min(reach * spread.error / abs(value - end), 700.0))
        ends = sorted((end + (value - end) / factor, end + (value - end) * factor))
        return ends[0], ends[1]
    return _clipped(metric, (value - reach * spread.error, value + reach * spread.error))


def _clipped(metric: Metric, interval: Interval | None) -> Interval | None:
    if interval is None:
        return None
    least, most = metric.within
    return max(interval[0], least), min(interval[1], most)


@dataclass(frozen=True)
class Spread:
    """How uncertain an estimate is."""

    error: float
    """Standard."""
    freedom: float
    """Degrees of freedom of the error."""
    skewness: float
    """Of the estimate."""


def _spread(moved: Floats, effective: float) -> Spread | None:
    squares = moved**2
    total = float(squares.sum())
    if not (total > 0 and math.isfinite(total)):
        return None
    # the variance of the sum of the squares, of which the mean is taken away
    noise = float((squares**2).sum()) - total**2 / len(moved)
    freedom = 2 * total**2 / noise if noise > 0 else math.inf
    skewness = float((squares * moved).sum()) / total**1.5
    return Spread(math.sqrt(total), max(min(freedom, effective - 1), 0.5), skewness)


def _skewed(mean: float, spread: Spread, reach: float) -> Interval:
    """Hall's interval of a mean."""
    skewness = spread.skewness

    def studentized(x: float) -> float:
        if abs(skewness) < 1e-6:
            return x
        return 3 / skewness * (float(np.cbrt(1 + skewness * (x - skewness / 6))) - 1)

    return mean - spread.error * studentized(reach), mean - spread.error * studentized(-reach)


def _wilson(share: float, error: float, reach: float) -> Interval | None:
    rows = share * (1 - share) / error**2
    if not rows > 0:
        return None
    middle = (share + reach**2 / (2 * rows)) / (1 + reach**2 / rows)
    half = reach * math.sqrt(share * (1 - share) / rows + reach**2 / (4 * rows**2)) / (1 + reach**2 / rows)
    return middle - half, middle + half


def _distances(moved: Floats, parts: Floats, sample: _Sample, probability: float) -> Interval | None:
    """The interval of a sum of |parts|, which chance makes greater than it is (Kumar, Liang and Ma, "Verified uncertainty
    calibration", 2019): the sums that would give the one seen, between the quantiles of `probability` on either side.

    Each is |true parts + a normal error|, drawn with the parts' covariance. How the true sum is divided among the parts is not
    known. Chance adds most where few parts have it, and least where all have as many standard errors: the lower end takes the
    parts without what chance explains, the upper one equal parts, but not less than
    the one-sided end where no sign is in doubt.

    Args:
        moved: [units, parts]
        parts: [parts]
    """
    covariance = moved.T @ moved
    error = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    seen = float(np.abs(parts).sum())
    if not (
        np.isfinite(covariance).all() and error.sum() > 1e-12 * seen and math.isfinite(sample.effective - 1)
    ) and not (sample.codes is None and error.sum() > 1e-12 * seen):
        return None
    values, vectors = np.linalg.eigh(covariance)
    half = np.random.default_rng(sample.seed).standard_normal((DRAWS // 2, len(parts)))
    drawn = np.concatenate([half, -half]) * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
    if not math.isinf(sample.effective):
        drawn = drawn * (quantile(probability, sample.effective - 1) / quantile(probability, math.inf))

    def true(share: Floats, at: float) -> float:
        """The sum, divided by `share`, of which the one seen is the quantile `at`."""
        share = np.where(parts < 0, -share, share)

        def above(factor: float) -> bool:
            return float(np.quantile(np.abs(factor * share + drawn).sum(1), at)) >= seen

        if above(0.0):
            return 0.0
        total = float(np.abs(share).sum())
        low, high = 0.0, (seen + 4 * float(error.sum())) / total
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (low, middle) if above(middle) else (middle, high)
        return high * total

    beyond = np.sqrt(np.maximum(parts**2 - 2 * error**2, 0.0))
    low = true(beyond if beyond.any() else np.abs(parts), probability)
    signs = np.sign(parts)
    reach = quantile(2 * probability - 1, sample.effective - 1) * math.sqrt(max(float(signs @ covariance @ signs), 0.0))
    return low, max(true(error, 1 - probability), seen + reach)


def _jackknifed(metric: Metric, sample: _Sample) -> float | None:
    values = [metric.on(rows) for rows in sample.without]
    known = np.asarray([value for value in values if value is not None], np.float64)
    if len(known) < BLOCKS // 2:
        return None
    spread = float(((known - known.mean()) ** 2).sum()) * (len(known) - 1) / len(known)
    return math.sqrt(spread * min(sample.units, MOST_UNITS) / sample.units)
