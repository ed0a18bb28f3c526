"""The input pipeline: a chain of small transformations from the records of shards to stacked, shuffled batches.

    plan, inputs = RowPlan.of(shards, seed=0), Inputs(shards, transform, labeler)
    for stack in with_data_errors(training_dataset(plan, inputs, batch=256, stack=32), shards):
        stack["numeric"]                     # float32 [32, 256, n]

Each link is a function `(dataset, ...) -> dataset`, and `training_dataset` puts the links one behind the other. For each epoch:

    Reader.in_epoch   gives the records in the order of the epoch, from files or from memory; nothing is parsed yet
    prepare           decode: computes model inputs, label and weight of each record
                      select: leaves out rows that are held out; or leaves out and repeats rows by their class
                      as_many: fails if a link before it gives more or fewer rows than the plan counts
    cut_windows       cuts the rows into windows, each of which is shuffled as a whole
    shuffle           permutes each window, by a pure function of (seed, epoch, window)
    vary              augments each row, by its epoch and its position in the epoch

The first row of an epoch follows the last row of the epoch before: `rebatch`, and `stack_rows`. Rows that stay in memory
(`RowCache`) are prepared once; each epoch then begins with `cut_windows`. Put a link of your own between two of these. Rows
never pass one by one: records are parsed and transformed as a whole, windows are permuted as a whole. `tfcore.data.order` makes
the order of rows, `tfcore.data.groups` the order of groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import DataError
from headway.process import cores
from headway.schema.columns import Column
from tfcore.data.groups import GROUP, GroupOrder, gather_with_fillers, group_ids
from tfcore.data.order import CYCLE, WINDOW_ROWS, Plan, Start
from tfcore.data.reader import (
    AUTOTUNE,
    OTHER_ROWS,
    Batch,
    Holdout,
    HoldoutRows,
    Labeler,
    Reader,
    Resample,
    ResampleInGraph,
    Shards,
    kept_rows,
    map_records,
    with_data_errors,
)
from tfcore.graph.python_op import PYTHON_NODES, all_nodes, numpy_op
from tfcore.transform.layer import Transform
from tfcore.transform.raw_column import PackedColumns, RawColumn

AHEAD_STACKS, AHEAD_BYTES = 64, 32 << 20
AT_ONCE = min(4, cores())
"""The number of windows that are shuffled at the same time, and of stacks that are put together at the same time. One for each
core would fill the memory of a machine with many cores."""
ROW = "row"
"""The name of the only tensor that cached rows have until they are stacked: their positions in manifest order, int32."""
_BOUNDS = tf.TensorSpec([None], tf.int64)
_WINDOW = tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int64)
_CALLED_AGAIN = PYTHON_NODES - {"PyFuncStateless"}


class Augmentation(Protocol):
    """A function that varies the rows of a batch, such as `tfcore.train.augment.Augment`."""

    chunk: int

    def extras(self, window: Batch, order: tf.Tensor, skipped: tf.Tensor, epoch: tf.Tensor, first: tf.Tensor) -> Batch:
        """Returns columns that `__call__` needs for rows `window[order][skipped:]`. `first` rows of the epoch come before."""

    def __call__(self, rows: Batch) -> Batch:
        """Returns the varied rows, without the columns that `extras` added."""


@dataclass(frozen=True, eq=False)
class RowPlan:
    """Says which rows of the shards an epoch has, and in which order. It depends only on the shards, settings and seed."""

    shards: Shards
    order: Plan
    holdout: Holdout | None = None
    """Says which rows take part; None: all."""
    resample: Resample | None = None
    """Says how often each row occurs in an epoch; None: once."""
    groups: GroupOrder | None = None
    """The order of batches that hold whole groups and are filled up with rows of weight 0. None: rows have no groups."""

    @classmethod
    def of(
        cls,
        shards: Shards,
        *,
        seed: int,
        holdout: Holdout | None = None,
        resample: Resample | None = None,
        window: int = WINDOW_ROWS,
        cycle: int = CYCLE,
    ) -> Self:
        """Returns a plan for rows without groups."""
        counts: Any = kept_rows(shards, holdout)
        if resample is not None:

            def counts(epoch: int) -> list[NDArray[Any]]:
                return resample.rows_of_records(shards, holdout, epoch)

        return cls(shards, Plan(counts, seed, window=window, cycle=cycle), holdout, resample)

    def start(self, step: int, batch: int) -> Start:
        """Returns where to begin to read, so that the first batch is that of `step`. `batch` is the number of rows in a batch."""
        return self.order.start(step * batch) if self.groups is None else self.groups.start(step)

    def rows_per_record(self, epoch: tf.Tensor) -> tf.Tensor:
        """Returns how many rows of each record take part, in the order in which the epoch reads records; int64 [records]."""
        return numpy_op(lambda at: self.order.rows_per_record(at).astype(np.int64), _BOUNDS, stateful=False)(epoch)

    def bounds(self, epoch: tf.Tensor) -> tf.Tensor | None:
        """Returns the first row of each window, and the end: int64 [windows + 1]. None without groups: windows of one size."""
        return None if self.groups is None else numpy_op(self.groups.bounds, _BOUNDS, stateful=False)(epoch)

    def permutation(self, epoch: tf.Tensor, window: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns a window's order (int32 positions; negative: a filler), and how many rows precede the window (int64)."""
        if self.groups is not None:
            order, before = numpy_op(self.groups.window, _WINDOW, stateful=False)(epoch, window)
            return order, before
        key = tf.stack([tf.constant(self.order.seed, tf.int64) * 1_000_003 + epoch, window])
        return tf.random.experimental.stateless_shuffle(tf.range(rows), seed=key), window * self.order.window

    def reorder(self, rows: Batch, order: tf.Tensor) -> Batch:
        """Returns a window's rows in the order that `permutation` gave. A negative position gives a filler row."""
        if self.groups is None:
            return gather(rows, order)
        if ROW not in rows:
            return gather_with_fillers(rows, order)
        row = tf.gather(rows[ROW], tf.where(order < 0, -1 - order, order))
        return {ROW: tf.where(order < 0, -1 - row, row)}


