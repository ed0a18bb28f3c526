"""Counts each distinct value of a column: complete, mergeable, vectorised.

    counts = NumberCounts(np.float64)
    counts.add(values, occurrences)
    counts.sorted()                          # (values ascending, occurrences)

`add` is cheap: it only collects counts. Those of equal values are added up later, when enough are pending; when this happens does
not change the result. Text beyond a memory budget is spilled to Arrow files called runs: byte strings in rising order with their
occurrences. Runs are merged block by block:

    run = write_run(blocks, folder)                 # blocks: values rising and distinct over all of them
    for values, counts in merged([run, other]): ...

A merge holds one block of every run. Values up to the least of the blocks' last values cannot come again. So their counts are
added up with Arrow and NumPy, and handed on. No row is touched by Python.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.tabular.list_arrays import run_starts

_PENDING, _ALL_PENDING, _LEAST_PENDING = 1 << 17, 1 << 20, 256
_MANY = 64
_LARGE = 1 << 20  # bytes
_MOST_RUNS, _FAN_IN = 24, 16
"""The most runs before some are merged, and how many of the shortest are then merged into one. A merge holds a block of every run
in memory."""


class NumberCounts:
    """Counts of int64 or float64 values except NaN; -0.0 counts as 0.0."""

    def __init__(self, dtype: type[np.generic], pending: int = _PENDING):
        self._most_pending = pending
        self._values: list[NDArray[np.generic]] = [np.zeros(0, dtype)]
        self._counts: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        self._pending = 0

    def add(self, values: NDArray[np.generic], counts: NDArray[np.int64]) -> None:
        self._values.append(values)
        self._counts.append(counts)
        self._pending += len(values)
        if self._pending > self._most_pending:
            self.sorted()

    def add_rising(self, values: NDArray[np.generic], counts: NDArray[np.int64]) -> None:
        """Add distinct values in rising order, with the number of occurrences of each."""
        if self._pending or len(self._values[0]):
            self.add(values, counts)
        else:
            self._values, self._counts = [values.astype(self._values[0].dtype, copy=False)], [counts]

    def sorted(self) -> tuple[NDArray[np.generic], NDArray[np.int64]]:
        if len(self._values) > 1:
            values, counts = np.concatenate(self._values), np.concatenate(self._counts)
            order = np.argsort(values, kind="stable")
            values, counts = values[order], counts[order]
            starts = np.flatnonzero(run_starts(values))
            self._values = [values[starts]]
            self._counts = [np.add.reduceat(counts, starts) if len(starts) else counts]
            self._pending = 0
        return self._values[0], self._counts[0]

    def __len__(self) -> int:
        return len(self.sorted()[0])

    @property
    def at_most(self) -> int:
        """An upper bound of the number of distinct values, known without adding up the pending counts."""
        return len(self._values[0]) + self._pending


class Budget:
    """The bytes of text that several `TextCounts` may keep in memory together, and the folder to which the rest is spilled.

    Adding up and sorting take about as much memory again: 24 MiB of counts in a column mean a peak of some 64 MiB, and 96 MiB in
    all columns a peak of some 160 MiB. Without a folder nothing is spilled.

    Args:
        columns: the number of columns that share the budget. More than 64 get a third, since each also needs memory to
            work with. Many columns also add up pending values sooner, so that a repeated word is held fewer times.
    """

    def __init__(self, folder: Path | None = None, column: int = 24 << 20, total: int = 96 << 20, *, columns: int = 1):
        self.folder, self.column = folder, column
        self.total = total if columns <= _MANY else total // 3
        self.pending = max(_LEAST_PENDING, min(_PENDING, _ALL_PENDING // max(columns, 1)))
        """The number of values that a column collects before it adds up the counts of equal ones."""
        self._bytes_of: WeakKeyDictionary[TextCounts, int] = WeakKeyDictionary()
        self._sum = 0

    def note(self, counts: TextCounts, size: int) -> None:
        """Record that `counts` holds `size` bytes. If a limit is exceeded, spill `counts`, or the largest ones, to disk."""
        if self.folder is None:
            return
        self._set(counts, size)
        if size > self.column:
            self._set(counts, counts.spill(self.column // 2))
        if self._sum > self.total:
            self._sum = sum(self._bytes_of.values())  # less those that are gone
        while self._sum > self.total:
            widest = max(self._bytes_of, key=self._bytes_of.__getitem__)
            if not self._bytes_of[widest]:
                return
            self._set(widest, widest.spill(0))

    def _set(self, counts: TextCounts, size: int) -> None:
        self._sum += size - self._bytes_of.get(counts, 0)
        self._bytes_of[counts] = size


class TextCounts:
    """Exact counts of byte strings in Arrow arrays. What exceeds the budget is in sorted runs on disk."""

    def __init__(self, budget: Budget | None = None) -> None:
        self._budget = budget or Budget()
        self._values: list[pa.Array] = []
        self._counts: list[NDArray[np.int64]] = []
        self._pending = self._bytes = 0
        self._folded = 0
        self._ordered = True
        self._runs: list[Run] = []

    def add(self, values: pa.Array, counts: NDArray[np.int64]) -> None:
        values = values.cast(pa.large_binary())  # large: more than 2 GB of text is not an error
        self._values.append(values)
        self._counts.append(counts)
        self._pending += len(values)
        self._bytes += values.nbytes + counts.nbytes
        self._ordered = False
        # growing geometrically, so that a column of distinct strings is not folded over and over
        if self._pending > max(self._budget.pending, self._folded):
            self._fold()
        self._budget.note(self, self._bytes)

    def add_run(self, run: Run) -> None:
        """Add the counts of a run without reading them. If there are too many runs, the shortest are merged into one on disk."""
        if run.rows:
            self._runs.append(run)
            if len(self._runs) > _MOST_RUNS and self._budget.folder is not None:
                self._runs.sort(key=lambda run: run.rows)
                few = write_run(merged([run.blocks() for run in self._runs[:_FAN_IN]]), self._budget.folder)
                self._runs = [*self._runs[_FAN_IN:], few]

    def merge(self, other: TextCounts) -> None:
        """Add the counts of `other`, which does not change. Both then use the same runs on disk."""
        values, counts = other._fold()
        if len(values):
            self.add(values, counts)
        for run in other._runs:
            self.add_run(run)

    def spill(self, keep: int) -> int:
        """Add up the pending counts. If more than `keep` bytes then remain in memory, write these to a run on disk, if the
        budget has a folder. Returns the number of bytes that are left in memory."""
        values, counts = self._fold()
        if self._bytes > keep and self._budget.folder is not None:
            run = write_run([self._sorted()], self._budget.folder)
            self._clear()
            del values, counts
            self.add_run(run)
        return self._bytes

    def _clear(self) -> None:
        self._values, self._counts = [], []
        self._pending = self._bytes = self._folded = 0
        self._ordered = True

    def _fold(self) -> Block:
        """Add up the pending counts. Returns the values in memory, in no order, with their occurrences."""
        if self._pending:
            values, sums = fold(self._values, self._counts)
            self._values, self._counts = [values], [sums]
            self._pending, self._folded = 0, len(sums)
            self._bytes = values.nbytes + sums.nbytes
            if self._bytes > _LARGE:  # a millisecond; else what was folded stays beside what is folded next
                pa.default_memory_pool().release_unused()
        if not self._values:
            return pa.array([], pa.large_binary()), np.zeros(0, np.int64)
        return self._values[0], self._counts[0]

    def _sorted(self) -> Block:
        values, counts = self._fold()
        if not self._ordered:
            values, counts = sort_values(values, counts)
            self._values, self._counts = [values], [counts]
            self._ordered = True
        return values, counts

    def _settle(self) -> None:
        """Merge the runs and the counts in memory: into one run if there is a folder for it, else into memory."""
        if not self._runs or (len(self._runs) == 1 and not self._values):
            return
        if self._budget.folder is not None:
            run = write_run(self._streams(), self._budget.folder)
            self._clear()
            self._runs = [run]
        else:
            streams = list(self._streams())
            values, counts = pa.concat_arrays([v for v, _ in streams]), np.concatenate([c for _, c in streams])
            self._clear()
            self._values, self._counts, self._runs = [values], [counts], []
            self._folded, self._bytes = len(values), values.nbytes + counts.nbytes
        self._budget.note(self, self._bytes)

    def _streams(self) -> Iterator[Block]:
        sources: list[Iterable[Block]] = [run.blocks() for run in self._runs]
        values, counts = self._sorted()
        if len(values):
            sources.append(reblocked([(values, counts)]))
        return merged(sources)

    def blocks(self) -> Iterator[Block]:
        """Yields the values in byte order with their occurrences, in blocks. How long the blocks are depends on the counts
        alone."""
        self._settle()
        if self._runs:
            yield from reblocked(self._runs[0].blocks())
        elif self._values:
            yield from reblocked([self._sorted()])

    def top(self, k: int | None, min_count: int = 1, exclude: pa.Array | None = None) -> Block:
        """Returns the `k` most frequent values (None: all) that occur `min_count` times or more and are not in `exclude`.

        Sorted by falling count; values of equal count by rising bytes. About 4 * k values and a block are held in memory.
        """
        values: list[pa.Array] = []
        counts: list[NDArray[np.int64]] = []
        total, least = 0, min_count
        for block, occurrences in self.blocks():
            keep = occurrences >= least
            if exclude is not None:
                keep &= ~pc.is_in(block, value_set=exclude).to_numpy(zero_copy_only=False)
            if not keep.all():
                block, occurrences = block.filter(pa.array(keep)), occurrences[keep]
            values.append(block)
            counts.append(occurrences)
            total += len(block)
            if k is not None and total > 4 * k + BLOCK:
                # stable, and blocks come in rising order: among equals the first ones stay; a later one needs more
                words, numbers = pa.concat_arrays(values), np.concatenate(counts)
                best = np.sort(np.argsort(-numbers, kind="stable")[:k])
                values, counts, total = [words.take(pa.array(best))], [numbers[best]], k
                least = max(min_count, int(counts[0].min()) + 1) if k else least
        if not values:
            return pa.array([], pa.large_binary()), np.zeros(0, np.int64)
        words, numbers = pa.concat_arrays(values), np.concatenate(counts)
        order = np.argsort(-numbers, kind="stable")[:k]
        return words.take(pa.array(order)), numbers[order]

    def count_others(self, words: pa.Array) -> tuple[int, int]:
        """Returns the number of distinct values that are not in `words`, and how often these values occur in all."""
        distinct = rows = 0
        for values, counts in self.blocks():
            unseen = ~pc.is_in(values, value_set=words).to_numpy(zero_copy_only=False)
            distinct += int(unseen.sum())
            rows += int(counts[unseen].sum())
        return distinct, rows

    def __len__(self) -> int:
        self._settle()
        return self._runs[0].rows if self._runs else len(self._fold()[0])


Block = tuple[pa.Array, NDArray[np.int64]]
"""A block: values as large_binary, and the number of occurrences of each."""
BLOCK = 16_384
"""The number of values in a block. The last block may have fewer."""
_BLOCK_BYTES = 2 << 20
"""The most bytes of a block of a temporary run. With long strings, a block has fewer values than `BLOCK`."""
_SCHEMA = pa.schema([("bytes", pa.large_binary()), ("count", pa.int64())])


class Run:
    """A run: consecutive batches of an Arrow file, with values in rising order and their occurrences. The file of a temporary run
    is deleted when no object uses the run any more."""

    def __init__(self, path: Path, first: int, batches: int, rows: int, *, temporary: bool):
        self.path, self.rows = path, rows
        self._first, self._batches, self._temporary = first, batches, temporary

    def blocks(self) -> Iterator[Block]:
        # not mapped: mapped pages count as memory of the process, and the file may go while they are in use
        with pa.OSFile(str(self.path)) as file:
            reader = pa.ipc.open_file(file)
            for i in range(self._first, self._first + self._batches):
                batch = reader.get_batch(i)
                yield batch.column("bytes"), batch.column("count").to_numpy()

    def __del__(self) -> None:
        if self._temporary:
            with contextlib.suppress(OSError):
                self.path.unlink()


def write_run(blocks: Iterable[Block], folder: Path) -> Run:
    """Write blocks to a temporary run in `folder`. The folder is created if it does not exist."""
    folder.mkdir(exist_ok=True)  # not its parents: they go when a stage is given up
    path = folder / f"{uuid.uuid4().hex}.arrow"
    rows = 0
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        batches = 0
        for values, counts in blocks:
            rows += len(values)
            step = max(1, min(BLOCK, len(values) * _BLOCK_BYTES // max(values.nbytes, 1)))
            for start in range(0, len(values), step):
                piece = [values.slice(start, step), pa.array(counts[start : start + step])]
                writer.write_batch(pa.record_batch(piece, schema=_SCHEMA))
                batches += 1
    return Run(path, 0, batches, rows, temporary=True)


def fold(values: Sequence[pa.Array], counts: Sequence[NDArray[np.int64]]) -> Block:
    """Add up the occurrences of equal values. Returns the distinct values, in no order, with their occurrences."""
    # ten times faster than group_by, which has no fast path for large strings
    encoded = pa.concat_arrays(values).dictionary_encode()
    sums = np.bincount(encoded.indices.to_numpy(), weights=np.concatenate(counts))
    return encoded.dictionary, sums.astype(np.int64)


def sort_values(values: pa.Array, counts: NDArray[np.int64]) -> Block:
    """Returns values sorted by their bytes, and the occurrences in the same order."""
    order = pc.sort_indices(values)
    return values.take(order), counts[order.to_numpy()]


def compacted(values: pa.Array) -> pa.Array:
    """Returns strings in buffers without unused bytes, which would otherwise be written to files."""
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
    data = values.buffers()[2] or pa.py_buffer(b"")
    buffers = [None, pa.py_buffer(offsets - offsets[0]), data.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))]
    return pa.Array.from_buffers(pa.large_binary(), len(values), buffers)


def merged(runs: Sequence[Iterable[Block]]) -> Iterator[Block]:
    """Merge sorted runs. Yields each value once, in rising order, with all its occurrences; blocks have any length."""
    for parts in _abreast(runs):
        if len(parts) == 1:
            ((_, values, counts),) = parts
            yield values, counts
        else:
            yield sort_values(*fold([values for _, values, _ in parts], [counts for _, _, counts in parts]))


def paired(
    ours: Iterable[Block], theirs: Iterable[Block]
) -> Iterator[tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]]:
    """Merge two runs. Yields values, and their occurrences in each run. Each value comes once, in no order within a block."""
    for parts in _abreast([ours, theirs]):
        encoded = pa.concat_arrays([values for _, values, _ in parts]).dictionary_encode()
        places, totals, at = encoded.indices.to_numpy(), np.zeros((2, len(encoded.dictionary)), np.int64), 0
        for side, values, counts in parts:
            totals[side, places[at : at + len(values)]] = counts
            at += len(values)
        yield encoded.dictionary, totals[0], totals[1]


def _abreast(runs: Sequence[Iterable[Block]]) -> Iterator[list[tuple[int, pa.Array, NDArray[np.int64]]]]:
    """Yields the contents of sorted runs, one range of values at a time, as a list with the part of each run in this range. A
    part is (index of the run, values, occurrences). No value is in two lists."""
    sources = [iter(run) for run in runs]
    heads: list[Block | None] = [next(source, None) for source in sources]
    while True:
        live = [(i, *head) for i, head in enumerate(heads) if head is not None]
        if len(live) == 1:
            ((i, values, counts),) = live
            yield [(i, values, counts)]
            for values, counts in sources[i]:
                yield [(i, values, counts)]
            return
        if not live:
            return
        cut = min(values[len(values) - 1].as_py() for _, values, _ in live)
        bound = pa.scalar(cut, pa.large_binary())
        parts = []
        for i, values, counts in live:
            upto = pc.less_equal(values, bound).true_count
            if upto:
                parts.append((i, values.slice(0, upto), counts[:upto]))
            heads[i] = (values.slice(upto), counts[upto:]) if upto < len(values) else next(sources[i], None)
        yield parts


def reblocked(blocks: Iterable[Block], rows: int = BLOCK) -> Iterator[Block]:
    """Yields the same rows in blocks of `rows` rows. The last block may have fewer."""
    values: list[pa.Array] = []
    counts: list[NDArray[np.int64]] = []
    total = 0
    for block, occurrences in blocks:
        values.append(block)
        counts.append(occurrences)
        total += len(block)
        if total >= rows:
            whole, numbers = pa.concat_arrays(values), np.concatenate(counts)
            full = total - total % rows
            for start in range(0, full, rows):
                yield whole.slice(start, rows), numbers[start : start + rows]
            values, counts, total = [whole.slice(full)], [numbers[full:]], total - full
    if total:
        yield pa.concat_arrays(values), np.concatenate(counts)
