"""Columns of a schema: stored type, nullability, role, domain.

    schema = Schema(columns=(Column(name="carrier", type="bytes", nullable=False),))
    schema.column("carrier").encoding          # "dictionary"

There are few stored types, and values are computed in the same types: int64, float32 and bytes. Booleans are stored as 0/1, dates
as days, timestamps as microseconds since the epoch, decimals and doubles as float32, text as UTF-8 bytes. A column holds one
value per row (shape `()`), always n of them (`(n,)`, a vector), or any number (`(None,)`, a list).
`headway.schema_inference.column_types` infers a schema. `headway.schema.pbtxt` keeps it beside a pipeline.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from headway.config import Frozen
from headway.errors import ConfigError
from headway.messages import did_you_mean, some
from headway.schema.calendar_days import Temporal
from headway.schema.parse_rules import Parse

StoredType = Literal["int64", "float32", "bytes"]
Role = Literal["feature", "weight", "key", "time", "group", "passthrough", "ignore", "label"]
Meaning = Literal["identifier", "category"]
"""Whether integers or texts that name things are identifiers or categories (`headway.schema_inference.identifiers`)."""
LABEL = "label"
"""The name under which the label is stored."""
UNIT = "/unit"
"""The name of the column with each row's unit, an int64 code: rows of a unit, such as a customer, go into one split. A null is a
unit by itself. Without the column, rows were split one by one. A column of the data may have no slash in its name."""
ARROW: dict[str, pa.DataType] = {
    "int64": pa.int64(),
    "float32": pa.float32(),
    "bytes": pa.binary(),
    "float64": pa.float64(),
}
"""The Arrow type of each stored type. float64 is for `Column.in_float64` only; records do not hold it."""
STORED: dict[str, StoredType] = {"int": "int64", "float": "float32", "string": "bytes"}
"""The stored type for each word that a config uses for a type."""
_LISTED = 40
"""The most names that a fix lists. For further names it says how many there are."""
_PLAIN_NAME = re.compile(r"(?!(?i:yes|no|on|off|true|false|null)$)[A-Za-z_][\w.-]*", re.ASCII)
"""A pattern for names that need no quotes as a key in YAML."""


Shape = tuple[()] | tuple[int | None]


class ColumnConfig(Frozen):
    """The config of one column. `type`, `shape`, `parse` and `nullable` are inferred if not set."""

    type: Literal["int", "float", "string"] | None = Field(
        default=None, description="int, float or string, whatever the sample shows; none: inferred"
    )
    shape: Literal["scalar", "list"] | Annotated[int, Field(ge=1, le=1 << 20)] | None = Field(
        default=None, description="scalar, list (any number of values per row), or the length of a vector"
    )
    separator: str | None = Field(
        default=None, min_length=1, description="between the values of a list in text, such as 'Comedy|Drama'"
    )
    parse: Parse | None = Field(
        default=None,
        description="how text becomes a number or a date: number, decimal_comma, boolean, date, timestamp, text, or the form "
        "of a date such as '%d/%m/%Y'; default: what the sample shows",
    )
    role: Literal["feature", "weight", "key", "time", "group", "passthrough", "ignore"] = Field(
        default="feature",
        description="feature: the model learns from it; weight: how much a row counts; key: says which row it is; time: "
        "when it was; group: rows that belong together; passthrough: kept beside predictions; ignore: not "
        "stored",
    )
    feature: bool | None = Field(
        default=None,
        description="whether a group, key, time or weight is a feature too; or write role: [group, feature]",
    )
    nullable: bool | None = Field(
        default=None,
        description="whether nulls are allowed; false: a row with a null is rejected; default: as inferred",
    )

    @model_validator(mode="before")
    @classmethod
    def _several_roles(cls, value: Any) -> Any:
        """Split a list such as `role: [group, feature]` into `role: group` and `feature: true`."""
        if not isinstance(value, dict) or not isinstance(value.get("role"), list | tuple):
            return value
        roles = list(value["role"])
        others = [role for role in roles if role != "feature"]
        if len(roles) != len({*map(str, roles)}) or len(others) > 1 or not roles:
            raise ValueError(f"role: {roles} is not one role, or one role and feature, such as [group, feature]")
        return {**value, "role": others[0] if others else "feature"} | ({"feature": True} if "feature" in roles else {})

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.feature and self.role in ("ignore", "passthrough"):
            raise ValueError(f"a column with the role {self.role} is not a feature: leave out one of them")
        if self.feature is False and self.role == "feature":
            raise ValueError("role: feature and feature: false contradict each other; say role: ignore to leave it out")
        if self.parse is not None:
            if self.shape not in (None, "scalar"):
                raise ValueError("parse reads one value per row; leave out shape, or parse")
            if self.type not in (None, "string") and self.parse.as_ == "text":
                raise ValueError(f"parse: text keeps the text as it is; leave out parse, or type: {self.type}")
            if self.type == "string" and self.parse.as_ != "text":
                raise ValueError("type: string keeps the text as it is; leave out parse, or the type")
            if self.type == "float" and self.parse.temporal:
                raise ValueError(f"parse: {self.parse.as_} makes integers; leave out type: float")
        if self.separator is not None and self.shape in (None, "scalar"):
            raise ValueError("a separator splits text into a list: set shape: list too, or the length of the vector")
        return self

    def stored_shape(self) -> Shape | None:
        """Returns the configured shape in the form of `Column.shape`; None if the files decide it."""
        if self.shape is None:
            return None
        return () if self.shape == "scalar" else (None,) if self.shape == "list" else (self.shape,)


class Column(Frozen):
    """One stored column: its name, its type, and how its raw values become stored ones."""

    name: str
    type: StoredType
    nullable: bool
    role: Role = "feature"
    encoding: Literal["plain", "dictionary"] = "plain"
    """How records encode the values, or the elements of lists and vectors: as they are, or as indices into a dictionary."""
    shape: Shape = ()
    """The shape of a row's value: `()` for one value, `(n,)` for n values, `(None,)` for any number."""
    separator: str | None = None
    """The text between the values of a list, if the files hold lists as text."""
    parse: Parse | None = None
    """The rule by which text in the files becomes a stored number. None: only plain numbers are read."""
    null: tuple[str, ...] | None = None
    """The texts that mean a missing value, in files and requests. None: only the null words of `source.csv` do."""
    temporal: Temporal | None = None
    """The unit of integers that are dates or times, such as days since 1970-01-01; None for other columns."""
    meaning: Meaning | None = None
    """Whether the column holds identifiers or categories, as `headway.schema_inference.identifiers` infers; None: neither."""
    feature: bool = False
    """Whether the model learns from the column although the column has another role than feature."""
    since: str | None = None
    """The first span whose files have the column. In files of earlier spans without the column, its values are missing."""

    @field_validator("name")
    @classmethod
    def _no_slash(cls, name: str) -> str:
        if "/" in name or not name:
            raise ValueError("a column's name may not be empty or hold '/', which separates the parts of a record")
        return name

    @model_validator(mode="after")
    def _dictionaries_are_bytes(self) -> Self:
        if self.encoding == "dictionary" and self.type != "bytes":
            raise ValueError(f"column {self.name!r}: only bytes can be dictionary encoded, not {self.type}")
        return self

    @property
    def is_feature(self) -> bool:
        """Whether the column is an input of the model."""
        return self.role == "feature" or self.feature

    @property
    def names_things(self) -> bool:
        """Whether the column's integers are names rather than quantities. The sample decides, or the role: group and key are
        names."""
        if self.type != "int64" or self.shape or self.temporal:
            return False
        return self.meaning == "category" or self.role in ("group", "key")

    @property
    def is_list(self) -> bool:
        """Whether each row may hold any number of values."""
        return self.shape == (None,)

    @property
    def length(self) -> int | None:
        """The number of values per row of a vector; None for other columns."""
        return self.shape[0] if self.shape else None

    @property
    def element(self) -> Self:
        """The scalar column of the elements of a list or vector. A scalar column is returned as it is."""
        changes = {"shape": (), "separator": None, "nullable": False, "parse": None, "null": None}
        return self.model_copy(update=changes) if self.shape else self

    @property
    def in_float64(self) -> Self:
        """The column with float64 in place of float32: for values that are copied or compared, and must not be rounded."""
        return self.model_copy(update={"type": "float64"}) if self.type == "float32" else self

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the stored column, without dictionary encoding."""
        element = ARROW[self.type]
        return element if not self.shape else pa.list_(element, self.length) if self.length else pa.list_(element)


UNIT_COLUMN = Column(name="unit", type="int64", nullable=True, role="key").model_copy(update={"name": UNIT})
"""The column in which records hold each row's unit. It is not in the schema, so that nothing learns from it."""