class Inputs:
    """Computes the model inputs, label and weight of records. Traced once, for rows in memory and for rows read again.

    Args:
        ids: the column whose values become the rows' group ids, the tensor "group"; None: rows get no group ids.
    """

    def __init__(
        self,
        shards: Shards,
        transform: Transform | Callable[[Mapping[str, RawColumn]], Batch],
        labeler: Labeler,
        *,
        ids: str | None = None,
    ):
        stored = [column.name for column in shards.columns]
        self.reader = Reader(shards, stored if ids is None or ids in stored else [*stored, ids])
        self._transform, self._labeler, self._ids = transform, labeler, ids
        self.rows = tf.function(self._read, autograph=False)
        """The tf.function from a piece to the record's rows, the index of its shard, and its number in the shard."""

    def _read(self, *piece: tf.Tensor) -> tuple[Batch, tf.Tensor, tf.Tensor]:
        columns, shard, number = self.reader(*piece)
        rows = add_labels(self._transform(columns), columns, self._labeler)
        if self._ids is not None:
            rows[GROUP] = group_ids(columns[self._ids])
        return rows, shard, number


class EpochStart(NamedTuple):
    """What an epoch skips at its start, as int64 scalars (see `Start`). All are 0, except in the epoch a training begins in."""

    skip: tf.Tensor
    drop: tf.Tensor
    window: tf.Tensor
    seen: tf.Tensor

    @classmethod
    def of(cls, start: Start, epoch: tf.Tensor) -> Self:
        at = (start.skip_records, start.drop_rows, start.window, start.drop_in_window)
        first = tf.equal(epoch, start.epoch)
        return cls(*(tf.where(first, tf.constant(n, tf.int64), tf.constant(0, tf.int64)) for n in at))


