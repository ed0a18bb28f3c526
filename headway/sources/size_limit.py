"""Limits the size of one value: a row with a larger one is quarantined, and the batches stay small.

    chunk = bounded(chunk, 16 << 20)

Columns of fixed width cost nothing; of the others, the size of the whole column in a batch is looked at first.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.sources.base import Chunk, Malformed
from headway.tabular.list_arrays import flatten, is_list, is_text

_SHOWN = 200
_FIXED = frozenset(kind.id for kind in (pa.int64(), pa.float32(), pa.float64(), pa.int32(), pa.bool_()))
Sizes = NDArray[np.int64]


def bounded(chunk: Chunk, max_bytes: int) -> Chunk:
    """`chunk` without the rows that hold a value of more than `max_bytes` bytes; those are malformed now."""
    batch, found = chunk.batch, dict[int, tuple[str, int]]()
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if array.type.id in _FIXED:
            continue
        if (sizes := _large(array, max_bytes)) is not None:
            for row in np.flatnonzero(sizes > max_bytes).tolist():
                found.setdefault(row, (name, int(sizes[row])))
    if not found:
        return chunk
    at = chunk.positions()
    bad = [
        Malformed(
            int(at[row]),
            _shown(batch.column(name).slice(row, 1)),
            f"{size} bytes, more than source.max_cell_bytes: {max_bytes}",
            name,
        )
        for row, (name, size) in sorted(found.items())
    ]
    keep = np.delete(np.arange(batch.num_rows), sorted(found))
    # rows are given by their place from here on, so first_row says nothing more
    return Chunk(batch.take(pa.array(keep)), chunk.first_row, at[keep], (*chunk.malformed, *bad))


def _shown(cell: pa.Array) -> str:
    if pa.types.is_dictionary(cell.type):
        cell = cell.dictionary_decode()
    if is_list(cell.type):
        cell = flatten(cell).values.slice(0, 1)
    value = cell[0].as_py() if len(cell) else ""
    return value[:_SHOWN].decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)[:_SHOWN]


def _large(array: pa.Array, max_bytes: int) -> Sizes | None:
    """Bytes of each row, when one may be beyond the bound."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        values = _large(array.dictionary, max_bytes)
        if values is None:
            return None
        return np.asarray(values[pc.fill_null(array.indices, 0).to_numpy(zero_copy_only=False)])
    if is_list(kind):
        if not len(array):
            return None
        flat = flatten(array) if _nbytes(array) > max_bytes else None
        if flat is None:
            return None
        values = _lengths(flat.values)
        ends = np.cumsum(np.concatenate([[0], values]))
        stops = np.cumsum(flat.lengths)
        return np.asarray(ends[stops] - ends[stops - flat.lengths])
    if not _is_variable(kind) or _nbytes(array) <= max_bytes:
        return None
    return _lengths(array)


def _nbytes(array: pa.Array) -> int:
    """At least the bytes of the values that the array, perhaps a slice, refers to."""
    try:
        return int(array.nbytes)
    except pa.ArrowException:  # of a list view
        return int(array.get_total_buffer_size())


def _is_variable(kind: pa.DataType) -> bool:
    return is_text(kind) or pa.types.is_binary_view(kind) or pa.types.is_string_view(kind)


def _lengths(array: pa.Array) -> Sizes:
    """Bytes of each value."""
    if _is_variable(array.type):
        return np.asarray(pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False), np.int64)
    try:
        width = -(-array.type.bit_width // 8)
    except ValueError:  # a list of lists cannot be stored anyway
        width = 0
    return np.full(len(array), width, np.int64)
