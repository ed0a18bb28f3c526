"""Confidence intervals of one model's metrics, in one pass over the rows.

    intervals(rows, metrics)          # {"auc": (0.70, 0.74), "loss": (0.41, 0.44), ...}

The standard error comes from how much a metric moves with the weight of each row (`Metric.influence`), added up by unit where
rows are drawn together: what a bootstrap of the rows converges to, without drawing. Intervals are by Student's t, with as many
degrees of freedom as the variance of that variance leaves (Satterthwaite, 1946): of a share of 2% these are twice the rows of the
rarer class. The largest error is taken to be as large as its tail says (`reaching`). What a metric is decides their form:

    a mean               a loss, and its root: corrected for skewness (Hall, "On the removal of skewness by transformation", 1992)
    a share              Wilson's score interval of as many rows as have this error (Franco et al., "Comparative study of
                         confidence intervals for proportions in complex sample surveys", 2019)
    a sum of distances   ece, miscoverage, bias: chance alone makes them positive; see `between_distances`
    an auc, pr_auc       symmetric in the logarithm of its odds (Qin and Hotilovac, "Comparison of non-parametric confidence
                         intervals for the area under the ROC curve of a continuous-scale diagnostic test", 2008)
    a ratio, an r2       symmetric in its logarithm, in that of 1 - r2; longer above where this is skewed still

A metric of the user's own has no derivative: it is computed twenty times, each time without a twentieth of the rows (the
delete-a-group jackknife: Kott, "The delete-a-group jackknife", 2001), of many rows on a sample. A choice that jumps as rows
change, such as a threshold, is made on twenty random thirds of them (Shao and Wu, "A general theory for jackknife variance
estimation", 1989).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.evaluation.bootstrap import drawn_units, effective_groups, quantile
from headway.evaluation.results.interval_forms import (
    Interval,
    Spread,
    between_distances,
    reaching,
    skewed,
    spread_of_sum,
    wilson,
)
from headway.evaluation.sample_size import uncompared
from headway.messages import agree, listed
from headway.metrics.base import Floats, Metric, MomentMetric, Rows, by_unit

BLOCKS = 20
"""Parts of the rows, each of which is left out once."""
MOST_UNITS = 50_000
"""The standard errors of all follow from those of so many random rows, or groups."""
PRECISE = 0.01
"""So near a standard error from the sample is to that from all rows, in two of three cases."""
FEW = 5
"""So few rows carry half of the variance only where the rarest of them decide."""


def intervals(
    rows: Rows, metrics: Sequence[Metric], *, confidence: float = 0.95, seed: int = 0
) -> dict[str, Interval | None]:
    """The two-sided interval of each metric, by name.

    None where a metric has no value or no spread, and on too few rows (`headway.evaluation.sample_size`). Rows of one unit
    are drawn together.
    """
    sample = _Sample(rows, seed)
    return {
        metric.name: None if uncompared(metric, rows) else _interval(metric, sample, (1 + confidence) / 2)
        for metric in metrics
    }


def few_rows(rows: Rows, metrics: Sequence[Metric]) -> str | None:
    """A sentence, where a few rows or units carry half of the variance of a metric: how large such rows are is hardly known from
    so few of them, and intervals are too narrow."""
    sample = _Sample(rows, 0)
    found: dict[str, int] = {}
    for metric in metrics:
        moved = None if uncompared(metric, rows) else sample.moved(metric, metric.moved)
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


def spread_of(rows: Rows, influence: Floats) -> Spread | None:
    """The spread of something by its derivative by the weight of each row, [rows]; None where it has none."""
    sample = _Sample(rows, 0)
    moved = by_unit(influence, rows, sample.codes, sample.units)
    return spread_of_sum(widened(moved, sample.effective), sample.effective)


@dataclass(eq=False)
class _Sample:
    """Rows, and what they are drawn by."""

    rows: Rows
    seed: int

    @property
    def codes(self) -> NDArray[np.int64] | None:
        """The unit of each row; None: each row is one."""
        return drawn_units(self.rows)[0]

    @property
    def units(self) -> int:
        return drawn_units(self.rows)[1]

    @cached_property
    def effective(self) -> float:
        """As how many units of equal weight they count; infinite where each row is one."""
        return effective_groups(self.rows)

    def moved(
        self, metric: Metric, of: Callable[[Rows, NDArray[np.int64] | None, int], Floats | None]
    ) -> Floats | None:
        """How much each unit moves something of a metric, `of` some rows; of many units a sample's, which together move it as
        much as all, if these tell its standard error to `PRECISE`. Not of a quotient without an upper end: where what it is
        divided by is near 0, it is another number in each sample, and so is how much a row moves it."""
        open_ended = metric.ratio and metric.within != (0.0, 1.0)
        if self.units > 2 * MOST_UNITS and not metric.heavy and not open_ended:
            some, _ = self._looked_at
            codes, count = drawn_units(some)
            if (found := of(some, codes, count)) is not None:
                squares = (found**2).reshape(count, -1).sum(1)
                if (squares**2).sum() <= (4 * PRECISE**2 + 1 / count) * squares.sum() ** 2:
                    return found * math.sqrt(count / self.units)
        return of(self.rows, self.codes, self.units)

    @property
    def _looked_at(self) -> tuple[Rows, NDArray[np.int64]]:
        """(the rows, of many units a sample; the place of each row's unit in a random order)"""

        def chosen() -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
            random = np.random.Philox(key=self.seed).random_raw(self.units)
            most = min(MOST_UNITS, self.units)
            order = np.flatnonzero(random <= np.partition(random, most - 1)[most - 1])
            order = order[np.argsort(random[order], kind="stable")][:most]
            place = np.full(self.units, -1)
            place[order] = np.arange(most)
            of_row = place if self.codes is None else place[self.codes]
            return of_row >= 0, of_row[of_row >= 0]

        kept, place = self.rows.once_for_all(("sample", self.seed), chosen)
        if len(place) == len(kept):
            return self.rows, place
        return self.rows.once(("sample", self.seed), lambda: self.rows.at(kept)), place

    @cached_property
    def without(self) -> list[Rows]:
        """The rows without each twentieth of the units."""
        rows, place = self._looked_at
        return [rows.at(place % BLOCKS != number) for number in range(BLOCKS)]

    @cached_property
    def thirds(self) -> list[Rows]:
        """The rows of a random third of the units, twenty times."""
        rows, place = self._looked_at
        count = min(self.units, MOST_UNITS)
        streams = (np.random.Philox(key=(self.seed, number + 1)) for number in range(BLOCKS))
        ranks = (np.argsort(np.argsort(stream.random_raw(count), kind="stable")) for stream in streams)
        return [rows.at(rank[place] < -(-count // 3)) for rank in ranks]

    def effective_of(self, metric: Metric) -> float:
        """As how many units of equal weight the rows count, those of the rarer class where the metric rests on these."""
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
    """How much each unit moves something, more where they count as few of equal weight."""
    if math.isinf(effective):
        return moved
    return moved * (math.sqrt(effective / (effective - 1)) if effective > 1 else math.inf)


def _interval(metric: Metric, sample: _Sample, probability: float) -> Interval | None:
    rows = sample.rows
    if (value := metric.on(rows)) is None:
        return None
    effective = sample.effective_of(metric)
    of_parts = None if (parts := metric.parts(rows)) is None else sample.moved(metric, metric.moved_parts)
    if parts is not None and of_parts is not None:
        moved = widened(of_parts, effective)
        return _clipped(metric, between_distances(moved, parts, effective, probability, sample.seed))
    mean, moving = None, metric.moved
    if isinstance(metric, MomentMetric) and metric.within != (0.0, 1.0) and (mean := metric.mean(rows)) is not None:
        moving = metric.moved_mean
    of_units = sample.moved(metric, moving)
    if of_units is None:
        error, freedom = _jackknifed(metric, sample), min(BLOCKS, effective) - 1.0
        spread = None if error is None else Spread(error, freedom, 0.0)
    else:
        moved = widened(of_units, effective)
        spread = spread_of_sum(reaching(moved) if metric.heavy else moved, effective)
    scale = abs(value if mean is None else mean)
    if spread is None or not (spread.error > 1e-12 * scale and math.isfinite(spread.error)):
        return None
    reach = quantile(probability, spread.freedom)
    if mean is not None:
        assert isinstance(metric, MomentMetric)
        return _clipped(metric, metric.ends(skewed(mean, spread, reach)))
    if metric.within == (0.0, 1.0) and metric.ratio and 0 < value < 1:
        odds, reach = math.log(value / (1 - value)), reach * spread.error / (value * (1 - value))
        return 0.5 + 0.5 * math.tanh((odds - reach) / 2), 0.5 + 0.5 * math.tanh((odds + reach) / 2)
    if metric.within == (0.0, 1.0):
        return _clipped(metric, wilson(value, spread.error, reach))
    end = metric.within[1] if math.isfinite(metric.within[1]) else 0.0
    if metric.ratio and value != end:
        size, sign = abs(value - end), math.copysign(1.0, value - end)
        error = spread.error / size
        # the logarithm takes so much of the skewness away
        left = Spread(error, spread.freedom, max(sign * spread.skewness - 1.5 * error, 0.0))
        further = max(reach * error, skewed(0.0, left, reach)[1])
        ends = sorted(end + sign * size * math.exp(min(each, 700.0)) for each in (-reach * error, further))
        return ends[0], ends[1]
    return _clipped(metric, (value - reach * spread.error, value + reach * spread.error))


def _clipped(metric: Metric, interval: Interval | None) -> Interval | None:
    if interval is None:
        return None
    least, most = metric.within
    return max(interval[0], least), min(interval[1], most)


def _jackknifed(metric: Metric, sample: _Sample) -> float | None:
    values = [metric.on(rows) for rows in (sample.without if metric.smooth else sample.thirds)]
    known = np.asarray([value for value in values if value is not None], np.float64)
    if len(known) < BLOCKS // 2:
        return None
    # the variance over samples without d of n units is d / (n - d) of the metric's; no unit is in two of the twentieths
    spread = float(known.var()) * (len(known) - 1) if metric.smooth else float(known.var(ddof=1)) / 2
    return math.sqrt(spread * min(sample.units, MOST_UNITS) / sample.units)