@tf.autograph.experimental.do_not_convert  # there is nothing to convert, and looking takes a second
def training_dataset(
    plan: RowPlan,
    inputs: Inputs,
    *,
    batch: int,
    stack: int,
    start_step: int = 0,
    cache: RowCache | None = None,
    augment: Augmentation | None = None,
    jit: bool = False,
    count: int | None = None,
) -> tf.data.Dataset:
    """Returns a dataset of stacks of K batches of B rows. A stack has the transform's outputs (numeric float32 [K, B, n],
    categorical int32 [K, B, m], ...), label [K, B], weight float32 [K, B], and any other tensors of `inputs`.

    Args:
        start_step: the step whose batch comes first.
        cache: the plan's rows in memory; None: they are read in every epoch.
        augment: varies the rows.
        jit: whether XLA gathers the rows of a stack from memory; the same rows in less time.
        count: the number of stacks; None: endless. The stacks made ahead may then be many epochs of few rows.

    Raises:
        DataError: there are no rows.
    """
    if not plan.order.rows:
        raise DataError("there are no rows to train on", where=", ".join(plan.shards.paths[:3]) or "the train split")
    start, selection = plan.start(start_step, batch), selection_of(plan)

    def epoch_rows(epoch: tf.Tensor) -> tf.data.Dataset:
        at = EpochStart.of(start, epoch)
        if cache is None:
            rows = inputs.reader.in_epoch(plan.order, epoch, at.skip)
            rows = prepare(rows, inputs, selection, epoch, plan.rows_per_record(epoch)[at.skip :])
            rows = cut_windows(rows, plan, epoch, at, drops=start.drop_rows > 0)
        else:
            rows = cache.windows(epoch, at.window, plan.bounds(epoch), places=augment is None)
        rows = shuffle(rows, plan, epoch, at, augment)
        return rows if augment is None else vary(rows, augment)

    epochs = tf.data.Dataset.range(start.epoch, np.iinfo(np.int64).max)
    rows = epochs.flat_map(epoch_rows).rebatch(stack * batch, drop_remainder=True)
    if count is not None:
        rows = rows.take(count)
    pick = None
    if cache is not None and augment is None:
        pick = cache.row_picker(gather if plan.groups is None else gather_with_fillers, stack * batch, jit=jit)
    return stack_rows(rows, [stack, batch], rows.element_spec if pick is None or cache is None else cache.spec, pick)


# --- the chain


def prepare(
    pieces: tf.data.Dataset, inputs: Inputs, selection: Selection | None, epoch: tf.Tensor, counts: tf.Tensor
) -> tf.data.Dataset:
    """Returns the decoded rows of `pieces` that take part in an epoch, to be shuffled or kept in memory.

    Args:
        counts: how many rows of each piece take part, int64 [pieces].
    """
    rows = decode(pieces, inputs)
    rows = select(rows, selection, epoch)
    return as_many(rows, counts)


def decode(pieces: tf.data.Dataset, inputs: Inputs) -> tf.data.Dataset:
    """Returns for each piece its rows as model inputs, the index of its shard, and its number in the shard."""
    return pieces.map(inputs.rows, num_parallel_calls=AUTOTUNE, deterministic=True)


Selection = Callable[[Batch, tf.Tensor, tf.Tensor, tf.Tensor], Batch]


def selection_of(plan: RowPlan) -> Selection | None:
    """Returns a function: (rows of a record, its shard's index, its number in the shard, epoch) -> the rows that take part. None
    if all do. Call `selection_of` outside of any graph: a graph would hold a copy of the holdout's bits, one for each row."""
    if plan.resample is not None:
        return ResampleInGraph(plan.resample, plan.shards, plan.holdout)
    if plan.holdout is None:
        return None
    kept = HoldoutRows(plan.holdout, plan.shards)
    return lambda rows, shard, number, _: kept(rows, shard, number)


