"""A column's finite train values as weighted points, passed through the operations that are fitted.

    sample = TrainSample(statistics)
    sample.through(FittedOp(op="log"))           # noted; values are drawn when they are asked for
    sample.moments(), sample.quantile([0.5])

Where every distinct value was counted the points are those, else 1,001 quantiles, which cost half a millisecond: most columns
of a wide table are standardized by their moments and need none.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headway.statistics.column_statistics import ColumnStatistics
from tfcore.transform.fitted import FittedOp, apply_numeric

_QUANTILES = 1001
_WIDE = 0.1
"""Were all points equal, a thousandth of the values at most would be others, and the deviation a 30th of the range."""
_RANKS = ((np.arange(_QUANTILES) + 0.5) / _QUANTILES).tolist()


class TrainSample:
    """See the module."""

    def __init__(self, stats: ColumnStatistics):
        self._stats = stats
        self._drawn: NDArray[np.float64] | None = None
        self._later: list[FittedOp] = []
        self.weights = np.ones(0)
        self.empty = not stats.finite

    @property
    def values(self) -> NDArray[np.float64]:
        values = self._raw() if self._drawn is None else self._drawn
        for op in self._later:
            values = apply_numeric(op, values)
        self._drawn, self._later = values, []
        return values

    @values.setter
    def values(self, values: NDArray[np.float64]) -> None:
        self._drawn = values

    def _raw(self) -> NDArray[np.float64]:
        if self._stats.numbers is not None:
            values, counts = self._stats.numbers.sorted()
            self.weights = counts.astype(np.float64)
            return values.astype(np.float64)
        self.weights = np.ones(_QUANTILES)
        return self._stats.quantile(_RANKS)

    def through(self, op: FittedOp) -> None:
        self._later.append(op)

    @property
    def same(self) -> bool:
        """Whether all points are equal, or there are none."""
        if self._drawn is not None or self._later:
            return self.empty or bool(self.values.min() == self.values.max())
        if self._stats.numbers is not None:
            values = self._stats.numbers.sorted()[0]
            return self.empty or float(values[0]) == float(values[-1])
        stats = self._stats
        if (
            stats.minimum is not None
            and stats.maximum is not None
            and stats.std > _WIDE * (stats.maximum - stats.minimum)
        ):
            return False
        low, high = self._stats.quantile([_RANKS[0], _RANKS[-1]]).tolist()  # quantiles rise, so the ends tell
        return bool(low == high)

    def moments(self) -> tuple[float, float]:
        if self.empty:
            return 0.0, 0.0
        mean = float(np.average(self.values, weights=self.weights))
        return mean, float(np.sqrt(np.average((self.values - mean) ** 2, weights=self.weights)))

    def quantile(self, at: Sequence[float]) -> NDArray[np.float64]:
        order = np.argsort(self.values, kind="stable")
        ends = np.cumsum(self.weights[order])
        places = np.searchsorted(ends, np.asarray(at) * ends[-1] - 1e-9)
        return self.values[order][np.minimum(places, len(order) - 1)]
