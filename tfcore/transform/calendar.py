"""Computes parts of dates and times (weekday, hour) in the graph.

Gives the integers that `headway.schema.calendar_days.parts_of` gives.

columns = with_parts(columns, parameters.parts)          # with "signup__weekday" beside "signup"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from headway.schema.calendar_days import DAY, Temporal
from tfcore.transform.parameters import DatePart


def with_parts(columns: Mapping[str, Any], parts: Sequence[DatePart]) -> dict[str, Any]:
    """Raw columns, and beside them each part as a raw column of integers, null where its date is."""
    made = dict(columns)
    for part in parts:
        source = columns[part.source.name]
        assert part.source.temporal is not None
        made[part.name] = source._replace(values=part_of(source.values, part.source.temporal, part.part))
    return made


def part_of(values: tf.Tensor, unit: Temporal, part: str) -> tf.Tensor:
    """int64: a part of days or microseconds since 1970-01-01."""

    def number(value: int) -> tf.Tensor:
        return tf.constant(value, tf.int64)

    days = values if unit == "date" else values // number(DAY)
    clock = tf.zeros_like(values) if unit == "date" else values - days * number(DAY)
    if part == "elapsed":
        return values
    if part == "hour":
        return clock // number(3_600_000_000)
    if part == "minute":
        return clock // number(60_000_000) % number(60)
    if part == "second":
        return clock // number(1_000_000) % number(60)
    if part == "weekday":
        return (days + number(3)) % number(7)
    year, month, day = _civil(days)
    if part in ("year", "month", "day"):
        return {"year": year, "month": month, "day": day}[part]
    if part == "quarter":
        return (month + number(2)) // number(3)
    if part == "day_of_year":
        return _day_of_year(days, year)
    if part == "week":  # of ISO: the week of the year's first Thursday is its first
        thursday = days - (days + number(3)) % number(7) + number(3)
        return (_day_of_year(thursday, _civil(thursday)[0]) - number(1)) // number(7) + number(1)
    raise ValueError(f"there is no part {part!r}")


def _day_of_year(days: tf.Tensor, year: tf.Tensor) -> tf.Tensor:
    before = year - tf.constant(1, tf.int64)
    first = before * 365 + before // 4 - before // 100 + before // 400 - 719_162
    return days - first + 1


def _civil(days: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Year, month and day in the proleptic Gregorian calendar; years begin in March on the way, behind the leap day."""
    shifted = days + tf.constant(719_468, tf.int64)
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    from_march = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * from_march + 2) // 153
    month = tf.where(shifted_month < 10, shifted_month + 3, shifted_month - 9)
    year = year_of_era + era * 400 + tf.cast(month <= 2, tf.int64)
    return year, month, from_march - (153 * shifted_month + 2) // 5 + 1
