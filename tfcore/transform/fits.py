"""Whether a column can go through the operations that the pipeline says, by its type alone; TensorFlow-free.

check(Column(name="origin", type="bytes", nullable=True), (Standardize(),), where="columns.origin")   # ConfigError
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headway.errors import ConfigError
from headway.schema import Column
from tfcore.transform.config import CATEGORICAL, OPS, ColumnTransform, Hash, Image, Op, Vocabulary

_HOLDS = {"bytes": "text", "int64": "integers", "float32": "real numbers"}
_WORDS = ("vocabulary", "hash")


def check_all(columns: Sequence[Column], transforms: Mapping[str, ColumnTransform], *, where: str) -> None:
    """ConfigError for the first feature whose operations do not go with its type."""
    for column in columns:
        config = transforms.get(column.name)
        if column.role == "feature" and config is not None and config.transform != "auto":
            check(column, config.transform, where=f"{where}: columns.{column.name}")


def check(column: Column, chain: Sequence[Op], *, where: str) -> None:
    """ConfigError when an operation does not go with the column's type, or with those beside it."""
    holds = f"column {column.name!r} holds {'lists of ' * bool(column.shape)}{_HOLDS[column.type]}"
    fix = f"use {_either(fitting(column))}"
    if isinstance(chain[-1], Image):
        if column.type != "bytes" or column.shape or len(chain) > 1:
            raise ConfigError(
                f"an image is the bytes of one file a row, and stands alone; {holds}", where=where, fix=fix
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
                f"{chain[-1].op} takes the raw value, so it stands alone", where=where, fix="leave the others out"
            )


def fitting(column: Column) -> list[str]:
    """The operations that a column of this type may go through."""
    if column.type == "bytes":
        return [*_WORDS] if column.shape else [*_WORDS, "image"]
    numeric = [name for name in OPS if name not in (*CATEGORICAL, "image")] + ["bucketize"]
    return numeric if column.type == "float32" else [*numeric, *_WORDS]


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
