"""How much worse a metric is with a column's values permuted, and how sure that is.

Worsening(metric, plain).of([permuted, permuted_again])       # {"permuted": 0.21, "interval": [0.19, 0.23]}
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.evaluation.bootstrap import quantile
from headway.evaluation.results.intervals import spread_of
from headway.metrics.base import Metric, Rows

REPEATS = 3
"""Permutations of each column; their mean counts."""
CONFIDENCE = 0.95


def spread(rows: int, most: int) -> NDArray[np.int64]:
    """The numbers of at most `most` of the rows, evenly spread, in their order."""
    count = min(rows, most)
    return np.arange(count) * rows // max(count, 1)


def within(sample: NDArray[np.int64], first: int, count: int) -> NDArray[np.int64]:
    """Where the sample's rows are among the `count` rows that begin at `first`."""
    start, end = np.searchsorted(sample, [first, first + count])
    return sample[start:end] - first


class Worsening:
    """A metric of the model as it is, and what others have less.

    Args:
        plain: the rows with the model's own predictions.
    """

    def __init__(self, metric: Metric, plain: Rows):
        self._metric, self._plain = metric, plain
        self._before, self._influence = metric.on(plain), metric.influence(plain)

    def of(self, permuted: Sequence[Rows]) -> dict[str, Any]:
        """permuted: the mean worsening, None where the metric has no value; interval: [low, high] of it, or None."""
        known = [each for rows in permuted if (each := self.by(rows)) is not None]
        mean = float(np.mean(known)) if len(known) == len(permuted) else None
        return {"permuted": mean, "interval": None if mean is None else self._interval(permuted, mean)}

    def result(self, columns: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """What an importance stage tells: columns have what `of` gives them, and come the most important first."""
        order = sorted(
            columns, key=lambda each: -np.inf if each["permuted"] is None else each["permuted"], reverse=True
        )
        return {"rows": len(self._plain), "metric": self._metric.name, "value": self._before, "columns": order}

    def by(self, rows: Rows) -> float | None:
        """How much worse these predictions are."""
        after = self._metric.on(rows)
        if self._before is None or after is None:
            return None
        return self._before - after if self._metric.higher_is_better else after - self._before

    def _interval(self, permuted: Sequence[Rows], mean: float) -> list[float] | None:
        """The interval of the mean worsening: of other rows of the same kind, permuted as these were."""
        after = [self._metric.influence(rows) for rows in permuted]
        if self._influence is None or any(each is None for each in after):
            return None
        moved = np.mean([each for each in after if each is not None], axis=0) - self._influence
        if (spread := spread_of(self._plain, moved)) is None:
            return [mean, mean]
        reach = quantile(0.5 + CONFIDENCE / 2, spread.freedom) * spread.error
        return [mean - reach, mean + reach]
