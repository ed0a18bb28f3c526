"""Decodes records to raw columns, labels and weights, in the graph.

columns = Decoder(shards.columns, ["carrier", "label"])(record)
label, weight = Labeler(parameters.label)(columns)
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from headway.records.encode import feature_spec
from headway.schema.columns import LABEL, Column
from tfcore.heads.label_parameters import LabelParameters
from tfcore.heads.table import label_head
from tfcore.transform.raw_column import RawColumn


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
