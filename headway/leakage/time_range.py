"""The time range of a column: least and greatest value, in the order of a split by time, and their text.

    time_range(array, "timestamp[us]")               # TimeRange(low=..., high=..., ...)
    time_text(1357034400000000, "timestamp[us]")  # '2013-01-01 10:00:00'

Times are integers or floats: timestamps are microseconds, dates days, epoch times as they are. Text is read as ISO 8601, and a
text that is not a time is counted.
"""

from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.compute as pc

from headway.config import Frozen
from headway.schema.calendar_days import PER_DAY, moment
from headway.tabular.list_arrays import decoded, is_number, value_type

TEXT, TIMESTAMP, DATE, NUMBER = "text", "timestamp", "date", "number"
_EPOCH = datetime.datetime(1970, 1, 1)


class TimeRange(Frozen):
    """The time range of some rows."""

    kinds: tuple[str, ...]
    """What the files hold: timestamp, date, epoch times, text or number. More than one kind cannot be compared."""
    low: int | float | None = None
    high: int | float | None = None
    missing: int = 0
    unreadable: int = 0
    """Texts that are not an ISO 8601 time."""

    def merged(self, other: TimeRange) -> TimeRange:
        lows = [note.low for note in (self, other) if note.low is not None]
        highs = [note.high for note in (self, other) if note.high is not None]
        return TimeRange(
            kinds=tuple(sorted({*self.kinds, *other.kinds})),
            low=min(lows, default=None),
            high=max(highs, default=None),
            missing=self.missing + other.missing,
            unreadable=self.unreadable + other.unreadable,
        )


def raw_kind(schema: pa.Schema, name: str) -> str:
    """Returns the kind of values that a file's time column holds."""
    place = schema.get_field_index(name)
    kind = schema.field(place).type if place >= 0 else pa.int64()
    kind = value_type(kind)
    if pa.types.is_timestamp(kind):
        return TIMESTAMP
    if pa.types.is_date(kind):
        return DATE
    return NUMBER if is_number(kind) else TEXT


def time_range(array: pa.Array, kind: str) -> TimeRange:
    """Returns the time range of a coerced column, whose file held values of `kind`."""
    unreadable = 0
    missing = array.null_count
    if pa.types.is_dictionary(array.type) or pa.types.is_binary(array.type):
        # a day's rows share few texts
        array = decoded(array)
        texts = pc.drop_null(pc.unique(array))
        times, bad = _parsed(texts)
        kind, missing = TEXT, array.null_count
        if len(bad):
            unreadable = pc.sum(pc.is_in(array, value_set=bad)).as_py() or 0
        array = times
    elif kind == TEXT:
        kind = NUMBER  # a CSV's digits, read as numbers
    if pa.types.is_floating(array.type):
        nan = pc.sum(pc.is_nan(array)).as_py() or 0
        missing += nan
        array = array.filter(pc.is_finite(array)) if len(array) else array
    ends = pc.min_max(array).as_py()
    return TimeRange(kinds=(kind,), low=ends["min"], high=ends["max"], missing=missing, unreadable=unreadable)


def _parsed(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Returns (microseconds since the epoch, the texts that are not a time)."""
    try:
        return texts.cast(pa.string()).cast(pa.timestamp("us")).cast(pa.int64()), texts[:0]
    except pa.ArrowInvalid:
        good, bad = [], []
        for text in texts.to_pylist():
            if (time := _microseconds(text)) is None:
                bad.append(text)
            else:
                good.append(time)
        return pa.array(good, pa.int64()), pa.array(bad, pa.binary())


def _microseconds(text: bytes) -> int | None:
    try:
        time = datetime.datetime.fromisoformat(text.decode().strip())
    except (ValueError, UnicodeDecodeError):
        return None
    if time.tzinfo is not None:
        time = time.astimezone(datetime.UTC).replace(tzinfo=None)
    return (time - _EPOCH) // datetime.timedelta(microseconds=1)


def time_text(value: int | float | None, kind: str) -> str:
    """Returns the text of a time, for a sentence."""
    if value is None:
        return "none"
    unit = TIMESTAMP if kind == TEXT else kind
    if unit in PER_DAY:
        return moment(value, unit)
    return f"{value:,}" if isinstance(value, int) else f"{value:.9g}"
