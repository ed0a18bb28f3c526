"""A row sample with equally many rows per class of the label.

    sample = LabelSample(4096)
    drawn = sample.choose(label, priority)     # of any number of batches; merge() adds another piece's sample
    sample.add(drawn, priority, rows, sampled)
    sample.table()                             # at most `rows` rows, an equal share of each class; None: no classes

Each class keeps its rows of least priority, so that the sample is the same however rows came in batches and pieces. A label
of more than `MOST_CLASSES` values has no classes here: nothing is kept of it, and a uniform sample has to do.
"""

from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.statistics.row_sample import Drawn, RowSample, joined, rows_for, with_priority, without_priority
from headway.tabular.splits import column_hash

FILE = "sample_by_label.arrow"
MOST_CLASSES = 32
_CLASS = "__class"
_RANGE = 256
Hashes = NDArray[np.uint64]
Rows = NDArray[np.int64]


class LabelSample:
    """The rows of least priority in each class, `rows` over the number of classes."""

    def __init__(self, rows: int, *, off: bool = False):
        self.rows, self.off = rows, off
        """off: the label has too many values, or they are not known."""
        self._classes: dict[int, RowSample] = {}
        """By the hash of the label's value."""

    @classmethod
    def create(cls, columns: int) -> Self:
        return cls(rows_for(columns))

    def choose(self, label: pa.Array, priority: Hashes) -> list[tuple[RowSample, Rows]]:
        """The sample of each class with the rows of a batch, by their labels, that may enter it by `add`.

        Args:
            priority: of each row, as `RowSample.choose` gives it.
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

    def add(self, drawn: list[tuple[RowSample, Rows]], priority: Hashes, rows: Rows, sampled: pa.RecordBatch) -> None:
        """Add the rows that `choose` returned.

        Args:
            sampled: `hashed_texts` of the batch's rows `rows`, all that were drawn among them.
        """
        places = np.zeros(len(priority), np.int64)
        places[rows] = np.arange(len(rows))
        for sample, chosen in drawn:
            sample.add(priority[chosen], sampled.take(pa.array(places[chosen])))

    def _know(self, classes: list[int] | None) -> bool:
        """Make room for classes; False, for good, when there are too many of them."""
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
        """Add the rows of another piece's sample."""
        if self.off or not self._know(None if other.off else [*other._classes]):
            return
        for value, sample in other._classes.items():
            self._classes[value].merge(sample)

    def _drawn(self) -> list[tuple[int, Drawn]]:
        """The rows of each class, in the order of the classes' hashes."""
        drawn_of = [(value, self._classes[value].drawn()) for value in sorted(self._classes)]
        return [(value, drawn) for value, drawn in drawn_of if drawn is not None]

    def table(self) -> pa.Table | None:
        """The sampled rows, class after class. None: the label has no classes, or there are no rows."""
        drawn = self._drawn()
        return pa.Table.from_batches([joined([rows for _, (_, rows) in drawn])]) if drawn else None

    def save(self, path: Path) -> None:
        """Write the sample, unless it is empty; the same sample gives the same bytes."""
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
        """Read the sample that `save` wrote; off if a split of `rows` rows has none."""
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
    """(values, the place of each row's value among them); some values may not occur."""
    if pa.types.is_int64(label.type):
        ends = pc.min_max(label).as_py()
        if ends["max"] - ends["min"] < _RANGE:  # a hash table takes ten times as long
            values = np.arange(ends["min"], ends["max"] + 1)
            return pa.array(values), label.to_numpy(zero_copy_only=False) - ends["min"]
    coded = label if pa.types.is_dictionary(label.type) else label.dictionary_encode()
    return coded.dictionary, coded.indices.to_numpy(zero_copy_only=False)
