"""Parses classic tf.Examples, one row per record, to columns.

    parse_examples(records, columns)              # from serialized records

A chunk of columns is a flat dict. `c` has the values of column c: [rows], [rows, n] for a vector, all lists joined for a
list. `c/present` is bool [rows] if the column is nullable, `c/lengths` int64 [rows] for a list. A null is 0 or "" (or zeros,
or no values). An absent feature is null, and so is an empty feature, except for lists: an empty feature is an empty list.
TensorFlow's parser does not tell it from an absent one, so the names of a record's features are decoded separately.
"""

from collections.abc import Mapping, Sequence
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
    chunk = _optional_scalars({c.name: parsed[c.name] for c in columns if c.nullable and not c.shape})
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
        elif column.shape:
            chunk[name], chunk[f"{name}/present"] = _optional_vector(value, column)
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


def _optional_scalars(ragged: Mapping[str, tf.RaggedTensor]) -> Chunk:
    """Returns for each nullable scalar column c the tensors `c` and `c/present`. One dtype at once: the graph stays small."""
    chunk: Chunk = {}
    for dtype, names in names_by_dtype(ragged).items():
        splits = tf.stack([ragged[name].row_splits for name in names])
        lengths = splits[:, 1:] - splits[:, :-1]
        several = tf.boolean_mask(tf.constant(names), tf.reduce_any(lengths > 1, 1))
        message = "an example holds several values of column " + tf.strings.reduce_join(several, separator=", ")
        with tf.control_dependencies([tf.debugging.Assert(tf.size(several) == 0, [message], name="fits")]):
            present = lengths > 0
        flat = tf.concat([*(ragged[name].flat_values for name in names), tf.zeros([1], dtype)], 0)  # the last: for null
        places = splits[:, :-1] + tf.cumsum(splits[:, -1:], exclusive=True)
        values = tf.gather(flat, tf.where(present, places, tf.size(flat, tf.int64) - 1))
        chunk |= zip(names, tf.unstack(values, len(names)), strict=True)
        chunk |= zip((f"{name}/present" for name in names), tf.unstack(present, len(names)), strict=True)
    return chunk


def names_by_dtype(tensors: Mapping[str, Any]) -> dict[tf.DType, list[str]]:
    """Returns the names of the tensors of each dtype, in their order."""
    dtypes = dict.fromkeys(tensor.dtype for tensor in tensors.values())
    return {dtype: [name for name, tensor in tensors.items() if tensor.dtype == dtype] for dtype in dtypes}


def _optional_vector(value: tf.RaggedTensor, column: Column) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the values of a nullable vector column, [rows, n], zeros for null, and which rows have values, bool [rows]."""
    lengths, size = value.row_lengths(), column.length
    fits = tf.reduce_all((lengths == 0) | (lengths == size))
    message = f"feature {column.name!r} holds another number of values than {size}"
    with tf.control_dependencies([tf.debugging.Assert(fits, [message], name="fits")]):
        present = lengths > 0
    rows = tf.reshape(value.flat_values, [-1, *column.shape])
    # gathered, not scattered: scatter_nd adds to zero, which turns -0.0 into 0.0
    rows = tf.concat([rows, tf.zeros([1, *column.shape], rows.dtype)], 0)
    null = tf.shape(rows, tf.int64)[0] - 1
    return tf.gather(rows, tf.where(present, value.row_starts() // size, null)), present
