"""The order of rows: which rows a step reads, a pure function of (seed, epoch, step) and row counts. In NumPy.

    plan = Plan(rows_of_records=[[4096, 4096, 17], [4096]], seed=7)
    start = plan.start(first_row=100_000)
    start.epoch, start.skip_records, start.drop_rows, start.window, start.drop_in_window

Rows form one endless sequence, epoch after epoch. With B rows in a batch, step s reads rows s * B to (s + 1) * B of the sequence.
So a batch at the end of an epoch goes on into the next epoch. Each epoch has its own order of shards. It reads `cycle` shards at
a time, in turn one record of each. The rows are cut into windows, and each window is permuted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from headway.tabular.hashing import permutation

WINDOW_ROWS = 65_536
CYCLE = 8
RowsOfRecords = Sequence[Sequence[int] | NDArray[np.int64]]
_SHARDS = 0x73686172  # "shar": the seed of shard orders, apart from those of windows


@dataclass(frozen=True)
class Start:
    """Says where to begin to read, so that a wanted row comes first."""

    epoch: int
    skip_records: int
    """The number of records to skip unread, in the order in which the epoch reads records."""
    drop_rows: int
    """The number of rows to drop from the first record that is read. A window begins behind these rows."""
    window: int
    """The index of the first window that is read, in its epoch."""
    drop_in_window: int
    """The number of rows to drop from that window after its permutation, since earlier steps have seen these rows."""


class Plan:
    """The order in which epochs read all rows; see the module.

    Args:
        rows_of_records: for each shard, the number of rows of each record that take part. If the numbers differ between
            epochs: a function that returns them for an epoch.
        seed: determines the order.
    """

    def __init__(
        self,
        rows_of_records: RowsOfRecords | Callable[[int], RowsOfRecords],
        seed: int,
        *,
        window: int = WINDOW_ROWS,
        cycle: int = CYCLE,
    ):
        self._rows_of = rows_of_records if callable(rows_of_records) else None
        first = rows_of_records(0) if callable(rows_of_records) else rows_of_records
        self._rows = [np.asarray(rows) for rows in first]
        self.seed, self.window, self.cycle = seed, window, cycle
        self.rows = sum(int(rows.sum()) for rows in self._rows)
        """The number of rows in the first epoch."""

    def shard_order(self, epoch: int) -> NDArray[np.int64]:
        """Returns the indices of the shards in the order in which an epoch opens them; int64 [shards]."""
        return shard_order(len(self._rows), self.seed, int(epoch))

    @lru_cache(maxsize=2)  # noqa: B019 - a plan lives as long as its training
    def rows_per_record(self, epoch: int) -> NDArray[Any]:
        """Returns the number of rows of each record, in the order in which an epoch reads the records; integers of the
        smallest type, [records]."""
        runs = self._runs(epoch)
        rows = self._rows if self._rows_of is None or not epoch else [np.asarray(r) for r in self._rows_of(epoch)]
        parts = [rows[shard][first : first + count] for shard, first, count in runs.tolist()]
        kind = np.min_scalar_type(max((int(each.max(initial=0)) for each in rows), default=0))
        return np.concatenate([np.zeros(0, kind), *parts], dtype=kind, casting="unsafe")

    def _runs(self, epoch: int) -> NDArray[np.int64]:
        """Returns the runs of records that an epoch reads in turn: shard, first record, number of records; int64 [runs, 3]."""
        order = self.shard_order(epoch)
        places = interleave([len(self._rows[i]) for i in order], self.cycle)
        runs = np.asarray(places, np.int64).reshape(-1, 3)
        runs[:, 0] = order[runs[:, 0]]
        return runs

    def places(self, epoch: int) -> NDArray[np.int32]:
        """Returns the manifest position of each row that an epoch reads, in reading order, before rows are shuffled within
        windows; int32 [rows]. Only for a plan that has the same rows in every epoch."""
        lengths = np.concatenate(self._rows).astype(np.int64)
        begins = np.cumsum(lengths) - lengths
        read = self.sequence(epoch)
        return ranges(begins[read], lengths[read], np.int32)

    def sequence(self, epoch: int) -> NDArray[np.int64]:
        """Returns the numbers of all records, counted through the shards, in the order in which an epoch reads them."""
        records, runs = np.cumsum([0, *map(len, self._rows)]), self._runs(epoch)
        return ranges(records[runs[:, 0]] + runs[:, 1], runs[:, 2])

    def start(self, first_row: int) -> Start:
        """Returns where reading begins so that row `first_row` of the endless sequence comes first."""
        epoch, row = divmod(first_row, self.rows) if self._rows_of is None else self._epoch_of(first_row)
        window, drop_in_window = divmod(row, self.window)
        return Start(epoch, *self.skip(epoch, window * self.window), window, drop_in_window)

    def skip(self, epoch: int, row: int) -> tuple[int, int]:
        """Returns how many records to skip, and how many rows of the next record to drop, to begin at row `row` of an epoch."""
        ends = np.cumsum(self.rows_per_record(epoch) if row else (), dtype=np.int64)
        passed = int(np.searchsorted(ends, row, side="right"))
        return passed, row - (int(ends[passed - 1]) if passed else 0)

    def _epoch_of(self, row: int) -> tuple[int, int]:
        epoch = 0
        while row >= (rows := int(self.rows_per_record(epoch).sum())):
            row, epoch = row - rows, epoch + 1
        return epoch, row


def ranges(firsts: NDArray[np.int64], counts: NDArray[np.int64], dtype: DTypeLike = np.int64) -> NDArray[Any]:
    """Returns ranges of integers, joined: the i-th has `counts[i]` integers from `firsts[i]` on. `dtype` must hold them."""
    integers = np.arange(counts.sum(), dtype=dtype)
    integers += np.repeat((firsts - (np.cumsum(counts) - counts)).astype(dtype), counts)
    return integers


def shard_order(shards: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Returns the indices of the shards in the order in which an epoch opens them; int64 [shards]."""
    return permutation(shards, _SHARDS, seed, epoch)


def interleave(lengths: Sequence[int], cycle: int) -> list[tuple[int, int, int]]:
    """Returns the order in which tf.data.Dataset.interleave(cycle_length=cycle) reads datasets.

    Returns:
        A list of (dataset, first element, count) in reading order. A dataset that ends gives up its turn, and the next
        one takes its place when that turn comes round again.
    """
    places: list[tuple[int, int, int]] = []
    slots: list[int | None] = [None] * cycle
    done = [0] * len(lengths)
    waiting, active, at = 0, 0, 0
    while waiting < len(lengths) or active:
        if slots[at] is None:
            if waiting == len(lengths):
                at = (at + 1) % cycle
                continue
            slots[at] = waiting
            waiting += 1
            active += 1
        shard = slots[at]
        assert shard is not None
        if done[shard] < lengths[shard]:
            places.append((shard, done[shard], 1))
            done[shard] += 1
        else:  # its end is only noticed by asking for one more
            slots[at] = None
            active -= 1
        at = (at + 1) % cycle
    return places
