"""Parses classic tf.Examples, one row per record, to columns.

    parse_examples(records, columns)              # from serialized records

A chunk of columns is a flat dict: `c` the values ([rows], [rows, n] for a vector, all lists one behind the other for a list),
`c/present` bool [rows] where the column is nullable, `c/lengths` int64 [rows] of a list. A null is 0 or "" (or zeros, or no
values). An absent feature or an empty one is null; a nullable list says so itself by a feature `c/present`, since stock
parsers take an empty list for an absent one: lists that others wrote are not nullable.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from headway.records.classic import classic_spec
from headway.schema.columns import Column

Chunk = dict[str, tf.Tensor]


def parse_examples(records: tf.Tensor, columns: Sequence[Column]) -> Chunk:
    """Parse serialized tf.Examples, string [rows], to columns.

    Raises:
        tf.errors.InvalidArgumentError: a record is not of these columns, or is not a tf.Example; of the latter also a
            UnicodeDecodeError, where the message quotes bytes that are not text.
    """
    spec: dict[str, Any] = {}
    names = {column.name for column in columns}
    for name, entry in classic_spec(columns).items():
        dtype = tf.as_dtype(entry["dtype"])
        if entry["kind"] == "scalar" and name in names:
            spec[name] = tf.io.FixedLenFeature(entry.get("shape", []), dtype)
        else:
            spec[name] = tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
    parsed = tf.io.parse_example(records, spec)
    chunk = _optional_scalars({c.name: parsed[c.name] for c in columns if c.nullable and not c.shape})
    for column in columns:
        name, value = column.name, parsed[column.name]
        if column.is_list:
            chunk[name], chunk[f"{name}/lengths"] = value.flat_values, value.row_lengths()
            if column.nullable:
                marks = parsed[f"{name}/present"]
                chunk[f"{name}/present"] = (value.row_lengths() > 0) | (tf.reduce_sum(marks, 1) > 0)
        elif not column.nullable:
            chunk[name] = value
        elif column.shape:
            chunk[name], chunk[f"{name}/present"] = _optional(value, column)
    return chunk


def _optional_scalars(ragged: Mapping[str, tf.RaggedTensor]) -> Chunk:
    """Columns of at most one value per row, all of one dtype at once: `c` [rows], 0 or "" for null, and `c/present`."""
    kinds: dict[tf.DType, list[str]] = {}
    for name, value in ragged.items():
        kinds.setdefault(value.dtype, []).append(name)
    chunk: Chunk = {}
    for names in kinds.values():
        splits = tf.stack([ragged[name].row_splits for name in names])
        lengths = splits[:, 1:] - splits[:, :-1]
        several = tf.boolean_mask(tf.constant(names), tf.reduce_any(lengths > 1, 1))
        before = "an example holds several values of column "
        message = before + tf.strings.reduce_join(several, separator=", ")
        with tf.control_dependencies([tf.debugging.Assert(tf.size(several) == 0, [message], name="fits")]):
            present = lengths > 0
        flat = [ragged[name].flat_values for name in names]
        flat = tf.concat([*flat, tf.zeros([1], flat[0].dtype)], 0)
        # gathered, not scattered: scatter_nd adds to zero, which turns -0.0 into 0.0
        places = splits[:, :-1] + tf.cumsum(splits[:, -1], exclusive=True)[:, None]
        values = tf.gather(flat, tf.where(present, places, tf.size(flat, tf.int64) - 1))
        chunk |= zip(names, tf.unstack(values, len(names)), strict=True)
        chunk |= zip((f"{name}/present" for name in names), tf.unstack(present, len(names)), strict=True)
    return chunk


def _optional(value: tf.RaggedTensor, column: Column) -> tuple[tf.Tensor, tf.Tensor]:
    """(values, present) of a nullable vector."""
    lengths, size = value.row_lengths(), column.length
    fits = tf.reduce_all((lengths == 0) | (lengths == size))
    message = f"feature {column.name!r} holds another number of values than {size}"
    with tf.control_dependencies([tf.debugging.Assert(fits, [message], name="fits")]):
        present = lengths > 0
    rows = tf.reshape(value.flat_values, [-1, size])
    # gathered, not scattered: scatter_nd adds to zero, which turns -0.0 into 0.0
    rows = tf.concat([rows, tf.zeros([1, *rows.shape[1:]], rows.dtype)], 0)
    null = tf.shape(rows, tf.int64)[0] - 1
    return tf.gather(rows, tf.where(present, value.row_starts() // size, null)), present
