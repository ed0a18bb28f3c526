"""A vocabulary in the graph: a lookup table, or an array where the values are integers close together.

vocabulary = Vocabulary(FittedOp(op="vocabulary", words=("UA", "AA"), oov_buckets=2))
vocabulary(tf.constant(["AA", "XX"]))            # [1, 2 or 3], int64
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfcore.transform.fitted import FittedOp

DENSE = 1 << 16
"""The longest range of integers that lie close together: an array takes a tenth of a hash table's time."""


class Vocabulary(tf.Module):
    """Maps values to ids: known values by falling train count, then the out-of-vocabulary buckets, by hash. It is
    exported without files."""

    def __init__(self, op: FittedOp):
        super().__init__(name="vocabulary")
        self._size, self._buckets = len(op.values), op.oov_buckets or 1
        integers = op.integers or () if op.words is None else ()
        near = bool(integers) and max(integers) - min(integers) < DENSE
        self._low = min(integers) if near else 0
        self._ids = tf.constant(_dense(integers)) if near else None
        # a table cannot be made of nothing
        self._table = _table(op.values) if op.values and not near else None

    def __call__(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the ids, int64, of the shape of `values`."""
        if self._ids is not None:
            # a difference that overflows wraps round to a place that no other value has, so it cannot look known
            places = values - self._low
            inside = (places >= 0) & (places < tf.size(self._ids, tf.int64))
            ids = tf.gather(self._ids, tf.where(inside, places, tf.zeros_like(places)))
            ids = tf.where(inside, ids, -tf.ones_like(ids))
        elif self._table is not None:
            ids = self._table.lookup(values)
        else:
            return self._unknown(values)
        return tf.where(ids >= 0, ids, self._unknown(values))

    def _unknown(self, values: tf.Tensor) -> tf.Tensor:
        if self._buckets == 1:
            return tf.fill(tf.shape(values), tf.constant(self._size, tf.int64))
        text = values if values.dtype == tf.string else tf.strings.as_string(values)
        return self._size + tf.strings.to_hash_bucket_fast(text, self._buckets)


def _dense(integers: Sequence[int]) -> Any:
    """Returns the id of each integer from the least to the greatest, -1 for those between that are unknown."""
    ids = np.full(max(integers) - min(integers) + 1, -1, np.int64)
    ids[np.asarray(integers, np.int64) - min(integers)] = np.arange(len(integers))
    return ids


def _table(keys: Sequence[Any]) -> tf.lookup.StaticHashTable:
    dtype = tf.int64 if isinstance(keys[0], int) else tf.string
    rows = tf.lookup.KeyValueTensorInitializer(tf.constant(list(keys), dtype), tf.range(len(keys), dtype=tf.int64))
    return tf.lookup.StaticHashTable(rows, default_value=-1)
