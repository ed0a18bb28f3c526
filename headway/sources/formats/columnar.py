"""Code that Parquet and Arrow files share: runs of row groups or batches, first rows, structs as columns of leaves.

leaves(schema)                          # {"id": ("id",), "a.b": ("a", "b")}: a struct `a` with a field `b`
pick(batch, {"a.b": ("a", "b")}, ["a.b"])
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

import pyarrow as pa
import pyarrow.compute as pc

from headway.errors import DataError
from headway.messages import some
from headway.schema.columns import column_yaml
from headway.sources.base import InputFile, NoRows, sampled, twice
from headway.sources.sample import Sample
from headway.tabular.list_arrays import decoded, flatten, is_list, plain, value_type

Way = tuple[str, ...]
_NAMED = 3
INTERVAL = pa.month_day_nano_interval()
"""The type of every kind of interval in a sample: none can be stored."""


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
    """The named columns in plain types; a leaf of a struct that is null is null."""
    arrays = []
    for name in names:
        first, *rest = ways[name]
        try:
            array = batch.column(first)
            arrays.append(plain(pc.struct_field(array, rest) if rest else array))
        except KeyError:  # pyarrow has no arrays of some intervals
            arrays.append(pa.nulls(batch.num_rows, INTERVAL))
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def flat(table: pa.Table, path: str) -> pa.Table:
    """A table with every leaf as a column; text that is not UTF-8 is bytes."""
    ways = leaves(table.schema, path)
    names = list(ways)
    batches = [pick(batch, ways, names) for batch in table.to_batches()]
    if not batches:
        return pa.table({name: pa.nulls(0) for name in names})
    columns = dict(zip(names, pa.Table.from_batches(batches).columns, strict=True))
    return pa.table({name: _bytes_unless_text(column) for name, column in columns.items()})


def _bytes_unless_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column as it is; as bytes where some of its text is not UTF-8."""
    kind, raw = column.type, pa.binary()
    words = kind.value_type if is_list(kind) else value_type(kind)
    if not (pa.types.is_string(words) or pa.types.is_large_string(words)):
        return column
    try:
        for chunk in column.chunks:
            values = flatten(chunk).values if is_list(kind) else decoded(chunk)
            values.cast(pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid:
        listed = pa.list_(raw, kind.list_size) if pa.types.is_fixed_size_list(kind) else pa.list_(raw)
        coded = pa.dictionary(kind.index_type, raw) if pa.types.is_dictionary(kind) else raw
        return column.cast(listed if is_list(kind) else coded)
    return column


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
        raise NoRows("the files hold no rows", where=files[0].path, fix="name files with rows")
    return sampled(tables, rows)


def not_whole(kind: str, path: str, error: Exception, at: str, columns: Collection[str] = ()) -> DataError:
    """The error of a file that cannot be read to its end, because of some `columns` if they are known."""
    fix, names = "write the file again", list(columns)
    if names:
        at += f", {'column' if len(names) == 1 else 'columns'} {some(names, _NAMED, repr)}"
        fix += f", or leave out what cannot be read: {column_yaml(names[:_NAMED], 'ignore')}"
    return DataError(f"not a whole {kind} file, at {at}: {reason_of(error)}", where=path, fix=fix)


def reason_of(error: Exception) -> str:
    """The first line of an error."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


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
