"""Columns of structs by their leaves: a struct `a` with a field `b` is a column `a.b`.

leaves(schema)                          # {"id": ("id",), "a.b": ("a", "b")}
pick(batch, {"a.b": ("a", "b")}, ["a.b"])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headway.sources.base import twice

Way = tuple[str, ...]


def leaves(schema: pa.Schema, path: str) -> dict[str, Way]:
    """The columns of a file by their flat names, each with the way to it.

    Raises:
        DataError: two have the same name.
    """
    found: list[Way] = []

    def walk(field: pa.Field, way: Way) -> None:
        if pa.types.is_struct(field.type):
            for inner in field.type:
                walk(inner, (*way, inner.name))
        else:
            found.append(way)

    for field in schema:
        walk(field, (field.name,))
    names = [".".join(way) for way in found]
    twice(names, path)
    return dict(zip(names, found, strict=True))


def pick(batch: pa.RecordBatch, ways: Mapping[str, Way], names: Sequence[str]) -> pa.RecordBatch:
    """The named columns; what lies in a struct that is null is null."""
    arrays = []
    for name in names:
        first, *rest = ways[name]
        array = batch.column(first)
        arrays.append(pc.struct_field(array, rest) if rest else array)
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def flat(table: pa.Table, path: str) -> pa.Table:
    """Every leaf as a column."""
    ways = leaves(table.schema, path)
    if all(len(way) == 1 for way in ways.values()) and len(ways) == table.num_columns:
        return table
    names = list(ways)
    batches = [pick(batch, ways, names) for batch in table.to_batches()]
    whole = pa.Table.from_batches(batches) if batches else None
    return whole if whole is not None else pa.table({name: pa.nulls(0) for name in names})
