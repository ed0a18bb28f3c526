"""Resampling by class: how often a row occurs in an epoch is a hash of (seed, epoch, place in its shard).

    resample = Resample(rates=[0.1, 1.0], classes=classes_of(shards, labeler), seed=7)
    resample.copies(shard=0, epoch=2)                    # int64 [rows]: 0, 1, ...
    Resampling(resample, shards, holdout)(rows, shard, number, epoch)          # the same in the graph

An epoch's number of rows depends on its labels, and where a training resumes on those numbers: so labels are read once
at the start and kept, a byte a row, or two of more than 256 classes. A row of rate 2.3 comes twice in every epoch, and a third
time in 0.3 of them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.tabular.hashing import U64, mix64
from tfcore.augment.draws import mix64 as hash_of
from tfcore.data.shards import Batch, Holdout, HoldoutRows, Shards, by_record

_SALT = 0x726573 << 32
_BITS = 24


class Resample:
    """Decides how often each row occurs in an epoch; see the module.

    Args:
        rates: [classes], how often a row of each comes.
        classes: of each row, by shard; int [rows].
        inverse: let each row count 1 / rate times.
    """

    def __init__(self, rates: Sequence[float], classes: Sequence[NDArray[Any]], *, seed: int, inverse: bool = False):
        self.seed, self._classes = seed + _SALT, classes
        self.whole = np.floor(rates).astype(np.int64)
        self.part = np.round((np.asarray(rates) - self.whole) * (1 << _BITS)).astype(np.int64)
        self.weights = 1.0 / np.asarray(rates, np.float64) if inverse else None
        self._rates = np.asarray(rates, np.float64)

    def copies(self, shard: int, epoch: int) -> NDArray[np.int64]:
        """How often each row of a shard occurs in an epoch; int64 [rows]. `Resampling` is its twin in the graph."""
        classes = self._classes[shard]
        place = mix64(np.arange(len(classes), dtype=U64), shard + 1)
        drawn = mix64(place ^ U64(epoch), self.seed) >> U64(64 - _BITS)
        return self.whole[classes] + (drawn.astype(np.int64) < self.part[classes])

    def rows_of_records(self, shards: Shards, holdout: Holdout | None, epoch: int) -> list[NDArray[Any]]:
        """Rows that each record contributes to an epoch, by shard."""
        by_shard = []
        for shard, rows in enumerate(shards.rows):
            copies = self.copies(shard, epoch)
            if holdout is not None:
                copies = copies * holdout.keeps(shard, len(copies))
            by_shard.append(by_record(rows, copies))
        return by_shard

    def most(self, shard: int) -> NDArray[np.int64]:
        """How often each row of a shard occurs in an epoch at most; int64 [rows]."""
        return (self.whole + (self.part > 0))[self._classes[shard]]

    def expected(self, shards: Shards, holdout: Holdout | None) -> int:
        """The mean number of rows in an epoch."""
        total = 0.0
        for shard, classes in enumerate(self._classes):
            rates = self._rates[classes]
            if holdout is not None:
                rates = rates * holdout.keeps(shard, len(classes))
            total += float(rates.sum())
        return round(total)


class Resampling:
    """`Resample` and the holdout in the graph."""

    def __init__(self, resample: Resample, shards: Shards, holdout: Holdout | None):
        self._resample = resample
        self._holdout_rows = HoldoutRows(holdout, shards)

    def __call__(self, rows: Batch, shard: tf.Tensor, number: tf.Tensor, epoch: tf.Tensor) -> Batch:
        """Repeat or drop rows of record `number` of a shard for the epoch."""
        resample = self._resample
        places, keep = self._holdout_rows.keeps(tf.shape(rows["label"], tf.int64)[0], shard, number)
        classes = tf.cast(rows["label"], tf.int32)
        place = hash_of(tf.cast(places, tf.uint64), tf.cast(shard + 1, tf.uint64))
        drawn = hash_of(tf.bitwise.bitwise_xor(place, tf.cast(epoch, tf.uint64)), resample.seed)
        drawn = tf.cast(tf.bitwise.right_shift(drawn, tf.constant(64 - _BITS, tf.uint64)), tf.int64)
        extra = tf.cast(drawn < tf.gather(resample.part, classes), tf.int64)
        copies = (tf.gather(resample.whole, classes) + extra) * tf.cast(keep, tf.int64)
        if resample.weights is not None:
            factor = tf.gather(tf.constant(resample.weights, tf.float32), classes)
            rows = rows | {"weight": rows["weight"] * factor}
        order = tf.repeat(tf.range(tf.size(copies)), copies)
        return {name: tf.gather(value, order) for name, value in rows.items()}
