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
        self._tables: list[pa.Table] = []
        self._pending = 0
        self._folded = 0

    def add(self, values: pa.Array, counts: NDArray[np.int64]) -> None:
        self._tables.append(pa.table({"value": values.cast(pa.large_binary()), "count": counts}))
        self._pending += len(values)
        if self._pending > max(_PENDING, self._folded):
            self._fold()

    def _fold(self) -> None:
        if len(self._tables) > 1:
            whole = pa.concat_tables(self._tables).group_by("value", use_threads=False).aggregate([("count", "sum")])
            self._tables = [whole.rename_columns(["value", "count"]).select(["value", "count"]).combine_chunks()]
        self._pending, self._folded = 0, self._tables[0].num_rows if self._tables else 0

    def sorted(self) -> tuple[pa.Array, NDArray[np.int64]]:
        """(values in byte order, occurrences)."""
        self._fold()
        if not self._tables:
            return pa.array([], pa.large_binary()), np.zeros(0, np.int64)
        table = self._tables[0].sort_by("value").combine_chunks()
        value = table.column("value").combine_chunks()
        return value, table.column("count").to_numpy()

    def __len__(self) -> int:
        self._fold()
        return self._folded


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
