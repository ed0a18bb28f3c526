"""Shards in memory: the records of a table, read in the same way as those of files.

    held = hold(table, columns, rows_per_record=4096, shards=1)
    HeldRecords(held)(shard)                        # (shard, number, record) as `tfcore.data.reader` reads them

The same rows in the same records come in the same order and through the same graph as from files, so what is learned has
the same bits. A record is encoded once, and costs about its bytes in memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import tensorflow as tf

from headway.records.encode import ROWS_PER_RECORD, encode_records
from headway.records.grouping import grouper, pieces
from headway.schema.columns import UNIT, Column
from tfcore.data.shards import Shards


@dataclass(frozen=True)
class InMemoryShards(Shards):
    """`Shards` whose records are in memory; its paths are names for messages only."""

    records: tuple[tuple[bytes, ...], ...] = ()
    """By shard."""


def hold(
    table: pa.Table, columns: Sequence[Column], *, rows_per_record: int = ROWS_PER_RECORD, shards: int = 1
) -> InMemoryShards:
    """Cut a table of stored columns, with `UNIT_COLUMN` or without it, into `shards` of equal length and records of
    `rows_per_record` rows, fewer of large ones, as ingest cuts them. With a group column neither cuts a group."""
    records, rows = [], []
    for piece in pieces(table, columns, shards):
        cut = grouper(rows_per_record, columns)
        groups = [*(group for batch in piece.to_batches() for group in cut.add(batch)), *cut.finish()]
        encoded = (record for part, sizes in groups for record in encode_records(part, sizes, columns))
        records.append(tuple(b"".join(record) for record in encoded))
        rows.append(tuple(size for _, sizes in groups for size in sizes))
    names = tuple(f"memory, part {number}" for number in range(len(records)))
    stored = tuple(column for column in columns if column.name != UNIT)
    return InMemoryShards(
        names,
        tuple(rows),
        stored,
        unit=len(stored) < len(columns),
        records=tuple(records),
    )


class HeldRecords:
    """The records of in-memory shards as tensors, made outside any graph, so that no graph holds a copy."""

    def __init__(self, shards: InMemoryShards):
        self._records = tf.constant([record for shard in shards.records for record in shard], tf.string)
        counts = [len(shard) for shard in shards.records]
        self._begin = tf.constant(np.concatenate([[0], np.cumsum(counts)]), tf.int64)

    def __call__(self, shard: tf.Tensor) -> tf.data.Dataset:
        """The dataset of (shard, number, record) of one shard."""
        first, count = self._begin[shard], self._begin[shard + 1] - self._begin[shard]
        return tf.data.Dataset.range(count).map(lambda number: (shard, number, self._records[first + number]))
