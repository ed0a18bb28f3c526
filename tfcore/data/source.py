"""Rows from shards on disk or a table in memory, as one element type.

    feed = Feed.from_shards([examples])
    feed = Feed.from_arrow(table, columns)                    # an Arrow table, or a dict of NumPy arrays
    feed.element_spec                                         # {"delay": TensorSpec([None], float32), ...}
    train(request, out, monitor, feed=feed)                   # and evaluate.predict(..., feed=feed)
    for batch in feed.batches(): predictor(batch)             # Arrow, for a SavedModel

A column that may be null has a companion `<name>__present`, as in an exported signature; a list column is ragged. A table
is checked before TensorFlow sees it: a DataError names the column, what is expected and what was given.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import tensorflow as tf

from headway.errors import ConfigError, DataError
from headway.records.decode import decode
from headway.records.tfrecord import read_records
from headway.schema.columns import Column, suggest
from headway.schema.tensor_name import PRESENT
from headway.stages.refs import Examples
from headway.tabular.list_arrays import is_text, value_type
from tfcore.data.in_memory import ROWS_PER_RECORD, InMemoryShards, hold
from tfcore.data.reader import Reader
from tfcore.data.shards import Shards
from tfcore.transform.raw_column import DTYPES, RawColumn

Batch = Any
"""An Arrow batch or table, or a dict of NumPy arrays by column."""
_WHERE = "the table"


class Feed:
    """Rows of shards or memory as one type; made by `from_shards` or `from_arrow`.

    Attributes:
        columns: the stored columns, the label's ("label") among them.
        shards: where the rows are, on disk or in memory.
    """

    def __init__(self, shards: Shards):
        self.shards, self.columns = shards, shards.columns

    @classmethod
    def from_shards(cls, examples: Sequence[Examples]) -> Self:
        """Read ingested rows: one split of each span, in window order."""
        return cls(Shards.of([(part.path, part.result, part.split) for part in examples]))

    @classmethod
    def from_arrow(
        cls, table: Batch, columns: Sequence[Column], *, rows_per_record: int = ROWS_PER_RECORD, shards: int = 1
    ) -> Self:
        """Read a table in memory. With the `rows_per_record` and number of shards that a table was written with, its
        rows come in the same order as from those files.

        Raises:
            DataError: a column is missing, or of another type or shape.
            ConfigError: not even one row a record, or not one shard.
        """
        for name, count in (("rows_per_record", rows_per_record), ("shards", shards)):
            if count < 1:
                raise ConfigError(f"{name} is {count}", where="Feed.from_arrow", fix="at least 1")
        batch = _as_batch(table, columns)
        return cls(hold(pa.Table.from_batches([batch]), columns, rows_per_record=rows_per_record, shards=shards))

    @property
    def element_spec(self) -> dict[str, tf.TypeSpec]:
        """The type of an element of `dataset()`: tensors with any number of rows."""
        spec: dict[str, tf.TypeSpec] = {}
        for column in self.columns:
            dtype = DTYPES[column.type]
            if column.is_list:
                spec[column.name] = tf.RaggedTensorSpec([None, None], dtype, ragged_rank=1, row_splits_dtype=tf.int64)
            else:
                spec[column.name] = tf.TensorSpec([None, *column.shape], dtype)
            if column.nullable:
                spec[column.name + PRESENT] = tf.TensorSpec([None], tf.bool)
        return spec

    @tf.autograph.experimental.do_not_convert  # as in `tfcore.data.dataset`
    def dataset(self) -> tf.data.Dataset:
        """The raw rows, each once, in their order: an `element_spec` element per record."""
        spec = self.element_spec
        reader = Reader(self.shards, [column.name for column in self.columns])

        def element(*piece: tf.Tensor) -> dict[str, Any]:
            columns: dict[str, Any] = {}
            for name, column in reader(*piece).columns.items():
                columns[name] = _tensor(column, spec[name])
                if name + PRESENT in spec:
                    columns[name + PRESENT] = tf.ensure_shape(column.present, [None])
            return {name: columns[name] for name in spec}

        return reader.in_order().map(element, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The raw rows, each once, as Arrow batches."""
        records = self.shards.records if isinstance(self.shards, InMemoryShards) else None
        for number, path in enumerate(self.shards.paths):
            for record in records[number] if records is not None else read_records(Path(path)):
                yield decode(record, self.columns)


