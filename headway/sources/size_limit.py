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
from headway.tabular.list_arrays import cell_bytes, decoded, flatten, has_bytes, is_list

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
    cell = decoded(cell)
    if is_list(cell.type):
        cell = flatten(cell).values.slice(0, 1)
    value = cell[0].as_py() if len(cell) else ""
    return value[:_SHOWN].decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)[:_SHOWN]


def _large(array: pa.Array, max_bytes: int) -> Sizes | None:
    """Bytes of each row, when one may be beyond the bound."""
    if pa.types.is_dictionary(array.type):
        values = _large(array.dictionary, max_bytes)
        return None if values is None else values[pc.fill_null(array.indices, 0).to_numpy(zero_copy_only=False)]
    try:  # at least the bytes of the values that the array, perhaps a slice, refers to
        size = int(array.nbytes)
    except pa.ArrowException:  # of a list view
        size = int(array.get_total_buffer_size())
    if size <= max_bytes or not (is_list(array.type) or has_bytes(array.type)):
        return None
    sizes = cell_bytes(array)
    return np.full(len(array), sizes) if isinstance(sizes, int) else sizes
