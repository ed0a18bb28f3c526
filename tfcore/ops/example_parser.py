"""Parses classic tf.Examples, one row per record, to columns.

    parse_examples(records, columns)              # from serialized records

A chunk of columns is a flat dict. `c` has the values of column c: [rows], [rows, n] for a vector, all lists joined for a
list. `c/present` is bool [rows] if the column is nullable, `c/lengths` int64 [rows] for a list. A null is 0 or "" (or zeros,
or no values). An absent feature is null, and so is an empty feature, except for lists: an empty feature is an empty list.
TensorFlow's parser does not tell it from an absent one, so the names of a record's features are decoded separately.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from headway.records.encode import classic_spec
from headway.schema.columns import Column

Chunk = dict[str, tf.Tensor]


def parse_examples(records: tf.Tensor, columns: Sequence[Column]) -> Chunk:
    """Parse serialized tf.Examples, string [rows], to a chunk of columns; see the module.

    Raises:
        tf.errors.InvalidArgumentError: a record does not have these columns, or is no tf.Example. In the second case it
            may be a UnicodeDecodeError instead, if TensorFlow's message quotes bytes that are not text.
    """
    spec: dict[str, Any] = {}
    kinds = classic_spec(columns)
    for name in [column.name for column in columns]:
        entry = kinds[name]
        dtype = tf.as_dtype(entry["dtype"])
        if entry["kind"] == "scalar":
            spec[name] = tf.io.FixedLenFeature(entry.get("shape", []), dtype)
        else:
            spec[name] = tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
    parsed = tf.io.parse_example(records, spec)
    chunk: Chunk = {}
    with tf.control_dependencies(tf.nest.flatten(parsed, expand_composites=True)[:1]):  # whose error says more
        named = _named(records) if any(column.is_list and column.nullable for column in columns) else None
    for column in columns:
        name, value = column.name, parsed[column.name]
        if column.is_list:
            chunk[name], chunk[f"{name}/lengths"] = value.flat_values, value.row_lengths()
            if column.nullable:
                chunk[f"{name}/present"] = tf.reduce_any(tf.equal(named, name), 1)
        elif not column.nullable:
            chunk[name] = value
        else:
            chunk[name], chunk[f"{name}/present"] = _optional(value, column)
    return chunk


def _named(records: tf.Tensor) -> tf.Tensor:
    """Returns the names of each record's features, string [rows, n]. It is "" for a feature without any list of values,
    and where the record has fewer than n features."""

    def inner(data: tf.Tensor, kind: str, *fields: str) -> list[tf.Tensor]:
        found = tf.io.decode_proto(data, f"tensorflow.{kind}", fields, [tf.string] * len(fields))
        return list(found.values)

    [features] = inner(records, "Example", "features")
    [entries] = inner(tf.strings.reduce_join(features, axis=1), "Features", "feature")
    names, values = (
        tf.strings.reduce_join(part, axis=2) for part in inner(entries, "Features.FeatureEntry", "key", "value")
    )
    return tf.where(tf.equal(values, ""), "", names)  # a feature of no kind has no list


def _optional(value: tf.RaggedTensor, column: Column) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the values of a nullable column (not a list), 0 or "" for null, and which rows have a value, bool [rows]."""
    lengths, size = value.row_lengths(), column.length or 1
    fits = tf.reduce_all((lengths == 0) | (lengths == size))
    message = f"feature {column.name!r} holds another number of values than {size}"
    if not column.shape:
        message = f"an example holds several values of column {column.name}"
    with tf.control_dependencies([tf.debugging.Assert(fits, [message], name="fits")]):
        present = lengths > 0
    rows = tf.reshape(value.flat_values, [-1, *column.shape])
    # gathered, not scattered: scatter_nd adds to zero, which turns -0.0 into 0.0
    rows = tf.concat([rows, tf.zeros([1, *column.shape], rows.dtype)], 0)
    null = tf.shape(rows, tf.int64)[0] - 1
    return tf.gather(rows, tf.where(present, value.row_starts() // size, null)), present
