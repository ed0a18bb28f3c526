"""A small uniform sample of a split's rows, all columns of a row together: what one column's counts cannot tell.

    sample = RowSample.create(11)
    sample.update(batch)                       # any number of batches; merge() adds another piece's sample
    sample.table()                             # at most `rows` rows, in the order of a random draw

Which rows are kept is drawn by a hash of their number within the piece, so the same rows give the same sample, a sample of
several pieces is as good as one of the whole, and after the first batches hardly any row is touched. Numbers are kept as
they are; of texts and lists a 64-bit hash, which is enough to tell equal from different and keeps any cell at 8 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.tabular.hashing import NULL, mix64
from headway.tabular.list_arrays import is_text
from headway.tabular.splits import column_hash, gathered

FILE = "sample.arrow"
PRIORITY = "__priority"
MOST_ROWS, LEAST_ROWS, CELLS = 4096, 256, 1 << 20
"""Rows kept of a narrow table, of a very wide one, and the cells that bound those in between."""
_SALT = 0x73616D70  # "samp": apart from the hashes that split rows and count distinct values


def rows_for(columns: int) -> int:
    """How many rows are kept of a table of so many columns."""
    return max(LEAST_ROWS, min(MOST_ROWS, CELLS // max(columns, 1)))


class RowSample:
    """The `rows` rows of least priority."""

    def __init__(self, rows: int):
        self.rows = rows
        self._seen = 0
        self._tables: list[pa.Table] = []
        self._pending = 0
        self.below = np.uint64(0xFFFFFFFFFFFFFFFF)
        """Rows of this priority or a greater one are not kept."""

    @classmethod
    def create(cls, columns: int) -> RowSample:
        return cls(rows_for(columns))

    def update(self, batch: pa.RecordBatch) -> NDArray[np.uint64]:
        """Draw from a batch of stored columns; the priority of each of its rows."""
        numbers = np.arange(self._seen, self._seen + batch.num_rows, dtype=np.uint64)
        self._seen += batch.num_rows
        priority = mix64(numbers, _SALT)
        bound = self.likely(batch.num_rows)
        chosen = np.flatnonzero(priority < bound)
        if len(chosen) < self.rows and bound < self.below:
            chosen = np.flatnonzero(priority < self.below)
        chosen = self.least(chosen, priority)
        if len(chosen):
            arrays = kept(batch.take(pa.array(chosen)).columns)
            names = [PRIORITY, *batch.schema.names]
            self.add(pa.table([pa.array(priority[chosen]), *arrays], names=names))
        return priority

    def least(self, chosen: NDArray[np.int64], priority: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Of some rising rows those that may stay: the `rows` of least priority."""
        if len(chosen) < self.rows:
            return chosen
        found = priority[chosen]
        bound = np.partition(found, self.rows - 1)[self.rows - 1]
        # of an equal draw the rows that came first stay, so that none of this priority is needed any more
        self.below = min(self.below, bound)
        return chosen[found <= bound][: self.rows]

    def likely(self, rows: int) -> np.uint64:
        """A bound that nearly always lets enough of so many rows through; it spares sorting all of them."""
        return min(self.below, np.uint64((2 * self.rows << 64) // rows)) if rows > 4 * self.rows else self.below

    def shrink(self, rows: int) -> None:
        """Keep no more than so many rows from now on."""
        if rows < self.rows:
            self.rows = rows
            self.drawn()

    def merge(self, other: RowSample) -> None:
        """Add the rows that another piece drew."""
        self._seen = max(self._seen, other._seen)
        drawn = other.drawn()
        if drawn is not None and len(drawn):
            self.add(drawn)

    def add(self, table: pa.Table) -> None:
        """Add drawn rows, with their priority as the first column."""
        self._tables.append(table)
        self._pending += len(table)
        if self._pending > 2 * self.rows:
            self.drawn()

    def drawn(self) -> pa.Table | None:
        """What is kept, least priority first; equal ones in the order they came."""
        if not self._tables:
            return None
        if len(self._tables) > 1 or self._pending > self.rows or not self._ordered():
            whole = pa.concat_tables(self._tables)
            priority = whole.column(PRIORITY).to_numpy()
            order = np.argsort(priority, kind="stable")[: self.rows]
            self._tables = [whole.take(pa.array(order)).combine_chunks()]
            self._pending = len(order)
            if len(order) == self.rows:
                # strictly below: of an equal draw the rows that came first stay
                self.below = np.uint64(priority[order[-1]])
        return self._tables[0]

    def _ordered(self) -> bool:
        priority = self._tables[0].column(PRIORITY).to_numpy()
        return bool((priority[1:] >= priority[:-1]).all())

    def table(self) -> pa.Table | None:
        """The drawn rows in random order; numbers are int64 or float32, all else is its 64-bit hash. None: no rows."""
        drawn = self.drawn()
        return drawn.drop_columns([PRIORITY]) if drawn is not None else None

    def save(self, path: Path) -> None:
        """Write the sample, unless it is empty; the same sample gives the same bytes."""
        drawn = self.drawn()
        if drawn is None:
            return
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, drawn.schema) as writer:
            writer.write_table(drawn, max_chunksize=self.rows)

    @classmethod
    def load(cls, path: Path, columns: int) -> RowSample:
        """What `save` wrote; an empty sample when there is no file."""
        made = cls.create(columns)
        if path.is_file():
            with pa.OSFile(str(path)) as file:  # not mapped: the file may go
                made.add(pa.ipc.open_file(file).read_all())
        return made


def kept(arrays: Sequence[pa.Array]) -> list[pa.Array]:
    """Numbers as they are; texts and lists as hashes, a null as a null. The words of all columns are hashed together:
    there may be thousands of columns of a few rows each."""
    found: list[pa.Array] = [None] * len(arrays)
    words: list[pa.Array] = []
    places: list[tuple[int, pa.Array | None]] = []
    for i, array in enumerate(arrays):
        if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
            found[i] = array
            continue
        codes = None
        if pa.types.is_dictionary(array.type):
            if len(array.dictionary) <= len(array):
                codes, array = array.indices, array.dictionary
            else:
                array = array.dictionary_decode()
        if is_text(array.type):
            words.append(array.cast(pa.large_binary()))
            places.append((i, codes))
        else:
            found[i] = _hashed(column_hash(array))
    if words:
        hashes = column_hash(pa.concat_arrays(words))
        start = 0
        for (i, codes), each in zip(places, words, strict=True):
            own = hashes[start : start + len(each)]
            found[i] = _hashed(own if codes is None else gathered(own, codes))
            start += len(each)
    return found


def _hashed(hashes: NDArray[np.uint64]) -> pa.Array:
    return pa.array(hashes, mask=hashes == NULL)


def numbers(array: pa.ChunkedArray) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(values as float64 with 0 where there is none, whether there is a finite one)."""
    values = pc.fill_null(array.cast(pa.float64(), safe=False), np.nan).to_numpy()
    good = np.isfinite(values)
    return np.where(good, values, 0.0), good
