"""A sample's columns of text that nearly always hold numbers, as the numbers they are: one odd row decides no type.

    table = as_numbers(table, names)
    told(table.schema.field("fare"))              # "1 of 400 sampled values is no number, such as 'n/a'", or None

Of a hundred values one may be odd, which is what `validation.max_quarantined` lets pass; a sample of fewer than a hundred
decides as it stands.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from headway.coerce import coerce
from headway.lists import flatten, is_list
from headway.schema import Column, StoredType

ONE_IN = 100
_KEY = b"headway.odd"
_FIRST = 4096


def as_numbers(table: pa.Table, names: Iterable[str]) -> pa.Table:
    """`table` with the named columns as int64 or float32 where all but a few values are numbers. What
    is wanted of a sample is types, so those columns hold nulls in the end."""
    for name in names:
        place = table.schema.get_field_index(name)
        column = table.column(place)
        values = (
            pa.chunked_array([flatten(chunk).values for chunk in column.chunks]) if is_list(column.type) else column
        )
        if not _is_text(values.type) or values.null_count == len(values):
            continue
        kind, odd = _kind(values.combine_chunks())
        if kind is None:
            continue
        example = f", such as {odd[0].as_py()!r}" if len(odd) else ""
        there = len(values) - values.null_count
        words = f"{len(odd):,} of {there:,} sampled values {'is' if len(odd) == 1 else 'are'} no number{example}"
        stored = Column(name=name, type=kind, nullable=True).arrow
        if is_list(column.type):
            stored = pa.list_(stored)
        field = pa.field(name, stored, metadata={_KEY: words.encode()} if len(odd) else None)
        table = table.set_column(place, field, pa.nulls(len(table), stored))
    return table


def told(field: pa.Field) -> str | None:
    """What was odd about a column; None when nothing was."""
    return (field.metadata or {}).get(_KEY, b"").decode() or None


def _kind(values: pa.Array) -> tuple[StoredType | None, pa.Array]:
    """The type that the values have, and the text of those that have not."""
    most = (len(values) - values.null_count) // ONE_IN
    for part in (values.slice(0, _FIRST), values):  # text mostly shows at once
        kinds: list[StoredType] = ["int64", "float32"]
        # true and false are integers only
        odd, _, kind = min((len(_odd(part, kind)), i, kind) for i, kind in enumerate(kinds))
        if odd > most:
            return None, pa.array([], pa.string())
    return kind, _odd(values, kind).column("value").combine_chunks()


def _odd(values: pa.Array, kind: StoredType) -> pa.Table:
    batch = pa.RecordBatch.from_arrays([values], names=["value"])
    return coerce(batch, [Column(name="value", type=kind, nullable=True)]).rejected


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind))
