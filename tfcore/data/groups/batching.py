"""Batches of whole groups: the rows of a step as a function of (seed, epoch, step) and group sizes. NumPy.

    order = GroupOrder("query", plan, shards, holdout=holdout, batch=256)
    order.batches(epoch)             # batches of an epoch
    order.start(step)                # where to begin so that the batch of `step` comes first
    order.bounds(epoch)              # rows of the windows that are shuffled
    order.window(epoch, 3)           # int32: which of the window's rows come; below 0 where a place stays empty

An epoch reads records as `tfcore.data.order` has them. Its rows are cut into windows where groups end, the groups of a window
are permuted, rows within a group keep their order, and batches are filled one after another: a group that does not fit into
what is left of a batch begins the next one, and the rest stays empty. So an epoch is whole batches of one size, and how
many there are depends on the order.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from headway.tabular.hashing import U64, mix64
from tfcore.data.order import Plan, Start, ranges
from tfcore.data.resample import Resample
from tfcore.data.shards import Holdout, Shards

_SALT = 0x67726F7570  # "group"


@dataclass(frozen=True, eq=False)
class _Epoch:
    bounds: NDArray[np.int64]
    """Where windows begin among the rows that are read; [windows + 1]."""
    outs: NDArray[np.int64]
    """Where they begin among the rows that come, empty places among them; [windows + 1]."""
    groups: NDArray[np.int64]
    """Where they begin among the groups; [windows + 1]."""
    begins: NDArray[np.int64]
    """Of each group in the order in which they come: its first row among those that are read."""
    sizes: NDArray[np.int64]
    places: NDArray[np.int64]
    """And where it comes."""


class GroupOrder:
    """The order of batches that never split a group; see the module.

    Args:
        column: the group column.
        plan: of the same rows; of classic records one that reads shard after shard (cycle 1).
        shards: with `runs`.
        batch: rows of one; no group has `most` rows above it.
        holdout, resample: which rows take part, and how often; as of the plan.
    """

    def __init__(
        self,
        column: str,
        plan: Plan,
        shards: Shards,
        *,
        batch: int,
        holdout: Holdout | None = None,
        resample: Resample | None = None,
    ):
        assert shards.runs is not None
        self.column, self.plan = column, plan
        self._batch, self._shards, self._holdout, self._resample = batch, shards, holdout, resample
        self._fixed_sizes = None if resample is not None else self._sizes(0)
        counts = [len(runs) for runs in shards.runs]
        self._by_shard = shards.rows_per_record <= 1
        if self._by_shard:
            self._runs = np.asarray(counts, np.int64)
        else:
            # how many runs each record has
            ends = np.cumsum(np.concatenate([*shards.runs, np.zeros(0, np.int64)]))
            records = np.cumsum(np.concatenate([*map(np.asarray, shards.rows), np.zeros(0, np.int64)]))
            self._runs = np.diff(np.searchsorted(ends, records, side="right"), prepend=0)
        self._first = np.cumsum(self._runs) - self._runs
        self._counted: dict[int, int] = {}

    def batches(self, epoch: int) -> int:
        """The number of batches in an epoch."""
        if epoch not in self._counted:
            self._counted[epoch] = int(self._epoch(epoch).outs[-1]) // self._batch
        return self._counted[epoch]

    def epochs(self, step: int) -> float:
        """The number of epochs that `step` steps make."""
        epoch, batch = self._epoch_of(step)
        return epoch + batch / self.batches(epoch)

    def start(self, step: int) -> Start:
        epoch, batch = self._epoch_of(step)
        layout, first = self._epoch(epoch), batch * self._batch
        window = int(np.searchsorted(layout.outs, first, side="right")) - 1
        skip, drop = self.plan.skip(epoch, int(layout.bounds[window]))
        return Start(epoch, skip, drop, window, first - int(layout.outs[window]))

    def bounds(self, epoch: int) -> NDArray[np.int64]:
        """Where an epoch's windows begin among the rows that it reads, and where the last ends; int64 [windows + 1]."""
        return self._epoch(int(epoch)).bounds

    def window(self, epoch: int, window: int) -> tuple[NDArray[np.int32], np.int64]:
        """(the place in the window of each row, in training order; the number of rows of the epoch before this window).
        An empty place has -1 - the place of the row before it, whose values fill the gap."""
        layout = self._epoch(int(epoch))
        groups = slice(layout.groups[window], layout.groups[window + 1])
        begin, out = layout.bounds[window], layout.outs[window]
        places = np.zeros(layout.outs[window + 1] - out, np.int32)
        sizes = layout.sizes[groups]
        filled = ranges(layout.places[groups] - out, sizes)
        places[filled] = ranges(layout.begins[groups] - begin, sizes)
        last = np.zeros(len(places), np.int64)
        last[filled] = filled
        last = np.maximum.accumulate(last)
        return np.where(last < np.arange(len(places)), -1 - places[last], places), out

    def most(self) -> NDArray[np.int64]:
        """The most rows that any epoch has of each run, through all shards; int64 [runs]."""
        return self._sizes(None)

    def _sizes(self, epoch: int | None) -> NDArray[np.int64]:
        """Rows that each run contributes to an epoch; None: the most that any epoch has."""
        by_shard = [np.zeros(0, np.int64)]
        for shard, runs in enumerate(self._shards.runs or ()):
            firsts, rows = np.cumsum(runs) - runs, int(runs.sum())
            sizes = runs
            if self._resample is not None and rows:
                copies = self._resample.most(shard) if epoch is None else self._resample.copies(shard, epoch)
                sizes = np.add.reduceat(copies, firsts)
            if self._holdout is not None and rows:
                sizes = sizes * self._holdout.keeps(shard, rows)[firsts]
            by_shard.append(sizes)
        return np.concatenate(by_shard)

    def _epoch_of(self, step: int) -> tuple[int, int]:
        epoch = 0
        while step >= (batches := self.batches(epoch)):
            step, epoch = step - batches, epoch + 1
        return epoch, step

    @lru_cache(maxsize=2)  # noqa: B019 - it lives as long as its training
    def _epoch(self, epoch: int) -> _Epoch:
        units = self.plan.shard_order(epoch) if self._by_shard else self.plan.sequence(epoch)
        sizes = self._sizes(epoch) if self._fixed_sizes is None else self._fixed_sizes
        sizes = sizes[ranges(self._first[units], self._runs[units])]
        sizes = sizes[sizes > 0]
        ends = np.cumsum(sizes)
        begins = ends - sizes
        window = begins // self.plan.window
        keys = mix64(mix64(np.arange(len(sizes), dtype=U64), self.plan.seed ^ _SALT), epoch)
        order = np.lexsort((keys, window))
        groups = np.append(np.flatnonzero(np.diff(window, prepend=-1)), len(sizes))
        bounds = np.append(begins, sizes.sum())[groups]
        sizes, begins = sizes[order], begins[order]
        places, batches = self._filled(sizes)
        outs = np.append(places, batches * self._batch)[groups]
        return _Epoch(bounds, outs, groups, begins, sizes, places)

    def _filled(self, sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """Fill batches with groups: (the place of each group's first row, the number of batches)."""
        ends = np.cumsum(sizes)
        begins = ends - sizes
        # of a batch that begins with this group, the first that it has no room for
        after = np.searchsorted(ends, begins + self._batch, side="right").tolist()
        firsts, at = [], 0
        while at < len(after):
            firsts.append(at)
            at = after[at]
        counts = np.diff(firsts, append=len(sizes))
        batch = np.repeat(np.arange(len(firsts)), counts)
        return batch * self._batch + begins - np.repeat(begins[firsts], counts), len(firsts)
