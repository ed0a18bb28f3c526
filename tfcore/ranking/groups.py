"""Where groups of rows begin and end.

group_splits([7, 7, 7, 2, 2])       # int64 [0, 3, 5, 5, 5, 5]
row_groups(row_splits, rows)        # int64 [rows], the group of each row
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


@tf.autograph.experimental.do_not_convert
def group_splits(ids: Any) -> tf.Tensor:
    """The row_splits of groups that are runs of one id, int64 [rows + 1].

    There are as many groups as rows, the last ones empty, so that the shape follows from the shape of `ids` also under
    XLA. Rows of one id that do not lie together are several groups.

    Args:
        ids: [rows], of any type that can be compared.
    """
    ids = tf.convert_to_tensor(ids)
    if ids.shape.rank != 1:
        raise ValueError(f"ids is a vector, not of shape {ids.shape}")
    rows = tf.shape(ids)[0]
    group = tf.cumsum(tf.concat([tf.zeros_like(ids[:1], tf.int32), tf.cast(ids[1:] != ids[:-1], tf.int32)], 0))
    sizes = tf.math.unsorted_segment_sum(tf.ones([rows], tf.int64), group, rows)
    splits = tf.concat([tf.zeros([1], tf.int64), tf.cumsum(sizes)], 0)
    return tf.ensure_shape(splits, [None if ids.shape[0] is None else ids.shape[0] + 1])


@tf.autograph.experimental.do_not_convert
def row_groups(row_splits: tf.Tensor, rows: tf.Tensor | int) -> tf.Tensor:
    """The group of each row, int64 [rows]; of valid row_splits."""
    return tf.searchsorted(row_splits[1:], tf.range(rows, dtype=row_splits.dtype), side="right", out_type=tf.int64)
