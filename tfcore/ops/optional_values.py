"""Columns of classic tf.Examples that may be null: none or one value for each row, many columns in one go."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf


def optional(found: Mapping[str, tf.RaggedTensor], before: str, after: str) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
    """{column: (values [rows], 0 or "" for null; present bool [rows])}

    Args:
        found: what the examples hold of each column.
        before, after: the message about columns of which an example holds several values; their names stand between.
    """
    kinds: dict[tf.DType, list[str]] = {}
    for name, value in found.items():
        kinds.setdefault(value.dtype, []).append(name)
    made: dict[str, tuple[tf.Tensor, tf.Tensor]] = {}
    for names in kinds.values():
        values, present = _optional([found[name] for name in names], names, before, after)
        made |= dict(
            zip(names, zip(tf.unstack(values, len(names)), tf.unstack(present, len(names)), strict=True), strict=True)
        )
    return made


def _optional(found: list[tf.RaggedTensor], names: list[str], before: str, after: str) -> tuple[tf.Tensor, tf.Tensor]:
    splits = tf.stack([value.row_splits for value in found])
    lengths = splits[:, 1:] - splits[:, :-1]
    several = tf.boolean_mask(tf.constant(names), tf.reduce_any(lengths > 1, 1))
    said = tf.strings.join([before, tf.strings.reduce_join(several, separator=", "), after])
    with tf.control_dependencies([tf.debugging.Assert(tf.size(several) == 0, [said], name="fits")]):
        present = lengths > 0
    flat = tf.concat([*(value.flat_values for value in found), tf.zeros([1], found[0].dtype)], 0)
    # gathered, not scattered: scatter_nd adds to zero, which turns -0.0 into 0.0
    null = tf.size(flat, tf.int64) - 1
    places = splits[:, :-1] + tf.cumsum(splits[:, -1], exclusive=True)[:, None]
    return tf.gather(flat, tf.where(present, places, null)), present
