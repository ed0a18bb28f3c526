"""Updates the statistics of hundreds of columns at a time, in blocks that share the cost of a NumPy call.

    numbers = Numbers(columns)               # all of one type, scalars
    numbers.add(block, present)              # [columns, rows], as of `headway.tabular.stacked`
    numbers.settle()                         # their figures are in the columns from here on
    words = Words(columns)                   # the same of dictionary columns

The figures are those that each column alone would have, but for the last digits of moments, and for which of the
sampled values a digest of few values sees.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.sketches import hashes_of
from headway.tabular.stacked import Dictionaries, Mask

_BLOCK = 1 << 16
"""Values of a block: it and what is worked out of it stay near the processor."""
_LEAST = 8
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
Block = NDArray[Any]
"""[columns, rows], float32 or int64."""


class Numbers:
    """The statistics of many numeric columns in shared arrays, until `settle` adds them to the columns."""

    def __init__(self, columns: Sequence[ColumnStatistics]):
        self.columns = columns
        self._type = np.dtype(np.int64 if columns[0].type == "int64" else np.float32)
        # whose distinct values are no longer counted
        self._sketched = np.array([column.sketches is not None for column in columns])
        self._clear()

    def _clear(self) -> None:
        n = len(self.columns)
        self._rows = 0
        self._missing, self._nan, self._infinite, self._zeros, self._sizes = np.zeros((5, n), np.int64)
        self._means, self._squares = np.zeros((2, n))
        self._lows, self._highs = np.zeros((2, n), self._type)
        self._least: NDArray[np.uint64] | None = None

    def add(self, values: Block, present: Mask | None) -> None:
        """Add a batch: a row of `values` for each column."""
        rows = values.shape[1]
        if not rows:
            return
        self._rows += rows
        each = max(_LEAST, _BLOCK // rows)
        for start in range(0, len(self.columns), each):
            part = slice(start, start + each)
            self._add(part, np.array(values[part]), None if present is None else present[part])

    def _add(self, part: slice, block: Block, present: Mask | None) -> None:
        sizes = self._clean(part, block, present)
        rows = block.shape[1]
        block.sort(axis=1)
        used = np.arange(rows) < sizes[:, None] if (sizes < rows).any() else None
        first = np.empty(block.shape, np.bool_)
        first[:, 0] = True
        np.not_equal(block[:, 1:], block[:, :-1], out=first[:, 1:])
        zeros = block == 0
        if used is not None:
            zeros &= used
            first &= used
        self._zeros[part] += np.count_nonzero(zeros, axis=1)
        self._fold(part, sizes, *_moments(block, sizes, used), block)
        at = np.flatnonzero(first)
        distinct = block.ravel()[at].astype(np.int64 if block.dtype == np.int64 else np.float64)
        ends = np.cumsum(np.count_nonzero(first, axis=1))
        bounds = np.concatenate([[0], ends])
        late: list[int] = []
        if not self._sketched[part].all():
            late = self._count(part, distinct, _counts(at, sizes, ends, rows), bounds)
        sketched = self._sketched[part] & (sizes > 0)
        self._sketched[late] = True
        if not sketched.any():
            return
        self._note(part, hashes_of(distinct), np.diff(bounds), sketched)
        lengths = sizes.tolist()
        for i in np.flatnonzero(sketched).tolist():
            sketches = self.columns[part.start + i].sketches
            assert sketches is not None
            sketches.add_sorted(block[i, : lengths[i]])

    def _clean(self, part: slice, block: Block, present: Mask | None) -> NDArray[Any]:
        """Replace missing and infinite values by one that sorts last; return the number of values of each column."""
        rows = block.shape[1]
        sizes = np.full(len(block), rows)
        if present is not None:
            sizes = np.count_nonzero(present, axis=1)
            self._missing[part] += rows - sizes
            np.copyto(block, np.iinfo(np.int64).max if block.dtype == np.int64 else np.inf, where=~present)
        if block.dtype == np.int64:
            return sizes
        finite = np.isfinite(block)
        good = np.count_nonzero(finite, axis=1)
        if (good < sizes).any():
            nan = np.count_nonzero(np.isnan(block), axis=1)
            self._nan[part] += nan
            self._infinite[part] += sizes - good - nan
            np.copyto(block, np.inf, where=~finite)
        block += np.float32(0)  # -0.0 counts as 0.0
        return good

    def _fold(self, part: slice, sizes: NDArray[Any], means: NDArray[Any], squares: NDArray[Any], block: Block) -> None:
        """Update moments by Chan, Golub and LeVeque (1979), and extremes."""
        before = self._sizes[part]
        total = np.maximum(before + sizes, 1)
        with np.errstate(all="ignore"):
            delta = means - self._means[part]
            self._means[part] += delta * sizes / total
            self._squares[part] += squares + delta * delta * before * sizes / total
        low, high = block[:, 0], block[np.arange(len(block)), np.maximum(sizes - 1, 0)]
        new, filled = before == 0, sizes > 0
        self._lows[part] = np.where(filled, np.where(new, low, np.minimum(low, self._lows[part])), self._lows[part])
        self._highs[part] = np.where(
            filled, np.where(new, high, np.maximum(high, self._highs[part])), self._highs[part]
        )
        self._sizes[part] += sizes

    def _count(self, part: slice, distinct: Block, counts: NDArray[np.int64], bounds: NDArray[Any]) -> list[int]:
        """Add to the complete counts of the columns that keep them; return the columns that now have too many values. A
        column whose first batch has too many keeps no counts and is not returned: its batch goes to its sketches."""
        edges, late = bounds.tolist(), []
        for i in np.flatnonzero(~self._sketched[part]).tolist():
            place, span = part.start + i, slice(edges[i], edges[i + 1])
            column = self.columns[place]
            if edges[i + 1] - edges[i] > column.limits.distinct and column.uncounted():
                self._sketched[place] = True
            elif edges[i + 1] > edges[i]:
                column.count_numbers(distinct[span].copy(), counts[span].copy())
                if column.sketches is not None:
                    late.append(place)
        return late

    def _note(self, part: slice, hashes: NDArray[np.uint64], lengths: NDArray[Any], which: Mask) -> None:
        """Update the least hashes of the columns `which`.

        Args:
            hashes: of the distinct values of each column, one column behind the other, so many as `lengths` says.
        """
        if self._least is None:
            self._least = np.full((len(self.columns), self.columns[0].limits.sketches().size.hashes), _ALL)
        least = self._least[part]
        size = least.shape[1]
        good = hashes < np.repeat(np.where(which, least[:, -1], np.uint64(0)), lengths)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        below = np.concatenate([[0], np.cumsum(good)])[starts]
        counts = np.diff(below)
        changed = np.flatnonzero(counts)
        if not len(changed):
            return
        counts = counts[changed]
        new = np.full((len(changed), int(counts.max())), _ALL)
        new[np.arange(new.shape[1]) < counts[:, None]] = hashes[good]
        if new.shape[1] > size:
            new = np.partition(new, size - 1, axis=1)[:, :size]
        both = np.concatenate([least[changed], new], axis=1)
        both.sort(axis=1)
        twice = both[:, 1:] == both[:, :-1]
        if twice.any():
            both[:, 1:][twice] = _ALL
            both.sort(axis=1)
        least[changed] = both[:, :size]

    def settle(self) -> None:
        """Add the figures to the columns, and start again from none."""
        if not self._rows:
            return
        figures = (self._missing, self._nan, self._infinite, self._zeros, self._sizes)
        moments = (self._means, self._squares, self._lows, self._highs)
        each = zip(self.columns, *(array.tolist() for array in (*figures, *moments)), strict=True)
        for i, (column, missing, nan, infinite, zeros, size, mean, m2, low, high) in enumerate(each):
            column.rows += self._rows
            column.missing += missing
            column.nan += nan
            column.infinite += infinite
            if size:
                column.fold_numbers(size, mean, m2, zeros, low, high, folded=True)
            if self._least is not None and column.sketches is not None:
                column.sketches.adopt(self._least[i, : int(np.searchsorted(self._least[i], _ALL))].copy())
        self._clear()


def _moments(block: Block, sizes: NDArray[Any], used: NDArray[np.bool_] | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """The mean of each column and the sum of squared distances to it, float64 [columns]."""
    n = np.maximum(sizes, 1)
    wide = block.astype(np.float64)
    if used is not None:
        wide[~used] = 0
    means = wide.sum(axis=1) / n
    wide -= means[:, None]
    if used is not None:
        wide[~used] = 0
    wide *= wide
    return means, wide.sum(axis=1)


def _counts(at: NDArray[Any], sizes: NDArray[Any], ends: NDArray[Any], rows: int) -> NDArray[np.int64]:
    """The occurrences of each distinct value: the distance to the next one, or to the end of its column's values."""
    counts = np.empty(len(at), np.int64)
    counts[:-1] = at[1:] - at[:-1]
    filled = sizes > 0
    last = ends[filled] - 1
    counts[last] = (np.arange(len(sizes)) * rows + sizes)[filled] - at[last]
    return counts


