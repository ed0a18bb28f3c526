"""The input pipeline: shards of row groups to stacked, shuffled, transformed batches.

    shards = Shards.of([(ingest_folder, ingest_result, "train"), ...])
    for stack in safe(training_dataset(shards, transform, label, seed=0, batch=256, stack=32), shards):
        stack["numeric"]                     # float32 [32, 256, n]

Rows never pass one by one: a record is parsed, transformed and permuted as a whole. The order is `tfcore.data.order`'s.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import ConfigError, DataError
from headway.messages import counted
from headway.process import cores
from headway.records.tfrecord import read_records
from headway.schema.columns import Column
from tfcore.data.groups import GROUP, GroupOrder, group_ids, placed
from tfcore.data.in_memory import InMemoryShards
from tfcore.data.order import CYCLE, WINDOW_ROWS, Plan
from tfcore.data.reader import Labeler, OwnedRows, Reader
from tfcore.data.shards import Batch, Holdout, HoldoutRows, Resample, Resampling, Shards, kept_rows
from tfcore.graph.op_errors import op_of, why
from tfcore.graph.python_errors import PYTHON_NODES, PythonOpError, all_nodes, python_text, reraise
from tfcore.graph.python_op import numpy_op
from tfcore.transform.layer import Transform
from tfcore.transform.preprocess import SCOPE
from tfcore.transform.raw_column import PackedColumns, RawColumn

__all__ = ["Batch", "Holdout", "Labeler", "Shards", "evaluation_dataset", "safe", "training_dataset", "training_rows"]

AUTOTUNE = tf.data.AUTOTUNE
AHEAD_STACKS, AHEAD_BYTES = 64, 32 << 20
AT_ONCE = min(4, cores())
"""Windows that are shuffled side by side, and stacks that are put together: as many as there are cores would fill the memory of
a machine that has many."""
_BOUNDS = tf.TensorSpec([None], tf.int64)
_WINDOW = tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int64)
_DAMAGE = (tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError)


@tf.autograph.experimental.do_not_convert  # there is nothing to convert, and looking takes a second
def training_dataset(
    shards: Shards,
    transform: Transform,
    labeler: Labeler,
    *,
    seed: int,
    batch: int,
    stack: int,
    start_step: int = 0,
    holdout: Holdout | None = None,
    window_rows: int = WINDOW_ROWS,
    cycle: int = CYCLE,
    augment: Any = None,
    resample: Resample | None = None,
    own: NDArray[np.bool_] | None = None,
    keep_bytes: int = 0,
    on_kept: Callable[[Batch], None] = lambda rows: None,
    groups: GroupOrder | None = None,
    unit: str | None = None,
    jit: bool = False,
    count: int | None = None,
) -> tf.data.Dataset:
    """Endless stacks of K batches: the transform's outputs (numeric float32 [K, B, n], categorical int32 [K, B, m],
    ...), label [K, B], weight float32 [K, B]; with groups or unit "group" int64 [K, B], see `tfcore.data.groups`.

    Args:
        start_step: the step whose batch comes first.
        holdout: which rows take part; None: all.
        augment: varies the rows, each by its epoch and its place in it.
        resample: leaves rows out, or repeats them.
        own: bool [shards], of row groups: only these are read. The rows of others stand in their places as zeros, and
            "own" bool [K, B] says which rows are not such holes. Neither with `resample` nor with mixup, which need all.
        keep_bytes: rows that take no more stay in memory as they are after the transform, and are read once. Neither with
            `resample` nor with `own`.
        on_kept: called with those rows, in the order of the manifests.
        groups: batches hold whole groups, in this order, filled up with rows of weight 0. Made of the same rows, and neither
            with `own` nor with mixup.
        unit: the column of the group ids, where there are no groups.
        jit: rows in memory are put together by XLA; the same rows in less time.
        count: how many stacks are wanted, where that is known: what is made ahead would else be many epochs of few rows.

    Raises:
        DataError: there are no rows, or those that are to stay in memory cannot be read.
    """
    ids = groups.column if groups else unit
    stored = [c.name for c in shards.columns]
    reader = Reader(shards, stored if ids is None or ids in stored else [*stored, ids], own)
    plan = groups.plan if groups else training_plan(shards, seed, holdout, resample, window=window_rows, cycle=cycle)
    if not plan.rows:
        raise DataError("there are no rows to train on", where=", ".join(shards.paths[:3]) or "the train split")
    start = groups.start(start_step) if groups else plan.start(start_step * batch)
    seed64 = tf.constant(seed, tf.int64)
    holdout_rows = None if holdout is None else HoldoutRows(holdout, shards)
    resampling = None if resample is None else Resampling(resample, shards, holdout)
    holes = None if own is None else OwnedRows(shards, own)

    def transformed(*piece: tf.Tensor) -> tuple[Batch, tf.Tensor, tf.Tensor]:
        columns, shard, number = reader(*piece)
        rows = labelled(transform(columns), columns, labeler)
        if ids is not None:
            rows[GROUP] = group_ids(columns[ids])
        return rows, shard, number

    def prepared(piece: tuple[tf.Tensor, ...], epoch: tf.Tensor | None) -> Batch:
        rows, shard, number = transformed(*piece) if holes is None else holes(transformed, piece)
        if resampling is not None:
            return resampling(rows, shard, number, epoch)
        return rows if holdout_rows is None else holdout_rows(rows, shard, number)

    cache = None
    in_any_epoch = tf.function(lambda *piece: prepared(piece, None), autograph=False)  # traced once, kept or read
    if keep_bytes and resampling is None and own is None:
        shards.ahead()
        cache = RowCache.of(reader, plan, in_any_epoch, lambda pieces: list(safe(pieces, shards)), keep_bytes)
        if cache is not None:
            on_kept(cache.rows)

    # until they are stacked, cached rows are only their places, unless augmentation needs more of them
    late = cache is not None and augment is None

    def read(epoch: tf.Tensor, first: tf.Tensor, sizes: tf.Tensor | int) -> tf.data.Dataset:
        """The windows of an epoch, made from its records."""
        skip = tf.where(first, tf.constant(start.skip_records, tf.int64), tf.constant(0, tf.int64))
        pieces = reader.in_epoch(plan, epoch, skip)
        rows = in_any_epoch if resampling is None else lambda *piece: prepared(piece, epoch)
        chunks = pieces.map(rows, num_parallel_calls=AUTOTUNE, deterministic=True)
        if start.drop_rows:
            # the graph is one for every epoch, so the drop is by number
            def dropped(i: tf.Tensor, rows: Batch) -> Batch:
                count = tf.where(first & tf.equal(i, 0), tf.constant(start.drop_rows), tf.constant(0))
                return {name: value[count:] for name, value in rows.items()}

            chunks = chunks.enumerate().map(dropped)
        return chunks.rebatch(sizes)

    def epoch_rows(epoch: tf.Tensor) -> tf.data.Dataset:
        first = tf.equal(epoch, start.epoch)
        begin = tf.where(first, tf.constant(start.window, tf.int64), tf.constant(0, tf.int64))
        # where windows begin: with groups, where one of them does
        bounds = None if groups is None else numpy_op(groups.bounds, _BOUNDS, stateful=False)(epoch)
        if cache is None:
            sizes = window_rows if bounds is None else bounds[begin + 1 :] - bounds[begin:-1]
            windows = read(epoch, first, sizes)
        else:
            windows = cache.windows(epoch, begin, bounds)
        if cache is not None and not late:
            windows = windows.map(
                lambda window: taken(cache.rows, window[ROW]), num_parallel_calls=AT_ONCE, deterministic=True
            )

        def shuffled(i: tf.Tensor, rows: Batch) -> Batch:
            number = i + begin
            skipped = tf.where(first & tf.equal(i, 0), tf.constant(start.drop_in_window), tf.constant(0))
            if groups is None:
                n = tf.shape(next(iter(rows.values())))[0]
                key = tf.stack([seed64 * 1_000_003 + epoch, number])
                order = tf.random.experimental.stateless_shuffle(tf.range(n), seed=key)
                before = number * window_rows
            else:
                order, before = numpy_op(groups.window, _WINDOW, stateful=False)(epoch, number)
            places = {} if augment is None else augment.placed(rows, order, skipped, epoch, before)
            order = order[skipped:]
            if groups is None:
                return {name: tf.gather(value, order) for name, value in rows.items()} | places
            if cache is not None and late:
                row = tf.gather(rows[ROW], tf.where(order < 0, -1 - order, order))
                return {ROW: tf.where(order < 0, -1 - row, row)}
            return placed(rows, order) | places

        windows = windows.enumerate().map(shuffled, num_parallel_calls=AT_ONCE, deterministic=True)
        if augment is None:
            return windows
        return windows.rebatch(augment.chunk).map(augment, num_parallel_calls=AUTOTUNE, deterministic=True)

    epochs = tf.data.Dataset.range(start.epoch, np.iinfo(np.int64).max)
    rows = epochs.flat_map(epoch_rows).rebatch(stack * batch, drop_remainder=True)
    if count is not None:
        rows = rows.take(count)
    spec = cache.spec if cache is not None and late else rows.element_spec

    pick = None
    if cache is not None and late:
        pick = cache.picked(taken if groups is None else placed, stack * batch, jit=jit)

    def stacked(rows: Batch) -> Batch:
        if pick is not None:
            rows = pick(tf.ensure_shape(rows[ROW], [stack * batch]))
        shapes = {name: [-1 if size is None else size for size in spec[name].shape[1:]] for name in rows}
        return {name: tf.reshape(value, [stack, batch, *shapes[name]]) for name, value in rows.items()}

    ahead = _stacks_ahead(spec, stack * batch)
    return rows.map(stacked, num_parallel_calls=AT_ONCE, deterministic=True).prefetch(ahead)


def training_plan(
    shards: Shards, seed: int, holdout: Holdout | None, resample: Resample | None, *, window: int, cycle: int
) -> Plan:
    """The order in which `training_dataset` reads the training rows."""
    counts = (
        (lambda epoch: resample.rows_of_records(shards, holdout, epoch)) if resample else kept_rows(shards, holdout)
    )
    return Plan(counts, seed, window=window, cycle=cycle)


def labelled(rows: Batch, columns: Mapping[str, RawColumn], labeler: Labeler) -> Batch:
    """Add label and weight; remove the transform's "usable": an unusable row gets weight 0."""
    label, weight = labeler(columns)
    usable = rows.pop("usable", None)
    rows["label"], rows["weight"] = label, weight if usable is None else tf.where(usable, weight, tf.zeros_like(weight))
    return rows


