"""Sorted runs of (byte string, occurrences) in Arrow files, merged block by block: counts larger than memory.

    run = write_run(blocks, folder)                 # blocks: values rising and distinct over all of them
    for values, counts in merged([run, other]): ...

A merge holds one block of every run. All rows up to the least of the blocks' last values are complete in what is held, so
they are folded with Arrow and NumPy and handed on; no row is touched by Python.
"""

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Block = tuple[pa.Array, NDArray[np.int64]]
"""(large_binary values, occurrences), equally long."""
BLOCK = 16_384
"""Rows of a block, but for the last one."""
_BLOCK_BYTES = 2 << 20
"""Blocks of temporary runs are shorter when the strings are long."""
_SCHEMA = pa.schema([("bytes", pa.large_binary()), ("count", pa.int64())])


class Run:
    """Some batches of an Arrow file, in rising order of their `bytes`. A temporary run's file is deleted with its last
    user."""

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
    """Write a temporary run in `folder`, which is made if need be."""
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
    """Add up the occurrences of equal values; values in no order."""
    # ten times faster than group_by, which has no fast path for large strings
    encoded = pa.concat_arrays(values).dictionary_encode()
    sums = np.bincount(encoded.indices.to_numpy(), weights=np.concatenate(counts))
    return encoded.dictionary, sums.astype(np.int64)


def in_order(values: pa.Array, counts: NDArray[np.int64]) -> Block:
    """Sort values by their bytes."""
    order = pc.sort_indices(values)
    return values.take(order), counts[order.to_numpy()]


def exact(values: pa.Array) -> pa.Array:
    """Copy strings to buffers without slack, which would show in the bytes of a file."""
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
    data = values.buffers()[2] or pa.py_buffer(b"")
    buffers = [None, pa.py_buffer(offsets - offsets[0]), data.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))]
    return pa.Array.from_buffers(pa.large_binary(), len(values), buffers)


def merged(runs: Sequence[Iterable[Block]]) -> Iterator[Block]:
    """Merge runs into one, in blocks of any length."""
    for parts in _abreast(runs):
        if len(parts) == 1:
            ((_, values, counts),) = parts
            yield values, counts
        else:
            yield in_order(*fold([values for _, values, _ in parts], [counts for _, _, counts in parts]))


def paired(
    ours: Iterable[Block], theirs: Iterable[Block]
) -> Iterator[tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]]:
    """Merge two runs: each value once, in no order within a block, with its occurrences in either run."""
    for parts in _abreast([ours, theirs]):
        encoded = pa.concat_arrays([values for _, values, _ in parts]).dictionary_encode()
        places, totals, at = encoded.indices.to_numpy(), np.zeros((2, len(encoded.dictionary)), np.int64), 0
        for side, values, counts in parts:
            totals[side, places[at : at + len(values)]] = counts
            at += len(values)
        yield encoded.dictionary, totals[0], totals[1]


def _abreast(runs: Sequence[Iterable[Block]]) -> Iterator[list[tuple[int, pa.Array, NDArray[np.int64]]]]:
    """Cut the runs at common values: lists of (run, values, occurrences), where no later list has a value of an earlier
    one."""
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
    """Cut rows into blocks of `rows`, the last one shorter, wherever they were cut before."""
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
