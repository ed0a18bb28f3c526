"""Parse rules: convert a column's values to numbers, dates or times. A rule is frozen in the schema and applied to every value.

    rule = Parse.model_validate("number")                # "$1,234.50", "(12)", "12.3%", "1 234"
    rule = Parse.model_validate("%d/%m/%Y")              # a date of that form
    made, wrong = parsed(texts, rule)                    # plain numbers as text, or int64; a mask of texts that do not fit

| rule | text | stored |
| --- | --- | --- |
| number | `1,234.5` `1 234` `$1,234.50` `12 EUR` `(12)` `12.3%` | 1234.5, 1234, 1234.5, 12, -12, 12.3 |
| number, with unit kg | `12 kg` `3.5kg` | 12, 3.5 |
| abbreviated | `1.2M` `300k` `$2bn` | 1.2e6, 300e3, 2e9 |
| duration | `1:02:03` `14:35` `2:35 PM` `2h 50m` | 3723, 52500, 52500, 10200: seconds |
| decimal_comma | `1.234,50 €` `12,3 %` | 1234.5, 12.3 |
| boolean | yes/no, y/n, true/false, t/f, on/off, 1/0 | 1, 0 |
| date | `2013-01-31`, or the form that `format` says | days since 1970-01-01 |
| timestamp | `2013-01-31T12:30:00Z`, or the form that `format` says | microseconds since 1970-01-01, UTC |
| text | any, with `null` as the texts that mean a missing value | the text |
| epoch_seconds, epoch_milliseconds, ... | `1359635400`, `1359635400.25` | the same without fraction: a time as computers count |

If a rule makes numbers, values that are numbers in the file, or plain numbers as text, are taken as they stand.
"""

import re
from typing import Annotated, Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from headway.config import Frozen, OneOrMore
from headway.schema.calendar_days import Temporal
from headway.schema.date_forms import parse_dates, pattern_of
from headway.schema.number_texts import abbreviated, durations, plain_booleans, plain_numbers, without_units

Kind = Literal[
    "number",
    "decimal_comma",
    "abbreviated",
    "duration",
    "boolean",
    "date",
    "timestamp",
    "epoch_seconds",
    "epoch_milliseconds",
    "epoch_microseconds",
    "epoch_nanoseconds",
    "text",
]
_TEMPORAL: dict[Kind, Temporal] = {
    "date": "date",
    "timestamp": "timestamp",
    "epoch_seconds": "epoch_seconds",
    "epoch_milliseconds": "epoch_milliseconds",
    "epoch_microseconds": "timestamp",
    "epoch_nanoseconds": "epoch_nanoseconds",
}
_EPOCH_DIGITS = r"^[+]?(?P<whole>-?(?:[0-8][0-9]{18}|[0-9]{1,18}))(?:[.](?P<rest>[0-9]*))?$"
_EPOCH_SCIENTIFIC = r"^[+-]?[0-9](?:[.][0-9]*)?[eE][+]?(?:0?[0-9]|1[0-8])$"
_NAN = r"^[+-]?(?i:nan)$"
"""A pattern for NaN, as data frames write a missing number."""
MARKERS = frozenset(
    {"?", "na", "n/a", "#n/a", "#na", "<na>", "n.a.", "n.a", "null", "none", "nil", "-", "--", "---", "–", "—", ".", "..",
     "missing", "unknown", "not available", "nat", "#value!", "#div/0!", "#ref!", "\\n", ""}
)  # fmt: skip
"""The texts that people write for an unknown number, in lower case."""


