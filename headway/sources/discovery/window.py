"""Selects the spans of one run: the last n, or those of the last n days.

    select_window(known, 30)                              # the last 30 spans
    select_window(known, "30d", until="2013-01-31")       # the spans of the 30 days that end with 31 January
    select_window(known, "12m", gaps="allow")             # a missing month is no error

Spans whose names are dates of one kind ("2013", "2013-01", "2013-01-05", "2013-01-05T06") follow each other without a
gap: what should be there and is not is an error that names it, unless gaps are allowed.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from headway.errors import ConfigError
from headway.messages import agree, some
from headway.sources.config import Gaps

_DATE = re.compile(r"(\d{4})(?:-(\d{2})(?:-(\d{2})(?:T(\d{2}))?)?)?")
_WINDOW = re.compile(r"(\d+)([hdwmy]?)")
_UNITS = {"h": "hour", "d": "day", "w": "week", "m": "month", "y": "year"}
_RESOLUTIONS = ("year", "month", "day", "hour")
_NAMED = 5


@dataclass(frozen=True, order=True)
class Date:
    """A calendar period by its name: a year, a month, a day or an hour."""

    start: datetime
    resolution: str

    def end(self) -> datetime:
        return _later(self.start, 1, self.resolution)

    def name(self) -> str:
        return self.start.isoformat()[: {"year": 4, "month": 7, "day": 10, "hour": 13}[self.resolution]]


def parse_date(name: str) -> Date | None:
    """The date that a span is called by; None when its name is none."""
    match = _DATE.fullmatch(name)
    if match is None:
        return None
    parts = [int(part) for part in match.groups() if part is not None]
    try:
        return Date(datetime(*[*parts, 1, 1][: max(3, len(parts))]), _RESOLUTIONS[len(parts) - 1])  # type: ignore[arg-type]
    except ValueError:
        return None


def _later(date: datetime, count: int, unit: str) -> datetime:
    """`date` plus `count` units, which may be negative.

    Months and years follow the calendar. A day that the month does not have is the end of that month: a month before
    31 March is the end of February, which is 1 March, 0:00.
    """
    if unit in ("month", "year"):
        months = date.year * 12 + date.month - 1 + count * (12 if unit == "year" else 1)
        if not 12 <= months < 10_000 * 12:
            return datetime.min if count < 0 else datetime.max
        year, month = months // 12, months % 12 + 1
        if date.day > calendar.monthrange(year, month)[1]:
            return datetime(year, month + 1, 1)  # such a month is never December
        return date.replace(year=year, month=month)
    try:
        return date + timedelta(hours=count * {"hour": 1, "day": 24, "week": 168}[unit])
    except OverflowError:
        return datetime.min if count < 0 else datetime.max


def select_window(
    known: Sequence[str], window: int | str | None, until: str = "latest", gaps: Gaps = "error"
) -> list[str]:
    """The spans of a window, in order.

    Args:
        known: all the spans there are, sorted.
        window: how many spans (3 or "3"), or how much time up to the end of `until` ("48h", "30d", "8w", "12m", "2y");
            None: all of them.
        until: the last span; of spans that are dates also a longer stretch, whose last span is meant; or "latest".
        gaps: whether a window of dates may lack a span.

    Raises:
        ConfigError: there is no such span, too few of them, or one is missing in between.
    """
    count, unit = _parsed(window)
    dates = _dates(known)
    if unit is not None and dates is None:
        raise ConfigError(
            f"a window of {window} needs spans that are named by their dates",
            where="--window",
            fix=f"use {{year}}/{{month}}/{{day}} in source.path, or count spans: --window {count}",
        )
    last = _until(known, dates, until, gaps)
    upto = [name for name in known if name <= last] if dates else list(known[: known.index(last) + 1])
    if dates is None:
        return _counted(upto, count, until)
    end = _end(dates, last, until)
    if unit is not None and count is not None:
        begin = _later(end, -count, _UNITS[unit])
        chosen = [name for name in upto if dates[name].start >= begin]
        if gaps == "error" and chosen:
            _no_gaps(dates, [_first_from(dates[chosen[0]], begin), *chosen], end)
    else:
        chosen = _counted(upto, count, until)
        if gaps == "error":
            _no_gaps(dates, chosen, end)
    if not chosen:
        raise ConfigError(
            f"a window of {window} until {until} holds no span", where="--window", fix="take a longer one"
        )
    return chosen


def _parsed(window: int | str | None) -> tuple[int | None, str | None]:
    """(how many, of which unit)"""
    if window is None:
        return None, None
    match = _WINDOW.fullmatch(str(window).strip())
    count = int(match[1]) if match else 0
    if match is None and not re.fullmatch(r"-\d+", str(window)):
        raise ConfigError(
            f"{window!r} is not a window", where="--window", fix="a number of spans, or a time such as 30d"
        )
    if count < 1:
        raise ConfigError(f"a window of {window} spans is empty", where="--window", fix="take at least 1")
    return count, (match[2] or None) if match else None


def _dates(known: Sequence[str]) -> dict[str, Date] | None:
    """The spans' dates, when all are dates of one kind."""
    dates = {name: date for name in known if (date := parse_date(name))}
    same = len({date.resolution for date in dates.values()}) == 1
    return dates if same and len(dates) == len(known) else None


