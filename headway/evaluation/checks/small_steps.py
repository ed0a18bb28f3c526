"""Many promotions seen together: small steps down that add up, and how lucky the seed of one champion is.

    models = Levels.of(measured, AUC)               # from promotion to promotion, on one scale
    models.decline(tolerance=0.006, share=1.0)      # a fall that no single comparison could tell from chance; or None
    models.luck(place)                              # how far above the last champions one of them is by chance

Each run compares its candidate, and the champion, with one early champion, the reference, on the same rows. What makes rows
easy or hard cancels in these differences, so they put all champions on one scale, and their errors do not add up from
promotion to promotion.

A fall is the slope of a straight line through them, held against two variances: that of the rows, which the bootstrap knows
(rows that two runs share count once), and that of the seeds, which is what is left around the line. Every promotion tests
again, so the allowed error shrinks with their number k like 1 / (log k (1 + log k)), whose sum over doublings of k is finite: in
simulations of equal recipes 3 to 5% of chains were ever stopped by mistake, of 100 promotions and of 400.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headway.config import Frozen
from headway.evaluation.bootstrap import Difference
from headway.evaluation.verdict import BEYOND, STEPS, Check
from headway.messages import between, chance, counted, number, signed
from headway.metrics.base import Better, Floats, Metric

ERROR = 0.1 / 3
"""Of the first test; see `allowed`."""
FEWEST = 4
"""Models of which a line and its scatter can be told."""
CONFIDENCE = 0.95
"""Of the interval of a fall."""
LAST = 10
"""The champions that one is held against to say how lucky it is."""


class Measured(Frozen):
    """A model beside the reference, on the eval rows of one run."""

    place: int
    """Of the model among the champions, from the reference, which is 0; that of the candidate is the last."""
    eval: tuple[tuple[str, str], ...] = ()
    """(span, split) pairs: where the rows come from."""
    differences: dict[str, tuple[float, float]]
    """By metric: model - reference, and its standard error."""


def differences(compared: Sequence[Check]) -> dict[str, tuple[float, float]]:
    """By metric: the difference and its standard error, as far as they are known."""
    return {
        str(each.metric): (each.change, each.error)
        for each in compared
        if each.change is not None and each.error is not None
    }


def of_champion(overall: Sequence[Check], reference: Sequence[Check]) -> dict[str, tuple[float, float]]:
    """The champion - the reference by each metric, which follows from the candidate's two comparisons on the same rows; the
    error is that of the candidate - the reference."""
    champion = {each.metric: each.before for each in overall if each.before is not None}
    return {
        str(each.metric): (champion[each.metric] - each.before, each.error)
        for each in reference
        if each.metric in champion and each.before is not None and each.error is not None
    }


def allowed(models: int, share: float) -> float:
    """The error that the test of so many models may make; `share` of it is a metric's."""
    doublings = math.log2(models)
    return share * ERROR / (doublings * (doublings + 1))


@dataclass(frozen=True, kw_only=True)
class Decline:
    """A fall from promotion to promotion, by one metric."""

    metric: str
    models: int
    """Among them the reference and the candidate."""
    change: float
    """From the reference to the candidate along the line, in the metric's unit and with its sign."""
    interval: tuple[float, float]
    p: float
    allowed: float
    tolerance: float

    def check(self, reference: int, better: Better) -> Check:
        """What the verdict keeps of it.

        Args:
            reference: the version that the fall is counted from.
            better: which values of the metric are better.
        """
        return Check(
            name=STEPS,
            metric=self.metric,
            against=f"version {reference}",
            change=self.change,
            interval=self.interval,
            confidence=CONFIDENCE,
            better=better,
            allowed=self.tolerance,
            limit=f"over {counted(self.models - 1, 'model')}",
            p=self.p,
            outcome=BEYOND,
            passed=False,
        )

    def summary(self, reference: int) -> str:
        """The fall in a clause."""
        return (
            f"{self.metric} has become worse step by step since version {reference}: by {signed(self.change)} over "
            f"{counted(self.models - 1, 'model')}, beyond the limit of {number(self.tolerance)}"
        )

    @property
    def detail(self) -> str:
        by_chance = f"{chance(self.p)}, and chance explains {number(self.allowed)}"
        return f"{between(self.interval, CONFIDENCE)}; {by_chance}"


