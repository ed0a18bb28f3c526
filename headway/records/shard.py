"""A shard that takes rows in batches, and writes them as row groups.

shard = Shard(Path("train.tfrecord"), columns, 4096)
shard.add(batch)                                   # any number of them
shard.finish()                                     # the rows of each record, packed; `shard.bytes`
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from headway.records.encode import encode_records
from headway.records.grouping import Group, grouper
from headway.records.spec import packed
from headway.records.tfrecord import ShardWriter
from headway.schema.columns import Column


class Shard(ShardWriter):
    """Writes batches of stored columns. Its methods raise StoreError on a full disk, and DataError for a group too large."""

    def __init__(self, path: Path, columns: Sequence[Column], rows_per_record: int):
        super().__init__(path)
        self._columns = columns
        self._grouper = grouper(rows_per_record, columns)

    def add(self, batch: pa.RecordBatch) -> None:
        self._records(self._grouper.add(batch))

    def _records(self, groups: Iterator[Group]) -> None:
        for batch, sizes in groups:
            self.write_groups(encode_records(batch, sizes, self._columns), sizes)

    def finish(self) -> list[list[int]]:
        """Write the rows that wait, close the file, and return the rows of each record, packed."""
        self._records(self._grouper.finish())
        self.close()
        return packed(self.rows)
