"""The input pipeline: shards of row groups to stacked, shuffled, transformed batches.

    shards = Shards.of([(ingest_folder, ingest_result, "train"), ...])
    for stack in safe(training_dataset(shards, transform, label, seed=0, batch=256, stack=32), shards):
        stack["numeric"]                     # float32 [32, 256, n]

Rows never pass one by one: a record is parsed, transformed and permuted as a whole. The order is `tfcore.order`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import DataError
from headway.hashing import GOLDEN, U64, mix64
from headway.records.spec import feature_spec
from headway.records.tfrecord import read_records
from headway.schema import LABEL, Column
from tfcore.order import CYCLE, WINDOW_ROWS, Plan
from tfcore.transform.graph import RawColumn, Transform
from tfcore.transform.parameters import LabelParameters

AUTOTUNE = tf.data.AUTOTUNE
READ_BYTES = 1 << 20
CLASSIC_ROWS = 4096
"""Classic Examples are parsed this many at a time."""
_CARVE_BITS = 20

Batch = dict[str, tf.Tensor]


@dataclass(frozen=True)
class Shards:
    """The shard files of one split over a window, and what their manifests say of them."""

    paths: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]
    """Rows of each record, by shard."""
    columns: tuple[Column, ...]
    rows_per_record: int

    @classmethod
    def of(cls, parts: Sequence[tuple[Path, Mapping[str, Any], str]]) -> Shards:
        """From (folder, ingest result, split) of each span, in window order.

        Raises:
            DataError: the spans were ingested with different columns.
        """
        paths, rows = [], []
        first = parts[0][1]
        for folder, result, split in parts:
            if result["columns"] != first["columns"] or result["rows_per_record"] != first["rows_per_record"]:
                raise DataError(f"{result['span']} holds other columns than {first['span']}", where=str(folder))
            for shard in result["splits"][split]["shards"]:
                paths.append(str(folder / shard["file"]))
                rows.append(tuple(shard["rows"]))
        columns = tuple(Column.model_validate(column) for column in first["columns"])
        return cls(tuple(paths), tuple(rows), columns, first["rows_per_record"])

    @property
    def total(self) -> int:
        return sum(sum(rows) for rows in self.rows)


@dataclass(frozen=True)
class Carve:
    """A share of train rows kept from training, for early stopping: by a hash of the row's place in its shard."""

    share: float
    inside: bool
    """True: only the carved rows. False: all others."""

    @property
    def limit(self) -> int:
        return round(self.share * (1 << _CARVE_BITS))

    def keeps(self, shard: int, rows: int) -> NDArray[np.bool_]:
        """Which of a shard's rows stay; bool [rows]. `_keep` is its twin in the graph."""
        hashes = mix64(np.arange(rows, dtype=U64), shard + 1)
        return ((hashes >> U64(64 - _CARVE_BITS)) < self.limit) == self.inside


