"""Checks by type whether a column can go through the configured operations; TensorFlow-free.

check(Column(name="origin", type="bytes", nullable=True), (Standardize(),), where="columns.origin")   # ConfigError
"""

from collections.abc import Mapping, Sequence

from headway.errors import ConfigError
from headway.messages import listed
from headway.schema.calendar_days import CLOCK
from headway.schema.columns import Column
from tfcore.transform.config import CATEGORICAL, OPS, ColumnTransform, DateParts, Hash, Image, Op, Vocabulary

_HOLDS = {"bytes": "text", "int64": "integers", "float32": "real numbers"}
_WORDS = ("vocabulary", "hash")


def check_all(columns: Sequence[Column], transforms: Mapping[str, ColumnTransform], *, where: str) -> None:
    """Raise ConfigError for the first feature whose operations do not go with its type."""
    for column in columns:
        config = transforms.get(column.name)
        if column.is_feature and config is not None and config.transform != "auto":
            check(column, config.transform, where=f"{where}: columns.{column.name}")


def check(column: Column, chain: Sequence[Op], *, where: str) -> None:
    """Raise ConfigError for an operation that does not go with the column's type, or with its neighbours."""
    if isinstance(chain[-1], DateParts):
        _check_parts(column, chain[-1], where)
        return
    holds = f"column {column.name!r} holds {'lists of ' * bool(column.shape)}{_HOLDS[column.type]}"
    fix = f"use {listed(fitting(column), 'or')}"
    if isinstance(chain[-1], Image):
        if column.type != "bytes" or column.shape or len(chain) > 1:
            raise ConfigError(
                f"image needs the bytes of one file per row and no other operation; {holds}", where=where, fix=fix
            )
        return
    if column.type == "bytes":
        wrong = next((op.op for op in chain if op.op not in _WORDS), None)
        if wrong is not None:
            as_number = f"; or read the column as a number: {column.name}: {{type: float, transform: {wrong}}}"
            raise ConfigError(f"{wrong} needs numbers, and {holds}", where=where, fix=fix + as_number)
    if isinstance(chain[-1], Vocabulary | Hash):
        if column.type == "float32":
            raise ConfigError(f"{chain[-1].op} needs text or integers, and {holds}", where=where, fix=fix)
        if len(chain) > 1:
            raise ConfigError(
                f"{chain[-1].op} takes the raw value, so no operation comes before it",
                where=where,
                fix="leave the others out",
            )


def _check_parts(column: Column, op: DateParts, where: str) -> None:
    if column.temporal is None or column.shape:
        raise ConfigError(
            f"date_parts needs a date or a time, and column {column.name!r} holds "
            f"{'lists of ' * bool(column.shape)}{_HOLDS[column.type]}",
            where=where,
            fix="set how it is parsed: parse: date, parse: timestamp, a form such as parse: '%d/%m/%Y', or of numbers that "
            "count the time since 1970 parse: epoch_seconds (and delete the schema file if it was inferred before)",
        )
    clock = [part for part in op.parts if part in CLOCK]
    if column.temporal == "date" and clock:
        raise ConfigError(
            f"column {column.name!r} holds dates, which have no {clock[0]}", where=where, fix="leave it out"
        )


def fitting(column: Column) -> list[str]:
    """The operations that a column of this type may use."""
    if column.type == "bytes":
        return [*_WORDS] if column.shape else [*_WORDS, "image"]
    numeric = [name for name in OPS if name not in (*CATEGORICAL, "image", "date_parts")] + ["bucketize"]
    return numeric if column.type == "float32" else [*numeric, *_WORDS]