def _until(known: Sequence[str], dates: dict[str, Date] | None, until: str, gaps: Gaps) -> str:
    """The last span of the window."""
    if until == "latest":
        return known[-1]
    if until in known:
        return until
    wanted = parse_date(until)
    if dates and wanted and _coarse(wanted, dates):
        last = wanted.end()
        upto = [name for name in known if dates[name].end() <= last]
        if upto and (gaps == "allow" or dates[upto[-1]].start >= wanted.start):
            return upto[-1]
    raise ConfigError(
        f"there is no span {until!r}", where="--until", fix=f"there is: {', '.join(known[-24:])} (or 'latest')"
    )


def _coarse(wanted: Date, dates: dict[str, Date]) -> bool:
    """Whether `wanted` is as long as a span, or longer."""
    one = next(iter(dates.values()))
    return _RESOLUTIONS.index(wanted.resolution) <= _RESOLUTIONS.index(one.resolution)


def _end(dates: dict[str, Date], last: str, until: str) -> datetime:
    wanted = parse_date(until)
    return wanted.end() if wanted and _coarse(wanted, dates) else dates[last].end()


def _first_from(date: Date, begin: datetime) -> Date:
    """The earliest stretch like `date` that does not start before `begin`."""
    start = date.start
    while (before := _later(start, -1, date.resolution)) >= begin and before < start:
        start = before
    return Date(start, date.resolution)


def _no_gaps(dates: dict[str, Date], chosen: Sequence[str | Date], end: datetime) -> None:
    """ConfigError that names what is missing between the first of `chosen` and `end`."""
    if not chosen:
        return
    first = chosen[0] if isinstance(chosen[0], Date) else dates[chosen[0]]
    there = {dates[name].start for name in chosen if isinstance(name, str)}
    missing, at = list[str](), first
    while at.end() <= end and at.start < at.end():
        if at.start not in there:
            missing.append(at.name())
        at = Date(at.end(), at.resolution)
    if missing:
        raise ConfigError(
            f"the window lacks the {agree(len(missing), 'span', 'spans')} {some(missing, _NAMED)}",
            where="--window",
            fix="bring the data, take another window, or say 'gaps: allow' under source",
        )


def _counted(upto: list[str], count: int | None, until: str) -> list[str]:
    if count is None:
        return upto
    if len(upto) < count:
        raise ConfigError(
            f"a window of {count} until {until} needs more spans than the {len(upto)} there are",
            where="--window",
            fix=f"take --window {len(upto)} or less, or a later --until",
        )
    return upto[-count:]
