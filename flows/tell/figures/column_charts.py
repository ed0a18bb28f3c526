"""Histograms of a column, several sides with the same bars, and how far two are apart.

shares([ours, theirs]).heights                     # of each side's `ColumnStatistics`, which may be None
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.statistics.column_statistics import ColumnStatistics
from headway.validation.drift import drift_distance

BINS, FEW, _OUTER = 20, 20, (0.01, 0.99)
"""Numbers of few different values have a bar for each; of others the outermost bins hold all that lies beyond."""
_LOOKED_UP, _MOST_WORDS = 2000, 200_000
"""Of the champion's most frequent words; words of a column that are looked through."""


def distance(ours: ColumnStatistics | None, theirs: ColumnStatistics | None) -> float | None:
    """How far a column is from the champion's, as validation measures it; None where it cannot be told."""
    if ours is None or theirs is None or (ours.type == "bytes" and not (_countable(ours) and _countable(theirs))):
        return None
    return drift_distance(ours, theirs)


class Shares(NamedTuple):
    """The share of the values in each bar, of every side that is known; and what the bars stand for."""

    sides: list[NDArray[np.float64] | None]
    bars: list[Any]
    """The value of each bar, or the edges between them, one more."""

    @property
    def highest(self) -> float:
        """The greatest share."""
        return max(float(side.max(initial=0.0)) for side in self.sides if side is not None) or 1.0

    @property
    def heights(self) -> list[list[float]]:
        """The bars of each side as shares of the highest; none of an unknown side."""
        return [[] if side is None else (side / self.highest).tolist() for side in self.sides]


def shares(sides: Sequence[ColumnStatistics | None]) -> Shares | None:
    """The same bars for all sides, chosen by the first; None where nothing was counted.

    Args:
        sides: of one column; those of another type are left out.
    """
    ours = sides[0]
    if ours is None:
        return None
    known = [side if side is not None and side.type == ours.type else None for side in sides]
    if ours.type == "bytes":
        return _of_words(ours, known) if _countable(ours) and ours.values else None
    if not ours.finite:
        return None
    known = [side if side is not None and side.finite else None for side in known]
    return _of_values(known) or _of_bins(ours, known)


def _countable(column: ColumnStatistics) -> bool:
    """Whether text was counted, and has not so many values that looking through them takes long."""
    return column.text is not None and column.distinct <= _MOST_WORDS


def _of_words(ours: ColumnStatistics, sides: Sequence[ColumnStatistics | None]) -> Shares:
    words = [word for word, _ in ours.top(FEW)]

    def of(side: ColumnStatistics | None) -> NDArray[np.float64] | None:
        if side is None or not _countable(side):
            return None
        counts = dict(side.top(FEW if side is ours else _LOOKED_UP))
        return np.array([counts.get(word, 0) for word in words], np.float64) / max(side.values, 1)

    return Shares(list(map(of, sides)), [word.decode("utf-8", "backslashreplace") for word in words])


def _of_values(sides: Sequence[ColumnStatistics | None]) -> Shares | None:
    """The shares of each value; None where there are many values, or they were not counted."""
    if any(side is not None and (side.numbers is None or side.distinct > FEW) for side in sides):
        return None
    counts = [None if side is None else dict(side.top()) for side in sides]
    values = sorted({value for each in counts if each is not None for value in each})
    if len(values) > FEW:
        return None

    def of(each: dict[Any, int] | None) -> NDArray[np.float64] | None:
        return None if each is None else np.array([each.get(v, 0) for v in values]) / max(sum(each.values()), 1)

    return Shares(list(map(of, counts)), values)


def _of_bins(ours: ColumnStatistics, sides: Sequence[ColumnStatistics | None]) -> Shares:
    low, high = (float(value) for value in ours.quantile(_OUTER))
    ends = [float(end) for side in sides if side for end in (side.minimum, side.maximum) if end is not None]
    least, most = min(ends), max(ends)
    if not low < high:
        low, high = least, most
    if not low < high:
        return Shares([np.ones(1), *([None] * (len(sides) - 1))], [low])
    shown = np.linspace(low, high, BINS + 1)
    edges = shown.copy()
    edges[0], edges[-1] = min(least, low), max(most, high)
    return Shares([None if side is None else side.per_bin(edges) / side.finite for side in sides], shown.tolist())