def _mix(x: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """headway.hashing.mix64 in the graph; uint64."""
    shift, xor = tf.bitwise.right_shift, tf.bitwise.bitwise_xor

    def constant(value: int) -> tf.Tensor:
        return tf.constant(value, tf.uint64)

    z = x + (seed + constant(1)) * constant(GOLDEN)
    z = xor(z, shift(z, constant(30))) * constant(0xBF58476D1CE4E5B9)
    z = xor(z, shift(z, constant(27))) * constant(0x94D049BB133111EB)
    return xor(z, shift(z, constant(31)))


class _Carving:
    """`Carve` in the graph."""

    def __init__(self, carve: Carve, shards: Shards):
        self._carve = carve
        starts = [np.cumsum(rows) - np.asarray(rows) for rows in shards.rows]
        # the first row of every record within its shard, and where each shard's records begin in that list
        self._first = tf.constant(np.concatenate(starts) if starts else np.zeros(0), tf.int64)
        self._begin = tf.constant(np.cumsum([0] + [len(s) for s in starts])[:-1], tf.int64)

    def __call__(self, rows: Batch, shard: tf.Tensor, number: tf.Tensor) -> Batch:
        """The rows that stay of record `number` of a shard; of several classic records when both are vectors."""
        count = tf.shape(rows["label"], tf.int64)[0]
        first = tf.gather(self._first, tf.gather(self._begin, shard) + number)
        places = first if number.shape.rank else tf.range(first, first + count)
        hashes = _mix(tf.cast(places, tf.uint64), tf.cast(shard + 1, tf.uint64))
        low = tf.cast(tf.bitwise.right_shift(hashes, tf.constant(64 - _CARVE_BITS, tf.uint64)), tf.int64)
        keep = tf.equal(low < self._carve.limit, self._carve.inside)
        return {name: tf.boolean_mask(value, keep) for name, value in rows.items()}


class Decoder:
    """Records to raw columns, by the manifest's feature spec; only the columns that are asked for."""

    def __init__(self, columns: Sequence[Column], rows_per_record: int, wanted: Sequence[str]):
        self._columns = [column for column in columns if column.name in set(wanted)]
        self.grouped = rows_per_record > 1
        kinds = {"int64": tf.int64, "float32": tf.float32, "string": tf.string}
        self._spec: dict[str, Any] = {}
        for name, entry in feature_spec(self._columns, rows_per_record).items():
            dtype = kinds[entry["dtype"]]
            if entry["kind"] == "sequence":
                self._spec[name] = tf.io.FixedLenSequenceFeature([], dtype, allow_missing=True)
            elif entry["kind"] == "optional":
                self._spec[name] = tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
            else:
                self._spec[name] = tf.io.FixedLenFeature([], dtype)

    def __call__(self, records: tf.Tensor) -> dict[str, RawColumn]:
        """One serialized row group (scalar), or a batch of classic Examples [n], as raw columns."""
        if self.grouped:
            parsed = tf.io.parse_single_example(records, self._spec)
            return {column.name: self._group(column, parsed) for column in self._columns}
        parsed = tf.io.parse_example(records, self._spec)
        return {column.name: self._classic(column, parsed) for column in self._columns}

    @staticmethod
    def _group(column: Column, parsed: Mapping[str, tf.Tensor]) -> RawColumn:
        present = tf.cast(parsed[f"{column.name}/present"], tf.bool) if column.nullable else None
        if column.encoding == "dictionary":
            return RawColumn(parsed[f"{column.name}/dict"], present, parsed[f"{column.name}/codes"])
        return RawColumn(parsed[column.name], present)

    @staticmethod
    def _classic(column: Column, parsed: Mapping[str, Any]) -> RawColumn:
        value = parsed[column.name]
        if not column.nullable:
            return RawColumn(value, None)
        lengths = value.row_lengths()
        places = tf.where(lengths > 0)
        dense = tf.scatter_nd(
            places,
            tf.gather(value.flat_values, tf.gather(value.row_starts(), places[:, 0])),
            tf.shape(lengths, tf.int64),
        )
        return RawColumn(dense, lengths > 0)


class Labeler:
    """The label tensor of a task, and rows' weights."""

    def __init__(
        self, label: LabelParameters, *, weight: Column | None = None, class_weights: Sequence[float] | None = None
    ):
        self._label, self._weight = label, weight
        self._class_weights = None if class_weights is None else tf.constant(list(class_weights), tf.float32)
        self._table = None
        if label.classes is not None:
            dtype = tf.string if label.type == "bytes" else tf.int64
            keys = tf.constant(list(label.classes), dtype)
            init = tf.lookup.KeyValueTensorInitializer(keys, tf.range(len(label.classes), dtype=tf.int64))
            self._table = tf.lookup.StaticHashTable(init, default_value=-1)

    @property
    def needs(self) -> list[str]:
        return [LABEL] + ([self._weight.name] if self._weight else [])

    def __call__(self, columns: Mapping[str, RawColumn]) -> tuple[tf.Tensor, tf.Tensor]:
        """(label, weight): float32 [rows] each for binary and regression; an int32 class index for multiclass.

        A row whose label is no known class, or whose weight is null, has weight 0.
        """
        raw = columns[LABEL].plain()
        if self._table is not None:
            keys = raw if self._label.type != "float32" else tf.cast(tf.round(raw), tf.int64)
            index = self._table.lookup(keys)
            weight = tf.cast(index >= 0, tf.float32)
            index = tf.maximum(index, 0)
        else:
            index, weight = raw, tf.ones_like(raw, tf.float32)
        if self._class_weights is not None:
            weight *= tf.gather(self._class_weights, tf.cast(index, tf.int32))
        if self._weight is not None:
            column = columns[self._weight.name]
            given = tf.cast(column.plain(), tf.float32)
            weight *= given if column.present is None else tf.where(column.present, given, tf.zeros_like(given))
        return tf.cast(index, tf.int32 if self._label.task == "multiclass" else tf.float32), weight


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
    carve: Carve | None = None,
    window_rows: int = WINDOW_ROWS,
    cycle: int = CYCLE,
) -> tf.data.Dataset:
    """Stacks without end: numeric float32 [K, B, n], categorical int32 [K, B, m], label [K, B], weight float32 [K, B].

    Args:
        start_step: the step whose batch comes first.
        carve: which rows take part; None: all.

    Raises:
        DataError: there are no rows.
    """
    kept = _kept_rows(shards, carve)
    decoder = Decoder(shards.columns, shards.rows_per_record, [c.name for c in shards.columns])
    block = 1 if decoder.grouped else 256
    plan = Plan(kept, seed, window=window_rows, cycle=cycle, block=block)
    if not plan.rows:
        raise DataError("there are no rows to train on", where=", ".join(shards.paths[:3]) or "the train split")
    start = plan.start(start_step * batch)
    paths = tf.constant(shards.paths)
    seed64 = tf.constant(seed, tf.int64)
    carving = None if carve is None else _Carving(carve, shards)

    def epoch_rows(epoch: tf.Tensor) -> tf.data.Dataset:
        first = tf.equal(epoch, start.epoch)
        order = tf.numpy_function(plan.shard_order, [epoch], tf.int64, stateful=False)
        order.set_shape([len(shards.paths)])
        records = tf.data.Dataset.from_tensor_slices(order).interleave(
            lambda shard: _records(paths, shard), cycle_length=cycle, block_length=block
        )
        records = records.skip(tf.where(first, tf.constant(start.skip_records, tf.int64), tf.constant(0, tf.int64)))
        if not decoder.grouped:
            records = records.batch(CLASSIC_ROWS)

        def prepared(shard: tf.Tensor, number: tf.Tensor, record: tf.Tensor) -> Batch:
            columns = decoder(record)
            rows = transform(columns)
            rows["label"], rows["weight"] = labeler(columns)
            return rows if carving is None else carving(rows, shard, number)

        chunks = records.map(prepared, num_parallel_calls=AUTOTUNE, deterministic=True)
        if start.drop_rows:
            # the graph is one for every epoch, so the drop is by number
            chunks = chunks.enumerate().map(
                lambda i, rows: _drop(
                    rows, tf.where(first & tf.equal(i, 0), tf.constant(start.drop_rows), tf.constant(0))
                )
            )
        windows = chunks.rebatch(window_rows).enumerate()

        def shuffled(i: tf.Tensor, rows: Batch) -> Batch:
            number = i + tf.where(first, tf.constant(start.window, tf.int64), tf.constant(0, tf.int64))
            n = tf.shape(rows["label"])[0]
            key = tf.stack([seed64 * 1_000_003 + epoch, number])
            order = tf.random.experimental.stateless_shuffle(tf.range(n), seed=key)
            seen = tf.where(first & tf.equal(i, 0), tf.constant(start.drop_in_window), tf.constant(0))
            order = order[seen:]
            return {name: tf.gather(value, order) for name, value in rows.items()}

        return windows.map(shuffled, num_parallel_calls=AUTOTUNE, deterministic=True)

    def stacked(rows: Batch) -> Batch:
        return {
            name: tf.reshape(value, tf.concat([[stack, batch], tf.shape(value)[1:]], 0)) for name, value in rows.items()
        }

    epochs = tf.data.Dataset.range(start.epoch, np.iinfo(np.int64).max)
    rows = epochs.flat_map(epoch_rows).rebatch(stack * batch, drop_remainder=True)
    shape = {
        "numeric": [stack, batch, None],
        "categorical": [stack, batch, None],
        "label": [stack, batch],
        "weight": [stack, batch],
    }

    def fixed(stacks: Batch) -> Batch:
        return {name: tf.ensure_shape(value, shape[name]) for name, value in stacks.items()}

    return rows.map(lambda r: fixed(stacked(r)), num_parallel_calls=AUTOTUNE, deterministic=True).prefetch(2)


