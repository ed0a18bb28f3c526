"""Group ids of rows, and where groups begin and end.

group_ids(columns["query"])         # int64 [rows], a number for each value
placed(rows, places)                # rows in another order, with rows of weight 0 where there is none
group_splits([7, 7, 7, 2, 2])       # int64 [0, 3, 5, 5, 5, 5]
row_groups(row_splits, rows)        # int64 [rows], the group of each row
"""

from typing import Any

import tensorflow as tf

from tfcore.augment.draws import mix64
from tfcore.data.shards import Batch
from tfcore.transform.raw_column import RawColumn

GROUP = "group"
"""What a batch calls the ids of its rows' groups."""
NO_GROUP = -1
"""The id of a row whose group is null: it belongs to none. And of one that only fills up a batch."""


@tf.autograph.experimental.do_not_convert
def group_ids(column: RawColumn) -> tf.Tensor:
    """The group id of each row, int64 [rows], at least 0: the same for equal values of a scalar column."""
    values = column.plain()
    if values.dtype == tf.string:
        ids = tf.strings.to_hash_bucket_fast(values, tf.int64.max)
    else:
        # of a float its bits, where -0.0 is 0.0
        whole = values if values.dtype.is_integer else tf.bitcast(tf.where(values == 0, 0.0, values), tf.int32)
        ids = _positive(mix64(tf.cast(tf.cast(whole, tf.int64), tf.uint64), 0))
    return ids if column.present is None else tf.where(column.present, ids, tf.constant(NO_GROUP, tf.int64))


@tf.autograph.experimental.do_not_convert
def placed(rows: Batch, places: tf.Tensor) -> Batch:
    """Gather the rows at `places`. A place of -1 - i gets row i with weight 0 and no group: a filler that the model can
    compute, as zeros may not be.

    Args:
        rows: with "weight" and "group".
        places: int32 [places].
    """
    filled = places >= 0
    columns = {name: tf.gather(value, tf.where(filled, places, -1 - places)) for name, value in rows.items()}
    columns["weight"] = tf.where(filled, columns["weight"], 0.0)
    columns[GROUP] = tf.where(filled, columns[GROUP], tf.constant(NO_GROUP, tf.int64))
    return columns


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
    """The group of each row, int64 [rows], from valid row_splits."""
    return tf.searchsorted(row_splits[1:], tf.range(rows, dtype=row_splits.dtype), side="right", out_type=tf.int64)
