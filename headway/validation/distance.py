"""Distances between two columns' distributions, from their mergeable statistics alone.

    l_infinity(ours, theirs)             # text: the greatest change of one value's share, and whose it is
    jensen_shannon(ours, theirs)         # numbers: 0 for equal distributions, 1 for disjoint ones
    quantile_distance(ours, theirs)      # numbers: mean shift of the quantiles, in units of the wider 5% to 95% range

All are symmetric and zero for equal statistics. Numbers are binned by the quantiles of both sides together, so that a bin
holds about a twentieth of one side and a frequent value has a bin's edge of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.external_sort import paired

_BINS = 20
_GRID = np.linspace(0, 1, 1001)
INNER = np.linspace(0.05, 0.95, 19)


def l_infinity(ours: ColumnStatistics, theirs: ColumnStatistics) -> tuple[float, bytes, float, float]:
    """(the greatest change of a share, of which value, its share in ours, in theirs); shares of the rows with a value.

    Raises:
        ValueError: the values of one side were not counted.
    """
    if ours.text is None or theirs.text is None:
        raise ValueError(f"{ours.name}: the values were not counted, so there are no shares to compare")
    n, m = max(ours.values, 1), max(theirs.values, 1)
    found = -1.0, b"", 0.0, 0.0
    # block by block: there may be millions of words
    for values, a, b in paired(ours.text.blocks(), theirs.text.blocks()):
        change = np.abs(a / n - b / m)
        top = float(change.max())
        if top > found[0]:
            at = min(np.flatnonzero(change == top).tolist(), key=lambda i: values[i].as_py())
            found = top, values[at].as_py(), float(a[at] / n), float(b[at] / m)
    return found if found[0] >= 0 else (0.0, b"", 0.0, 0.0)


def jensen_shannon(ours: ColumnStatistics, theirs: ColumnStatistics) -> float:
    """The divergence in bits, from 0 to 1; both sides must have finite numbers."""
    inner = np.linspace(0, 1, _BINS + 1)[1:-1].tolist()
    # up to each side's end: two that do not overlap share no bin
    inner.append(1.0)
    edges = np.unique(np.concatenate([ours.quantile(inner), theirs.quantile(inner)]))
    p, q = _bins(ours, edges), _bins(theirs, edges)
    middle = (p + q) / 2
    return float(np.clip((_relative(p, middle) + _relative(q, middle)) / 2, 0.0, 1.0))


def _relative(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    some = p > 0
    return float((p[some] * np.log2(p[some] / q[some])).sum())


def _bins(column: ColumnStatistics, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share of the finite values in (-inf, e0], (e0, e1], ..., (en, inf)."""
    if column.numbers is not None:
        values, counts = column.numbers.sorted()
        ends = np.concatenate([[0], np.cumsum(counts)])
        upto = ends[np.searchsorted(values.astype(np.float64), edges, side="right")] / ends[-1]
    else:
        upto = np.searchsorted(column.quantile(_GRID.tolist()), edges, side="right") / len(_GRID)
    return np.diff(np.concatenate([[0.0], upto, [1.0]]))


def quantile_distance(ours: ColumnStatistics, theirs: ColumnStatistics) -> float:
    """0 for equal quantiles; 1 when they shift by the whole 5% to 95% range, or between two constants."""
    a, b = ours.quantile(INNER.tolist()), theirs.quantile(INNER.tolist())
    shift = float(np.abs(a - b).mean())
    if not shift:
        return 0.0
    wide = max(a[-1] - a[0], b[-1] - b[0])
    return shift / float(wide) if wide else 1.0
