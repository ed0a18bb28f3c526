"""Rows from shards on disk, tables in memory or a generator, as one element type.

    feed = Feed.from_shards([examples])
    feed = Feed.from_arrow(table, columns)                    # an Arrow table, or a dict of NumPy arrays
    feed = Feed.from_generator(batches, columns)              # a function; called anew for each pass
    feed.element_spec                                         # {"delay": TensorSpec([None], float32), ...}
    train(request, out, monitor, feed=feed)                   # and evaluate.predict(..., feed=feed)
    for batch in feed.batches(): predictor(batch)             # Arrow, for a SavedModel

A column that may be null has a companion `<name>__present`, as in an exported signature; a list column is ragged. What a
table or generator gives is checked before TensorFlow sees it, which would cast some of it in silence and describe the
rest by numbers of tensors: a DataError names the column, what is expected and what was given.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import tensorflow as tf

from headway.errors import ConfigError, DataError
from headway.records.decode import decode
from headway.records.encode import encode
from headway.records.tfrecord import read_records
from headway.schema.columns import Column, suggest
from headway.schema.tensor_name import PRESENT
from headway.stages.refs import Examples
from headway.tabular.list_arrays import is_text, value_type
from tfcore.data.decode import Decoder
from tfcore.data.in_memory import ROWS_PER_RECORD, InMemoryShards, hold
from tfcore.data.pipeline import safe
from tfcore.data.reader import Reader
from tfcore.data.shards import Shards
from tfcore.transform.raw_column import DTYPES, RawColumn

Batch = Any
"""An Arrow batch or table, or a dict of NumPy arrays by column."""
Generator = Callable[..., Iterator[Batch]]


class Feed:
    """Rows of shards, memory or a generator as one type; made by `from_shards`, `from_arrow` or `from_generator`.

    Attributes:
        columns: the stored columns, the label's ("label") among them.
        shards: where the rows are, on disk or in memory; of live data, columns without any row.
    """

    def __init__(self, shards: Shards, generator: Generator | None = None):
        self.shards, self.columns = shards, shards.columns
        self._generator = generator
        self._error: BaseException | None = None

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
        batch = as_batch(table, columns, "the table")
        return cls(hold(pa.Table.from_batches([batch]), columns, rows_per_record=rows_per_record, shards=shards))

    @classmethod
    def from_generator(cls, function: Generator, columns: Sequence[Column]) -> Self:
        """Read live data: `function()` yields batches of any number of rows, without end or with one.

        A function that asks for an argument (one without a default, or called `first_row`) is given the number of the
        first row that is wanted: with it a resumed training goes on where it was. One without goes on with whatever comes
        next.

        Raises:
            ConfigError: it asks for more, or is not a function.
        """
        _row_parameter(function)
        return cls(Shards((), (), tuple(columns), ROWS_PER_RECORD), function)

    @property
    def live(self) -> bool:
        return self._generator is not None

    @property
    def rows(self) -> int | None:
        """The number of rows; None for live data."""
        return None if self.live else self.shards.total

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

    @tf.autograph.experimental.do_not_convert  # as in `tfcore.data.pipeline`
    def dataset(self) -> tf.data.Dataset:
        """The raw rows, each once, in their order: an `element_spec` element per record or generator's batch."""
        names, spec = [column.name for column in self.columns], self.element_spec
        if self.live:
            decoder = Decoder(self.columns, ROWS_PER_RECORD, names)
            pieces, read = self.records(), lambda _first, record: decoder(record)
        else:
            reader = Reader(self.shards, names)
            pieces, read = reader.in_order(), lambda *piece: reader(*piece).columns

        def element(*piece: tf.Tensor) -> dict[str, Any]:
            columns: dict[str, Any] = {}
            for name, column in read(*piece).items():
                columns[name] = _tensor(column, spec[name])
                if name + PRESENT in spec:
                    columns[name + PRESENT] = tf.ensure_shape(column.present, [None])
            return {name: columns[name] for name in spec}

        return pieces.map(element, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The raw rows, each once, as Arrow batches."""
        if self.live:
            yield from (batch for _, batch in self._arrow(0))
            return
        records = self.shards.records if isinstance(self.shards, InMemoryShards) else None
        for number, path in enumerate(self.shards.paths):
            for record in records[number] if records is not None else read_records(Path(path)):
                yield decode(record, self.columns, self.shards.rows_per_record)

    def collected(self) -> Shards:
        """The rows as shards; live data is read to its end, into memory.

        Raises:
            DataError: live data without any row.
        """
        if not self.live:
            return self.shards
        batches = list(self.batches())
        if not batches:
            raise DataError("yielded no batch", where="the generator")
        return hold(pa.Table.from_batches([_plain(batch, self.columns) for batch in batches]), self.columns)

    def records(self, first_row: int = 0) -> tf.data.Dataset:
        """Live data from `first_row` on, (number of its first row, record): int64 and string scalars."""
        signature = tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.string)
        return tf.data.Dataset.from_generator(lambda: self._encoded(first_row), output_signature=signature)

    def safe(self, dataset: tf.data.Dataset) -> Iterator[Any]:
        """Iterate over a result of `dataset` or `records`; an exception of the generator is raised unchanged, and a
        damaged shard is named."""
        if not self.live:
            yield from safe(dataset, self.shards)
            return
        self._error = None
        try:
            yield from dataset
        except tf.errors.OpError:
            if self._error is not None:
                raise self._error from None
            raise

    def _encoded(self, first_row: int) -> Iterator[tuple[int, bytes]]:
        try:
            for first, batch in self._arrow(first_row):
                yield first, encode(batch, self.columns)
        except Exception as error:
            self._error = error  # on its way through TensorFlow only its text would be left
            raise

    def _arrow(self, first_row: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        assert self._generator is not None
        parameter = _row_parameter(self._generator)
        if parameter is None:
            batches = self._generator()
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            batches = self._generator(first_row)
        else:
            batches = self._generator(**{parameter.name: first_row})
        if not isinstance(batches, Iterable) or isinstance(batches, Mapping):
            raise DataError(
                f"expected batches, one after another, given {type(batches).__name__}",
                where="the generator",
                fix="yield each batch, or return an iterator or a list of them",
            )
        for number, values in enumerate(batches):
            batch = as_batch(values, self.columns, f"the generator's batch {number}")
            if batch.num_rows:
                yield first_row, batch
            first_row += batch.num_rows


def _row_parameter(function: Generator) -> inspect.Parameter | None:
    """The name of the parameter for the first row's number, if any; ConfigError if others are required."""
    where, fix = "Feed.from_generator", "def batches(first_row): ..., or def batches(): ..."
    if not callable(function):
        problem = f"expected a function that gives batches, given {type(function).__name__}"
        raise ConfigError(problem, where=where, fix=fix)
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    try:
        takes = [item for item in inspect.signature(function).parameters.values() if item.kind not in variable]
    except ValueError:  # a built-in that does not tell
        return None
    asking = [item for item in takes if item.default is item.empty or item.name == "first_row"]
    if len(asking) > 1:
        names = " and ".join(item.name for item in asking)
        problem = f"the function has the parameters {names}; it is given the number of the first row only"
        raise ConfigError(problem, where=where, fix=fix)
    return asking[0] if asking else None


def as_batch(values: Batch, columns: Sequence[Column], where: str) -> pa.RecordBatch:
    """Convert Arrow or NumPy columns to one batch of the stored columns, in their order.

    Raises:
        DataError: naming the column, what is expected, and what was given.
    """
    if isinstance(values, pa.Table):
        values = {name: values.column(name).combine_chunks() for name in values.schema.names}
    elif isinstance(values, pa.RecordBatch):
        values = {name: values.column(name) for name in values.schema.names}
    if not isinstance(values, Mapping):
        raise DataError(f"expected a dict of arrays or an Arrow batch, given {type(values).__name__}", where=where)
    names = {column.name for column in columns}
    names |= {column.name + PRESENT for column in columns if column.nullable}
    for name in values:
        if name not in names:
            raise DataError(f"column {name!r} is not expected", where=where, fix=suggest(str(name), sorted(names)))
    arrays = []
    for column in columns:
        if column.name not in values:
            raise DataError(f"column {column.name!r}: expected {_expected(column)}, given nothing", where=where)
        arrays.append(_array(values[column.name], values.get(column.name + PRESENT), column, where))
    rows = [len(array) for array in arrays]
    for column, count in zip(columns, rows, strict=True):
        if count != rows[0]:
            raise DataError(
                f"column {column.name!r}: expected {rows[0]} rows, as {columns[0].name!r} has, given {count}",
                where=where,
            )
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def _array(values: Any, present: Any, column: Column, where: str) -> pa.Array:
    array = values if isinstance(values, pa.Array) else _from_numpy(values, present, column, where)
    kind = value_type(array.type)
    if column.type == "bytes" and not column.shape and is_text(kind):
        array = array if pa.types.is_dictionary(array.type) else array.cast(pa.binary())
    elif kind != column.arrow and not (column.shape and _same_lists(array.type, column)):
        raise _differs(column, f"{array.type} [{len(array)}]", where)
    elif column.shape:
        array = array.cast(column.arrow)
    if array.null_count and not column.nullable:
        raise DataError(
            f"column {column.name!r}: expected {_expected(column)} without nulls, given {array.null_count} nulls",
            where=where,
            fix="leave those rows out, or make the column nullable",
        )
    return array


def _from_numpy(values: Any, present: Any, column: Column, where: str) -> pa.Array:
    if column.is_list:
        try:
            return pa.array(values, column.arrow)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
            raise _differs(column, f"{type(values).__name__} ({str(error).splitlines()[0]})", where) from None
    if not isinstance(values, np.ndarray):
        raise _differs(column, f"{type(values).__name__} {values!r:.40}", where)
    kind_fits = values.dtype.kind in "SO" if column.type == "bytes" else values.dtype == column.type
    if not kind_fits or values.ndim != 1 + len(column.shape) or values.shape[1:] != column.shape:
        raise _differs(column, f"{values.dtype} {list(values.shape)}", where)
    mask = None
    if present is not None:
        if getattr(present, "dtype", None) != np.bool_ or np.shape(present) != values.shape[:1]:
            raise DataError(f"column {column.name + PRESENT!r}: expected bool [{len(values)}]", where=where)
        mask = ~present
    try:
        if not column.shape:
            return pa.array(values, column.arrow, mask=mask)
        flat = pa.array(values.reshape(-1), column.element.arrow)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise _differs(column, f"{values.dtype} ({str(error).splitlines()[0]})", where) from None
    return pa.FixedSizeListArray.from_arrays(flat, column.length, mask=None if mask is None else pa.array(mask))


def _same_lists(dtype: pa.DataType, column: Column) -> bool:
    lists = pa.types.is_fixed_size_list(dtype) if column.length else pa.types.is_list(dtype)
    if not lists or (column.length and dtype.list_size != column.length):
        return False
    value = value_type(dtype.value_type)
    return is_text(value) if column.type == "bytes" else value == column.element.arrow


def _plain(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """Decode dictionaries, which differ from batch to batch."""
    arrays = [batch.column(column.name).cast(column.arrow) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def _expected(column: Column) -> str:
    if column.is_list:
        return f"lists of {column.type} [rows]"
    return f"{column.type} {['rows', *column.shape]}".replace("'", "")


def _differs(column: Column, actual: str, where: str) -> DataError:
    return DataError(f"column {column.name!r}: expected {_expected(column)}, given {actual}", where=where)


def _tensor(column: RawColumn, spec: tf.TypeSpec) -> Any:
    if column.lengths is not None:
        return tf.RaggedTensor.from_row_lengths(column.plain(), column.lengths, validate=False)
    return tf.ensure_shape(column.plain(), spec.shape)
