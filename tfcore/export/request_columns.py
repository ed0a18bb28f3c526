"""Turns the inputs of an exported model, named tensors or serialized tf.Examples, into raw columns within the graph.

Columns of one dtype are handled together as one tensor, so that the graph of a wide table is small.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from headway.schema.columns import Column
from headway.schema.tensor_name import LENGTH, PRESENT
from tfcore.export.signatures import Tensor, tensor_names
from tfcore.ops.example_parser import names_by_dtype, parse_examples
from tfcore.transform.raw_column import DTYPES, RawColumn, raw_columns

Tensors = Mapping[str, tf.Tensor]
_SHAPES_AT_ONCE = 32
"""The most tensors whose shapes one operation returns: TensorFlow's optimizer takes a time that grows with their square."""


def of_tensors(tensors: Tensors, columns: Sequence[Column], inputs: Sequence[Tensor]) -> dict[str, RawColumn]:
    """Returns {column: raw column} made of a request's tensors, all of one length. `inputs` are the signature's inputs.

    A companion (c__present, c__length) of one row is for all rows. Without it NaN, or a vector of only NaN, is null if nullable.
    """
    names = tensor_names(columns)
    values_of = {column.name: tensors[names[column.name]] for column in columns}
    companions = {
        tensor.name: tensors[tensor.name]
        for tensor in inputs
        if tensor.column and tensor.default is not None and len(tensor.shape) == 1
    }
    counts = _row_counts({names[name]: values for name, values in values_of.items()} | companions)
    rows = _rows(counts, companions)
    spread = _spread(companions, counts, rows)
    raw: dict[str, RawColumn] = {}
    for kind in DTYPES:
        members = [column for column in columns if column.type == kind and not column.shape]
        if members:
            values = tf.reshape(tf.concat([values_of[column.name] for column in members], 0), [len(members), rows])
            known = _known(values, members, [spread.get(names[column.name] + PRESENT) for column in members])
            if known is not None:
                values = tf.where(known, values, tf.zeros([], values.dtype))
            flags = [None] * len(members) if known is None else tf.unstack(known, len(members))
            for column, value, flag in zip(members, tf.unstack(values, len(members)), flags, strict=True):
                raw[column.name] = RawColumn(value, flag if column.nullable else None)
    for column in columns:
        if column.shape:
            present, length = (spread.get(names[column.name] + ending) for ending in (PRESENT, LENGTH))
            if present is None and column.nullable and (column.is_list or column.type != "float32"):
                present = tf.ones([rows], tf.bool)
            raw[column.name] = _shaped(column, values_of[column.name], present, length, rows)
    return {column.name: raw[column.name] for column in columns}


def rows_of(columns: Mapping[str, RawColumn]) -> tf.Tensor:
    """Returns the number of rows of the columns, an int32 scalar."""
    one = next(iter(columns.values()))
    return tf.shape(one.values if one.lengths is None else one.lengths)[0]


