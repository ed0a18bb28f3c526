"""Rows cut into records: so many rows each, or fewer where their cells are large.

    grouper = RowGrouper(4096)
    for rows, sizes in grouper.add(batch): ...     # whole records, `sizes` rows each
    for rows, sizes in grouper.rest(): ...         # what is left at the end of a range

Where a record ends depends on its rows and those before it in the range, never on how they came in batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.tabular.list_arrays import as_batch, flatten, is_list
from headway.tabular.stacked import CODES, DTYPES, Stack, joined

RECORD_BYTES = 1 << 20
"""A record of several rows takes no more than about this in memory: an image each is a record, numbers are thousands."""
COLUMN_BYTES = 2 << 10
"""But a record of very many columns takes this for each: some ten rows of thousands of columns would be nothing but names."""
_CODE = 2
"""What a code of a dictionary takes, about."""


Rows: TypeAlias = Any
"""A RecordBatch, or a Stack of a wide table."""
Group = tuple[Rows, list[int]]
"""(rows, how many each of their records holds)"""


class RowGrouper:
    """Cuts a stream of batches into pieces of `rows` rows, or as many as take `bytes`; the last may be shorter."""

    def __init__(self, rows: int, bytes: int | None = None):
        self._rows, self._fixed, self._bytes = rows, bytes is not None, bytes or RECORD_BYTES
        self._held: list[Rows] = []
        self._count = self._size = 0

    def add(self, batch: Rows) -> Iterator[Group]:
        if not self._fixed:
            self._bytes = max(RECORD_BYTES, COLUMN_BYTES * batch.num_columns)
        sizes = row_bytes(batch)
        ends = None if isinstance(sizes, int) else np.cumsum(sizes)
        at = first = 0
        whole: list[int] = []
        while at < batch.num_rows:
            take = min(self._rows - self._count, self._room(sizes, ends, at))
            if take > batch.num_rows - at:
                break
            if self._count:  # a record that earlier batches have begun
                yield self._closed(batch.slice(at, take))
                first = at + take
            else:
                whole.append(take)
            at += take
        if whole:
            yield batch.slice(first, at - first), whole
        if at < batch.num_rows:
            rest = batch.slice(at)
            self._held.append(copied(rest, batch.num_rows))
            self._count += batch.num_rows - at
            self._size += _total(sizes, ends, at, batch.num_rows)

    def _room(self, sizes: int | NDArray[np.int64], ends: NDArray[np.int64] | None, at: int) -> int:
        """How many rows from `at` on still go into the record at hand; at least one into an empty one."""
        left = self._bytes - self._size
        if ends is None:
            assert isinstance(sizes, int)
            room = left // max(1, sizes)
        else:
            before = int(ends[at - 1]) if at else 0
            room = int(np.searchsorted(ends, before + left, side="right")) - at
            if at + room == len(ends):  # all that is there: there may be room for more
                room = len(ends) + 1
        return max(room, 0 if self._count else 1)

    def _closed(self, piece: Rows) -> Group:
        held = [*self._held, piece] if piece.num_rows else self._held
        self._held, self._count, self._size = [], 0, 0
        joined = one_batch(held)
        return joined, [joined.num_rows]

    def rest(self) -> Iterator[Group]:
        if self._held:
            yield self._closed(self._held[0].slice(0, 0))


def _total(sizes: int | NDArray[np.int64], ends: NDArray[np.int64] | None, start: int, end: int) -> int:
    if ends is None:
        assert isinstance(sizes, int)
        return sizes * (end - start)
    return int(ends[end - 1]) - (int(ends[start - 1]) if start else 0)


def copied(piece: Rows, of: int) -> Rows:
    """A small piece of a batch of so many rows by itself: a slice would keep the whole batch in memory."""
    if 2 * piece.num_rows >= of:
        return piece
    rows = np.arange(piece.num_rows)
    return piece.take(rows if isinstance(piece, Stack) else pa.array(rows))


def row_bytes(batch: Rows) -> int | NDArray[np.int64]:
    """About what each row takes in a record, int64 [rows]; one number where all rows take the same."""
    fixed = 0
    varying: NDArray[np.int64] | None = None
    arrays = batch.columns
    if isinstance(batch, Stack):
        arrays = list(batch.others.values())
        for kind, places in batch.places.items():
            fixed += len(places) * (_CODE if kind == CODES else DTYPES[kind].itemsize)
    for array in arrays:
        size = _array_bytes(array)
        if isinstance(size, int):
            fixed += size
        else:
            varying = size if varying is None else varying + size
    return fixed if varying is None else varying + fixed


def _array_bytes(array: pa.Array) -> int | NDArray[np.int64]:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _CODE
    if pa.types.is_binary(kind):
        return pc.fill_null(pc.binary_length(array), 0).to_numpy().astype(np.int64) + _CODE
    if pa.types.is_fixed_size_list(kind) and not pa.types.is_binary(kind.value_type):
        return int(kind.list_size * kind.value_type.byte_width)
    if is_list(kind):
        flat = flatten(array)
        each = _array_bytes(flat.values)
        if isinstance(each, int):
            return flat.lengths * each + _CODE
        ends = np.concatenate([[0], np.cumsum(each)])
        stops = np.cumsum(flat.lengths)
        return ends[stops] - ends[stops - flat.lengths] + _CODE
    return int(kind.byte_width)


def one_batch(batches: list[Rows]) -> Rows:
    """Batches of one schema as one."""
    if len(batches) == 1:
        return batches[0]
    if isinstance(batches[0], Stack):
        return joined(batches)
    return as_batch(pa.Table.from_batches(batches).unify_dictionaries())
