"""Code that Parquet and Arrow files share: runs of row groups or batches, first rows, structs as columns of leaves.

leaves(schema)                          # {"id": ("id",), "a.b": ("a", "b")}: a struct `a` with a field `b`
pick(batch, {"a.b": ("a", "b")}, ["a.b"])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

import pyarrow as pa
import pyarrow.compute as pc

from headway.errors import DataError
from headway.sources.base import InputFile, NoRows, sampled, twice
from headway.sources.sample import Sample

Way = tuple[str, ...]


def leaves(schema: pa.Schema, path: str) -> dict[str, Way]:
    """The leaf columns of a file by their flat names, each with its path.

    Raises:
        DataError: two have the same name.
    """
    ways: list[Way] = []

    def walk(field: pa.Field, way: Way) -> None:
        if pa.types.is_struct(field.type):
            for inner in field.type:
                walk(inner, (*way, inner.name))
        else:
            ways.append(way)

    for field in schema:
        walk(field, (field.name,))
    names = [".".join(way) for way in ways]
    twice(names, path)
    return dict(zip(names, ways, strict=True))


def pick(batch: pa.RecordBatch, ways: Mapping[str, Way], names: Sequence[str]) -> pa.RecordBatch:
    """The named columns; a leaf of a struct that is null is null."""
    arrays = []
    for name in names:
        first, *rest = ways[name]
        array = batch.column(first)
        arrays.append(pc.struct_field(array, rest) if rest else array)
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def flat(table: pa.Table, path: str) -> pa.Table:
    """A batch with every leaf as a column."""
    ways = leaves(table.schema, path)
    if all(len(way) == 1 for way in ways.values()) and len(ways) == table.num_columns:
        return table
    names = list(ways)
    batches = [pick(batch, ways, names) for batch in table.to_batches()]
    whole = pa.Table.from_batches(batches) if batches else None
    return whole if whole is not None else pa.table({name: pa.nulls(0) for name in names})


def first_rows(
    files: Sequence[InputFile],
    rows: int,
    opened: Callable[[str], AbstractContextManager[tuple[int, Iterator[pa.RecordBatch]]]],
) -> Sample:
    """The first `rows` rows of some files, with every leaf of a struct as a column.

    Args:
        opened: opens a file: (the most rows to take with it, its batches).
    """
    tables: list[pa.Table] = []
    count = 0
    for file in files:
        batches: list[pa.RecordBatch] = []
        with opened(file.path) as (most, stream):
            rows = min(rows, most)
            for batch in stream:
                batches.append(batch)
                count += batch.num_rows
                if count >= rows:
                    break
        if batches:
            tables.append(flat(pa.Table.from_batches(batches), file.path))
        if count >= rows:
            break
    if not count:
        raise NoRows("the files hold no rows", where=files[0].path)
    return sampled(tables, rows)


def not_whole(kind: str, path: str, error: Exception, at: str) -> DataError:
    """The error of a file that cannot be read to its end."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return DataError(f"not a whole {kind} file, at {at}: {reason}", where=path, fix="write the file again")


def runs(counts: Sequence[int], most: int) -> Iterator[tuple[int, int, int]]:
    """(start, end, rows) of runs of row groups or batches: up to `most` rows, or one group that has more."""
    start = total = 0
    for i, count in enumerate(counts):
        if total and total + count > most:
            yield start, i, total
            start, total = i, 0
        total += count
    if total:
        yield start, len(counts), total
