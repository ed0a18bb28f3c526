"""Formats numbers, lists, durations and the time for messages and files.

counted(1, "row")     # '1 row', and '2,000 rows'
agree(1, "is", "are") # 'is'
some(["a", "b", "c"], 2) # 'a, b and 1 more'
number(0.712345)      # '0.7123'
number(12345.678)     # '12,345.68'
signed(-0.0021)       # '-0.0021'
duration(102_700)     # '29 h'
now()                 # '2026-11-22T11:24:00.123Z'
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any


def counted(count: int, one: str, several: str | None = None) -> str:
    """How many of what; `several` where that is not `one` with an s."""
    return f"{count:,} {agree(count, one, several or one + 's')}"


def agree(count: int, one: str, several: str) -> str:
    """The word that goes with so many."""
    return one if count == 1 else several


def some(names: Sequence[object], most: int, show: Callable[[object], str] = str, sep: str = ", ") -> str:
    """The first few of them, and how many more there are."""
    rest = f" and {len(names) - most:,} more" if len(names) > most else ""
    return sep.join(map(show, names[:most])) + rest


def number(value: float | None) -> str:
    """About four significant digits, thousands apart; 'undefined' for None."""
    if value is None:
        return "undefined"
    size = abs(value)
    if size and (size < 1e-4 or size >= 1e9):
        return f"{value:.3g}"
    if size >= 100:
        return f"{value:,.2f}".removesuffix(".00")
    text = f"{value:.4f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def signed(value: float | None) -> str:
    """As `number`, with its sign always shown."""
    return number(value) if value is None or value <= 0 else f"+{number(value)}"


def duration(seconds: float) -> str:
    """A time in the unit that a person would say."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    for limit, unit, name in ((90, 1, "s"), (90 * 60, 60, "min"), (36 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86400:,.0f} days"


def metrics_line(metrics: dict[str, Any] | None, baselines: dict[str, Any] | None = None) -> str:
    """The metrics that a person looks at first, with what the baselines have: `auc 0.91 (constant 0.5)`."""
    usual = ("auc", "ndcg", "loss", "accuracy", "calibration", "deviance", "rmse", "mae", "coverage")
    first = (*usual, *(name for name in metrics or () if ":" in name))  # those of the user's own

    def beside(name: str) -> str:
        values = {who: metrics[name] for who, metrics in (baselines or {}).items() if metrics.get(name) is not None}
        if not values or name == "calibration":
            return ""
        return " (" + ", ".join(f"{who} {number(value)}" for who, value in values.items()) + ")"

    values = metrics or {}
    return ", ".join(f"{name} {number(values[name])}{beside(name)}" for name in first if values.get(name) is not None)


def now() -> str:
    """The time in UTC, ISO 8601 with milliseconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
