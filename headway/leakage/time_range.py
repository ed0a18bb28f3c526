"""The time range of a column: its least and greatest value, for the order of a split by time, and the texts of both.

    time_range(array, "timestamp[us]")               # TimeRange(low=..., high=..., ...)
    time_text(1357034400000000, "timestamp[us]")  # '2013-01-01 10:00:00'

Times are integers or floats: timestamps in microseconds, dates in days, epoch times in the files' unit. A column whose values are
written in several ways stays text when ingested, and has no range.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headway.config import Frozen
from headway.schema.calendar_days import PER_DAY, moment
from headway.tabular.list_arrays import is_number, value_type

TEXT, TIMESTAMP, DATE, NUMBER = "text", "timestamp", "date", "number"


class TimeRange(Frozen):
    """The time range of some rows: the least and greatest time, and the number of rows without one (`missing`)."""

    kinds: tuple[str, ...]
    """What the files hold: timestamp, date, epoch times, text or number. Times of several kinds cannot be compared."""
    low: int | float | None = None
    high: int | float | None = None
    missing: int = 0

    def merged(self, other: TimeRange) -> TimeRange:
        lows = [note.low for note in (self, other) if note.low is not None]
        highs = [note.high for note in (self, other) if note.high is not None]
        return TimeRange(
            kinds=tuple(sorted({*self.kinds, *other.kinds})),
            low=min(lows, default=None),
            high=max(highs, default=None),
            missing=self.missing + other.missing,
        )


def raw_kind(schema: pa.Schema, name: str) -> str:
    """Returns the kind of a file's time column: timestamp, date, text or number. If the file lacks the column: number."""
    place = schema.get_field_index(name)
    kind = schema.field(place).type if place >= 0 else pa.int64()
    kind = value_type(kind)
    if pa.types.is_timestamp(kind):
        return TIMESTAMP
    if pa.types.is_date(kind):
        return DATE
    return NUMBER if is_number(kind) else TEXT


def time_range(array: pa.Array, kind: str) -> TimeRange:
    """Returns the time range of a coerced column whose file held values of `kind`. For text, `low` and `high` are None."""
    missing = array.null_count
    if not is_number(value_type(array.type)):
        return TimeRange(kinds=(TEXT,), missing=missing)
    kind = NUMBER if kind == TEXT else kind  # a CSV's digits, read as numbers
    if pa.types.is_floating(array.type):
        nan = pc.sum(pc.is_nan(array)).as_py() or 0
        missing += nan
        array = array.filter(pc.is_finite(array)) if len(array) else array
    ends = pc.min_max(array).as_py()
    return TimeRange(kinds=(kind,), low=ends["min"], high=ends["max"], missing=missing)


def time_text(value: int | float | None, kind: str) -> str:
    """Returns a time as text for messages; "none" for None."""
    if value is None:
        return "none"
    if kind in PER_DAY:
        return moment(value, kind)
    return f"{value:,}" if isinstance(value, int) else f"{value:.9g}"
