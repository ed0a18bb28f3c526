"""Reads the records of shards, whose checksums TensorFlow verifies, and decodes them to raw columns, labels and weights.

    reader = Reader(shards, ["carrier", "label"])
    pieces = reader.in_epoch(plan, epoch, skip)          # or reader.in_order()
    pieces.map(lambda *piece: reader(*piece).columns, num_parallel_calls=AUTOTUNE)
    label, weight = labeler(shards, parameters)(columns)

A piece is cheap: serialized records and where they are stored. Records in memory come in the order in which those of
files would.

Of several workers each reads its own shards (`owned`), and zeros stand for the rows of the others, so that all share one
row order: where a row stands in the shuffled sequence is a function of the manifests alone, and zeros cost neither
reading, parsing nor a transform.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.records.encode import feature_spec
from headway.schema.columns import LABEL, Column
from tfcore.data.in_memory import HeldRecords, InMemoryShards
from tfcore.data.order import Plan
from tfcore.data.shards import Batch, Shards
from tfcore.graph.python_op import numpy_op
from tfcore.heads.label_parameters import LabelParameters
from tfcore.heads.table import label_head
from tfcore.runtime.remote_shards import here
from tfcore.transform.parameters import TransformParameters
from tfcore.transform.raw_column import RawColumn

READ_BYTES = 1 << 20


class Rows(NamedTuple):
    """The rows of a record, and where it is stored."""

    columns: dict[str, RawColumn]
    shard: tf.Tensor
    number: tf.Tensor


class Reader:
    """Reads the records of shards as raw columns; see the module.

    Args:
        wanted: the columns that are read.
        own: bool [shards]; the shards that are opened. Records of others come empty; None: all are opened.
    """

    def __init__(self, shards: Shards, names: Sequence[str], own: NDArray[np.bool_] | None = None):
        self._shards, self._own = shards, own
        self._decoder = Decoder(shards.record_columns, names)
        self._paths = tf.constant(shards.paths, tf.string)
        self._memory = HeldRecords(shards) if isinstance(shards, InMemoryShards) else None

    def in_order(self) -> tf.data.Dataset:
        """The dataset of pieces that cover every row, shard after shard."""
        return tf.data.Dataset.range(len(self._shards.paths)).flat_map(self._records)

    def in_epoch(self, plan: Plan, epoch: tf.Tensor, skip: tf.Tensor) -> tf.data.Dataset:
        """The dataset of pieces that cover an epoch's rows, from record `skip` (int64) of its sequence on."""

        def shard_order(epoch: int) -> NDArray[np.int64]:
            self._ahead(plan, epoch)
            return plan.shard_order(epoch)

        spec = tf.TensorSpec([len(self._shards.paths)], tf.int64)
        records = tf.data.Dataset.from_tensor_slices(numpy_op(shard_order, spec, stateful=self._staged)(epoch))
        return records.interleave(self._records, cycle_length=plan.cycle).skip(skip)

    def __call__(self, *piece: Any) -> Rows:
        """Read the rows of a piece."""
        shard, number, record = piece
        return Rows(self._decoder(record), shard, number)

    @property
    def _staged(self) -> bool:
        """Whether the shards are fetched from a bucket: then asking for an epoch's order also starts the fetching."""
        return self._shards.stager is not None

    def _ahead(self, plan: Plan, epoch: int) -> None:
        """Start to fetch the shards of this epoch and the next, in their orders, if they are not on this disk."""
        if self._staged:
            orders = (plan.shard_order(epoch), plan.shard_order(epoch + 1))
            self._shards.ahead(*(order if self._own is None else order[self._own[order]] for order in orders))

    def _records(self, shard: tf.Tensor) -> tf.data.Dataset:
        """The dataset of (shard, number, record) of one shard."""
        if self._memory is not None:
            return self._memory(shard)
        path = tf.gather(self._paths, shard)
        count = tf.gather(tf.constant([len(rows) for rows in self._shards.rows], tf.int64), shard)
        if self._own is None:
            records = tf.data.TFRecordDataset(here(path, self._shards.stager), buffer_size=READ_BYTES)
        else:
            own = tf.gather(self._own, shard)
            paths = here(tf.boolean_mask(path[None], own[None]), self._shards.stager)
            empty = tf.data.Dataset.range(tf.where(own, tf.zeros_like(count), count)).map(lambda _: "")
            records = tf.data.TFRecordDataset(paths, buffer_size=READ_BYTES).concatenate(empty)
        records = records.apply(
            tf.data.experimental.assert_cardinality(count)
        )  # else a shorter file is read as a whole one
        return records.enumerate().map(lambda number, record: (shard, number, record))


