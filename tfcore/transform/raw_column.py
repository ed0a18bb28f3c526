"""A raw column in the graph: its values, which rows have one, codes of a dictionary, lengths of lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from headway.schema.columns import Column

DTYPES: dict[str, tf.DType] = {"int64": tf.int64, "float32": tf.float32, "bytes": tf.string}
"""TensorFlow's, by a column's type."""


class RawColumn(NamedTuple):
    """A raw column in the graph. `values` [rows], or [distinct] where `codes` [rows] say which each row has.

    Of a vector column values or codes are [rows, n]; of a list column they are flat, and `lengths` int64 [rows] says how
    many of them belong to each row, 0 for a null row.
    """

    values: tf.Tensor
    present: tf.Tensor | None
    """bool [rows]; None: no row is null."""
    codes: tf.Tensor | None = None
    lengths: tf.Tensor | None = None

    def plain(self) -> tf.Tensor:
        """The value of each row, or the values of all lists; "" or 0 for null."""
        return self.values if self.codes is None else gather(self.values, self.codes)

    def rows(self) -> tf.Tensor:
        each = self.values if self.codes is None else self.codes
        return tf.shape(each if self.lengths is None else self.lengths)[0]

    def padded(self, width: Any, filler: Any) -> tf.Tensor:
        """A list column as [rows, width]: `filler` behind shorter lists, longer ones cut."""
        return pad(self.plain(), self.lengths, width, filler)


def raw_columns(chunk: Mapping[str, tf.Tensor], columns: Sequence[Column]) -> dict[str, RawColumn]:
    """Convert a chunk of classic Examples, as `tfcore.ops` returns it, to raw columns."""
    return {
        column.name: RawColumn(
            chunk[column.name], chunk.get(f"{column.name}/present"), None, chunk.get(f"{column.name}/lengths")
        )
        for column in columns
    }


def pad(values: tf.Tensor, lengths: tf.Tensor, width: Any, filler: Any) -> tf.Tensor:
    ragged = tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)
    return ragged.to_tensor(default_value=tf.cast(filler, values.dtype), shape=[None, width])


def gather(values: tf.Tensor, codes: tf.Tensor) -> tf.Tensor:
    # a record whose rows are all null has an empty dictionary, and code 0 must still be good for something
    return tf.gather(tf.concat([values, tf.zeros([1], values.dtype)], 0), codes)
