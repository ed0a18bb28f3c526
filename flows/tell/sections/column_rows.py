"""Rows of text on columns, from their statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.messages import duration, number
from headway.schema.calendar_days import PER_DAY, moment

Rows = list[dict[str, Any]]


def column_rows(result: Mapping[str, Any], split: str = "train") -> Rows:
    """One row per column; what a type does not have stays empty."""
    figures = ("mean", "std", "min", "p25", "median", "p75", "max", "shortest", "longest")
    return [
        {
            "column": column["column"],
            "type": column.get("temporal") or column["type"],
            "rows": column["rows"],
            "missing": f"{column['missing_share']:.2%}",
            # of the columns that have some: missing they are not, and no figure behind counts them
            **{name: f"{column[name]:,}" if column.get(name) else "" for name in ("nan", "infinite")},
            "distinct": _distinct(column),
            **{name: figure(column, name) for name in figures},
            "quantiles": f"rank ±{column['rank_error']:.1%}" if column.get("rank_error") else "",
            "most frequent": ", ".join(
                f"{_value(value, column)} ({count:,})" for value, count in column.get("top", [])[:3]
            ),
        }
        for column in result["columns"].get(split, [])
    ]


def figure(column: Mapping[str, Any], name: str) -> str:
    """The text of a figure of a column's summary, such as its median; of dates and times a date or a time, and their
    standard deviation is a duration."""
    value, unit = column.get(name), column.get("temporal")
    if value is None or unit is None or not isinstance(value, int | float):
        return cell(value)
    if name == "std":
        return duration(value * PER_DAY["epoch_seconds"] / PER_DAY[unit])
    # a mean and the quantiles lie between the values: a fraction of a second says nothing
    second = max(1, PER_DAY[unit] // PER_DAY["epoch_seconds"])
    return moment(value if name in ("min", "max") else value // second * second, unit)


def _value(value: Any, column: Mapping[str, Any]) -> str:
    """The text of a value; of a float32 no more digits than it has."""
    if (unit := column.get("temporal")) is not None:
        return moment(value, unit)
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _distinct(column: Mapping[str, Any]) -> int | str:
    """The number of different values; an estimate with its standard error."""
    error = column.get("distinct_error")
    return f"{column['distinct']:,} ±{error:.0%}" if error else column["distinct"]


def cell(value: Any) -> str:
    if value is None:
        return ""
    return number(value) if isinstance(value, int | float) else str(value)