class Decoder:
    """Decodes records to raw columns by the manifest's feature spec; only the requested columns."""

    def __init__(self, columns: Sequence[Column], names: Sequence[str]):
        read = set(names)
        self.columns = [column for column in columns if column.name in read]
        self._spec = feature_spec(self.columns)

    def __call__(self, record: tf.Tensor) -> dict[str, RawColumn]:
        """Decode one serialized row group, a scalar, to raw columns."""
        parsed = self._parsed(record)
        nullable = [column.name for column in self.columns if column.nullable]
        present = {}
        if nullable:  # at once, since a wide table has thousands
            flags = tf.cast(tf.stack([parsed[f"{name}/present"] for name in nullable]), tf.bool)
            present = dict(zip(nullable, tf.unstack(flags, len(nullable)), strict=True))
        return {column.name: self._group(column, parsed, present.get(column.name)) for column in self.columns}

    def _parsed(self, record: tf.Tensor) -> dict[str, tf.Tensor]:
        """Each feature's values, as `tf.io.parse_single_example` gives them for FixedLenSequenceFeatures.

        That makes a constant for each feature, and TensorFlow's graph optimizer compares all of them with each other: minutes
        at thousands of columns. Here those of a dtype share one.
        """
        types = [tf.as_dtype(entry["dtype"]) for entry in self._spec.values()]
        padding = {dtype: tf.zeros([], dtype) for dtype in types}
        parsed = tf.raw_ops.ParseExampleV2(
            serialized=record,
            names=[],
            sparse_keys=[],
            dense_keys=list(self._spec),
            ragged_keys=[],
            dense_defaults=[padding[dtype] for dtype in types],
            num_sparse=0,
            sparse_types=[],
            ragged_value_types=[],
            ragged_split_types=[],
            dense_shapes=[[None, *entry.get("shape", [])] for entry in self._spec.values()],
        )
        return dict(zip(self._spec, parsed.dense_values, strict=True))

    @staticmethod
    def _group(column: Column, parsed: Mapping[str, tf.Tensor], present: tf.Tensor | None) -> RawColumn:
        lengths = parsed[f"{column.name}/lengths"] if column.is_list else None
        if column.encoding == "dictionary":
            return RawColumn(parsed[f"{column.name}/dict"], present, parsed[f"{column.name}/codes"], lengths)
        return RawColumn(parsed[f"{column.name}/values" if column.is_list else column.name], present, None, lengths)


class _Values:
    """The values of one label: the number, or the index of the class."""

    def __init__(self, label: LabelParameters):
        self._type, self._table = label.type, None
        if label.classes is not None:
            dtype = tf.string if label.type == "bytes" else tf.int64
            keys = tf.constant(list(label.classes), dtype)
            init = tf.lookup.KeyValueTensorInitializer(keys, tf.range(len(label.classes), dtype=tf.int64))
            self._table = tf.lookup.StaticHashTable(init, default_value=-1)

    def __call__(self, column: RawColumn) -> tuple[tf.Tensor, tf.Tensor]:
        """(value, whether it is a known class or a finite number); what is not is 0."""
        raw = column.plain()
        if self._table is not None:
            keys = raw if self._type != "float32" else tf.cast(tf.round(raw), tf.int64)
            index = self._table.lookup(keys)
            return tf.maximum(index, 0), index >= 0
        valid = tf.ones_like(raw, tf.bool) if raw.dtype.is_integer else tf.math.is_finite(raw)
        return tf.where(valid, raw, tf.zeros_like(raw)), valid


