"""Vocabularies as lookup tables: one for a column, or one for many columns.

TensorFlow takes some twenty milliseconds to save and load one table, whatever its size. Columns whose integers lie close
together need none: their ids stand in one array. Where the others are many, their words share one table, whose keys begin
with the column's number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfcore.transform.fitted import Fitted, FittedOp

DENSE = 1 << 16
"""Integers lie close together if their range is no longer than this."""
MOST_DENSE = 1 << 22
"""The ranges of all columns in one array; wider ones have tables."""
SHARED_FROM = 16
"""So many tables and more become one. Fewer are faster apart: looking up in a shared one joins strings."""


class VocabularyTable(tf.Module):
    """Ids of known values by falling train count, then the out-of-vocabulary buckets, by hash. Exports without files."""

    def __init__(self, op: FittedOp):
        super().__init__(name="vocabulary")
        self._buckets = op.oov_buckets or 1
        self._known = len(_keys(op))
        self._dense = _Dense([op.integers or ()]) if is_dense(op) else None
        self._table = _hashed(op) if self._dense is None else None

    def __call__(self, values: tf.Tensor) -> tf.Tensor:
        """int64 ids, shape as `values`."""
        oov = _unknown(values, tf.constant(self._known, tf.int64), self._buckets)
        if self._dense is not None:
            found = self._dense.lookup(values, [0], tf.zeros_like(values, tf.int32))
        elif self._table is None:
            return oov
        else:
            found = self._table.lookup(values)
        return tf.where(found >= 0, found, oov)


class Vocabularies(tf.Module):
    """Ids of the values of several columns at once, the same as each column's own table gives."""

    def __init__(self, fitted: Sequence[Fitted]):
        super().__init__(name="vocabularies")
        ops = {
            one.column.name: one.ops[-1]
            for one in fitted
            if one.ops[-1].op == "vocabulary" and one.size is not None and not one.column.shape
        }
        narrow = sorted((name for name in ops if is_dense(ops[name])), key=lambda name: len(_range(ops[name])))
        ends = np.cumsum([len(_range(ops[name])) for name in narrow])
        dense = narrow[: int(np.searchsorted(ends, MOST_DENSE, side="right"))]
        shared = [name for name in ops if name not in set(dense)]
        shared = shared if len(shared) >= SHARED_FROM else []
        self._ops = {name: ops[name] for name in (*dense, *shared)}
        self._dense = _Dense([ops[name].integers or () for name in dense]) if dense else None
        self._places = {name: place for place, name in enumerate(dense)}
        self._prefixes = {name: f"{number}:" for number, name in enumerate(shared)}
        self._table = None
        keys = [self._prefixes[name].encode() + _text(key) for name in shared for key in _keys(ops[name])]
        if keys:
            ids = np.concatenate([np.arange(len(_keys(ops[name]))) for name in shared])
            rows = tf.lookup.KeyValueTensorInitializer(tf.constant(keys, tf.string), tf.constant(ids, tf.int64))
            self._table = tf.lookup.StaticHashTable(rows, default_value=-1)

    def __contains__(self, name: str) -> bool:
        return name in self._ops

    def kind(self, name: str) -> tuple[Any, ...]:
        """What columns must share to be looked up in one call."""
        return (name in self._places, self._ops[name].oov_buckets or 1)

    def __call__(self, names: Sequence[str], values: tf.Tensor, which: tf.Tensor) -> tf.Tensor:
        """int64 ids, shape as `values`.

        Args:
            names: columns of one kind.
            which: int32; the place in `names` of each value's column. [columns, 1] with values [columns, rows], or shaped
                as the values.
        """
        ops = [self._ops[name] for name in names]
        oov = _unknown(values, _of_column([len(_keys(op)) for op in ops], which), ops[0].oov_buckets or 1)
        if names[0] in self._places:
            assert self._dense is not None
            found = self._dense.lookup(values, [self._places[name] for name in names], which)
        elif self._table is None:
            return oov
        else:
            prefix = tf.gather(tf.constant([self._prefixes[name] for name in names]), which)
            text = values if values.dtype == tf.string else tf.strings.as_string(values)
            found = self._table.lookup(tf.strings.join([tf.broadcast_to(prefix, tf.shape(text)), text]))
        return tf.where(found >= 0, found, oov)


def is_dense(op: FittedOp) -> bool:
    """Whether a vocabulary is of integers that lie close together: an array takes a tenth of a hash table's time."""
    return op.words is None and bool(op.integers) and len(_range(op)) <= DENSE


def _range(op: FittedOp) -> range:
    integers = op.integers or ()
    return range(min(integers), max(integers) + 1)


def _keys(op: FittedOp) -> Sequence[str] | Sequence[int]:
    return op.words if op.words is not None else op.integers or ()


def _text(key: str | int) -> bytes:
    return str(key).encode()


def _unknown(values: tf.Tensor, known: tf.Tensor, buckets: int) -> tf.Tensor:
    """The id of each value if it is not in the vocabulary of `known` values."""
    if buckets == 1:
        return tf.broadcast_to(known, tf.shape(values))
    text = values if values.dtype == tf.string else tf.strings.as_string(values)
    return known + tf.strings.to_hash_bucket_fast(text, buckets)


class _Dense(tf.Module):
    """Ids of integers in one array, some columns' one behind the other."""

    def __init__(self, integers: Sequence[Sequence[int]]):
        super().__init__(name="dense")
        arrays = []
        for some in integers:
            ids = np.full(max(some) - min(some) + 1, -1, np.int64)
            ids[np.asarray(some, np.int64) - min(some)] = np.arange(len(some))
            arrays.append(ids)
        self._low = [min(some) for some in integers]
        self._size = [len(ids) for ids in arrays]
        self._begin = (np.cumsum(self._size) - self._size).tolist()
        self._ids = tf.constant(np.concatenate(arrays))

    def lookup(self, values: tf.Tensor, columns: Sequence[int], which: tf.Tensor) -> tf.Tensor:
        """int64 ids, -1 for unknown; `which` as in Vocabularies, of `columns`."""
        low, size, begin = (
            _of_column([numbers[place] for place in columns], which) for numbers in (self._low, self._size, self._begin)
        )
        # a difference that overflows wraps round to a place that no other value has, so it cannot look known
        places = values - low
        inside = (places >= 0) & (places < size)
        found = tf.gather(self._ids, tf.where(inside, places + begin, tf.zeros_like(places)))
        return tf.where(inside, found, -tf.ones_like(found))


def _of_column(numbers: Sequence[int], which: tf.Tensor) -> tf.Tensor:
    """int64: the number of each value's column."""
    if len(numbers) == 1:
        return tf.constant(numbers[0], tf.int64)
    return tf.gather(tf.constant(numbers, tf.int64), which)


def _hashed(op: FittedOp) -> tf.lookup.StaticHashTable | None:
    keys = _keys(op)
    if not keys:  # a table cannot be made of nothing
        return None
    dtype = tf.string if op.words is not None else tf.int64
    ids = tf.range(len(keys), dtype=tf.int64)
    rows = tf.lookup.KeyValueTensorInitializer(tf.constant(list(keys), dtype), ids)
    return tf.lookup.StaticHashTable(rows, default_value=-1)
