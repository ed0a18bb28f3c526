"""What the columns are: their stored type, whether they may be null, their role, their domain.

    schema = Schema(columns=(Column(name="carrier", type="bytes", nullable=False),))
    schema.column("carrier").encoding          # "dictionary"

Stored types are few on purpose, and computed types are the same: int64, float32 and bytes. Booleans are stored as 0/1,
dates as days, timestamps as microseconds since the epoch, decimals and doubles as float32, text as UTF-8 bytes.
How a schema is inferred stands in `headway.infer`, how it is kept beside a pipeline in `headway.schema_file`.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from typing import Literal

import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from headway.config import Frozen
from headway.errors import ConfigError

StoredType = Literal["int64", "float32", "bytes"]
Role = Literal["feature", "weight", "key", "time", "group", "passthrough", "ignore", "label"]
LABEL = "label"
"""The name that the label is stored under."""
ARROW: dict[str, pa.DataType] = {"int64": pa.int64(), "float32": pa.float32(), "bytes": pa.binary()}
STORED: dict[str, StoredType] = {"int": "int64", "float": "float32", "string": "bytes"}
"""Config words to stored types."""


class ColumnConfig(Frozen):
    """What a pipeline may say of one column; what it leaves out is inferred."""

    type: Literal["int", "float", "string"] | None = None
    role: Literal["feature", "weight", "key", "time", "group", "passthrough", "ignore"] = "feature"
    nullable: bool | None = None


class Column(Frozen):
    """One stored column."""

    name: str
    type: StoredType
    nullable: bool
    role: Role = "feature"
    encoding: Literal["plain", "dictionary"] = "plain"

    @field_validator("name")
    @classmethod
    def _no_slash(cls, name: str) -> str:
        if "/" in name or not name:
            raise ValueError("a column's name may not be empty or hold '/', which separates the parts of a record")
        return name

    @model_validator(mode="after")
    def _dictionaries_are_bytes(self) -> Column:
        if self.encoding == "dictionary" and self.type != "bytes":
            raise ValueError(f"column {self.name!r}: only bytes can be dictionary encoded, not {self.type}")
        return self

    @property
    def arrow(self) -> pa.DataType:
        return ARROW[self.type]


class Schema(Frozen):
    """Columns in the order of the source, with what is known of their values."""

    columns: tuple[Column, ...]
    ranges: dict[str, tuple[float | None, float | None]] = Field(default_factory=dict)
    """Least and greatest value by column, where the schema file bounds them."""
    domains: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """The values of string columns with few of them."""
    required: tuple[str, ...] = ()
    """Columns whose presence the schema file demands in every row."""

    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def __contains__(self, name: str) -> bool:
        return any(column.name == name for column in self.columns)

    def column(self, name: str) -> Column:
        """The column called `name`; ConfigError naming the known ones."""
        for column in self.columns:
            if column.name == name:
                return column
        raise ConfigError(f"there is no column {name!r}", fix=suggest(name, self.names()))

    def digest(self) -> str:
        """SHA-256 of everything in the schema, hex."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def suggest(name: str, known: list[str]) -> str:
    """A fix for a name that does not exist."""
    close = difflib.get_close_matches(name, known, 1)
    listed = ", ".join(known[:30]) + (f" and {len(known) - 30} more" if len(known) > 30 else "")
    return f"did you mean {close[0]!r}?" if close else f"there is: {listed}"
