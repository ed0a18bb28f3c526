"""Rows cut into records of which none cuts a group: rows that lie together and agree in the group column.

    grouper = WholeGroups(4096, "query")
    for rows, sizes in grouper.add(batch): ...     # as of `headway.records.grouping.RowGrouper`
    for rows, sizes in grouper.rest(): ...

A record ends where a group does, at or before the row at which it would end without groups; a group that is larger than a
record is one of its own. A row whose group is null is a group by itself. Where records end follows from the rows alone,
never from how they came in batches; a group that the end of a range cuts is two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.errors import DataError
from headway.records.grouping import COLUMN_BYTES, RECORD_BYTES, Group, RowGrouper, Rows, copied, one_batch, row_bytes
from headway.schema.columns import Column, named_for
from headway.tabular.list_arrays import run_starts
from headway.tabular.splits import column_hash


def group_starts(
    column: pa.Array, hashes: NDArray[np.uint64] | None = None, before: np.uint64 | None = None
) -> NDArray[np.int64]:
    """The rows at which groups begin; int64, rising.

    Args:
        column: of scalars.
        hashes: its `column_hash`.
        before: that of the row before the first, where there is one.
    """
    hashes = column_hash(column) if hashes is None else hashes
    begins = run_starts(hashes)
    if before is not None and len(hashes):
        begins[0] = hashes[0] != before
    if column.null_count:
        begins |= column.is_null().to_numpy(zero_copy_only=False)
    return np.flatnonzero(begins)


GROUP_BYTES = 1 << 29
"""A group that takes more in memory is a mistake; a record of 2 GiB could not be read back."""


class WholeGroups:
    """Cuts a stream of batches into pieces of whole groups; see the module."""

    def __init__(self, rows: int, group: str, bytes: int | None = None, bound: int = GROUP_BYTES):
        self._rows, self._group, self._most, self._bound = rows, group, bytes, bound
        self._held: list[Rows] = []  # rows of the record at hand
        self._count = 0
        self._starts = np.zeros(0, np.int64)  # of the groups among them
        self._ends = np.zeros(0, np.int64)  # what they take, summed up
        self._last: np.uint64 | None = None

    def add(self, batch: Rows) -> Iterator[Group]:
        """The records that have ended.

        Raises:
            DataError: a group takes more than `bound` bytes.
        """
        rows = batch.num_rows
        if not rows:
            return
        column = batch.column(self._group)
        hashes = column_hash(column)
        starts = np.append(self._starts, self._count + group_starts(column, hashes, self._last))
        self._last = hashes[-1]
        taken = self._ends[-1] if self._count else 0
        ends = np.append(self._ends, taken + np.cumsum(np.broadcast_to(row_bytes(batch), rows)))
        cuts = self._cuts(batch, starts, ends)
        held, self._count = self._count, self._count + rows
        if not cuts and ends[-1] > self._bound:
            name = column[rows - 1].as_py()
            raise DataError(
                f"the group {name!r} takes more than {self._bound >> 20:,} MiB, and a record is to hold all of it",
                where=f"column {self._group!r}",
                fix="let another column say which rows are a group: one whose values few rows share",
            )
        if not cuts:
            self._held.append(batch)
            self._starts, self._ends = starts, ends
            return
        # records that begin among the rows of earlier batches
        across = next((number for number, cut in enumerate(cuts) if cut >= held), len(cuts) - 1) + 1 if held else 0
        at = 0
        if across:
            at = max(cuts[across - 1] - held, 0)
            whole = one_batch([*self._held, batch.slice(0, at)] if at else self._held)
            if cuts[across - 1] < held:  # and so does the one after them
                self._held = [whole.slice(cuts[across - 1])]
                whole = whole.slice(0, cuts[across - 1])
            else:
                self._held = []
            yield whole, np.diff(cuts[:across], prepend=0).tolist()
        if across < len(cuts):
            yield batch.slice(at, cuts[-1] - held - at), np.diff([held + at, *cuts[across:]]).tolist()
            at = cuts[-1] - held
        if at < rows:
            self._held.append(copied(batch.slice(at), rows))
        begin = cuts[-1]
        self._starts = starts[np.searchsorted(starts, begin) :] - begin
        self._ends = ends[begin:] - (ends[begin - 1] if begin else 0)
        self._count -= begin

    def _cuts(self, batch: Rows, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> list[int]:
        """Where records end, of those that have ended for certain; counted from the first row that is held."""
        most = self._most or max(RECORD_BYTES, COLUMN_BYTES * batch.num_columns)
        cuts: list[int] = []
        begin = 0
        while True:
            before = int(ends[begin - 1]) if begin else 0
            room = int(np.searchsorted(ends, before + most, side="right")) - begin
            limit = begin + min(self._rows, max(room, 1))
            if limit >= len(ends):  # there may be room for more
                return cuts
            place = int(np.searchsorted(starts, limit, side="right")) - 1
            if starts[place] <= begin:  # a group that is larger than a record
                place += 1
                if place == len(starts):
                    return cuts
            begin = int(starts[place])
            cuts.append(begin)

    def rest(self) -> Iterator[Group]:
        if self._held:
            whole = one_batch(self._held)
            self._held, self._count = [], 0
            yield whole, [whole.num_rows]


def grouper(rows: int, columns: Sequence[Column]) -> RowGrouper | WholeGroups:
    """What cuts rows of these columns into records of `rows` rows."""
    group = named_for(columns, "group")
    return RowGrouper(rows) if group is None else WholeGroups(rows, group)
