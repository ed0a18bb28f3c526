"""A schema from the first rows of the first span.

    schema, notes = infer(open_source(config).prefix(files, PREFIX_ROWS), pipeline_columns, used={"arr_delay"})

What a prefix shows is no promise: a column without nulls there may hold nulls later, so every inferred column is
nullable unless the pipeline says otherwise. A string column with few values has them recorded as its domain.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from headway.errors import ConfigError
from headway.schema import STORED, Column, ColumnConfig, Schema, StoredType, suggest

PREFIX_ROWS = 100_000
DOMAIN_VALUES = 50
"""String columns with more values than this in the prefix get no domain."""


def infer(
    prefix: pa.Table, configs: Mapping[str, ColumnConfig], *, only: bool, needed: frozenset[str], where: str
) -> tuple[Schema, list[str]]:
    """The schema of `prefix`, and sentences about the columns that were left out.

    Args:
        configs: what the pipeline says of single columns; wins over what the prefix shows.
        only: take the configured and needed columns only, rather than all there are.
        needed: columns that the label, the split or the filter reads.

    Raises:
        ConfigError: a column that does not exist, or whose type Headway cannot store.
    """
    names = list(prefix.column_names)
    for name in [*configs, *sorted(needed)]:
        if name not in names:
            raise ConfigError(f"there is no column {name!r} in the source", where=where, fix=suggest(name, names))
    columns, domains, required, notes = [], {}, [], []
    for name in names:
        config = configs.get(name)
        wanted = name in needed or (config is not None and config.role != "ignore")
        if config is not None and config.role == "ignore" and name not in needed:
            continue
        if only and not wanted:
            continue
        values = prefix.column(name)
        kind = STORED[config.type] if config is not None and config.type else _stored(values.type)
        if kind is None or "/" in name:
            why = (
                "its name holds '/'"
                if "/" in name
                else "it is empty"
                if pa.types.is_null(values.type)
                else f"its type {values.type} cannot be stored"
            )
            if wanted:
                raise ConfigError(
                    f"column {name!r} cannot be used: {why}", where=where, fix="give it a type, or leave it out"
                )
            notes.append(f"column {name!r} is left out: {why}")
            continue
        nullable = config.nullable if config is not None and config.nullable is not None else True
        encoding = "dictionary" if kind == "bytes" else "plain"
        columns.append(Column(name=name, type=kind, nullable=nullable, encoding=encoding))  # type: ignore[arg-type]
        if not values.null_count and len(values):
            required.append(name)
        if kind == "bytes" and (domain := _domain(values)):
            domains[name] = domain
    return Schema(columns=tuple(columns), domains=domains, required=tuple(required)), notes


def _stored(kind: pa.DataType) -> StoredType | None:
    if pa.types.is_dictionary(kind):
        return _stored(kind.value_type)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "float32"
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind):
        return "int64"
    if (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    ):
        return "bytes"
    return None


def _domain(values: pa.ChunkedArray) -> tuple[str, ...]:
    """The distinct values, sorted, when there are few and they recur."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    try:
        distinct = pc.unique(pc.drop_null(values.cast(pa.string())))
    except pa.ArrowInvalid:  # not text
        return ()
    if not 0 < len(distinct) <= DOMAIN_VALUES or len(distinct) * 5 > len(values):
        return ()
    return tuple(sorted(distinct.to_pylist()))
