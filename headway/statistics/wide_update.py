"""Numeric columns by the hundred, a block of them at a time: what a NumPy call costs is shared by all columns of a block.

    update(columns, arrays)                  # as column.update(array) of each; all of one type, none a list

The figures are those that each column alone would have, but for the last digits of moments, and for which of the
sampled values a digest of few values sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.sketches import hashes_of
from headway.tabular.list_arrays import slots

_BLOCK = 1 << 16
"""Values of a block: it and what is worked out of it stay near the processor."""
_LEAST = 8
Block = NDArray[Any]
"""[columns, rows], float32 or int64."""


def update(columns: Sequence[ColumnStatistics], arrays: Sequence[pa.Array]) -> None:
    """Add a batch of stored columns, all of one type, scalars, and as long as one another."""
    rows = len(arrays[0])
    if not rows:
        return
    each = max(_LEAST, _BLOCK // rows)
    for start in range(0, len(columns), each):
        _add(columns[start : start + each], arrays[start : start + each], rows)


def _add(columns: Sequence[ColumnStatistics], arrays: Sequence[pa.Array], rows: int) -> None:
    block, held = _values(columns, arrays, rows)
    block.sort(axis=1)
    used = np.arange(rows) < held[:, None] if (held < rows).any() else None
    means, squares = _moments(block, held, used)
    zeros = block == 0
    first = np.empty(block.shape, np.bool_)
    first[:, 0] = True
    np.not_equal(block[:, 1:], block[:, :-1], out=first[:, 1:])
    if used is not None:
        zeros &= used
        first &= used
    at = np.flatnonzero(first)
    distinct = block.ravel()[at].astype(np.int64 if block.dtype == np.int64 else np.float64)
    ends = np.cumsum(np.count_nonzero(first, axis=1))
    bounds = np.concatenate([[0], ends]).tolist()
    counts = _counts(at, held, ends, rows)
    hashes = _hashes(columns, distinct)
    lows, highs = block[:, 0].tolist(), block[np.arange(len(block)), np.maximum(held - 1, 0)].tolist()
    sums = zip(held.tolist(), means.tolist(), squares.tolist(), zeros.sum(axis=1).tolist(), lows, highs, strict=True)
    for i, (column, (n, mean, m2, zero, low, high)) in enumerate(zip(columns, sums, strict=True)):
        if not n:
            continue
        span = slice(bounds[i], bounds[i + 1])
        column.fold_numbers(n, mean, m2, zero, low, high)
        if column.sketches is None:
            column.count_numbers(distinct[span].copy(), counts[span].copy())
            continue
        if len(found := hashes[span][hashes[span] < column.sketches.bound]):
            column.sketches.note(found)
        column.sketches.add_sorted(block[i, :n])


def _values(columns: Sequence[ColumnStatistics], arrays: Sequence[pa.Array], rows: int) -> tuple[Block, NDArray[Any]]:
    """The finite values of each column, anything that sorts behind them in the place of others; how many they are."""
    dtype = np.dtype(np.int64 if columns[0].type == "int64" else np.float32)
    last = np.iinfo(np.int64).max if dtype == np.int64 else np.inf
    block = np.empty((len(columns), rows), dtype)
    held = np.full(len(columns), rows)
    for i, (column, array) in enumerate(zip(columns, arrays, strict=True)):
        missing = array.null_count
        column.rows += rows
        column.missing += missing
        block[i] = slots(array, dtype)
        if missing:
            held[i] -= missing
            block[i, array.is_null().to_numpy(zero_copy_only=False)] = last
    if dtype == np.int64:
        return block, held
    finite = np.isfinite(block)
    good = np.count_nonzero(finite, axis=1)
    for i in np.flatnonzero(good < held).tolist():
        nan = int(np.isnan(block[i]).sum())
        columns[i].nan += nan
        columns[i].infinite += int(held[i] - good[i]) - nan
    if (good < rows).any():
        block[~finite] = last
    block += np.float32(0)  # -0.0 counts as 0.0
    return block, good


def _moments(block: Block, held: NDArray[Any], used: NDArray[np.bool_] | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean and sum of squared distances to it, float64 [columns]."""
    n = np.maximum(held, 1)
    wide = block.astype(np.float64)
    if used is not None:
        wide[~used] = 0
    means = wide.sum(axis=1) / n
    wide -= means[:, None]
    if used is not None:
        wide[~used] = 0
    wide *= wide
    return means, wide.sum(axis=1)


def _counts(at: NDArray[Any], held: NDArray[Any], ends: NDArray[Any], rows: int) -> NDArray[np.int64]:
    """How often each distinct value occurs: up to the next one, or to the end of its column's values."""
    counts = np.empty(len(at), np.int64)
    counts[:-1] = at[1:] - at[:-1]
    some = held > 0
    last = ends[some] - 1
    counts[last] = (np.arange(len(held)) * rows + held)[some] - at[last]
    return counts


def _hashes(columns: Sequence[ColumnStatistics], distinct: NDArray[Any]) -> NDArray[np.uint64]:
    """Of each distinct value; not worked out where no column has a sketch."""
    if all(column.sketches is None for column in columns):
        return np.zeros(0, np.uint64)
    return hashes_of(distinct)