def _stacks_ahead(spec: Mapping[str, tf.TensorSpec], rows: int) -> int:
    """The number of stacks to prefetch. A window's first row waits for the parsing and shuffling of the whole window:
    with fewer stacks ahead the training would wait at every window and every epoch."""
    return max(2, min(AHEAD_STACKS, AHEAD_BYTES // max(1, row_bytes(spec) * rows)))


def training_rows(shards: Shards, holdout: Holdout | None = None) -> int:
    """The number of rows that `training_dataset` reads in an epoch."""
    return sum(int(rows.sum()) for rows in kept_rows(shards, holdout))


@tf.autograph.experimental.do_not_convert  # as above
def look_through(shards: Shards, names: Sequence[str], of: Callable[[dict[str, RawColumn]], Any]) -> Iterator[Any]:
    """Yield `of(columns)` of some rows at a time, in the manifests' order; only the columns `names` are parsed."""
    reader = Reader(shards, names)
    shards.ahead()
    pieces = reader.in_order()
    results = pieces.map(lambda *piece: of(reader(*piece).columns), num_parallel_calls=AUTOTUNE, deterministic=True)
    return safe(results, shards)


def by_shard(shards: Shards, column: str, of: Callable[[RawColumn], tf.Tensor]) -> Iterator[NDArray[Any]]:
    """Yield `of(column)` of all rows of a shard, one shard after the other."""
    pieces = (piece.numpy() for piece in look_through(shards, [column], lambda columns: of(columns[column])))
    waiting: list[NDArray[Any]] = []
    for count in shards.counts:
        while sum(map(len, waiting)) < count or not waiting:
            waiting.append(next(pieces))
        every = np.concatenate(waiting)
        yield every[:count]
        waiting = [every[count:]]


def classes_of(shards: Shards, labeler: Labeler) -> list[NDArray[Any]]:
    """The class of each row, by shard; only labels are parsed."""
    labels = look_through(shards, labeler.needs, lambda columns: tf.cast(labeler(columns)[0], tf.uint16))
    classes = [label.numpy() for label in labels]
    classes = [each.astype(np.min_scalar_type(int(each.max(initial=0)))) for each in classes]
    return np.split(np.concatenate([np.zeros(0, np.uint8), *classes]), np.cumsum(shards.counts)[:-1])


def least_label(shards: Shards, labeler: Labeler) -> float:
    """The smallest label among rows of positive weight; only labels are parsed."""

    def least(columns: dict[str, RawColumn]) -> tf.Tensor:
        label, weight = labeler(columns)
        return tf.reduce_min(tf.where(weight > 0, label, math.inf))

    return min((float(label) for label in look_through(shards, labeler.needs, least)), default=math.inf)


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
    """Every row once, in the manifests' order; rows of weight 0 fill the last batch.

    Yields numeric [B, n] and categorical [B, m] (with a transform), label [B], weight [B], valid bool [B], and the columns
    of `raw`, which `raw.unpack(batch)` gives as raw/<name> (its values; strings for bytes) and raw/<name>/present; of a list
    column the values are padded to the longest list there is, and raw/<name>/length says how many count.
    """
    reader = Reader(shards, [c.name for c in shards.columns] + ([] if raw is None else raw.names))
    holdout_rows = None if holdout is None else HoldoutRows(holdout, shards)
    longest = {c.name: _longest(shards, c) for c in shards.columns if raw is not None and c.name in raw.lists}

    def prepared(*piece: tf.Tensor) -> Batch:
        columns, shard, number = reader(*piece)
        rows = labelled(dict(transform(columns)) if transform is not None else {}, columns, labeler)
        rows["valid"] = tf.ones_like(rows["weight"], tf.bool)
        if raw is not None:
            rows |= raw.pack(columns, longest)
        return rows if holdout_rows is None else holdout_rows(rows, shard, number)

    def padded(rows: Batch) -> Batch:
        missing = batch - tf.shape(rows["label"])[0]

        def filled_up() -> Batch:
            return {name: _pad(value, missing, batch) for name, value in rows.items()}

        # only the last batch is copied
        whole = tf.cond(missing > 0, filled_up, lambda: {name: tf.identity(value) for name, value in rows.items()})
        return {name: tf.ensure_shape(value, [batch, *rows[name].shape[1:]]) for name, value in whole.items()}

    chunks = reader.in_order().map(prepared, num_parallel_calls=AUTOTUNE, deterministic=True)
    return chunks.rebatch(batch).map(padded, num_parallel_calls=AUTOTUNE, deterministic=True).prefetch(2)


def _longest(shards: Shards, column: Column) -> int:
    """The length of a column's longest list; at least 1."""
    name = column.name
    lengths = look_through(shards, [name], lambda columns: tf.reduce_max(tf.concat([columns[name].lengths, [1]], 0)))
    return max(map(int, lengths), default=1)


def _pad(value: tf.Tensor, missing: tf.Tensor, batch: int) -> tf.Tensor:
    padded = tf.pad(value, [[0, missing], *([0, 0] for _ in value.shape[1:])])
    return tf.ensure_shape(padded, [batch, *value.shape[1:]])


def safe(dataset: Any, shards: Shards) -> Iterator[Any]:
    """Iterate over the dataset, and raise a DataError that names the file and the byte for a damaged shard.

    Raises:
        DataError: a shard is cut off, changed or gone.
        ConfigError: the user's preprocess failed.
        PythonOpError: a Python function in the pipeline failed, from its own exception.
    """
    try:
        yield from dataset
    except UnicodeDecodeError:  # of an error that quotes a damaged record
        raise _named(None, shards) from None
    except tf.errors.OpError as error:
        if shards.stager is not None and shards.stager.error is not None:
            raise shards.stager.error from None
        reraise(error)
        if message := python_text(error):
            raise PythonOpError(
                f"a Python function of the input pipeline raised {message}",
                fix="make it a tfcore.graph.python_op: its exception then comes with its whole traceback",
            ) from error
        if SCOPE in (op_of(error) or "").split("/"):
            raise ConfigError(f"the function failed on the data: {why(error)}", where=SCOPE) from None
        if isinstance(error, _DAMAGE) or "Input dataset was expected to contain" in str(error.message):
            raise _named(error, shards) from None
        raise


def _named(error: tf.errors.OpError | None, shards: Shards) -> DataError:
    """The DataError that names the damaged file. TensorFlow does not, so the files are read again and checked."""
    for path, rows in () if isinstance(shards, InMemoryShards) else zip(shards.paths, shards.rows, strict=True):
        try:
            count = sum(1 for _ in read_records(Path(shards.stager.ensure(path) if shards.stager else path)))
        except DataError as damage:
            return damage
        if count < len(rows):
            return DataError(
                f"the file ends {counted(len(rows) - count, 'record')} early",
                where=str(path),
                fix="delete the folder: the next run ingests the span anew",
            )
    where = str(Path(shards.paths[0]).parent) if shards.paths else None
    message = str(error.message) if error is not None else "one is not a tf.Example"
    lines = re.sub(r"\{\{.*?\}\} ", "", message).strip().splitlines() or [""]
    problem = f"the shards are whole, but their records cannot be used as the manifest describes them: {lines[0]}"
    return DataError(
        problem,
        where=where,
        fix="delete the folder: the next run ingests the span anew",
    )


ROW = "row"
"""Which row of the manifests' order, int32."""
_CALLED_AGAIN = PYTHON_NODES - {"PyFuncStateless"}


class RowCache:
    """The transformed rows of a training in memory; see the module.

    Args:
        rows: all of them, in the order of the manifests.
        plan: of the same rows in every epoch.
    """

    def __init__(self, rows: Batch, plan: Plan):
        self.rows, self._plan = rows, plan
        self.spec = {name: tf.TensorSpec([None, *value.shape[1:]], value.dtype) for name, value in rows.items()}

    @classmethod
    def of(
        cls,
        reader: Reader,
        plan: Plan,
        prepared: tf.types.experimental.PolymorphicFunction,
        load: Callable[[tf.data.Dataset], list[Batch]],
        most: int,
    ) -> RowCache | None:
        """Read every row once, if the rows take at most `most` bytes; None otherwise.

        Args:
            prepared: a piece to rows, without AutoGraph.
            load: a dataset to the list of its elements, its errors made readable.
        """
        pieces = reader.in_order()
        spec = pieces.element_spec
        piece = spec if isinstance(spec, tuple) else (spec,)
        function = prepared.get_concrete_function(*piece)
        nodes = all_nodes(function.graph.as_graph_def())
        if row_bytes(function.structured_outputs) * plan.rows > most or any(n.op in _CALLED_AGAIN for n in nodes):
            return None
        with tf.device("/CPU:0"):
            parts = load(
                pieces.map(lambda *piece: function(*piece), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
            )
            return cls({name: tf.concat([part[name] for part in parts], 0) for name in parts[0]}, plan)

    def windows(self, epoch: tf.Tensor, first: tf.Tensor, bounds: tf.Tensor | None = None) -> tf.data.Dataset:
        """The dataset of an epoch's windows, from window `first` (int64) on.

        Args:
            bounds: where they begin, and their end; int64 [windows + 1]. None: they are the plan's.
        """
        size, rows = self._plan.window, self._plan.rows
        spec = tf.TensorSpec([rows], tf.int32)
        places = numpy_op(self._plan.places, spec, stateful=False)(epoch)
        if bounds is not None:
            return tf.data.Dataset.range(first, tf.size(bounds, tf.int64) - 1).map(
                lambda i: {ROW: places[bounds[i] : bounds[i + 1]]}
            )
        numbers = tf.data.Dataset.range(first, -(-rows // size))
        return numbers.map(lambda i: {ROW: places[i * size : (i + 1) * size]})

    def picked(
        self, pick: Callable[[Batch, tf.Tensor], Batch], places: int, *, jit: bool
    ) -> Callable[[tf.Tensor], Batch]:
        """The function from places, int32 [places], to `pick` of all rows.

        Args:
            jit: by XLA, unless there is text, which it does not know. It takes a fourth of the time: TensorFlow's own gather
                copies each column's rows call by call.
        """
        if not jit or any(value.dtype == tf.string for value in self.rows.values()):
            return lambda at: pick(self.rows, at)
        return tf.function(
            lambda at: pick(self.rows, at),
            input_signature=[tf.TensorSpec([places], tf.int32)],
            jit_compile=True,
            autograph=False,
        )


def taken(rows: Batch, places: tf.Tensor) -> Batch:
    """Gather the rows at `places`."""
    return {name: tf.gather(value, places) for name, value in rows.items()}


def row_bytes(spec: Mapping[str, tf.TensorSpec]) -> int:
    """The bytes of a row in memory; for text only those of its address."""
    return sum(math.prod(d or 1 for d in tensor.shape[1:]) * tensor.dtype.size for tensor in spec.values())