def training_rows(shards: Shards, carve: Carve | None = None) -> int:
    """How many rows `training_dataset` passes through in an epoch."""
    return int(sum(sum(rows) for rows in _kept_rows(shards, carve)))


def _kept_rows(shards: Shards, carve: Carve | None) -> list[NDArray[np.int64]]:
    """Rows of each record that take part, by shard."""
    kept = []
    for shard, rows in enumerate(shards.rows):
        counts = np.asarray(rows, np.int64)
        if carve is not None:
            mask = carve.keeps(shard, int(counts.sum()))
            ends = np.cumsum(mask)[np.cumsum(counts) - 1] if len(counts) else counts
            counts = np.diff(ends, prepend=0)
        kept.append(counts)
    return kept


def _records(paths: tf.Tensor, shard: tf.Tensor) -> tf.data.Dataset:
    """(shard, number, record) of one file."""
    records = tf.data.TFRecordDataset(tf.gather(paths, shard), buffer_size=READ_BYTES).enumerate()
    return records.map(lambda number, record: (shard, number, record))


def _drop(rows: Batch, count: tf.Tensor) -> Batch:
    return {name: value[count:] for name, value in rows.items()}


@tf.autograph.experimental.do_not_convert  # there is nothing to convert, and looking takes a second
def evaluation_dataset(
    shards: Shards,
    transform: Transform | None,
    labeler: Labeler,
    *,
    batch: int,
    carve: Carve | None = None,
    raw: Sequence[str] = (),
) -> tf.data.Dataset:
    """Every row once, in the order of the manifests; the last batch is filled up with rows of weight 0.

    Yields numeric [B, n] and categorical [B, m] (with a transform), label [B], weight [B], valid bool [B], and for each
    column of `raw` raw/<name> (its values; strings for bytes) and raw/<name>/present.
    """
    decoder = Decoder(shards.columns, shards.rows_per_record, [c.name for c in shards.columns])
    paths = tf.constant(shards.paths)
    carving = None if carve is None else _Carving(carve, shards)
    numbers = tf.data.Dataset.range(len(shards.paths))
    records = numbers.flat_map(lambda shard: _records(paths, shard))
    if not decoder.grouped:
        records = records.batch(CLASSIC_ROWS)

    def prepared(shard: tf.Tensor, number: tf.Tensor, record: tf.Tensor) -> Batch:
        columns = decoder(record)
        rows: Batch = dict(transform(columns)) if transform is not None else {}
        rows["label"], rows["weight"] = labeler(columns)
        rows["valid"] = tf.ones_like(rows["weight"], tf.bool)
        for name in raw:
            rows[f"raw/{name}"] = columns[name].plain()
            present = columns[name].present
            rows[f"raw/{name}/present"] = rows["valid"] if present is None else present
        return rows if carving is None else carving(rows, shard, number)

    def padded(rows: Batch) -> Batch:
        missing = batch - tf.shape(rows["label"])[0]
        return {name: _pad(value, missing, batch) for name, value in rows.items()}

    chunks = records.map(prepared, num_parallel_calls=AUTOTUNE, deterministic=True)
    return chunks.rebatch(batch).map(padded, num_parallel_calls=AUTOTUNE, deterministic=True).prefetch(2)


def _pad(value: tf.Tensor, missing: tf.Tensor, batch: int) -> tf.Tensor:
    tail = tf.zeros(tf.concat([[missing], tf.shape(value)[1:]], 0), value.dtype)
    return tf.ensure_shape(tf.concat([value, tail], 0), [batch, *value.shape[1:]])


def safe(dataset: Any, shards: Shards) -> Iterator[Any]:
    """Iterate; a damaged shard becomes a DataError that names the file and the byte.

    Raises:
        DataError: a shard is cut off, changed or gone.
    """
    iterator = iter(dataset)
    while True:
        try:
            value = next(iterator)
        except StopIteration:
            return
        except (tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError) as error:
            for path in shards.paths:
                try:
                    for _ in read_records(Path(path)):
                        pass
                except FileNotFoundError:
                    raise DataError("the shard is gone", where=path, fix="run again: it is made anew") from None
            raise DataError(
                f"a shard cannot be read: {error.message}", where=shards.paths[0] if shards.paths else None
            ) from None
        yield value