def select(placed_rows: tf.data.Dataset, selection: Selection | None, epoch: tf.Tensor) -> tf.data.Dataset:
    """Returns the rows of each record that take part in an epoch; without a selection all."""
    if selection is None:
        return placed_rows.map(lambda rows, *_: rows)
    return placed_rows.map(
        lambda rows, shard, number: selection(rows, shard, number, epoch),
        num_parallel_calls=AUTOTUNE,
        deterministic=True,
    )


def as_many(rows: tf.data.Dataset, counts: tf.Tensor) -> tf.data.Dataset:
    """Returns `rows` unchanged, but fails at the first record with another number of rows than `counts` says."""

    def checked(rows: Batch, count: tf.Tensor) -> Batch:
        found = tf.shape(rows["label"], tf.int64)[0]
        tf.debugging.assert_equal(found, count, OTHER_ROWS)
        return rows

    every = rows.apply(tf.data.experimental.assert_cardinality(tf.size(counts, tf.int64)))
    return tf.data.Dataset.zip(every, tf.data.Dataset.from_tensor_slices(counts)).map(checked)


def cut_windows(
    rows: tf.data.Dataset, plan: RowPlan, epoch: tf.Tensor, at: EpochStart, *, drops: bool
) -> tf.data.Dataset:
    """Returns an epoch's rows from `at` on, cut into windows. A window is shuffled as a whole. If rows have groups, each window
    ends where a group ends.

    Args:
        drops: whether the epoch in which the training begins has rows to drop before its first window.
    """
    if drops:

        def dropped(i: tf.Tensor, rows: Batch) -> Batch:
            count = tf.where(tf.equal(i, 0), at.drop, tf.constant(0, tf.int64))
            return {name: value[count:] for name, value in rows.items()}

        rows = rows.enumerate().map(dropped)
    bounds = plan.bounds(epoch)
    if bounds is None:
        return rows.rebatch(plan.order.window)
    return rows.rebatch(bounds[at.window + 1 :] - bounds[at.window : -1])


def shuffle(
    windows: tf.data.Dataset, plan: RowPlan, epoch: tf.Tensor, at: EpochStart, augment: Augmentation | None = None
) -> tf.data.Dataset:
    """Returns the rows of each window, permuted by (seed, epoch, window), without rows that earlier steps have seen.

    Args:
        augment: adds its `extras` to the rows, since only here the rows' positions in the epoch are known.
    """

    def shuffled(i: tf.Tensor, rows: Batch) -> Batch:
        order, before = plan.permutation(epoch, i + at.window, tf.shape(next(iter(rows.values())))[0])
        seen = tf.where(tf.equal(i, 0), at.seen, tf.constant(0, tf.int64))
        places = {} if augment is None else augment.extras(rows, order, seen, epoch, before)
        return plan.reorder(rows, order[seen:]) | places

    return windows.enumerate().map(shuffled, num_parallel_calls=AT_ONCE, deterministic=True)


def vary(rows: tf.data.Dataset, augment: Augmentation) -> tf.data.Dataset:
    """Returns the augmented rows. Augments `augment.chunk` rows at a time, few enough for a core's cache."""
    return rows.rebatch(augment.chunk).map(augment, num_parallel_calls=AUTOTUNE, deterministic=True)


