"""Tables in memory, cut into shards and records.

for piece in pieces(table, columns, shards=2):
    record_parts(piece, columns, rows_per_record=4096)      # tables of a record each
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headway.records.grouping import Group, group_starts, grouper
from headway.schema.columns import Column, named_for


def pieces(table: pa.Table, columns: Sequence[Column], shards: int) -> list[pa.Table]:
    """A table cut into about equal lengths, at most `shards` of them, that are not empty."""
    length = max(1, -(-table.num_rows // shards))
    cuts = np.arange(0, table.num_rows, length)
    if group := named_for(columns, "group"):
        starts = group_starts(table.column(group).combine_chunks())
        cuts = np.unique(starts[np.searchsorted(starts, cuts, side="right") - 1]) if table.num_rows else cuts
    ends = np.append(cuts[1:], table.num_rows)
    return [table.slice(first, end - first).combine_chunks() for first, end in zip(cuts, ends, strict=False)]


def record_parts(piece: pa.Table, columns: Sequence[Column], rows_per_record: int) -> list[pa.Table]:
    """A table cut into records, as ingest cuts rows; without a group column every one but the last is full."""
    if named_for(columns, "group") is None:
        return [piece.slice(at, rows_per_record) for at in range(0, piece.num_rows, rows_per_record)]
    made, found = grouper(rows_per_record, columns), list[Group]()
    for batch in piece.to_batches():
        found += made.add(batch)
    parts = []
    for whole, sizes in [*found, *made.rest()]:
        ends = np.cumsum([0, *sizes])
        parts += [pa.Table.from_batches([whole.slice(end, size)]) for end, size in zip(ends, sizes, strict=False)]
    return parts
