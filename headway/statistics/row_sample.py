"""Small samples of a split's rows, with all columns of each row: a uniform one, and one with equally many rows per class.

    sample = RowSample.create(11)
    priority, rows = sample.choose(batch.num_rows)     # of any number of batches; merge() adds the sample of other rows
    sample.add(priority[rows], hashed_texts(batch, rows))
    sample.table()                             # at most `rows` rows, in the order of a random draw
    by_label = LabelSample.create(11)
    drawn = by_label.choose(label, priority)
    by_label.add(drawn, priority, rows, hashed_texts(batch, rows))

A row's priority is a hash of its number within its part of the data. Rows of least priority are kept: the same rows give the same
sample, and merged samples are as good as one of all rows. After the first batches hardly any row is touched. Numbers are kept as
they are, texts and lists as 64-bit hashes: a hash tells equal from different, and takes 8 bytes.

The sample by label keeps the rows of least priority of each class. A label of more than `MOST_CLASSES` values has no classes
here: then only the uniform sample is kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.tabular.hashing import NULL, mix64
from headway.tabular.list_arrays import as_batch, is_number
from headway.tabular.splits import column_hash

FILE = "sample.arrow"
PRIORITY = "__priority"
MOST_ROWS, LEAST_ROWS, CELLS = 4096, 256, 1 << 20
"""The most sampled rows (a narrow table), the least (a very wide table), and, in between, the most sampled cells."""
_SALT = 0x73616D70  # "samp": apart from the hashes that split rows and count distinct values
Priority = NDArray[np.uint64]
RowsByPriority = tuple[Priority, pa.RecordBatch]
"""The priority of each sampled row, and the rows."""


def rows_for(columns: int) -> int:
    """Returns the number of rows to sample from a table of `columns` columns."""
    return max(LEAST_ROWS, min(MOST_ROWS, CELLS // max(columns, 1)))


class RowSample:
    """A uniform sample of rows: the `rows` rows of least priority, a hash of the row's number."""

    def __init__(self, rows: int):
        self.rows = rows
        self._rows_seen = 0
        self._drawn: list[RowsByPriority] = []
        self._pending = 0
        self.below = np.uint64(0xFFFFFFFFFFFFFFFF)
        """The priority from which on rows are not kept. It falls as the sample fills."""

    @classmethod
    def create(cls, columns: int) -> RowSample:
        return cls(rows_for(columns))

    def choose(self, rows: int) -> tuple[Priority, NDArray[np.int64]]:
        """Returns the priority of each of the next `rows` rows, and the positions of the candidates among these rows. The
        candidates are to be passed to `add`."""
        numbers = np.arange(self._rows_seen, self._rows_seen + rows, dtype=np.uint64)
        self._rows_seen += rows
        priority = mix64(numbers, _SALT)
        bound = self.likely(rows)
        chosen = np.flatnonzero(priority < bound)
        if len(chosen) < self.rows and bound < self.below:
            chosen = np.flatnonzero(priority < self.below)
        return priority, self.least(chosen, priority)

    def least(self, chosen: NDArray[np.int64], priority: Priority) -> NDArray[np.int64]:
        """Returns the `self.rows` rows of `chosen` with the least priority (all if there are fewer), in row order. Lowers
        `below`."""
        if len(chosen) < self.rows:
            return chosen
        drawn = priority[chosen]
        bound = np.partition(drawn, self.rows - 1)[self.rows - 1]
        # of an equal draw the rows that came first stay, so that none of this priority is needed any more
        self.below = min(self.below, bound)
        return chosen[drawn <= bound][: self.rows]

    def likely(self, rows: int) -> np.uint64:
        """Returns a priority below which enough of `rows` rows nearly always lie. So not all rows have to be sorted."""
        return min(self.below, np.uint64((2 * self.rows << 64) // rows)) if rows > 4 * self.rows else self.below

    def shrink(self, rows: int) -> None:
        """Reduce the sample to at most `rows` rows."""
        if rows < self.rows:
            self.rows = rows
            self.drawn()

    def merge(self, other: RowSample) -> None:
        """Add the sampled rows of `other`, a sample of other rows of the same table."""
        self._rows_seen = max(self._rows_seen, other._rows_seen)
        drawn = other.drawn()
        if drawn is not None and len(drawn[0]):
            self.add(*drawn)

    def add(self, priority: Priority, rows: pa.RecordBatch) -> None:
        """Add candidates of `choose`: their priority, and the rows in the form that `hashed_texts` returns."""
        self._drawn.append((priority, rows))
        self._pending += len(priority)
        if self._pending > 2 * self.rows:
            self.drawn()

    def drawn(self) -> RowsByPriority | None:
        """Returns the sampled rows, least priority first; equal priorities in the order they came. None: there are no rows."""
        if not self._drawn:
            return None
        if (
            len(self._drawn) > 1
            or self._pending > self.rows
            or not (self._drawn[0][0][1:] >= self._drawn[0][0][:-1]).all()
        ):
            priority = np.concatenate([priorities for priorities, _ in self._drawn])
            order = np.argsort(priority, kind="stable")[: self.rows]
            rows = joined([rows for _, rows in self._drawn]).take(pa.array(order))
            self._drawn, self._pending = [(priority[order], rows)], len(order)
            if len(order) == self.rows:
                # strictly below: of an equal draw the rows that came first stay
                self.below = np.uint64(priority[order[-1]])
        return self._drawn[0]

    def table(self) -> pa.Table | None:
        """Returns the sampled rows in random order. Numbers are int64 or float32; texts and lists are 64-bit hashes. None: there
        are no rows."""
        drawn = self.drawn()
        return pa.Table.from_batches([drawn[1]]) if drawn is not None else None

    def save(self, path: Path) -> None:
        """Write the sample to a file, unless it is empty. The same sample gives the same bytes."""
        drawn = self.drawn()
        if drawn is None:
            return
        batch = with_priority(*drawn)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_table(pa.Table.from_batches([batch]), max_chunksize=self.rows)

    @classmethod
    def load(cls, path: Path, columns: int) -> RowSample:
        """Read the sample that `save` wrote, of a table of `columns` columns. Returns an empty sample if there is no file."""
        sample = cls.create(columns)
        if path.is_file():
            with pa.OSFile(str(path)) as file:  # not mapped: the file may go
                sample.add(*without_priority(pa.ipc.open_file(file).read_all()))
        return sample


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Returns batches of sampled rows as one batch."""
    return batches[0] if len(batches) == 1 else as_batch(pa.Table.from_batches(batches))


def with_priority(priority: Priority, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns sampled rows in the form in which files hold them: with their priority as the first column."""
    arrays = [_alone(array) for array in rows.columns]
    return pa.RecordBatch.from_arrays([pa.array(priority), *arrays], names=[PRIORITY, *rows.schema.names])


def _alone(array: pa.Array) -> pa.Array:
    """Returns an array in new buffers, with 0 for each null. Anything else in the old buffers would be written to the file."""
    if not array.null_count:
        return pa.array(np.ascontiguousarray(array.to_numpy()))
    return pa.array(pc.fill_null(array, 0).to_numpy(), mask=array.is_null().to_numpy(zero_copy_only=False))


def without_priority(table: pa.Table) -> RowsByPriority:
    """Returns the priorities and the rows of a table that `with_priority` made."""
    batch = as_batch(table)
    place = batch.schema.get_field_index(PRIORITY)
    return batch.column(place).to_numpy(), batch.remove_column(place)


def hashed_texts(batch: pa.RecordBatch, rows: NDArray[np.int64]) -> pa.RecordBatch:
    """Returns some rows of a batch in the form that samples keep: numbers and nulls stay, texts and lists become hashes."""
    places = pa.array(rows)
    arrays = [_hashed(array.take(places)) for array in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _hashed(array: pa.Array) -> pa.Array:
    if is_number(array.type):
        return array
    if pa.types.is_dictionary(array.type) and len(array.dictionary) > len(array):  # of which these rows use little
        array = array.dictionary_decode()
    hashes = column_hash(array)
    return pa.array(hashes, mask=hashes == NULL)


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the rank of each value, from 0 to 1. Equal values have the mean of their ranks."""
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    return ((np.cumsum(counts) - counts / 2) / len(values))[codes.reshape(-1)]


def numbers(array: pa.ChunkedArray) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Returns the values as float64, with 0 for null, NaN and infinity; and a mask of the finite values."""
    values = pc.fill_null(array.cast(pa.float64(), safe=False), np.nan).to_numpy()
    good = np.isfinite(values)
    return np.where(good, values, 0.0), good


FILE_BY_LABEL = "sample_by_label.arrow"
MOST_CLASSES = 32
_CLASS = "__class"
_RANGE = 256
Hashes = NDArray[np.uint64]
Rows = NDArray[np.int64]


class LabelSample:
    """A sample with room for equally many rows per class of the label: of each class the rows of least priority."""

    def __init__(self, rows: int, *, off: bool = False):
        self.rows, self.off = rows, off
        """The most rows of the sample; and whether the sample is off, because the label has too many values or unknown ones."""
        self._classes: dict[int, RowSample] = {}
        """The sample of each class. The key is the hash of the class."""

    @classmethod
    def create(cls, columns: int) -> Self:
        return cls(rows_for(columns))

    def choose(self, label: pa.Array, priority: Hashes) -> list[tuple[RowSample, Rows]]:
        """Returns each class's sample with the positions of the batch's rows that are candidates for it, if any. Empty if off.

        Args:
            priority: the priority of each row, as `RowSample.choose` returns it.
        """
        if self.off or not len(label):
            return []
        values, codes = _coded(label)
        counts = np.bincount(codes, minlength=len(values))
        used = np.flatnonzero(counts)
        if len(used) > MOST_CLASSES:
            self._know(None)
            return []
        classes = column_hash(values.take(pa.array(used))).tolist()
        if not self._know(classes):
            return []
        samples = [self._classes[value] for value in classes]
        bounds = np.zeros(len(values), np.uint64)
        bounds[used] = [s.likely(n) for s, n in zip(samples, counts[used].tolist(), strict=True)]
        few = np.flatnonzero(priority < bounds[codes])
        drawn = []
        for sample, code in zip(samples, used.tolist(), strict=True):
            chosen = few[codes[few] == code]
            if len(chosen) < sample.rows and bounds[code] < sample.below:
                chosen = np.flatnonzero((codes == code) & (priority < sample.below))
            chosen = sample.least(chosen, priority)
            if len(chosen):
                drawn.append((sample, chosen))
        return drawn

    def add(self, chosen: list[tuple[RowSample, Rows]], priority: Hashes, rows: Rows, sampled: pa.RecordBatch) -> None:
        """Add the rows that `choose` returned as `chosen`.

        Args:
            sampled: `hashed_texts` of the batch's rows at the positions `rows`, among which are all chosen rows.
        """
        places = np.zeros(len(priority), np.int64)
        places[rows] = np.arange(len(rows))
        for sample, own in chosen:
            sample.add(priority[own], sampled.take(pa.array(places[own])))

    def _know(self, classes: list[int] | None) -> bool:
        """Make room for the hashes of classes (None: unknown). If unknown or too many, turn the sample off and return False."""
        new = [] if classes is None else [value for value in classes if value not in self._classes]
        if classes is None or len(self._classes) + len(new) > MOST_CLASSES:
            self.off, self._classes = True, {}
            return False
        if new:
            share = self.rows // max(2, len(self._classes) + len(new))
            for sample in self._classes.values():
                sample.shrink(share)
            self._classes |= {value: RowSample(share) for value in new}
        return True

    def merge(self, other: Self) -> None:
        """Add the sampled rows of `other`, a sample of other rows. If `other` is off, turn this sample off."""
        if self.off or not self._know(None if other.off else [*other._classes]):
            return
        for value, sample in other._classes.items():
            self._classes[value].merge(sample)

    def _drawn(self) -> list[tuple[int, RowsByPriority]]:
        """Returns the hash of each class with its sampled rows, in the order of the hashes."""
        drawn_of = [(value, self._classes[value].drawn()) for value in sorted(self._classes)]
        return [(value, drawn) for value, drawn in drawn_of if drawn is not None]

    def table(self) -> pa.Table | None:
        """Returns the sampled rows, class after class. None: the sample is off, or there are no rows."""
        drawn = self._drawn()
        return pa.Table.from_batches([joined([rows for _, (_, rows) in drawn])]) if drawn else None

    def save(self, path: Path) -> None:
        """Write the sample to a file; if it is empty, delete the file. The same sample gives the same bytes."""
        drawn = self._drawn()
        if not drawn:
            path.unlink(missing_ok=True)
            return
        priority = np.concatenate([priorities for _, (priorities, _) in drawn])
        batch = with_priority(priority, joined([rows for _, (_, rows) in drawn]))
        classes = np.concatenate([np.full(len(priorities), value, np.uint64) for value, (priorities, _) in drawn])
        whole = pa.Table.from_batches([batch]).append_column(_CLASS, pa.array(classes))
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, whole.schema) as writer:
            writer.write_table(whole, max_chunksize=self.rows)

    @classmethod
    def load(cls, path: Path, columns: int, *, rows: int) -> Self:
        """Read the sample that `save` wrote. Without a file the sample is off, or empty if the split has 0 `rows`."""
        by_label = cls.create(columns)
        if not path.is_file():
            by_label.off = rows > 0
            return by_label
        with pa.OSFile(str(path)) as file:  # not mapped: the file may go
            whole = pa.ipc.open_file(file).read_all()
        classes: Any = whole.column(_CLASS).to_numpy()
        whole = whole.drop_columns([_CLASS])
        priority, drawn = without_priority(whole)
        values, first = np.unique(classes, return_index=True)
        by_label._know(values.tolist())
        ends = [*first[1:].tolist(), len(classes)]
        for value, start, end in zip(values.tolist(), first.tolist(), ends, strict=True):
            by_label._classes[value].add(priority[start:end], drawn.slice(start, end - start))
        return by_label


def _coded(label: pa.Array) -> tuple[pa.Array, NDArray[Any]]:
    """Returns an array of values, and the index of each row's value in it. Some of the values may occur in no row."""
    if pa.types.is_int64(label.type):
        ends = pc.min_max(label).as_py()
        if ends["max"] - ends["min"] < _RANGE:  # a hash table takes ten times as long
            values = np.arange(ends["min"], ends["max"] + 1)
            return pa.array(values), label.to_numpy(zero_copy_only=False) - ends["min"]
    coded = label if pa.types.is_dictionary(label.type) else label.dictionary_encode()
    return coded.dictionary, coded.indices.to_numpy(zero_copy_only=False)