def _as_batch(values: Batch, columns: Sequence[Column]) -> pa.RecordBatch:
    """Convert Arrow or NumPy columns to one batch of the stored columns, in their order.

    Raises:
        DataError: naming the column, what is expected, and what was given.
    """
    if isinstance(values, pa.Table):
        values = {name: values.column(name).combine_chunks() for name in values.schema.names}
    elif isinstance(values, pa.RecordBatch):
        values = {name: values.column(name) for name in values.schema.names}
    if not isinstance(values, Mapping):
        raise DataError(f"expected a dict of arrays or an Arrow batch, given {type(values).__name__}", where=_WHERE)
    names = {column.name for column in columns}
    names |= {column.name + PRESENT for column in columns if column.nullable}
    for name in values:
        if name not in names:
            raise DataError(f"column {name!r} is not expected", where=_WHERE, fix=suggest(str(name), sorted(names)))
    arrays = []
    for column in columns:
        if column.name not in values:
            raise DataError(f"column {column.name!r}: expected {_expected(column)}, given nothing", where=_WHERE)
        arrays.append(_array(values[column.name], values.get(column.name + PRESENT), column))
    rows = [len(array) for array in arrays]
    for column, count in zip(columns, rows, strict=True):
        if count != rows[0]:
            raise DataError(
                f"column {column.name!r}: expected {rows[0]} rows, as {columns[0].name!r} has, given {count}",
                where=_WHERE,
            )
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def _array(values: Any, present: Any, column: Column) -> pa.Array:
    array = values if isinstance(values, pa.Array) else _from_numpy(values, present, column)
    kind = value_type(array.type)
    if column.type == "bytes" and not column.shape and is_text(kind):
        array = array if pa.types.is_dictionary(array.type) else array.cast(pa.binary())
    elif kind != column.arrow and not (column.shape and _same_lists(array.type, column)):
        raise _differs(column, f"{array.type} [{len(array)}]")
    elif column.shape:
        array = array.cast(column.arrow)
    if array.null_count and not column.nullable:
        raise DataError(
            f"column {column.name!r}: expected {_expected(column)} without nulls, given {array.null_count} nulls",
            where=_WHERE,
            fix="leave those rows out, or make the column nullable",
        )
    return array


def _from_numpy(values: Any, present: Any, column: Column) -> pa.Array:
    if column.is_list:
        try:
            return pa.array(values, column.arrow)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
            raise _differs(column, f"{type(values).__name__} ({str(error).splitlines()[0]})") from None
    if not isinstance(values, np.ndarray):
        raise _differs(column, f"{type(values).__name__} {values!r:.40}")
    kind_fits = values.dtype.kind in "SO" if column.type == "bytes" else values.dtype == column.type
    if not kind_fits or values.ndim != 1 + len(column.shape) or values.shape[1:] != column.shape:
        raise _differs(column, f"{values.dtype} {list(values.shape)}")
    mask = None
    if present is not None:
        if getattr(present, "dtype", None) != np.bool_ or np.shape(present) != values.shape[:1]:
            raise DataError(f"column {column.name + PRESENT!r}: expected bool [{len(values)}]", where=_WHERE)
        mask = ~present
    try:
        if not column.shape:
            return pa.array(values, column.arrow, mask=mask)
        flat = pa.array(values.reshape(-1), column.element.arrow)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise _differs(column, f"{values.dtype} ({str(error).splitlines()[0]})") from None
    return pa.FixedSizeListArray.from_arrays(flat, column.length, mask=None if mask is None else pa.array(mask))


def _same_lists(dtype: pa.DataType, column: Column) -> bool:
    lists = pa.types.is_fixed_size_list(dtype) if column.length else pa.types.is_list(dtype)
    if not lists or (column.length and dtype.list_size != column.length):
        return False
    value = value_type(dtype.value_type)
    return is_text(value) if column.type == "bytes" else value == column.element.arrow


def _expected(column: Column) -> str:
    if column.is_list:
        return f"lists of {column.type} [rows]"
    return f"{column.type} {['rows', *column.shape]}".replace("'", "")


def _differs(column: Column, actual: str) -> DataError:
    return DataError(f"column {column.name!r}: expected {_expected(column)}, given {actual}", where=_WHERE)


def _tensor(column: RawColumn, spec: tf.TypeSpec) -> Any:
    if column.lengths is not None:
        return tf.RaggedTensor.from_row_lengths(column.plain(), column.lengths, validate=False)
    return tf.ensure_shape(column.plain(), spec.shape)
