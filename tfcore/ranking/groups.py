"""Which rows are a group, and where groups begin and end.

group_ids(columns["query"])         # int64 [rows], a number for each value
together(order, ids, seed)          # int32 [rows], the rows of a group behind each other
group_splits([7, 7, 7, 2, 2])       # int64 [0, 3, 5, 5, 5, 5]
row_groups(row_splits, rows)        # int64 [rows], the group of each row
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfcore.augment.draws import mix64
from tfcore.transform.graph import RawColumn

GROUP = "group"
"""What a batch calls the ids of its rows' groups."""
NO_GROUP = -1
"""The id of a row whose group is null: it belongs to none."""


@tf.autograph.experimental.do_not_convert
def group_ids(column: RawColumn) -> tf.Tensor:
    """A number from 0 up for each value of a column of scalars, the same wherever it occurs; int64 [rows]."""
    values = column.plain()
    if values.dtype == tf.string:
        ids = tf.strings.to_hash_bucket_fast(values, tf.int64.max)
    else:
        # of a float its bits, where -0.0 is 0.0
        whole = values if values.dtype.is_integer else tf.bitcast(tf.where(values == 0, 0.0, values), tf.int32)
        ids = _positive(mix64(tf.cast(tf.cast(whole, tf.int64), tf.uint64), 0))
    return ids if column.present is None else tf.where(column.present, ids, tf.constant(NO_GROUP, tf.int64))


@tf.autograph.experimental.do_not_convert
def together(order: tf.Tensor, ids: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """The permutation `order` of rows, sorted so that each group's follow each other, groups in an order drawn from `seed`.

    Args:
        order: int32 [rows]; within a group its order stays.
        ids: int64 [rows], before the permutation.
        seed: int64 [2].
    """
    ids = tf.gather(ids, order)
    alone = NO_GROUP - 1 - tf.cast(tf.range(tf.size(ids)), tf.int64)  # no id is negative
    first, second = tf.unstack(tf.cast(seed, tf.uint64))
    drawn = mix64(mix64(tf.cast(tf.where(ids == NO_GROUP, alone, ids), tf.uint64), first), second)
    return tf.gather(order, tf.argsort(_positive(drawn), stable=True))


def _positive(bits: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.bitwise.right_shift(bits, tf.constant(1, tf.uint64)), tf.int64)


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
