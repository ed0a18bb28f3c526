"""Parse rules: convert the text of a column to numbers or dates; frozen in the schema and applied to every value.

    rule = Parse.model_validate("number")                # "$1,234.50", "(12)", "12.3%", "1 234"
    rule = Parse.model_validate("%d/%m/%Y")              # a date of that form
    made, fits = parsed(texts, rule)                     # text of plain numbers, or int64; which values fit the rule

| rule | text | stored |
| --- | --- | --- |
| number | `1,234.5` `1 234` `$1,234.50` `12 EUR` `(12)` `12.3%` | 1234.5, 1234, 1234.5, 12, -12, 12.3 |
| decimal_comma | `1.234,50 €` `12,3 %` | 1234.5, 12.3 |
| boolean | yes/no, y/n, true/false, t/f, on/off, 1/0 | 1, 0 |
| date | `2013-01-31`, or the form that `format` says | days since 1970-01-01 |
| timestamp | `2013-01-31T12:30:00Z`, or the form that `format` says | microseconds since 1970-01-01, UTC |

Values that are numbers in the file, or plain numbers as text, are taken as they stand where the rule makes numbers.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from headway.config import Frozen
from headway.schema.calendar_days import DAY, days_of, valid

Kind = Literal["number", "decimal_comma", "boolean", "date", "timestamp"]
MARKERS = frozenset(
    {"?", "na", "n/a", "#n/a", "#na", "<na>", "n.a.", "n.a", "null", "none", "nil", "-", "--", "---", "–", "—", ".", "..",
     "missing", "unknown", "not available", "nat", "#value!", "#div/0!", "#ref!", "\\n", ""}
)  # fmt: skip
"""What people write where a number is not known; compared in lower case."""
_CURRENCY = (
    r"(?:[A-Za-z]{0,3}\p{Sc}|(?i:USD|EUR|GBP|JPY|CNY|RMB|CHF|INR|AUD|CAD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR|KRW|"
    r"SGD|HKD|TRY|ILS|kr|zł|Kč|Ft|Rs)\.?)"
)
_GAP = "[ \\x{00a0}\\x{202f}\\x{2009}]"
_GROUPS = {
    "number": rf"[0-9]{{1,3}}(?:,[0-9]{{2}})*,[0-9]{{3}}|[0-9]{{1,3}}(?:,[0-9]{{3}})+|[0-9]{{1,3}}(?:{_GAP}[0-9]{{3}})+"
    r"|[0-9]{1,3}(?:['’_][0-9]{3})+",
    "decimal_comma": rf"[0-9]{{1,3}}(?:\.[0-9]{{3}})+|[0-9]{{1,3}}(?:{_GAP}[0-9]{{3}})+|[0-9]{{1,3}}(?:['’][0-9]{{3}})+",
}
_FRACTION = {"number": r"\.", "decimal_comma": ","}
_PARTS_OF_NUMBER = ("open", "sign", "before", "inner", "whole", "rest", "after", "close")
_TRUE, _FALSE = ("1", "y", "yes", "t", "true", "on", "1.0"), ("0", "n", "no", "f", "false", "off", "0.0")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FULL = (
    r"(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    r"nov(?:ember)?|dec(?:ember)?)"
)
_DAY_NAME = r"(?i:mon|tue|wed|thu|fri|sat|sun)[A-Za-z]*"
_FIELDS = {
    "Y": r"(?P<Y>[0-9]{4})",
    "y": r"(?P<y>[0-9]{2})",
    "m": r"(?P<m>[0-9]{1,2})",
    "d": r"(?P<d>[0-9]{1,2})",
    "b": rf"(?P<b>{_FULL})\.?",
    "B": rf"(?P<b>{_FULL})\.?",
    "a": _DAY_NAME,
    "A": _DAY_NAME,
    "H": r"(?P<H>[0-9]{1,2})",
    "I": r"(?P<I>[0-9]{1,2})",
    "M": r"(?P<M>[0-9]{2})",
    "S": r"(?P<S>[0-9]{2})(?:[.,](?P<f>[0-9]{1,9}))?",
    "p": r"(?P<p>(?i:am|pm|a\.m\.|p\.m\.))",
    "z": r"(?P<z>(?i:z|utc|gmt)|[+-][0-9]{2}:?[0-9]{2})",
    "f": r"(?P<f>[0-9]{1,9})",
}
ISO_DATE = r"(?P<Y>[0-9]{4})-(?P<m>[0-9]{1,2})-(?P<d>[0-9]{1,2})"
ISO_TIME = (
    ISO_DATE + r"(?:[T ](?P<H>[0-9]{1,2}):(?P<M>[0-9]{2})(?::(?P<S>[0-9]{2})(?:[.,](?P<f>[0-9]{1,9}))?)?"
    r"\s*(?P<z>(?:(?i:z|utc|gmt)|[+-][0-9]{2}:?[0-9]{2})?))?"
)


class Parse(Frozen):
    """The rule for a column's text. In a pipeline `parse: number`, `parse: "%d/%m/%Y"`, or all of its fields."""

    model_config = ConfigDict(populate_by_name=True)

    as_: Kind = Field(
        alias="as",
        description="what the text is: a number, a number with a decimal comma, true or false, a date, or a time",
    )
    format: str | None = Field(default=None, description="for dates: a strptime format, such as %d/%m/%Y; default: ISO")
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

    @model_validator(mode="after")
    def _whole(self) -> Parse:
        if self.format is not None and not self.temporal:
            raise ValueError(f"format goes with dates and timestamps, not with {self.as_}")
        if self.as_ == "date" and self.format and re.search(r"%[HIMSfp]", self.format):
            raise ValueError(f"the format {self.format!r} has a time of day, which a date does not keep: as: timestamp")
        return self

    @model_serializer(mode="wrap")
    def _short(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        value: dict[str, Any] = {"as": self.as_}
        return value | {k: v for k, v in handler(self).items() if k in ("format", "null") and v}

    @property
    def temporal(self) -> Literal["date", "timestamp"] | None:
        """The kind of time that the rule makes, days or microseconds; None: it makes numbers."""
        return self.as_ if self.as_ in ("date", "timestamp") else None


def _kind_of(form: str) -> Kind:
    """The kind of a strptime form: a date or a time."""
    return "timestamp" if re.search(r"%[HIMSfp]", form) else "date"


def pattern_of(form: str) -> str:
    """A regular expression for a strptime form, with a group for each part.

    Raises:
        ValueError: the form cannot be read so.
    """
    pattern, codes, place = "", set[str](), 0
    while place < len(form):
        if form[place] == "%" and place + 1 < len(form):
            code = form[place + 1]
            if code not in _FIELDS:
                raise ValueError(
                    f"%{code} of {form!r} is not supported; supported are: {', '.join('%' + c for c in _FIELDS)}"
                )
            if code in codes:
                raise ValueError(f"{form!r} has %{code} twice")
            codes.add(code)
            pattern += _FIELDS[code]
            place += 2
        else:
            pattern += r"\s+" if form[place] == " " else re.escape(form[place])
            place += 1
    if not codes & {"Y", "y"} or not codes & {"m", "b", "B"}:
        raise ValueError(f"{form!r} needs a year (%Y) and a month (%m or %b)")
    if "I" in codes and "p" not in codes:
        raise ValueError(f"{form!r} has %I, a 12-hour clock, and needs %p")
    return f"^(?:{pattern})$"


def without_markers(texts: pa.Array, markers: tuple[str, ...]) -> pa.Array:
    """Trim texts, and make the markers of missing values null."""
    trimmed = pc.utf8_trim_whitespace(texts)
    if not markers:
        return trimmed
    gone = pc.is_in(pc.utf8_lower(trimmed), value_set=pa.array(sorted({text.strip().lower() for text in markers})))
    return pc.if_else(gone, pa.scalar(None, pa.string()), trimmed)


def parsed(texts: pa.Array, rule: Parse) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    """Parse distinct texts: int64 for dates, with a mask of those that do not fit; for numbers their plain digits as
    text (a text that does not fit stays as it is, and is judged when it is read as a number)."""
    texts = without_markers(texts, rule.null)
    if rule.temporal is None:
        return (_truth(texts) if rule.as_ == "boolean" else _plain(texts, rule.as_)), None
    return _dates(texts, rule)


def number_pattern(kind: str) -> str:
    """A regular expression for texts that the rule makes plain numbers."""
    return (
        rf"^(?P<open>\(?)\s*(?P<sign>[-+−]?)\s*(?P<before>{_CURRENCY}?)\s*(?P<inner>[-+−]?)\s*"
        rf"(?P<whole>(?:{_GROUPS[kind]}|[0-9]+)?)(?P<rest>(?:{_FRACTION[kind]}[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*"
        rf"(?P<after>(?:{_CURRENCY}|%)?)\s*(?P<close>\)?)$"
    )


def _plain(texts: pa.Array, kind: str) -> pa.Array:
    if not pc.any(_may_be_number(texts)).as_py():  # the whole pattern takes milliseconds to compile, for each column
        return texts
    match = pc.extract_regex(texts, number_pattern(kind))
    if match.null_count == len(match):
        return texts
    open_, sign, before, inner, whole, rest, after, close = (pc.struct_field(match, name) for name in _PARTS_OF_NUMBER)
    digits = pc.match_substring_regex(pc.binary_join_element_wise(whole, rest, ""), "[0-9]")
    once = pc.or_(pc.equal(sign, ""), pc.equal(inner, ""))
    once = pc.and_(once, pc.or_(pc.equal(before, ""), pc.equal(after, "")))
    closed = pc.equal(pc.not_equal(open_, ""), pc.not_equal(close, ""))
    signed = pc.equal(pc.binary_join_element_wise(sign, inner, ""), "")
    closed = pc.and_(closed, pc.or_(signed, pc.equal(open_, "")))
    fits = pc.fill_null(pc.and_(pc.and_(digits, once), closed), False)
    minus = pc.or_(pc.is_in(sign, value_set=pa.array(["-", "−"])), pc.is_in(inner, value_set=pa.array(["-", "−"])))
    minus = pc.or_(minus, pc.equal(open_, "("))
    whole = pc.replace_substring_regex(whole, "[^0-9]", "")
    rest = pc.replace_substring(rest, ",", ".")
    numbers = pc.binary_join_element_wise(pc.if_else(minus, "-", ""), whole, rest, "")
    return pc.if_else(fits, numbers, texts)


def _may_be_number(texts: pa.Array) -> pa.Array:
    """Whether a text has a digit and no word: a currency has at most three letters."""
    return pc.and_(pc.match_substring_regex(texts, "[0-9]"), pc.invert(pc.match_substring_regex(texts, "[A-Za-z]{4}")))


def _truth(texts: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(texts)
    trues = pc.if_else(pc.is_in(lower, value_set=pa.array(_TRUE)), "1", texts)
    return pc.if_else(pc.is_in(lower, value_set=pa.array(_FALSE)), "0", trues)


def _dates(texts: pa.Array, rule: Parse) -> tuple[pa.Array, NDArray[np.bool_]]:
    iso = ISO_DATE if rule.as_ == "date" else ISO_TIME
    match = pc.extract_regex(texts, pattern_of(rule.format) if rule.format else f"^(?:{iso})$")
    matched = match.is_valid().to_numpy(zero_copy_only=False)
    names = {match.type.field(i).name for i in range(match.type.num_fields)}

    def text(name: str) -> pa.Array | None:
        return pc.fill_null(pc.struct_field(match, name), "") if name in names else None

    def number(name: str, default: int) -> NDArray[np.int64]:
        if (part := text(name)) is None:
            return np.full(len(texts), default, np.int64)
        return np.asarray(pc.if_else(pc.equal(part, ""), str(default), part).cast(pa.int64()).to_numpy())

    year = number("Y", 1970)
    if "y" in names:  # as Python has it: 69 to 99 are of the last century
        short = number("y", 70)
        year = np.where(short < 69, 2000 + short, 1900 + short)
    month = number("m", 1)
    if (name := text("b")) is not None:
        month = pc.fill_null(
            pc.index_in(pc.utf8_slice_codeunits(pc.utf8_lower(name), 0, 3), value_set=pa.array(_MONTHS)), 0
        ).to_numpy().astype(np.int64) + 1  # fmt: skip
    day = number("d", 1)
    good = matched & valid(year, month, day)
    days = days_of(year, month, day)
    if rule.as_ == "date":
        times = days
    else:
        hour, minute, second = number("H", 0), number("M", 0), number("S", 0)
        if (half := text("p")) is not None:
            twelve = number("I", 12)
            good &= (twelve >= 1) & (twelve <= 12)
            late = pc.starts_with(pc.utf8_lower(half), "p").to_numpy(zero_copy_only=False)
            hour = twelve % 12 + 12 * late
        good &= (hour < 24) & (minute < 60) & (second < 60)
        times = days * DAY + ((hour * 60 + minute) * 60 + second) * 1_000_000
        if (fraction := text("f")) is not None:
            times = times + pc.utf8_slice_codeunits(pc.utf8_rpad(fraction, 6, "0"), 0, 6).cast(pa.int64()).to_numpy()
        if (zone := text("z")) is not None:
            times = times - _offsets(zone)
    wrong = ~good & texts.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(times, mask=~good), wrong


def _offsets(zone: pa.Array) -> NDArray[np.int64]:
    """The offset of a clock from UTC in microseconds."""
    digits = pc.replace_substring_regex(zone, "[^0-9]", "")
    digits = pc.if_else(pc.equal(digits, ""), "0000", digits).cast(pa.int64()).to_numpy()
    behind = pc.starts_with(zone, "-").to_numpy(zero_copy_only=False)
    return np.asarray((digits // 100 * 60 + digits % 100) * np.where(behind, -60_000_000, 60_000_000), np.int64)