@dataclass(frozen=True)
class Levels:
    """Models on one scale, the reference first."""

    metric: Metric
    name: str
    places: Floats
    values: Floats
    """Differences from the reference, turned so that up is good."""
    rows: Floats
    """Their covariance for the rows, [models, models]."""

    @classmethod
    def of(cls, measured: Sequence[Measured], metric: Metric, name: str | None = None) -> Levels:
        """Measurements of one model are averaged.

        Args:
            name: the name of the metric in `measured`; by default its own.
        """
        name = name or metric.name
        found = [each for each in measured if name in each.differences]
        places = sorted({0, *(each.place for each in found)})
        parts = [each.eval or (("", str(i)),) for i, each in enumerate(found)]
        spans = {part: i for i, part in enumerate(dict.fromkeys(part for each in parts for part in each))}
        values, rows = np.zeros(len(places)), np.zeros((len(places), len(spans)))
        times = np.maximum(np.bincount([places.index(each.place) for each in found], minlength=len(places)), 1)
        for each, of in zip(found, parts, strict=True):
            at = places.index(each.place)
            difference, error = each.differences[name]
            values[at] += difference / times[at]
            rows[at, [spans[part] for part in of]] += error / math.sqrt(len(of)) / times[at]
        values = values if metric.higher_is_better else -values
        return cls(metric, name, np.array(places, float), values, rows @ rows.T)

    def __len__(self) -> int:
        return len(self.places)

    def _line(self) -> tuple[float, float, float]:
        """(slope, its standard error, the variance of seeds)"""
        at = self.places - self.places.mean()
        spread = float(at @ at)
        slope = float(at @ self.values) / spread
        rest = self.values - self.values.mean() - slope * at
        fitted = 1 / len(self) + np.outer(at, at) / spread
        by_rows = float(np.trace(self.rows) - (fitted * self.rows).sum())  # of the squares of what is left
        seeds = max(0.0, (float(rest @ rest) - by_rows) / (len(self) - 2))
        return slope, math.sqrt(seeds / spread + float(at @ self.rows @ at) / spread**2), seeds

    def decline(self, tolerance: float, share: float) -> Decline | None:
        """A fall from the reference to the last model that is larger than the tolerance and that chance does not explain."""
        if len(self) < FEWEST:
            return None
        slope, error, _ = self._line()
        way = float(self.places[-1] - self.places[0])
        up = 1 if self.metric.higher_is_better else -1
        fall = Difference(
            metric=self.name,
            candidate=None,
            champion=None,
            difference=slope * way,
            standard_error=error * way,
            freedom=len(self) - 2,
        )
        p, most, reach = fall.probability_below(0.0), allowed(len(self), share), fall.interval(CONFIDENCE)
        assert p is not None and reach is not None
        if slope * way >= -tolerance or p >= most:
            return None
        return Decline(
            metric=self.name,
            models=len(self),
            change=slope * way * up,
            interval=reach if up > 0 else (-reach[1], -reach[0]),
            p=p,
            allowed=most,
            tolerance=tolerance,
        )

    def luck(self, place: int) -> float:
        """How far above the last champions the one at this place is, as far as its seed explains that; 0 or more.

        The share of the seed is var(seeds) / (var(seeds) + var(rows)), the posterior mean of normal distributions.
        """
        if len(self) < FEWEST or place not in self.places:
            return 0.0
        i, (_, _, seeds) = int(np.flatnonzero(self.places == place)[0]), self._line()
        above = float(self.values[i] - self.values[-LAST:].mean())
        return max(0.0, above * seeds / (seeds + float(self.rows[i, i]))) if seeds else 0.0
