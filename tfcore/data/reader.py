"""Reads the records of shards, whose checksums TensorFlow verifies, as raw columns, in manifest order or in an epoch's order.

    reader = Reader(shards, ["carrier", "label"])
    pieces = reader.in_epoch(plan, epoch, skip)          # or reader.in_order()
    pieces.map(lambda *piece: reader(*piece).columns, num_parallel_calls=AUTOTUNE)

A piece is cheap: serialized records and where they are stored. Records in memory (`tfcore.data.in_memory`) come in the order
in which those of files would.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfcore.data.decode import Decoder
from tfcore.data.in_memory import HeldRecords, InMemoryShards
from tfcore.data.order import Plan
from tfcore.data.shards import Shards
from tfcore.graph.python_op import numpy_op
from tfcore.runtime.remote_shards import here
from tfcore.transform.raw_column import RawColumn

READ_BYTES = 1 << 20


class Rows(NamedTuple):
    """The rows of a record, and where it is stored."""

    columns: dict[str, RawColumn]
    shard: tf.Tensor
    number: tf.Tensor


class Reader:
    """Reads the records of shards as raw columns; see the module.

    Args:
        wanted: the columns that are read.
        own: bool [shards]; the shards that are opened. Records of others come empty; None: all are opened.
    """

    def __init__(self, shards: Shards, names: Sequence[str], own: NDArray[np.bool_] | None = None):
        self._shards, self._own = shards, own
        self._decoder = Decoder(shards.record_columns, names)
        self._paths = tf.constant(shards.paths, tf.string)
        self._memory = HeldRecords(shards) if isinstance(shards, InMemoryShards) else None

    def in_order(self) -> tf.data.Dataset:
        """The dataset of pieces that cover every row, shard after shard."""
        return tf.data.Dataset.range(len(self._shards.paths)).flat_map(self._records)

    def in_epoch(self, plan: Plan, epoch: tf.Tensor, skip: tf.Tensor) -> tf.data.Dataset:
        """The dataset of pieces that cover an epoch's rows, from record `skip` (int64) of its sequence on."""

        def shard_order(epoch: int) -> NDArray[np.int64]:
            self._ahead(plan, epoch)
            return plan.shard_order(epoch)

        spec = tf.TensorSpec([len(self._shards.paths)], tf.int64)
        records = tf.data.Dataset.from_tensor_slices(numpy_op(shard_order, spec, stateful=self._staged)(epoch))
        return records.interleave(self._records, cycle_length=plan.cycle).skip(skip)

    def __call__(self, *piece: Any) -> Rows:
        """Read the rows of a piece."""
        shard, number, record = piece
        return Rows(self._decoder(record), shard, number)

    @property
    def _staged(self) -> bool:
        """Whether the shards are fetched from a bucket: then asking for an epoch's order also starts the fetching."""
        return self._shards.stager is not None

    def _ahead(self, plan: Plan, epoch: int) -> None:
        """Start to fetch the shards of this epoch and the next, in their orders, if they are not on this disk."""
        if self._staged:
            orders = (plan.shard_order(epoch), plan.shard_order(epoch + 1))
            self._shards.ahead(*(order if self._own is None else order[self._own[order]] for order in orders))

    def _records(self, shard: tf.Tensor) -> tf.data.Dataset:
        """The dataset of (shard, number, record) of one shard."""
        if self._memory is not None:
            return self._memory(shard)
        path = tf.gather(self._paths, shard)
        count = tf.gather(tf.constant([len(rows) for rows in self._shards.rows], tf.int64), shard)
        if self._own is None:
            records = tf.data.TFRecordDataset(here(path, self._shards.stager), buffer_size=READ_BYTES)
        else:
            own = tf.gather(self._own, shard)
            paths = here(tf.boolean_mask(path[None], own[None]), self._shards.stager)
            empty = tf.data.Dataset.range(tf.where(own, tf.zeros_like(count), count)).map(lambda _: "")
            records = tf.data.TFRecordDataset(paths, buffer_size=READ_BYTES).concatenate(empty)
        records = records.apply(
            tf.data.experimental.assert_cardinality(count)
        )  # else a shorter file is read as a whole one
        return records.enumerate().map(lambda number, record: (shard, number, record))
