"""Row groups of very wide Parquet files, read some columns at a time: a reader of all columns at once holds a compressed
chunk, a page and a dictionary of each, three times what the rows themselves take.

    for batch in by_columns(parquet, group, ways, columns, rows): ...     # as `iter_batches` of that row group would give

Rows beyond `HELD_BYTES` wait in temporary Arrow files (in TMPDIR), a file for each set of columns, and are read back batch
by batch; so memory is of one set of columns, or of one batch, however long a row group is.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headway.sources.formats.columnar import Way, pick
from headway.tabular.list_arrays import as_batch

WIDE = 256
"""From so many columns on."""
SET_BYTES, HELD_BYTES = 12 << 20, 32 << 20
_MOST = 512
"""Columns of a set."""


def by_columns(
    parquet: pq.ParquetFile, group: int, ways: Mapping[str, Way], columns: Sequence[str], rows: int
) -> Iterator[pa.RecordBatch]:
    """The named columns of a row group, in batches of `rows` rows."""
    sets, size = _sets(parquet, group, ways, columns)
    if size <= HELD_BYTES:
        held = [_read(parquet, group, ways, names) for names in sets]
        count = parquet.metadata.row_group(group).num_rows
        for start in range(0, count, rows):
            yield _side_by_side([as_batch(table.slice(start, rows)) for table in held], columns)
        return
    with tempfile.TemporaryDirectory(prefix="headway-") as folder:
        files = [Path(folder) / str(i) for i in range(len(sets))]
        for path, names in zip(files, sets, strict=True):
            table = _read(parquet, group, ways, names)
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                for start in range(0, table.num_rows, rows):
                    writer.write_batch(as_batch(table.slice(start, rows)))
            del table
        readers = [pa.ipc.open_file(pa.OSFile(str(path))) for path in files]
        for i in range(readers[0].num_record_batches):
            yield _side_by_side([reader.get_batch(i) for reader in readers], columns)


def _sets(
    parquet: pq.ParquetFile, group: int, ways: Mapping[str, Way], columns: Sequence[str]
) -> tuple[list[list[str]], int]:
    """The columns in sets that take up to about `SET_BYTES` each, and what all of them take."""
    metadata = parquet.metadata.row_group(group)
    sizes: dict[str, int] = {}
    for place in range(metadata.num_columns):
        chunk = metadata.column(place)
        top = chunk.path_in_schema.split(".")[0]
        # a dictionary's codes take less in the file than the values do afterwards
        sizes[top] = sizes.get(top, 0) + max(chunk.total_uncompressed_size, 8 * metadata.num_rows)
    sets: list[list[str]] = []
    held, whole = SET_BYTES, 0
    # fields of one struct stay together: they come as one column
    for top, names in itertools.groupby(sorted(columns, key=lambda name: ways[name][0]), lambda name: ways[name][0]):
        size = sizes.get(top, 0)
        if not sets or held + size > SET_BYTES or len(sets[-1]) >= _MOST:
            sets.append([])
            held = 0
        sets[-1] += names
        held += size
        whole += size
    return sets, whole


def _read(parquet: pq.ParquetFile, group: int, ways: Mapping[str, Way], names: list[str]) -> pa.Table:
    table = parquet.read_row_group(group, columns=names, use_threads=False).unify_dictionaries()
    if all(len(ways[name]) == 1 for name in names):
        return table.select(names)
    return pa.Table.from_batches([pick(batch, ways, names) for batch in table.to_batches()])


def _side_by_side(batches: Sequence[pa.RecordBatch], columns: Sequence[str]) -> pa.RecordBatch:
    arrays = {name: array for batch in batches for name, array in zip(batch.schema.names, batch.columns, strict=True)}
    return pa.RecordBatch.from_arrays([arrays[name] for name in columns], names=list(columns))