class Schema(Frozen):
    """The stored columns in the order of the source, and the known ranges and domains of their values."""

    columns: tuple[Column, ...]
    ranges: dict[str, tuple[float | None, float | None]] = Field(default_factory=dict)
    """By column: the least and the greatest value that the schema file allows. None: no such bound."""
    domains: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """By string column with few values: all of them."""
    required: tuple[str, ...] = ()
    """The columns that must have a value in every row, as the schema file says."""
    split: tuple[Column, ...] = ()
    """The columns that a split without a key hashes, in the types of the files. Empty: no split has needed them yet."""
    split_by_place: bool = False
    """Whether a split without a key also hashes each row's position in its span, because few of the rows are distinct."""

    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name()

    def column(self, name: str) -> Column:
        """Returns the column called `name`. If there is none, raises ConfigError, which suggests a known name."""
        column = self._by_name().get(name)
        if column is None:
            raise no_column(name, self.names())
        return column

    def _by_name(self) -> dict[str, Column]:
        # asked for each of thousands of columns, it may not look through all of them each time
        cached = self.__dict__.get("_named")
        if cached is None or cached[0] is not self.columns:  # a copy with other columns takes everything along
            cached = self.__dict__["_named"] = (self.columns, {c.name: c for c in reversed(self.columns)})
        return cached[1]

    def digest(self) -> str:
        """Returns the SHA-256 of everything in the schema, in hex."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def named_for(columns: Sequence[Column], role: Role) -> str | None:
    """Returns the name of the first column with this role; None if there is none."""
    return next((column.name for column in columns if column.role == role), None)


def column_yaml(names: str | Sequence[str], what: str, *, auto: bool | None = None) -> str:
    """Returns the YAML, for messages, that gives the columns `names` the setting `what`, such as `columns: {fare: ignore}`.

    Args:
        auto: whether the pipeline takes all columns (`columns: auto`). If so, `"*": auto` stands beside the named columns;
            without it there would be no others. None: it is not known, and both ways are given.
    """
    keys = [
        name if _PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)
        for name in ([names] if isinstance(names, str) else names)
    ]
    settings = ", ".join(f"{key}: {what}" for key in keys)
    every = f'{{"*": auto, {settings}}}'
    if auto is None:
        return f"columns: {{{settings}}}, or {every} if columns is auto"
    return f"columns: {every}" if auto else f"columns: {{{settings}}}"


def no_column(name: str, names: Sequence[str], where: str | None = None) -> ConfigError:
    """Returns the error for an unknown column name."""
    return ConfigError(f"there is no column {name!r}", where=where, fix=suggest(name, list(names)))


def suggest(name: str, names: list[str], cutoff: float = 0.6) -> str:
    """Returns the fix for an unknown name: the most similar known name, or if none is similar a list of up to 40 known names."""
    return did_you_mean(name, names, f"there is: {some(names, _LISTED)}", cutoff)


_TYPES: dict[StoredType, str] = {"int64": "integer", "float32": "number", "bytes": "text"}


def type_text(column: Column) -> str:
    """Returns the type of a column in words, such as "integer", "time" or "list of texts"."""
    kind = _TYPES[column.type] if column.temporal is None else "date" if column.temporal == "date" else "time"
    if column.is_list:
        return f"list of {kind}s"
    return f"vector of {column.length} {kind}s" if column.length is not None else kind
