"""The calendar in NumPy: days and microseconds since 1970-01-01 to their parts, and dates to days.

parts_of(days, "date", "weekday")              # 0 Monday ... 6 Sunday
parts_of(micros, "timestamp", "hour")
days_of(year, month, day)                      # int64; valid(year, month, day) says which are dates
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Temporal = Literal["date", "timestamp"]
Part = Literal[
    "year", "quarter", "month", "week", "day", "day_of_year", "weekday", "hour", "minute", "second", "elapsed"
]
PARTS: tuple[str, ...] = get_args(Part)
CLOCK = frozenset({"hour", "minute", "second"})
"""Parts that a date does not have."""
CYCLES: dict[str, tuple[int, int]] = {
    "quarter": (1, 4),
    "month": (1, 12),
    "week": (1, 53),
    "day": (1, 31),
    "weekday": (0, 6),
    "hour": (0, 23),
    "minute": (0, 59),
    "second": (0, 59),
}
"""Parts that are categories by themselves, with the least and the greatest value."""
DAY = 86_400_000_000
"""Microseconds."""
Integers = NDArray[np.int64]


def days_of(year: Integers, month: Integers, day: Integers) -> Integers:
    """Days since 1970-01-01 of dates in the proleptic Gregorian calendar."""
    months = np.asarray((year - 1970) * 12 + month - 1, np.int64).astype("M8[M]")
    return months.astype("M8[D]").astype(np.int64) + day - 1


def valid(year: Integers, month: Integers, day: Integers) -> NDArray[np.bool_]:
    """Which of these are dates."""
    inside = (month >= 1) & (month <= 12)
    longest = days_of(year, month + 1, np.ones_like(day)) - days_of(year, month, np.ones_like(day))
    return np.asarray(inside & (day >= 1) & (day <= longest))


def parts_of(values: NDArray[Any], unit: Temporal, part: str) -> Integers:
    """A part of stored dates (days) or timestamps (microseconds, UTC), as `tfcore.transform.calendar` computes it."""
    values = np.asarray(values).astype(np.int64)
    days = values if unit == "date" else values // DAY
    clock = np.zeros_like(values) if unit == "date" else values - days * DAY
    if part == "elapsed":
        return values
    if part == "hour":
        return clock // 3_600_000_000
    if part == "minute":
        return clock // 60_000_000 % 60
    if part == "second":
        return clock // 1_000_000 % 60
    if part == "weekday":
        return (days + 3) % 7
    dates = days.astype("M8[D]")
    months = dates.astype("M8[M]").astype(np.int64)
    if part == "year":
        return months // 12 + 1970
    if part == "month":
        return months % 12 + 1
    if part == "quarter":
        return months % 12 // 3 + 1
    if part in ("day", "day_of_year"):
        first = dates.astype("M8[M]" if part == "day" else "M8[Y]")
        return days - first.astype("M8[D]").astype(np.int64) + 1
    if part == "week":  # ISO: the week that holds the year's first Thursday is its first
        thursday = days - (days + 3) % 7 + 3
        return (parts_of(thursday, "date", "day_of_year") - 1) // 7 + 1
    raise ValueError(f"{part!r} is not a part of a date; parts are: {', '.join(PARTS)}")
