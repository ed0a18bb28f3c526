"""Selects the spans of a given window: the last n, or those of the last n days. Which window a run uses: `flows.config.window`.

    select_window(known, 30)                              # the last 30 spans
    select_window(known, "30d", until="2013-01-31")       # the spans of the 30 days that end with 31 January
    select_window(known, "12m", gaps="allow")             # a missing month is not an error

Spans whose names are dates of one kind ("2013", "2013-01", "2013-01-05", "2013-01-05T06") follow each other without a
gap: what should be there and is not is an error that names it, unless gaps are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from headway.errors import ConfigError
from headway.messages import agree, counted, some
from headway.sources.config import Gaps

_DATE = re.compile(r"(?!0000)\d{4}(-\d{2}(-\d{2}(T\d{2})?)?)?")
_WINDOW = re.compile(r"(\d+)([hdwmy]?)")
_UNITS: dict[str, Any] = {"h": "h", "d": "D", "w": "W"}
_RESOLUTIONS = ("Y", "M", "D", "h")
_NAMED = 5
_LONGEST, _FIRST = 10**9, np.datetime64("0001-01-01T00")
ALL = "all"
"""The window of every span there is, by name, as null does not differ from a window that is not given."""
Date = np.datetime64
"""A calendar period by its name: a year, a month, a day or an hour. The next one is `date + 1`."""


def parse_date(name: str) -> Date | None:
    """The date that a span's name means; None when it is not a date."""
    try:
        return np.datetime64(name) if _DATE.fullmatch(name) else None
    except ValueError:
        return None


def _resolution(date: Date) -> str:
    return np.datetime_data(date.dtype)[0]


def _before(end: Date, count: int, unit: str) -> Date:
    """The hour that is `count` units before `end`.

    Months and years follow the calendar. A day that the month does not have is the end of that month: a month before
    31 March is the end of February, which is 1 March, 0:00.
    """
    count, hour = min(count, _LONGEST), end.astype("M8[h]")
    if unit in _UNITS:
        return max(hour - np.timedelta64(count, _UNITS[unit]), _FIRST)
    month = hour.astype("M8[M]")
    first = month - count * (12 if unit == "y" else 1)
    begin = first.astype("M8[h]") + (hour - month.astype("M8[h]"))
    return max(min(begin, (first + 1).astype("M8[h]")), _FIRST)


def check_window(window: int | str | None) -> int | str | None:
    """Return a window: of digits the number of spans, of "all" the same.

    Raises:
        ValueError: it is none.
    """
    if isinstance(window, bool) or not isinstance(window, int | str | None):
        raise ValueError(f"{window!r} is not a window; write a number of spans, a time such as 30d or 12m, or all")
    try:
        count, unit = _parsed(window)
    except ConfigError as error:
        raise ValueError(f"{error.problem}; {error.fix}") from None
    return count if count is not None and unit is None else window


def select_window(
    spans: Sequence[str],
    window: int | str | None,
    until: str = "latest",
    gaps: Gaps = "error",
    *,
    where: str = "--window",
) -> list[str]:
    """The spans of a window, in order.

    Args:
        spans: all the spans there are, sorted.
        window: how many spans (3 or "3"), or how much time up to the end of `until` ("48h", "30d", "8w", "12m", "2y");
            None or "all": all of them.
        until: the last span; of spans that are dates also a longer stretch, whose last span is meant; or "latest".
        gaps: whether a window of dates may lack a span.
        where: the window was found, for an error.

    Raises:
        ConfigError: there is no such span, too few of them, or one is missing in between.
    """
    try:
        return _selected(spans, window, until, gaps)
    except ConfigError as error:
        raise ConfigError(error.problem, where=error.where or where, fix=error.fix) from None