class Words:
    """The occurrences of words in many dictionary columns, while their dictionaries stay the same."""

    def __init__(self, columns: Sequence[ColumnStatistics]):
        self.columns = columns
        self._rows = 0
        self._missing = np.zeros(len(columns), np.int64)
        self._words: Dictionaries | None = None
        self._counts = np.zeros(0, np.int64)

    def add(self, codes: Block, present: Mask | None, words: Dictionaries) -> None:
        """Add a batch: a row of codes for each column, and their words."""
        if self._words is not None and self._words.differing(words):
            self.settle()
        if self._words is None:
            self._words, self._counts = words, np.zeros(words.bases[-1], np.int64)
        rows = codes.shape[1]
        self._rows += rows
        at = codes + self._words.bases[:-1, None]
        if present is not None:
            self._missing += rows - np.count_nonzero(present, axis=1)
            at = at[present]
        self._counts += np.bincount(at.ravel(), minlength=len(self._counts))

    def settle(self) -> None:
        """Add the figures to the columns, and start again from none."""
        if self._words is None:
            return
        edges, missing = self._words.bases.tolist(), self._missing.tolist()
        for i, (column, words) in enumerate(zip(self.columns, self._words.arrays, strict=True)):
            column.rows += self._rows
            column.missing += missing[i]
            column.count_words(words, self._counts[edges[i] : edges[i + 1]])
        self._rows, self._words = 0, None
        self._missing[:] = 0
