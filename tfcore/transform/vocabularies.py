"""Vocabularies as lookup tables: one for a column, or one for many columns.

TensorFlow takes some twenty milliseconds to save and load one table, whatever its size. Columns whose integers lie close
together need none: their ids stand in one array. Where the others are many, their words share one table, whose keys begin
with the column's number.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfcore.transform.fitted import Fitted, FittedOp

DENSE = 1 << 16
"""The longest range of integers that lie close together."""
MOST_DENSE = 1 << 22
"""The length of an array with the ranges of all columns; integers beyond it have hash tables."""
SHARED_FROM = 16
"""The number of tables from which they become one; fewer are faster apart, since a look-up in a shared one joins
strings."""


class Vocabularies(tf.Module):
    """Maps values of one or several columns to ids: known values by falling train count, then the out-of-vocabulary
    buckets, by hash. It is exported without files."""

    def __init__(self, fitted: Sequence[Fitted]):
        super().__init__(name="vocabularies")
        with_vocabulary = [entry for entry in fitted if entry.ops[-1].op == "vocabulary" and entry.size is not None]
        columns = {entry.column.name: entry for entry in with_vocabulary}
        self._ops = {name: entry.ops[-1] for name, entry in columns.items()}
        narrow = sorted(
            (name for name, op in self._ops.items() if is_dense(op)), key=lambda n: len(_range(self._ops[n]))
        )
        together = [name for name in narrow if not columns[name].column.shape]
        ends = np.cumsum([len(_range(self._ops[name])) for name in together])
        dense = together[: int(np.searchsorted(ends, MOST_DENSE, side="right"))]
        grouped = set(dense)
        shared = [name for name in columns if not (columns[name].column.shape or name in grouped)]
        shared = shared if len(shared) >= SHARED_FROM else []
        grouped.update(shared)
        alone = [name for name in narrow if name not in grouped]
        arrays = [*([dense] if dense else []), *([name] for name in alone)]
        self._arrays = [_Dense([self._ops[name].integers or () for name in names]) for names in arrays]
        self._places = {name: (i, place) for i, names in enumerate(arrays) for place, name in enumerate(names)}
        self._prefixes = {name: f"{number}:" for number, name in enumerate(shared)}
        self._tables = {
            name: _table(op.values, np.arange(len(op.values)))
            for name, op in self._ops.items()
            if name not in self._places and name not in self._prefixes and op.values
        }
        keys = [
            self._prefixes[name].encode() + (key if isinstance(key, bytes) else str(key).encode())
            for name in shared
            for key in self._ops[name].values
        ]
        ids = [np.arange(len(self._ops[name].values)) for name in shared]
        self._shared = _table(keys, np.concatenate(ids)) if keys else None

    def kind(self, name: str) -> tuple[Any, ...]:
        """Returns the key that columns must share to be looked up in one call."""
        if name in self._places:
            return ("array", self._places[name][0], self._ops[name].oov_buckets or 1)
        return ("shared", self._ops[name].oov_buckets or 1) if name in self._prefixes else (name,)

    def __call__(self, names: Sequence[str], values: tf.Tensor, which: tf.Tensor) -> tf.Tensor:
        """Returns the ids, int64, of the shape of `values`.

        Args:
            names: columns of one kind.
            which: int32; the place in `names` of each value's column. [columns, 1] with values [columns, rows], or shaped
                as the values.
        """
        ops = [self._ops[name] for name in names]
        oov = _unknown(values, _of_column([len(op.values) for op in ops], which), ops[0].oov_buckets or 1)
        table = self._shared
        if names[0] in self._places:
            array = self._arrays[self._places[names[0]][0]]
            ids = array.lookup(values, [self._places[name][1] for name in names], which)
            return tf.where(ids >= 0, ids, oov)
        if names[0] in self._prefixes:
            prefix = tf.gather(tf.constant([self._prefixes[name] for name in names]), which)
            text = values if values.dtype == tf.string else tf.strings.as_string(values)
            values = tf.strings.join([tf.broadcast_to(prefix, tf.shape(text)), text])
        else:
            table = self._tables.get(names[0])
        if table is None:  # nothing is known: a table cannot be made of nothing
            return oov
        ids = table.lookup(values)
        return tf.where(ids >= 0, ids, oov)


def is_dense(op: FittedOp) -> bool:
    """Returns whether a vocabulary holds integers close together: an array takes a tenth of a hash table's time."""
    return op.words is None and bool(op.integers) and len(_range(op)) <= DENSE


def _range(op: FittedOp) -> range:
    integers = op.integers or ()
    return range(min(integers), max(integers) + 1)


def _unknown(values: tf.Tensor, size: tf.Tensor, buckets: int) -> tf.Tensor:
    """Returns the out-of-vocabulary id of each value, for a vocabulary of `size` values."""
    if buckets == 1:
        return tf.broadcast_to(size, tf.shape(values))
    text = values if values.dtype == tf.string else tf.strings.as_string(values)
    return size + tf.strings.to_hash_bucket_fast(text, buckets)


class _Dense(tf.Module):
    """Maps integers to ids by one array, which holds the columns' ranges one after another."""

    def __init__(self, integers: Sequence[Sequence[int]]):
        super().__init__(name="dense")
        arrays = []
        for numbers in integers:
            ids = np.full(max(numbers) - min(numbers) + 1, -1, np.int64)
            ids[np.asarray(numbers, np.int64) - min(numbers)] = np.arange(len(numbers))
            arrays.append(ids)
        self._low = [min(numbers) for numbers in integers]
        self._size = [len(ids) for ids in arrays]
        self._begin = (np.cumsum(self._size) - self._size).tolist()
        self._ids = tf.constant(np.concatenate(arrays))

    def lookup(self, values: tf.Tensor, columns: Sequence[int], which: tf.Tensor) -> tf.Tensor:
        """Returns the ids, int64, -1 for unknown; `which` is that of Vocabularies, among `columns`."""
        low, size, begin = (
            _of_column([numbers[place] for place in columns], which) for numbers in (self._low, self._size, self._begin)
        )
        # a difference that overflows wraps round to a place that no other value has, so it cannot look known
        places = values - low
        inside = (places >= 0) & (places < size)
        ids = tf.gather(self._ids, tf.where(inside, places + begin, tf.zeros_like(places)))
        return tf.where(inside, ids, -tf.ones_like(ids))


def _of_column(numbers: Sequence[int], which: tf.Tensor) -> tf.Tensor:
    """Returns a number per column for each value, int64."""
    if len(numbers) == 1:
        return tf.constant(numbers[0], tf.int64)
    return tf.gather(tf.constant(numbers, tf.int64), which)


def _table(keys: Sequence[Any], ids: NDArray[np.int64]) -> tf.lookup.StaticHashTable:
    dtype = tf.int64 if isinstance(keys[0], int) else tf.string
    rows = tf.lookup.KeyValueTensorInitializer(tf.constant(list(keys), dtype), tf.constant(ids, tf.int64))
    return tf.lookup.StaticHashTable(rows, default_value=-1)