def _selected(spans: Sequence[str], window: int | str | None, until: str, gaps: Gaps) -> list[str]:
    count, unit = _parsed(window)
    dates = _dates(spans)
    if unit is not None and dates is None:
        fix = f"use {{year}}/{{month}}/{{day}} in source.path, or count spans: --window {count}"
        raise _refused(f"a window of {window} needs spans that are named by their dates", fix)
    last = _until(spans, dates, until, gaps)
    upto = [name for name in spans if name <= last] if dates else list(spans[: spans.index(last) + 1])
    if dates is None:
        return _counted(upto, count, until)
    date = parse_date(until)
    end = (date if date is not None and _coarse(date, dates) else dates[last]) + 1
    begin = _before(end, count, unit) if unit is not None and count is not None else None
    chosen = _counted(upto, count, until) if begin is None else [name for name in upto if dates[name] >= begin]
    if not chosen:
        raise _refused(f"a window of {window} until {until} holds no span", "take a longer one")
    if gaps == "error":
        first = dates[chosen[0]]
        if begin is not None:
            first = begin.astype(first.dtype)
            first = first if first >= begin else first + 1
        _no_gaps(dates, chosen, first, end)
    return chosen


def _refused(problem: str, fix: str) -> ConfigError:
    return ConfigError(problem, fix=fix)


def _parsed(window: int | str | None) -> tuple[int | None, str | None]:
    """(number, unit) of a window such as 30d."""
    if window in (None, ALL):
        return None, None
    match = _WINDOW.fullmatch(str(window).strip())
    count = int(match[1]) if match else 0
    if match is None and not re.fullmatch(r"-\d+", str(window)):
        raise _refused(f"{window!r} is not a window", "write a number of spans, a time such as 30d or 12m, or all")
    if count < 1:
        raise _refused(f"a window of {window} spans is empty", "take at least 1")
    return count, (match[2] or None) if match else None


def _dates(spans: Sequence[str]) -> dict[str, Date] | None:
    """The spans' dates, when all are dates of one unit; else None."""
    dates = {name: date for name in spans if (date := parse_date(name)) is not None}
    same = len({date.dtype for date in dates.values()}) == 1
    return dates if same and len(dates) == len(spans) else None


def _until(spans: Sequence[str], dates: dict[str, Date] | None, until: str, gaps: Gaps) -> str:
    """The last span of the window."""
    if until == "latest":
        return spans[-1]
    if until in spans:
        return until
    date = parse_date(until)
    if dates and date is not None and _coarse(date, dates):
        upto = [name for name in spans if dates[name] + 1 <= date + 1]
        if upto and (gaps == "allow" or dates[upto[-1]] >= date):
            return upto[-1]
    raise ConfigError(
        f"there is no span {until!r}", where="--until", fix=f"there is: {', '.join(spans[-24:])} (or 'latest')"
    )


def _coarse(date: Date, dates: dict[str, Date]) -> bool:
    """Whether `date` is at least as long as a span."""
    span_date = next(iter(dates.values()))
    return _RESOLUTIONS.index(_resolution(date)) <= _RESOLUTIONS.index(_resolution(span_date))


def _no_gaps(dates: dict[str, Date], chosen: Sequence[str], first: Date, end: Date) -> None:
    """Raise ConfigError that names the spans `chosen` lacks from `first` to `end`."""
    covered = {dates[name] for name in chosen}
    missing = [str(date) for date in np.arange(first, end.astype(first.dtype)) if date not in covered]
    if missing:
        problem = f"the window lacks the {agree(len(missing), 'span', 'spans')} {some(missing, _NAMED)}"
        raise _refused(problem, "bring the data, take another window, or say 'gaps: allow' under source")


def _counted(upto: list[str], count: int | None, until: str) -> list[str]:
    if count is None:
        return upto
    if len(upto) < count:
        problem = (
            f"{counted(count, 'span')} wanted, but there {agree(len(upto), 'is', 'are')} only {len(upto)} up to {until}"
        )
        raise _refused(problem, f"take --window {len(upto)} or less, or a later --until")
    return upto[-count:]