class Parse(Frozen, populate_by_name=True):
    """The rule by which a column's text is read. A pipeline writes it as `parse: number`, as `parse: "%d/%m/%Y"`, or with all of
    its fields."""

    as_: Kind = Field(
        alias="as",
        description="what the text is: a number, a number with a decimal comma, a shortened number such as 1.2M, a duration "
        "or a time of the day (in seconds), true or false, a date, a time, the time that has passed since 1970, or text that "
        "stays text",
    )
    format: str | None = Field(default=None, description="for dates: a strptime format, such as %d/%m/%Y; default: ISO")
    unit: Annotated[tuple[str, ...], OneOrMore] = Field(
        default=(), description="for numbers: what stands behind them, such as kg; or [year, years]"
    )
    null: tuple[str, ...] = Field(default=(), description="texts that mean a missing value; upper or lower case")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"as": _kind_of(value), "format": value} if "%" in value else {"as": value}
        if isinstance(value, dict) and "as" not in value and "as_" not in value:
            form = value.get("format")
            return {"as": _kind_of(form) if isinstance(form, str) else "number", **value}
        return value

    @field_validator("format")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value is not None:
            pattern_of(value)
        return value

    @field_validator("unit")
    @classmethod
    def _no_digits(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for odd in (unit for unit in value if not unit.strip() or unit.strip()[0].isdigit()):
            raise ValueError(f"{odd!r} is not a unit: it stands behind a number and begins with no digit")
        return tuple(unit.strip() for unit in value)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.unit and self.as_ not in ("number", "decimal_comma"):
            raise ValueError(f"unit goes with number and decimal_comma, not with {self.as_}")
        if self.format is not None and self.as_ not in ("date", "timestamp"):
            raise ValueError(f"format goes with dates and timestamps, not with {self.as_}")
        if self.as_ == "date" and self.format and re.search(r"%[HIMSfp]", self.format):
            raise ValueError(f"the format {self.format!r} has a time of day, which a date does not keep: as: timestamp")
        return self

    @model_serializer(mode="wrap")
    def _short(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        value: dict[str, Any] = {"as": self.as_}
        return value | {k: v for k, v in handler(self).items() if k in ("format", "unit", "null") and v}

    @property
    def temporal(self) -> Temporal | None:
        """The unit of the dates or times that the rule makes. None: it makes no dates or times."""
        return _TEMPORAL.get(self.as_)

    @property
    def is_epoch(self) -> bool:
        """True if the files hold times as numbers that count since 1970."""
        return self.as_.startswith("epoch_")


def _kind_of(form: str) -> Kind:
    """Returns whether a strptime form makes dates or times, as the kind of a rule."""
    return "timestamp" if re.search(r"%[HIMSfp]", form) else "date"


def without_markers(texts: pa.Array, markers: tuple[str, ...]) -> pa.Array:
    """Trim texts. A text that is among `markers`, in upper or lower case, marks a missing value and becomes null."""
    trimmed = pc.utf8_trim_whitespace(texts)
    if not markers:
        return trimmed
    gone = pc.is_in(pc.utf8_lower(trimmed), value_set=pa.array(sorted({text.strip().lower() for text in markers})))
    return pc.if_else(gone, pa.scalar(None, pa.string()), trimmed)


def parsed(texts: pa.Array, rule: Parse) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    """Parse texts. A rule for dates or times gives int64, and a mask of the texts that do not fit. A rule for numbers gives plain
    numbers as text, and None: a text that does not fit stays, and fails later when it is read as a number."""
    texts = without_markers(texts, rule.null)
    if rule.is_epoch:
        return _epochs(texts)
    if rule.temporal is not None:
        return parse_dates(texts, rule.format, clock=rule.as_ == "timestamp")
    if rule.as_ in _NUMBERS:
        return _NUMBERS[rule.as_](texts), None
    return plain_numbers(without_units(texts, rule.unit) if rule.unit else texts, rule.as_), None


_NUMBERS = {"boolean": plain_booleans, "abbreviated": abbreviated, "duration": durations}


def _epochs(texts: pa.Array) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Convert texts of epoch times to int64, rounded down. Also returns a mask of the texts that are not such times."""
    texts = pc.if_else(pc.match_substring_regex(texts, _NAN), pa.scalar(None, pa.string()), texts)
    match = pc.extract_regex(texts, _EPOCH_DIGITS)
    text, rest = pc.struct_field(match, "whole"), pc.struct_field(match, "rest")
    below = pc.and_(pc.starts_with(text, "-"), pc.match_substring_regex(rest, "[1-9]"))
    whole = pc.subtract(text.cast(pa.int64()), below.cast(pa.int64()))
    scientific = pc.match_substring_regex(texts, _EPOCH_SCIENTIFIC)  # as R and NumPy write large ones
    if pc.any(scientific).as_py():
        doubles = pc.if_else(scientific, texts, pa.scalar(None, pa.string())).cast(pa.float64())
        whole = pc.coalesce(whole, pc.floor(doubles).cast(pa.int64()))
    return whole, pc.and_(texts.is_valid(), whole.is_null()).to_numpy(zero_copy_only=False)
