"""Raw columns of a request to an exported model: named tensors or serialized tf.Examples, in the graph.

Columns of a kind are taken together, so that the graph of a wide table is small.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from headway.schema.columns import Column
from headway.schema.tensor_name import LENGTH, PRESENT
from tfcore.export.packed_inputs import Group, pack
from tfcore.export.signatures import Tensor, tensor_names
from tfcore.ops.example_parser import parse_examples
from tfcore.transform.raw_column import DTYPES, RawColumn, raw_columns

Tensors = Mapping[str, tf.Tensor]


def of_tensors(tensors: Tensors, columns: Sequence[Column], inputs: Sequence[Tensor]) -> dict[str, RawColumn]:
    """The tensors of a request, packed as `tfcore.export.packed_inputs` does, as raw columns of one length.

    Without companions NaN in a nullable float column is null; with them, those of one value are spread over the rows.
    """
    names = tensor_names(columns)
    groups = {_kind(group): group for group in pack(inputs)}
    fed = {tensor.name for tensor in inputs}
    nullable = {column.name for column in columns if names[column.name] + PRESENT in fed}
    rows = _rows(tensors, [names[column.name] for column in columns], groups)
    companions = {kind: _companions(groups[kind], tensors, rows) for kind in ("present", "length") if kind in groups}
    by_tensor = {names[column.name]: column for column in columns}
    raw: dict[str, RawColumn] = {}
    for kind, group in groups.items():
        members = [by_tensor[tensor.name] for tensor in group.tensors if kind not in companions and tensor.column]
        if not members:
            continue
        values = tf.reshape(tensors[group.name], [len(members), rows])
        present = None
        if any(column.name in nullable for column in members):
            present = _presence(companions["present"], groups["present"], [names[c.name] for c in members], rows)
        elif any(column.nullable for column in members):  # as with companions, so that one trace serves both
            present = tf.ones([len(members), rows], tf.bool)
            if kind == "float32":
                present = ~tf.math.is_nan(values) | tf.constant([[not column.nullable] for column in members])
        if present is not None:
            values = tf.where(present, values, tf.zeros([], values.dtype))
        each = tf.unstack(values, len(members))
        flags = [None] * len(members) if present is None else tf.unstack(present, len(members))
        for column, value, is_known in zip(members, each, flags, strict=True):
            raw[column.name] = RawColumn(value, is_known if column.nullable else None)
    for column in columns:
        if column.name not in raw:
            name = names[column.name]
            present = None
            if column.name in nullable:
                present = companions["present"][_place(groups["present"], name + PRESENT)]
            elif column.nullable and (column.is_list or column.type != "float32"):
                present = tf.ones([rows], tf.bool)
            length = None
            if "length" in groups and column.is_list:
                length = companions["length"][_place(groups["length"], name + LENGTH)]
            raw[column.name] = _shaped(column, tensors[name], present, length, rows)
    return {column.name: raw[column.name] for column in columns}


def rows_of(columns: Mapping[str, RawColumn]) -> tf.Tensor:
    """How many rows the columns have; int32 scalar."""
    one = next(iter(columns.values()))
    return tf.shape(one.values if one.lengths is None else one.lengths)[0]


def list_of(name: str, tensors: Tensors, inputs: Sequence[Tensor], rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """A list that is no column: (its values [rows, longest], bool of the same shape, which of them count).

    Raises:
        tf.errors.InvalidArgumentError: (while running) it has neither one row nor as many as there are.
    """
    values, group = tensors[name], next(group for group in pack(inputs) if _kind(group) == "length")
    given = tf.shape(values)[0]
    fits = tf.debugging.Assert((given == rows) | (given == 1), [f"{name} has", given, "rows, and there are", rows])
    with tf.control_dependencies([fits]):
        values = tf.broadcast_to(values, [rows, tf.shape(values)[1]])
    longest = tf.shape(values, tf.int64)[1]
    lengths = _companions(group, tensors, rows)[_place(group, name + LENGTH)]
    return values, tf.sequence_mask(tf.where(lengths < 0, longest, tf.minimum(lengths, longest)), longest)


def with_blanks(given: Mapping[str, RawColumn], columns: Sequence[Column]) -> dict[str, RawColumn]:
    """The given columns and all others of `columns`: null, or where they cannot be null 0 or an empty text or list."""
    rows = rows_of(given)

    def blank(column: Column) -> RawColumn:
        present = tf.zeros([rows], tf.bool) if column.nullable else None
        if column.is_list:
            return RawColumn(tf.zeros([0], DTYPES[column.type]), present, None, tf.zeros([rows], tf.int64))
        return RawColumn(tf.zeros([rows, *column.shape], DTYPES[column.type]), present)

    return {column.name: given.get(column.name) or blank(column) for column in columns}


def _kind(group: Group) -> str:
    return group.name.removeprefix("packed_").rstrip("_")


def _place(group: Group, name: str) -> int:
    return [tensor.name for tensor in group.tensors].index(name)


def _rows(tensors: Tensors, values: Sequence[str], groups: Mapping[str, Group]) -> tf.Tensor:
    """Return the number of rows; ops that use it run only if all tensors agree on it."""
    names, lengths, single = [], [], []
    grouped = {tensor.name for group in groups.values() for tensor in group.tensors}
    for kind, group in groups.items():
        members = [tensor.name for tensor in group.tensors]
        if group.tensors[0].column is not None:
            names += members
            lengths.append(tensors[group.lengths])
            single += [kind in ("present", "length")] * len(members)
    for name in values:
        if name not in grouped:
            names.append(name)
            lengths.append(tf.shape(tensors[name])[:1])
            single.append(False)
    counts = tf.concat(lengths, 0)
    first = single.index(False)
    rows = counts[first]
    wrong = (counts != rows) & ~((counts == 1) & tf.constant(single))
    odd = tf.boolean_mask(tf.constant(names), wrong)
    message = tf.strings.join(
        [
            f"columns of different lengths: {names[first]} has ",
            tf.strings.as_string(rows),
            " rows, and these have others: ",
            tf.strings.reduce_join(odd[:20], separator=", "),
        ]
    )
    with tf.control_dependencies([tf.debugging.Assert(tf.size(odd) == 0, [message])]):
        return tf.identity(rows)


def _companions(group: Group, tensors: Tensors, rows: tf.Tensor) -> tf.Tensor:
    """Return [tensors, rows] of companions that have one value in all, or one per row."""
    lengths = tensors[group.lengths]
    steps = tf.where(lengths == 1, tf.zeros_like(lengths), tf.ones_like(lengths))
    places = tf.cumsum(lengths, exclusive=True)[:, None] + steps[:, None] * tf.range(rows)[None]
    return tf.ensure_shape(tf.gather(tensors[group.name], places), [len(group.tensors), None])


def _presence(present: tf.Tensor, group: Group, names: Sequence[str], rows: tf.Tensor) -> tf.Tensor:
    """Return bool [names, rows]; true for columns that cannot be null."""
    places = {tensor.name: place for place, tensor in enumerate(group.tensors)}
    order = [places.get(name + PRESENT, len(places)) for name in names]
    if len(places) in order:
        present = tf.concat([present, tf.ones([1, rows], tf.bool)], 0)
    return present if order == list(range(len(places))) else tf.gather(present, tf.constant(order))


def _shaped(
    column: Column, values: tf.Tensor, present: tf.Tensor | None, lengths: tf.Tensor | None, rows: tf.Tensor
) -> RawColumn:
    """Return the column as a vector, [rows, n], or a list, [rows, longest]."""
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
    """Serialized tf.Examples as raw columns: a feature that is absent or empty is a null."""
    return raw_columns(parse_examples(examples, columns, stored=False), columns)
