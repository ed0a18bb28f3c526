"""Rows that belong together: their group ids, and batches of whole groups.

    group_ids(columns["query"])         # int64 [rows], a number for each value
    gather_with_fillers(rows, places)   # rows in another order, with rows of weight 0 where there is none
    group_splits([7, 7, 7, 2, 2])       # int64 [0, 3, 5, 5, 5, 5]
    order = GroupOrder("query", plan, shards, holdout=holdout, batch=256)
    order.batch_count(epoch)            # batches of an epoch
    order.start(step)                   # where to begin so that the batch of `step` comes first
    order.bounds(epoch)                 # rows of the windows that are shuffled
    order.window(epoch, 3)              # the order of its rows, negative for fillers, and the rows before it

The rows of a step are a function of (seed, epoch, step) and group sizes. An epoch reads records in the order of
`tfcore.data.order`. Its rows are cut into windows where groups end. The groups of a window are permuted; rows within a group keep
their order. Batches are filled one after another. A group that does not fit into the rest of a batch begins the next batch, and
fillers, rows of weight 0, take the rest. So an epoch has whole batches of one size; their number depends on the order.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.tabular.hashing import U64, mix64
from tfcore.data.order import Plan, Start, ranges
from tfcore.data.reader import Batch, Holdout, Resample, Shards, hash64
from tfcore.transform.raw_column import RawColumn

_KEYS = 0x67726F7570  # "group"


@dataclass(frozen=True, eq=False)
class _Epoch:
    bounds: NDArray[np.int64]
    """The first row of each window, counted in reading order, and the number of all rows; [windows + 1]."""
    outs: NDArray[np.int64]
    """The first row of each window, counted in the batches with their fillers, and the number of all rows; [windows + 1]."""
    groups: NDArray[np.int64]
    """The index of each window's first group, and the number of all groups; [windows + 1]."""
    units: NDArray[np.int64]
    """The numbers of the records, in the order in which they are read."""
    ends: NDArray[np.int64]
    """The number of groups up to the end of each record in `units`; [units]."""
    sizes: NDArray[Any]
    """The rows of each run (rows of one group within a record), in manifest order; [runs]."""


