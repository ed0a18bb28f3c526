"""The calendar in NumPy: computes parts of dates and times, such as the month, and counts the days of dates since 1970-01-01.

parts_of(days, "date", "weekday")              # 0 Monday ... 6 Sunday
parts_of(seconds, "epoch_seconds", "month")
parts_of(micros, "timestamp", "hour")
days_of(year, month, day)                      # int64; dates_exist(year, month, day) says which are dates
moment(15_706, "date")                         # '2013-01-01'
"""

import math
import re
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Temporal = Literal["date", "timestamp", "epoch_seconds", "epoch_milliseconds", "epoch_nanoseconds"]
"""The unit in which stored integers count since 1970-01-01: days, microseconds, or the unit of the files."""
Part = Literal[
    "year", "quarter", "month", "week", "day", "day_of_year", "weekday", "hour", "minute", "second", "elapsed"
]
PARTS: tuple[str, ...] = get_args(Part)
CLOCK = frozenset({"hour", "minute", "second"})
"""The parts of a time of day, which a date does not have."""
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
"""The parts that are used as categories, with the least and the greatest value of each."""
DAY = 86_400_000_000
"""The number of microseconds in a day."""
PER_DAY: dict[Temporal, int] = {
    "date": 1,
    "epoch_seconds": DAY // 1_000_000,
    "epoch_milliseconds": DAY // 1000,
    "timestamp": DAY,
    "epoch_nanoseconds": DAY * 1000,
}
UNITS: dict[Temporal, str] = {
    "date": "days",
    "epoch_seconds": "seconds",
    "epoch_milliseconds": "milliseconds",
    "timestamp": "microseconds",
    "epoch_nanoseconds": "nanoseconds",
}
"""The word for each unit in which times are counted since 1970-01-01."""
_NUMPY: dict[Temporal, Any] = {
    "date": "D",
    "epoch_seconds": "s",
    "epoch_milliseconds": "ms",
    "timestamp": "us",
    "epoch_nanoseconds": "ns",
}
Integers = NDArray[np.int64]


def days_of(year: Integers, month: Integers, day: Integers) -> Integers:
    """Returns the days since 1970-01-01 of dates in the proleptic Gregorian calendar."""
    months = np.asarray((year - 1970) * 12 + month - 1, np.int64).astype("M8[M]")
    return months.astype("M8[D]").astype(np.int64) + day - 1


def dates_exist(year: Integers, month: Integers, day: Integers) -> NDArray[np.bool_]:
    """Returns a mask of the combinations of year, month and day that are dates."""
    inside = (month >= 1) & (month <= 12)
    longest = days_of(year, month + 1, np.ones_like(day)) - days_of(year, month, np.ones_like(day))
    return np.asarray(inside & (day >= 1) & (day <= longest))


def moment(value: float, unit: Temporal) -> str:
    """Returns the text of a stored date (days), timestamp (microseconds, UTC) or epoch time: '2013-01-01', '2013-01-01 10:00:00'.
    At midnight it is only the date. Fractions of a second are cut off."""
    if not math.isfinite(value):
        return str(value)
    # in its own unit: of garbage the microseconds may be more than an int64 holds, whose least value is NumPy's no time
    text = str(np.datetime64(max(int(value), 1 - 2**63), _NUMPY[unit])).replace("T", " ")
    return re.sub(r"( 00:00:00)?\.0+$| 00:00:00$", "", text)


def parts_of(values: NDArray[Any], unit: Temporal, part: str) -> Integers:
    """Returns a part, such as the month, of stored dates or times (UTC), which count in `unit` since 1970-01-01."""
    return np.asarray(part_of(np.asarray(values).astype(np.int64), unit, part))


def part_of(values: Any, unit: Temporal, part: str) -> Any:
    """Returns what `parts_of` does, for a NumPy array or a TensorFlow tensor of integers: it uses integer arithmetic alone."""
    if part == "elapsed":
        return values
    per_day = PER_DAY[unit]
    days = values if unit == "date" else values // per_day
    clock = values - days * per_day
    clock = clock * (DAY // per_day) if per_day <= DAY else clock // (per_day // DAY)
    if part == "hour":
        return clock // 3_600_000_000
    if part == "minute":
        return clock // 60_000_000 % 60
    if part == "second":
        return clock // 1_000_000 % 60
    if part == "weekday":
        return (days + 3) % 7
    if part == "week":  # ISO: the week that holds the year's first Thursday is its first
        thursday = days - (days + 3) % 7 + 3
        return (part_of(thursday, "date", "day_of_year") - 1) // 7 + 1
    # years begin in March on the way, so that the leap day is their last
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    from_march = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * from_march + 2) // 153
    month = (shifted_month + 2) % 12 + 1
    year = year_of_era + era * 400 + shifted_month // 10
    if part == "year":
        return year
    if part == "month":
        return month
    if part == "quarter":
        return (month + 2) // 3
    if part == "day":
        return from_march - (153 * shifted_month + 2) // 5 + 1
    if part == "day_of_year":
        before = year - 1
        return days - (before * 365 + before // 4 - before // 100 + before // 400 - 719_162) + 1
    raise ValueError(f"{part!r} is not a part of a date; parts are: {', '.join(PARTS)}")