def list_of(name: str, tensors: Tensors, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the values of the list input `name`, such as `exclude`, [rows, longest], and a mask of the values that count,
    bool of the same shape.

    Raises:
        tf.errors.InvalidArgumentError: when the graph runs, if the input has neither one row nor `rows` rows.
    """
    values = tensors[name]
    given = tf.shape(values)[0]
    fits = tf.debugging.Assert((given == rows) | (given == 1), [f"{name} has", given, "rows, and there are", rows])
    with tf.control_dependencies([fits]):
        values = tf.broadcast_to(values, [rows, tf.shape(values)[1]])
    longest = tf.shape(values, tf.int64)[1]
    lengths = tf.broadcast_to(tensors[name + LENGTH], [rows])
    return values, tf.sequence_mask(tf.where(lengths < 0, longest, tf.minimum(lengths, longest)), longest)


def with_blanks(given: Mapping[str, RawColumn], columns: Sequence[Column]) -> dict[str, RawColumn]:
    """Returns all of `columns`. One that `given` lacks is all null, or, if not nullable, all 0, empty texts or empty lists."""
    rows = rows_of(given)

    def blank(column: Column) -> RawColumn:
        present = tf.zeros([rows], tf.bool) if column.nullable else None
        if column.is_list:
            return RawColumn(tf.zeros([0], DTYPES[column.type]), present, None, tf.zeros([rows], tf.int64))
        return RawColumn(tf.zeros([rows, *column.shape], DTYPES[column.type]), present)

    return {column.name: given.get(column.name) or blank(column) for column in columns}


def _rows(by_name: Tensors, companions: Tensors) -> tf.Tensor:
    """Returns the number of rows, an int32 scalar, and asserts that all tensors have it; a companion may have one row instead.
    `by_name` has the number of rows of each tensor, those of a column first."""
    names, counts = [*by_name], tf.concat([*by_name.values()], 0)
    rows = counts[0]
    wrong = (counts != rows) & ~((counts == 1) & tf.constant([name in companions for name in names]))
    odd = tf.boolean_mask(tf.constant(names), wrong)
    message = tf.strings.join(
        [
            f"columns of different lengths: {names[0]} has ",
            tf.strings.as_string(rows),
            " rows, and these have others: ",
            tf.strings.reduce_join(odd[:20], separator=", "),
        ]
    )
    with tf.control_dependencies([tf.debugging.Assert(tf.size(odd) == 0, [message])]):
        return tf.identity(rows)


def _spread(companions: Tensors, counts: Tensors, rows: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns the companions, [rows] each, where one row is repeated; in few operations, however many companions there are."""
    spread: dict[str, tf.Tensor] = {}
    for names in names_by_dtype(companions).values():
        lengths = tf.concat([counts[name] for name in names], 0)
        places = tf.cumsum(lengths, exclusive=True)[:, None] + tf.cast(lengths != 1, tf.int32)[:, None] * tf.range(rows)
        values = tf.gather(tf.concat([companions[name] for name in names], 0), places)
        spread |= zip(names, tf.unstack(values, len(names)), strict=True)
    return spread


def _row_counts(tensors: Tensors) -> dict[str, tf.Tensor]:
    """Returns the number of rows of each tensor, int32 [1] each, in the order of the tensors."""
    counts: dict[str, tf.Tensor] = {}
    for names in names_by_dtype(tensors).values():
        for start in range(0, len(names), _SHAPES_AT_ONCE):
            some = names[start : start + _SHAPES_AT_ONCE]
            shapes = tf.shape_n([tensors[name] for name in some])
            counts |= zip(some, (shape if shape.shape == (1,) else shape[:1] for shape in shapes), strict=True)
    return {name: counts[name] for name in tensors}


def _known(values: tf.Tensor, columns: Sequence[Column], flags: Sequence[tf.Tensor | None]) -> tf.Tensor | None:
    """Returns which values are present, bool [columns, rows]; None if no column is nullable.

    Args:
        flags: the companion input c__present of each column; None for a column without one.
    """
    if not any(column.nullable for column in columns):
        return None
    everything = tf.ones(tf.shape(values)[1:], tf.bool)
    known = tf.stack([everything if flag is None else flag for flag in flags])
    if all(flag is None for flag in flags) and values.dtype == tf.float32:
        known = ~tf.math.is_nan(values) | tf.constant([[not column.nullable] for column in columns])
    for word in sorted({word for column in columns if column.type == "bytes" for word in column.null or ()}):
        of_it = tf.constant([[column.nullable and word in (column.null or ())] for column in columns])
        known &= ~(of_it & (values == word))
    return known


def _shaped(
    column: Column, values: tf.Tensor, present: tf.Tensor | None, lengths: tf.Tensor | None, rows: tf.Tensor
) -> RawColumn:
    """Returns a vector column, given as [rows, n], or a list column, given as [rows, longest], as a raw column."""
    if column.is_list:
        longest = tf.shape(values, tf.int64)[1]
        lengths = tf.fill([rows], longest) if lengths is None else lengths  # -1 means all
        lengths = tf.where((lengths < 0) | (lengths > longest), longest, lengths)
        if present is not None:
            lengths = tf.where(present, lengths, tf.zeros_like(lengths))
        return RawColumn(tf.boolean_mask(values, tf.sequence_mask(lengths, longest)), present, None, lengths)
    values = tf.reshape(values, [rows, *column.shape])
    if present is None and column.nullable:
        present = ~tf.reduce_all(tf.math.is_nan(values), 1)
    if present is not None:
        values = tf.where(present[:, None], values, tf.zeros([], values.dtype))
    return RawColumn(values, present)


def of_examples(examples: tf.Tensor, columns: Sequence[Column]) -> dict[str, RawColumn]:
    """Returns {column: raw column} of serialized tf.Examples. A feature is null if absent, a null word, or empty and no list."""
    raw = raw_columns(parse_examples(examples, columns), columns)
    worded = [
        column for column in columns if column.type == "bytes" and column.null and column.nullable and not column.shape
    ]
    if worded:
        values = tf.stack([raw[column.name].plain() for column in worded])
        known = _known(values, worded, [raw[column.name].present for column in worded])
        values = tf.where(known, values, "")
        for column, value, flag in zip(
            worded, tf.unstack(values, len(worded)), tf.unstack(known, len(worded)), strict=True
        ):
            raw[column.name] = RawColumn(value, flag)
    return raw