class GroupOrder:
    """The order of rows in batches that never split a group; see the module.

    Args:
        column: the group column.
        plan: the order in which the records of these rows are read.
        shards: the shards, with `runs` set.
        batch: the number of rows in a batch; no group may have more (`max_run_rows`).
        holdout, resample: which rows take part, and how often; the same as for the plan.
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
        of_shards = [
            np.diff(np.searchsorted(np.cumsum(runs), np.cumsum(rows), side="right"), prepend=0)
            for runs, rows in zip(shards.runs, shards.rows, strict=True)
        ]
        self._runs = np.concatenate([np.zeros(0, np.int64), *of_shards])
        """The number of runs in each record."""
        self._first = np.cumsum(self._runs) - self._runs
        self._counted: dict[int, int] = {}

    def batch_count(self, epoch: int) -> int:
        """Returns the number of batches in an epoch."""
        if epoch not in self._counted:
            self._counted[epoch] = int(self._epoch(epoch).outs[-1]) // self._batch
        return self._counted[epoch]

    def epochs(self, step: int) -> float:
        """Returns how many epochs the first `step` steps take, as a fraction."""
        epoch, batch = self._epoch_of(step)
        return epoch + batch / self.batch_count(epoch)

    def start(self, step: int) -> Start:
        epoch, batch = self._epoch_of(step)
        layout, first = self._epoch(epoch), batch * self._batch
        window = int(np.searchsorted(layout.outs, first, side="right")) - 1
        skip, drop = self.plan.skip(epoch, int(layout.bounds[window]))
        return Start(epoch, skip, drop, window, first - int(layout.outs[window]))

    def bounds(self, epoch: int) -> NDArray[np.int64]:
        """Returns the first row of each window, counted in reading order, and the end of the last; int64 [windows + 1]."""
        return self._epoch(int(epoch)).bounds

    def window(self, epoch: int, window: int) -> tuple[NDArray[np.int32], np.int64]:
        """Returns the positions of a window's rows in training order, and the number of rows, fillers included, that precede the
        window in the epoch's batches. A filler has the position -1 - p, and takes the values of row p, the row before it."""
        layout = self._epoch(int(epoch))
        first, end = layout.groups[window : window + 2]
        begin, stop = np.searchsorted(layout.ends, [first, end - 1], side="right")
        sizes, _ = self._group_rows(layout.units[begin : stop + 1], layout.sizes)
        before = layout.ends[begin - 1] if begin else 0
        sizes = sizes[first - before : end - before]
        order = np.argsort(self._keys(first, len(sizes), epoch), kind="stable")
        begins = (np.cumsum(sizes) - sizes)[order]
        out, sizes = layout.outs[window], sizes[order]
        used = out % self._batch
        filled = ranges(self._filled(sizes, used) - used, sizes)
        places = np.zeros(layout.outs[window + 1] - out, np.int32)
        places[filled] = ranges(begins, sizes)
        last = np.zeros(len(places), np.int64)
        last[filled] = filled
        last = np.maximum.accumulate(last)
        return np.where(last < np.arange(len(places)), -1 - places[last], places), out

    def max_run_rows(self) -> NDArray[Any]:
        """Returns the most rows that each run has in any epoch; integers [runs]. A run is rows of one group in a record."""
        return self._sizes(None)

    def _sizes(self, epoch: int | None) -> NDArray[Any]:
        """Returns the number of rows that each run has in `epoch`; for None, the most rows that it has in any epoch. Integers of
        the smallest type, [runs]."""
        by_shard: list[NDArray[Any]] = [np.zeros(0, np.uint8)]
        for shard, runs in enumerate(self._shards.runs or ()):
            firsts, rows = np.cumsum(runs) - runs, int(runs.sum())
            sizes = runs
            if self._resample is not None and rows:
                copies = self._resample.max_copies(shard) if epoch is None else self._resample.copies(shard, epoch)
                sizes = np.add.reduceat(copies, firsts)
            if self._holdout is not None and rows:
                sizes = sizes * self._holdout.row_mask(shard, rows)[firsts]
            by_shard.append(sizes.astype(np.min_scalar_type(int(sizes.max(initial=0)))))
        return np.concatenate(by_shard)

    def _epoch_of(self, step: int) -> tuple[int, int]:
        epoch = 0
        while step >= (batches := self.batch_count(epoch)):
            step, epoch = step - batches, epoch + 1
        return epoch, step

    @lru_cache(maxsize=2)  # noqa: B019 - it lives as long as its training
    def _epoch(self, epoch: int) -> _Epoch:
        units = self.plan.sequence(epoch)
        all_sizes = self._sizes(epoch) if self._fixed_sizes is None else self._fixed_sizes
        sizes, counts = self._group_rows(units, all_sizes)
        begins = np.cumsum(sizes) - sizes
        window = begins // self.plan.window
        order = np.lexsort((self._keys(0, len(sizes), epoch), window))
        places = self._filled(sizes[order], 0)
        starts = np.flatnonzero(np.diff(window, prepend=-1))
        rows = int(places[-1] + sizes[order[-1]]) if len(places) else 0
        return _Epoch(
            bounds=np.append(begins[starts], sizes.sum()),
            outs=np.append(places[starts], -(-rows // self._batch) * self._batch),
            groups=np.append(starts, len(sizes)),
            units=units,
            ends=np.cumsum(counts),
            sizes=all_sizes,
        )

    def _group_rows(self, units: NDArray[np.int64], sizes: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the number of rows of each non-empty group in the records `units`, and how many such groups each record has."""
        found = sizes[ranges(self._first[units], self._runs[units])].astype(np.int64)
        unit = np.repeat(np.arange(len(units)), self._runs[units])[found > 0]
        return found[found > 0], np.bincount(unit, minlength=len(units))

    def _keys(self, first: int, count: int, epoch: int) -> NDArray[np.uint64]:
        """Returns pseudo-random sort keys for groups `first` to `first + count - 1` of an epoch; uint64 [count]."""
        numbers = np.arange(first, first + count, dtype=U64)
        return mix64(mix64(numbers, self.plan.seed ^ _KEYS), int(epoch))

    def _filled(self, sizes: NDArray[np.int64], used: int) -> NDArray[np.int64]:
        """Returns where each group begins in batches that are filled in turn. `used` rows of the first batch are taken."""
        sizes = np.append(used, sizes) if used else sizes
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
        places: NDArray[np.int64] = batch * self._batch + begins - np.repeat(begins[firsts], counts)
        return places[1:] if used else places


GROUP = "group"
"""The name of the group ids in a batch."""
NO_GROUP = -1
"""The id of a row without a group: its group is null, or it only fills up a batch."""


@tf.autograph.experimental.do_not_convert
def group_ids(column: RawColumn) -> tf.Tensor:
    """Returns each row's group id, int64 [rows]: a hash of its value, at least 0, equal for equal values. Null: `NO_GROUP`."""
    values = column.plain()
    if values.dtype == tf.string:
        ids = tf.strings.to_hash_bucket_fast(values, tf.int64.max)
    else:
        # of a float its bits, where -0.0 is 0.0
        whole = values if values.dtype.is_integer else tf.bitcast(tf.where(values == 0, 0.0, values), tf.int32)
        ids = _positive(hash64(tf.cast(tf.cast(whole, tf.int64), tf.uint64), 0))
    return ids if column.present is None else tf.where(column.present, ids, tf.constant(NO_GROUP, tf.int64))


@tf.autograph.experimental.do_not_convert
def gather_with_fillers(rows: Batch, places: tf.Tensor) -> Batch:
    """Returns the rows at `places`. A place of -1 - i gives a filler: row i with weight 0 and without a group. Fillers have real
    values, since a model may not be able to compute with zeros.

    Args:
        rows: tensors by name, "weight" and "group" among them.
        places: int32 [places].
    """
    filled = places >= 0
    columns = {name: tf.gather(value, tf.where(filled, places, -1 - places)) for name, value in rows.items()}
    columns["weight"] = tf.where(filled, columns["weight"], 0.0)
    columns[GROUP] = tf.where(filled, columns[GROUP], tf.constant(NO_GROUP, tf.int64))
    return columns


def _positive(bits: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.bitwise.right_shift(bits, tf.constant(1, tf.uint64)), tf.int64)


@tf.autograph.experimental.do_not_convert
def group_splits(ids: Any) -> tf.Tensor:
    """Returns the row_splits of groups, int64 [rows + 1]. A group is a run of rows with one id.

    There are as many groups as rows, the last ones empty, so that the shape follows from the shape of `ids` also under
    XLA. Rows of one id that do not lie together are several groups.

    Args:
        ids: [rows], of any type that can be compared.
    """
    ids = tf.convert_to_tensor(ids)
    if ids.shape.rank != 1:
        raise ValueError(f"ids is a vector, not of shape {ids.shape}")
    rows = tf.shape(ids)[0]
    group = tf.cumsum(tf.concat([tf.zeros_like(ids[:1], tf.int32), tf.cast(ids[1:] != ids[:-1], tf.int32)], 0))
    sizes = tf.math.unsorted_segment_sum(tf.ones([rows], tf.int64), group, rows)
    splits = tf.concat([tf.zeros([1], tf.int64), tf.cumsum(sizes)], 0)
    return tf.ensure_shape(splits, [None if ids.shape[0] is None else ids.shape[0] + 1])


@tf.autograph.experimental.do_not_convert
def row_groups(row_splits: tf.Tensor, rows: tf.Tensor | int) -> tf.Tensor:
    """Returns the index of each row's group, int64 [rows], from valid row_splits."""
    return tf.searchsorted(row_splits[1:], tf.range(rows, dtype=row_splits.dtype), side="right", out_type=tf.int64)
