"""Small histograms of columns, the champion's train rows beside this run's, and how far they are apart.

pictures = histograms([(ours, theirs), ...])       # an <svg> for each pair of `ColumnStatistics`; theirs may be None
"""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from flows.tell.figures.drawing import FIRST, SECOND
from flows.tell.figures.strips import Strips
from headway.statistics.column_statistics import ColumnStatistics
from headway.validation.drift import drift_distance

BINS, FEW, _OUTER = 20, 20, (0.01, 0.99)
"""Numbers of few different values have a bar for each; of others the outermost bins hold all that lies beyond."""
_LOOKED_UP, _MOST_WORDS = 2000, 200_000
"""Of the champion's most frequent words; words of a column that are looked through."""
Pair = tuple[ColumnStatistics, ColumnStatistics | None]
Shares = NDArray[np.float64]


def histograms(pairs: Sequence[Pair], *, name: str) -> list[Markup]:
    """A picture for each column: bars of ours, a line of theirs; empty where nothing was counted."""
    strips = Strips(len(pairs), height=26)
    for row, (ours, theirs) in enumerate(pairs):
        both = _shares(ours, theirs if theirs is not None and theirs.type == ours.type else None)
        if both is None:
            continue
        mine, other = both
        highest = max(mine.max(initial=0.0), 0.0 if other is None else other.max(initial=0.0)) or 1.0
        strips.steps(row, (mine / highest).tolist(), FIRST, fill=True)
        if other is not None:
            strips.steps(row, (other / highest).tolist(), SECOND, fill=False)
    return strips.svgs()


def distance(ours: ColumnStatistics | None, theirs: ColumnStatistics | None) -> float | None:
    """How far a column is from the champion's, as validation measures it; None where it cannot be told."""
    if ours is None or theirs is None or (ours.type == "bytes" and not (_countable(ours) and _countable(theirs))):
        return None
    return drift_distance(ours, theirs)


def _shares(ours: ColumnStatistics, theirs: ColumnStatistics | None) -> tuple[Shares, Shares | None] | None:
    """The share of the values in each bar, of both sides."""
    if ours.type == "bytes":
        return _of_words(ours, theirs) if _countable(ours) else None
    if not ours.finite:
        return None
    few = _few(ours, theirs)
    return _of_bins(ours, theirs) if few is None else few


def _countable(column: ColumnStatistics) -> bool:
    """Whether text was counted, and has not so many values that looking through them takes long."""
    return column.text is not None and column.distinct <= _MOST_WORDS


def _of_words(ours: ColumnStatistics, theirs: ColumnStatistics | None) -> tuple[Shares, Shares | None]:
    top = ours.top(FEW)
    mine = np.array([count for _, count in top], np.float64) / max(ours.values, 1)
    if theirs is None or not _countable(theirs):
        return mine, None
    counts = dict(theirs.top(_LOOKED_UP))
    return mine, np.array([counts.get(word, 0) for word, _ in top], np.float64) / max(theirs.values, 1)


def _few(ours: ColumnStatistics, theirs: ColumnStatistics | None) -> tuple[Shares, Shares | None] | None:
    """The shares of each value; None where there are many values, or they were not counted."""
    sides = [side for side in (ours, theirs) if side is not None and side.finite]
    if any(side.numbers is None or side.distinct > FEW for side in sides):
        return None
    counts = [dict(side.top()) for side in sides]
    values = sorted({value for each in counts for value in each})
    if len(values) > FEW:
        return None
    shares = [np.array([each.get(v, 0) for v in values], np.float64) / max(sum(each.values()), 1) for each in counts]
    return shares[0], shares[1] if len(shares) > 1 else None


def _of_bins(ours: ColumnStatistics, theirs: ColumnStatistics | None) -> tuple[Shares, Shares | None]:
    sides = [side for side in (ours, theirs) if side is not None and side.finite]
    low, high = (float(value) for value in ours.quantile(_OUTER))
    ends = [float(end) for side in sides for end in (side.minimum, side.maximum) if end is not None]
    least, most = min(ends), max(ends)
    if not low < high:
        low, high = least, most
    if not low < high:
        return np.ones(1), None
    edges = np.linspace(low, high, BINS + 1)
    edges[0], edges[-1] = min(least, low), max(most, high)
    shares = [side.per_bin(edges) / side.finite for side in sides]
    return shares[0], shares[1] if len(shares) > 1 else None