def stack_rows(
    rows: tf.data.Dataset,
    shape: list[int],
    spec: Mapping[str, tf.TensorSpec],
    pick: Callable[[tf.Tensor], Batch] | None = None,
) -> tf.data.Dataset:
    """Returns stacks of batches. Prefetches up to `AHEAD_STACKS` or `AHEAD_BYTES`, but at least two. A window's first row waits
    until the window is parsed and shuffled. With fewer stacks ahead the training would wait at every window and every epoch.

    Args:
        rows: each element has as many rows as a stack.
        shape: [batches, rows of a batch].
        spec: the specs of a stack's rows, [rows, ...] each.
        pick: a function from positions in memory (`ROW`, int32 [rows]) to these rows; None: `rows` have all tensors.
    """
    count = math.prod(shape)

    def stack(rows: Batch) -> Batch:
        if pick is not None:
            rows = pick(tf.ensure_shape(rows[ROW], [count]))
        shapes = {name: [-1 if size is None else size for size in spec[name].shape[1:]] for name in rows}
        return {name: tf.reshape(value, [*shape, *shapes[name]]) for name, value in rows.items()}

    ahead = max(2, min(AHEAD_STACKS, AHEAD_BYTES // max(1, row_bytes(spec) * count)))
    return rows.map(stack, num_parallel_calls=AT_ONCE, deterministic=True).prefetch(ahead)


class RowCache:
    """Keeps the transformed rows of a training in memory if they are small, so that later epochs parse nothing.

    Rows come in the plan's order, so the cache changes no batch. Rows are not kept if the pipeline calls a Python function that
    may return something else the next time.

    Args:
        rows: all rows, in the order of the manifests.
        order: the plan of their order in each epoch.
    """

    def __init__(self, rows: Batch, order: Plan):
        self.rows, self._order = rows, order
        self.spec = {name: tf.TensorSpec([None, *value.shape[1:]], value.dtype) for name, value in rows.items()}

    @classmethod
    @tf.autograph.experimental.do_not_convert  # as above
    def of(cls, plan: RowPlan, inputs: Inputs, most: int) -> RowCache | None:
        """Read every row once, and return the cache. None if the rows take more than `most` bytes, are sampled anew in each
        epoch, or come from a Python function that is not pure.

        Raises:
            DataError: the rows cannot be read.
        """
        if plan.resample is not None:
            return None
        pieces = inputs.reader.in_order()
        function = inputs.rows.get_concrete_function(*pieces.element_spec)
        nodes = all_nodes(function.graph.as_graph_def())
        taken_bytes = row_bytes(function.structured_outputs[0]) * plan.order.rows
        if taken_bytes > most or any(node.op in _CALLED_AGAIN for node in nodes):
            return None
        plan.shards.announce_order()
        with tf.device("/CPU:0"):
            counts = tf.constant(np.concatenate(kept_rows(plan.shards, plan.holdout)), tf.int64)
            rows = prepare(pieces, inputs, selection_of(plan), tf.constant(0, tf.int64), counts)
            parts = list(with_data_errors(rows, plan.shards))
            return cls({name: tf.concat([part[name] for part in parts], 0) for name in parts[0]}, plan.order)

    def windows(
        self, epoch: tf.Tensor, first: tf.Tensor, bounds: tf.Tensor | None = None, *, places: bool = True
    ) -> tf.data.Dataset:
        """Returns a dataset: for each window of an epoch from window `first` (int64) on, its rows or their positions in memory.

        Args:
            bounds: the first row of each window, and the end; int64 [windows + 1]. None: windows of the plan's size.
            places: whether to give only the rows' positions in memory, as `ROW`, instead of the rows.
        """
        size, rows = self._order.window, self._order.rows
        every = numpy_op(self._order.places, tf.TensorSpec([rows], tf.int32), stateful=False)(epoch)
        if bounds is not None:
            numbers = tf.data.Dataset.range(first, tf.size(bounds, tf.int64) - 1)
            windows = numbers.map(lambda i: {ROW: every[bounds[i] : bounds[i + 1]]})
        else:
            numbers = tf.data.Dataset.range(first, -(-rows // size))
            windows = numbers.map(lambda i: {ROW: every[i * size : (i + 1) * size]})
        if places:
            return windows
        return windows.map(lambda some: gather(self.rows, some[ROW]), num_parallel_calls=AT_ONCE, deterministic=True)

    def row_picker(
        self, pick: Callable[[Batch, tf.Tensor], Batch], count: int, *, jit: bool
    ) -> Callable[[tf.Tensor], Batch]:
        """Returns a function that calls `pick` on all cached rows and the positions it is given, int32 [count].

        Args:
            jit: compile the function with XLA, unless a column is text, which XLA does not know. It then takes a fourth of
                the time: without XLA each column's rows are copied by a call of its own.
        """
        if not jit or any(value.dtype == tf.string for value in self.rows.values()):
            return lambda at: pick(self.rows, at)
        return tf.function(
            lambda at: pick(self.rows, at),
            input_signature=[tf.TensorSpec([count], tf.int32)],
            jit_compile=True,
            autograph=False,
        )


def gather(rows: Batch, places: tf.Tensor) -> Batch:
    """Returns the rows at `places`, int32 [places]."""
    return {name: tf.gather(value, places) for name, value in rows.items()}


def row_bytes(spec: Mapping[str, tf.TensorSpec]) -> int:
    """Returns the number of bytes that a row takes in memory. A text counts only the bytes of its address."""
    return sum(math.prod(d or 1 for d in tensor.shape[1:]) * tensor.dtype.size for tensor in spec.values())


# --- evaluation


def add_labels(rows: Batch, columns: Mapping[str, RawColumn], labeler: Labeler) -> Batch:
    """Adds label and weight to `rows`, and returns them. The weight is 0 where the transform's "usable" is false."""
    label, weight = labeler(columns)
    usable = rows.pop("usable", None)
    rows["label"], rows["weight"] = label, weight if usable is None else tf.where(usable, weight, tf.zeros_like(weight))
    return rows


def training_rows(shards: Shards, holdout: Holdout | None = None) -> int:
    """Returns the number of rows that take part in an epoch, without regard to resampling."""
    return sum(int(rows.sum()) for rows in kept_rows(shards, holdout))


@tf.autograph.experimental.do_not_convert  # there is nothing to convert, and looking takes a second
def evaluation_dataset(
    shards: Shards,
    transform: Transform | None,
    labeler: Labeler,
    *,
    batch: int,
    holdout: Holdout | None = None,
    raw: PackedColumns | None = None,
) -> tf.data.Dataset:
    """Returns a dataset of batches with every row that takes part, once, in manifest order. Rows of weight 0 fill the last batch.

    A batch has numeric [B, n] and categorical [B, m] (with a transform), label [B], weight [B], valid bool [B], and the columns
    of `raw`, packed. `raw.unpack(batch)` gives these columns as raw/<name> (the values; strings for bytes) and
    raw/<name>/present. Lists are padded to the column's longest list; raw/<name>/length says how many values count.
    """
    reader = Reader(shards, [c.name for c in shards.columns] + ([] if raw is None else raw.names))
    holdout_rows = None if holdout is None else HoldoutRows(holdout, shards)
    longest = {c.name: _longest(shards, c) for c in shards.columns if raw is not None and c.name in raw.lists}

    def prepared(*piece: tf.Tensor) -> Batch:
        columns, shard, number = reader(*piece)
        rows = add_labels(dict(transform(columns)) if transform is not None else {}, columns, labeler)
        rows["valid"] = tf.ones_like(rows["weight"], tf.bool)
        if raw is not None:
            rows |= raw.pack(columns, longest)
        return rows if holdout_rows is None else holdout_rows(rows, shard, number)

    def padded(rows: Batch) -> Batch:
        missing = batch - tf.shape(rows["label"])[0]

        def filled_up() -> Batch:
            ends = {name: [[0, missing], *([0, 0] for _ in value.shape[1:])] for name, value in rows.items()}
            return {name: tf.pad(value, ends[name]) for name, value in rows.items()}

        # only the last batch is copied
        whole = tf.cond(missing > 0, filled_up, lambda: {name: tf.identity(value) for name, value in rows.items()})
        return {name: tf.ensure_shape(value, [batch, *rows[name].shape[1:]]) for name, value in whole.items()}

    chunks = reader.in_order().map(prepared, num_parallel_calls=AUTOTUNE, deterministic=True)
    return chunks.rebatch(batch).map(padded, num_parallel_calls=AUTOTUNE, deterministic=True).prefetch(2)


def _longest(shards: Shards, column: Column) -> int:
    """Returns the length of a column's longest list; at least 1."""
    name = column.name
    lengths = map_records(shards, [name], lambda columns: tf.reduce_max(tf.concat([columns[name].lengths, [1]], 0)))
    return max(map(int, lengths), default=1)