class Labeler:
    """Computes the label tensor of a task, and the rows' weights."""

    def __init__(
        self, label: LabelParameters, *, weight: Column | None = None, class_weights: Sequence[float] | None = None
    ):
        self._label, self._weight, self._values = label, weight, _Values(label)
        self._class_weights = None if class_weights is None else tf.constant(list(class_weights), tf.float32)

    @property
    def needs(self) -> list[str]:
        """The columns that the label and the weights are made of."""
        return [LABEL] + ([self._weight.name] if self._weight else [])

    def __call__(self, columns: Mapping[str, RawColumn]) -> tuple[tf.Tensor, tf.Tensor]:
        """(label, weight): float32 [rows] each for binary and regression; an int32 class index for multiclass.

        A row whose label is not a known class or not finite, or whose weight is null or not finite, has weight 0.
        """
        index, known = self._values(columns[LABEL])
        weight = tf.cast(known, tf.float32)  # 0 times NaN is NaN, so the label goes as well as the weight
        if self._class_weights is not None:
            weight *= tf.gather(self._class_weights, tf.cast(index, tf.int32))
        if self._weight is not None:
            column = columns[self._weight.name]
            weights = tf.cast(column.plain(), tf.float32)
            usable = tf.math.is_finite(weights)
            usable = usable if column.present is None else usable & column.present
            weight *= tf.where(usable, weights, tf.zeros_like(weights))
        return tf.cast(index, label_head(self._label).label_dtype), weight


OWN = "own"
MOST_UNEVEN = 1.5
"""A worker may have so many times its even part of the rows; else all of them read everything."""


def owned(shards: Shards, *, worker: int, workers: int) -> NDArray[np.bool_] | None:
    """The shards that a worker reads, so that all workers have about as many rows; bool [shards]. None where whole
    shards cannot be divided so."""
    rows = np.asarray(shards.counts, np.int64)
    load, owner = np.zeros(workers, np.int64), np.zeros(len(rows), np.int64)
    for shard in np.argsort(-rows, kind="stable"):
        owner[shard] = np.argmin(load)
        load[owner[shard]] += rows[shard]
    return owner == worker if load.max() * workers <= MOST_UNEVEN * rows.sum() else None


class OwnedRows:
    """Reads a worker's own rows, and puts zeros in the place of the others; see the module."""

    def __init__(self, shards: Shards, own: NDArray[np.bool_]):
        self._own = tf.constant(own)
        counts = [np.asarray(rows, np.int64) for rows in shards.rows]
        self._counts = tf.constant(np.concatenate(counts) if counts else np.zeros(0, np.int64), tf.int64)
        self._begin = tf.constant(np.cumsum([0] + [len(c) for c in counts])[:-1], tf.int64)

    def __call__(
        self, read: Callable[..., tuple[Batch, tf.Tensor, tf.Tensor]], piece: tuple[tf.Tensor, ...]
    ) -> tuple[Batch, tf.Tensor, tf.Tensor]:
        """Return `read(*piece)` for a row group (shard, number, record) of this worker, as many zeros for another's."""
        shard, number, _ = piece
        specs: dict[str, Any] = {}

        def rows() -> Batch:
            batch, *_ = read(*piece)
            specs.update({name: (value.shape[1:], value.dtype) for name, value in batch.items()})
            return batch

        def zeros() -> Batch:
            count = tf.gather(self._counts, tf.gather(self._begin, shard) + number)
            return {
                name: tf.zeros(tf.concat([[count], tf.cast(shape, tf.int64)], 0), dtype)
                for name, (shape, dtype) in specs.items()
            }

        own = tf.gather(self._own, shard)
        batch = tf.cond(own, rows, zeros)
        for name, (shape, _) in specs.items():
            batch[name] = tf.ensure_shape(batch[name], [None, *shape])
        batch[OWN] = tf.fill([tf.shape(batch["label"])[0]], own)
        return batch, shard, number


def labeler(shards: Shards, parameters: TransformParameters, class_weights: Sequence[float] | None = None) -> Labeler:
    """Return the labeler of the stored rows: the weight column is the one with the role weight."""
    weight = next((column for column in shards.columns if column.role == "weight"), None)
    return Labeler(parameters.label, weight=weight, class_weights=class_weights)
