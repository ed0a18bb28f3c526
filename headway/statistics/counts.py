"""How often each value of a column occurs: complete, mergeable, vectorised.

    counts = NumberCounts(np.float64)
    counts.add(values, occurrences)
    counts.sorted()                          # (values ascending, occurrences)

Additions are only noted; they are folded together once enough of them are pending, so adding is cheap and the result
does not depend on when the folding happened.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_PENDING = 1 << 17


class NumberCounts:
    """Counts of int64 or float64 values; NaN must not come in, -0.0 counts as 0.0."""

    def __init__(self, dtype: type[np.generic]):
        self._values: list[NDArray[np.generic]] = [np.zeros(0, dtype)]
        self._counts: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        self._pending = 0

    def add(self, values: NDArray[np.generic], counts: NDArray[np.int64]) -> None:
        self._values.append(values)
        self._counts.append(counts)
        self._pending += len(values)
        if self._pending > _PENDING:
            self.sorted()

    def sorted(self) -> tuple[NDArray[np.generic], NDArray[np.int64]]:
        if len(self._values) > 1:
            values, counts = np.concatenate(self._values), np.concatenate(self._counts)
            order = np.argsort(values, kind="stable")
            values, counts = values[order], counts[order]
            starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))[: len(values)]
            self._values = [values[starts]]
            self._counts = [np.add.reduceat(counts, starts) if len(starts) else counts]
            self._pending = 0
        return self._values[0], self._counts[0]

    def __len__(self) -> int:
        return len(self.sorted()[0])

    @property
    def at_most(self) -> int:
        """An upper bound of the distinct values, without folding."""
        return len(self._values[0]) + self._pending


class TextCounts:
    """Counts of byte strings, as Arrow arrays."""

    def __init__(self) -> None:
        self._values: list[pa.Array] = []
        self._counts: list[NDArray[np.int64]] = []
        self._pending = 0
        self._folded = 0
        self._ordered = True

    def add(self, values: pa.Array, counts: NDArray[np.int64]) -> None:
        self._values.append(values.cast(pa.large_binary()))  # large: more than 2 GB of text is no error
        self._counts.append(counts)
        self._pending += len(values)
        self._ordered = False
        # growing geometrically, so that a column of distinct strings is not folded over and over
        if self._pending > max(_PENDING, self._folded):
            self.folded()

    def folded(self) -> tuple[pa.Array, NDArray[np.int64]]:
        """(values in no order, occurrences)."""
        if self._pending:
            # ten times faster than group_by, which has no fast path for large strings
            encoded = pa.concat_arrays(self._values).dictionary_encode()
            sums = np.bincount(encoded.indices.to_numpy(), weights=np.concatenate(self._counts))
            self._values, self._counts = [encoded.dictionary], [sums.astype(np.int64)]
            self._pending, self._folded = 0, len(sums)
        if not self._values:
            return pa.array([], pa.large_binary()), np.zeros(0, np.int64)
        return self._values[0], self._counts[0]

    def sorted(self) -> tuple[pa.Array, NDArray[np.int64]]:
        """(values in byte order, occurrences)."""
        values, counts = self.folded()
        if not self._ordered:
            order = pc.sort_indices(values)
            values, counts = values.take(order), counts[order.to_numpy()]
            self._values, self._counts = [values], [counts]
            self._ordered = True
        return values, counts

    def __len__(self) -> int:
        return len(self.folded()[0])


def top(values: list, counts: NDArray[np.int64], k: int | None, min_count: int) -> list[tuple]:
    """(value, count) by falling count; equal counts by rising value."""
    # `values` come in rising order, so a stable sort on the counts alone keeps that order among equals
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] >= min_count][:k]
    return [(values[i], int(counts[i])) for i in order]


def top_text(values: pa.Array, counts: NDArray[np.int64], k: int | None, min_count: int) -> list[tuple[bytes, int]]:
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] >= min_count][:k]
    return list(zip(pc.take(values, pa.array(order)).to_pylist(), counts[order].tolist(), strict=True))
