"""Parses dates and times, by a strptime form or as ISO 8601.

    parse_dates(pa.array(["31/12/1970"]), "%d/%m/%Y", clock=False)    # days since 1970-01-01, and which are wrong
    parse_dates(pa.array(["1970-01-01 00:00:01"]), None, clock=True)  # microseconds since 1970-01-01, UTC
    parse_dates(pa.array(["2024Q1"]), "%YQ%q", clock=False)           # the first day of a quarter, a month or a week

A form is a text such as "%d/%m/%Y". Besides Python's codes it may have %q, the number of a quarter.
"""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.schema.calendar_days import DAY, PER_DAY, Integers, Temporal, dates_exist, days_of, parts_of

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
    "q": r"(?P<q>[1-4])",
    "G": r"(?P<G>[0-9]{4})",
    "V": r"(?P<V>[0-9]{1,2})",
    "u": r"(?P<u>[1-7])",
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
    r"\s*(?P<z>(?:(?i:z|utc|gmt)|[+-][0-9]{2}(?::?[0-9]{2})?)?))?"
)


def pattern_of(form: str) -> str:
    """Returns a regular expression for a strptime form, with a named group for each part of a date or time.

    Raises:
        ValueError: the form has an unsupported code, or a code twice, or its codes do not make a date or time.
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
    if codes & {"G", "V", "u"}:
        if not {"G", "V"} <= codes or codes & {"Y", "y", "m", "b", "B", "d", "q"}:
            raise ValueError(f"{form!r} needs %G and %V, the year and number of an ISO week, and no other date")
    elif not codes & {"Y", "y"} or not codes & {"m", "b", "B", "q"}:
        raise ValueError(f"{form!r} needs a year (%Y) and a month (%m or %b), or a quarter (%q)")
    if "q" in codes and codes & {"m", "b", "B", "d"}:
        raise ValueError(f"{form!r} has %q, a quarter, and a month or day")
    if "I" in codes and "p" not in codes:
        raise ValueError(f"{form!r} has %I, a 12-hour clock, and needs %p")
    return f"^(?:{pattern})$"


def parse_dates(texts: pa.Array, form: str | None, *, clock: bool) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Returns days (dates) or microseconds (times) since 1970-01-01, as int64; and a mask of the texts that do not parse.

    Args:
        form: a strptime form; None: ISO 8601.
        clock: whether the texts are times rather than dates.
    """
    iso = ISO_TIME if clock else ISO_DATE
    match = pc.extract_regex(texts, pattern_of(form) if form else f"^(?:{iso})$")
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
    month = number("q", 1) * 3 - 2 if "q" in names else number("m", 1)
    if (name := text("b")) is not None:
        month = pc.fill_null(
            pc.index_in(pc.utf8_slice_codeunits(pc.utf8_lower(name), 0, 3), value_set=pa.array(_MONTHS)), 0
        ).to_numpy().astype(np.int64) + 1  # fmt: skip
    day = number("d", 1)
    good = matched & dates_exist(year, month, day)
    days = days_of(year, month, day)
    if "V" in names:
        days, exists = _of_week(number("G", 1970), number("V", 1), number("u", 1))
        good = matched & exists
    if not clock:
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


def iso_times(texts: pa.Array, unit: Temporal) -> pa.Array:
    """Parse ISO 8601 texts to int64 in `unit`; null for any other text, and for a time that int64 cannot hold. A time without a
    zone is UTC. With the unit date, a text must be a date without a time."""
    per_day = PER_DAY["date" if unit == "date" else "timestamp"]
    return convert_unit(parse_dates(texts, None, clock=unit != "date")[0], per_day, PER_DAY[unit])[0]


def convert_unit(values: pa.Array, per_day: int, wanted: int) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Convert int64 times from `per_day` units a day to `wanted` units a day. Returns the times, and a mask of the times that
    int64 cannot hold. In the result such times are null.

    Fractions of a unit are rounded down, towards the past, also before 1970.
    """
    missing = values.is_null().to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    if wanted <= per_day:
        return pa.array(numbers // (per_day // wanted), mask=missing), np.zeros(len(numbers), np.bool_)
    times = wanted // per_day
    most = np.iinfo(np.int64).max // times
    wrong = ~missing & ((numbers > most) | (numbers < -most))
    return pa.array(np.where(wrong, 0, numbers) * times, mask=missing | wrong), wrong


def _of_week(year: Integers, week: Integers, weekday: Integers) -> tuple[Integers, NDArray[np.bool_]]:
    """Returns days of ISO weeks since 1970-01-01, and a mask of those that exist. A year's first week has January 4."""
    fourth = days_of(year, np.ones_like(year), np.full_like(year, 4))
    monday = fourth - parts_of(fourth, "date", "weekday") + 7 * (week - 1)
    exists = (week >= 1) & (parts_of(monday + 3, "date", "year") == year)
    return monday + weekday - 1, exists


def _offsets(zone: pa.Array) -> NDArray[np.int64]:
    """Returns the offset from UTC of time zones such as +01:00, in microseconds."""
    digits = pc.utf8_rpad(pc.replace_substring_regex(zone, "[^0-9]", ""), 4, "0").cast(pa.int64()).to_numpy()
    behind = pc.starts_with(zone, "-").to_numpy(zero_copy_only=False)
    return np.asarray((digits // 100 * 60 + digits % 100) * np.where(behind, -60_000_000, 60_000_000), np.int64)
