"""The columns that decide the split, as tags of the schema file: `headway.split=FLOAT age`, `headway.split=BYTES[] genres`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from headway.errors import ConfigError
from headway.schema.columns import Column, StoredType

_TAG = "headway.split="
_KINDS: dict[StoredType, str] = {"int64": "INT", "float32": "FLOAT", "bytes": "BYTES"}
COMMENT = (
    "The split of a row is a hash of these columns (split.mode: hash without a key). Another list draws eval rows anew."
)


def split_column(name: str, kind: StoredType, *, listed: bool) -> Column:
    """A column as the split hashes it."""
    encoding: Literal["plain", "dictionary"] = "dictionary" if kind == "bytes" else "plain"
    return Column(name=name, type=kind, nullable=True, encoding=encoding, shape=(None,) if listed else ())


def to_tags(columns: Sequence[Column]) -> list[str]:
    """The columns as tags of a schema file: `headway.split=FLOAT age`, `headway.split=BYTES[] genres`."""
    return [f"{_TAG}{_KINDS[column.type]}{'[]' if column.shape else ''} {column.name}" for column in columns]


def from_tags(tags: Sequence[str], *, where: str) -> tuple[Column, ...]:
    """The columns of a schema file's tags; none when there are no such tags.

    Raises:
        ConfigError: a tag that says no type and name.
    """
    kinds = {word: kind for kind, word in _KINDS.items()}
    found: list[Column] = []
    for tag in tags:
        if not tag.startswith(_TAG):
            continue
        kind, _, name = tag.removeprefix(_TAG).partition(" ")
        listed = kind.endswith("[]")
        if kind.removesuffix("[]") not in kinds or not name or name in {column.name for column in found}:
            raise ConfigError(
                f"the tag {tag!r} does not name a column with its type, once",
                where=where,
                fix=f"write it as {_TAG}FLOAT age, or delete all such tags to draw eval rows anew",
            )
        found.append(split_column(name, kinds[kind.removesuffix("[]")], listed=listed))
    return tuple(found)
