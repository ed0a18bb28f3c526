"""Formats numbers, lists, durations and the time for messages and files.

counted(1, "row")     # '1 row', and '2,000 rows'
some(["a", "b", "c"], 2) # 'a, b and 1 more'
metric_text(0.00002)       # '<0.0001'
signed(-0.0021)       # '-0.0021'
ends((0.7, 0.72))     # '0.7 to 0.72'
duration(102_700)     # '29 h'
size(306_188)         # '306 kB'
window_text(["2013-01", "2013-02"])       # '2013-01 to 2013-02'
"""

import datetime
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """Returns a count with its noun; `plural` where that is not `singular` with an s."""
    return f"{count:,} {agree(count, singular, plural or singular + 's')}"


def amount(done: float, total: float | None, unit: str) -> str:
    """Returns how far something is; "" where it has no unit, since it has not said yet."""
    of = f" of {total:,.0f}" if total else ""
    return f"{done:,.0f}{of} {unit}" if unit else ""


def agree(count: int, singular: str, plural: str) -> str:
    """Returns the word that agrees with a count."""
    return singular if count == 1 else plural


def some(names: Sequence[object], most: int, show: Callable[[object], str] = str, sep: str = ", ") -> str:
    """Returns the first few names, and the number of the others."""
    rest = f" and {len(names) - most:,} more" if len(names) > most else ""
    return sep.join(map(show, names[:most])) + rest


def listed(names: Sequence[str], word: str = "and") -> str:
    """Returns all of the names: a, b and c."""
    return f" {word} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def capital(text: str) -> str:
    """Returns a text that begins a sentence or a title."""
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """Returns a text that stands alone: a capital first, a full stop last; nothing of nothing."""
    return f"{capital(text)}{'' if text.endswith('.') else '.'}" if text else ""


def short(text: str, most: int) -> str:
    """Returns a text of at most so many letters, cut off if need be."""
    return text if len(text) <= most else text[: most - 3] + "..."


def did_you_mean(name: object, names: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """Returns a question with the most similar of the known names, or `otherwise`."""
    close = difflib.get_close_matches(str(name), list(names), 1, cutoff)
    return f"did you mean {close[0]!r}?" if close else otherwise


def number(value: float | None) -> str:
    """Returns a number with about four significant digits and thousands separators; 'undefined' for None."""
    if value is None:
        return "undefined"
    size = abs(value)
    if size < 1e-9:
        return "0"
    if size < 1e-4 or size >= 1e9:
        return f"{value:.3g}"
    if size >= 100:
        return f"{value:,.2f}".removesuffix(".00")
    text = f"{value:.4f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def metric_text(value: float | None) -> str:
    """Returns the value of a metric: as `number` has it; of one nearer to 0 than 0.0001 that it is, or -0.0000 where it
    is negative."""
    if value is not None and 1e-9 <= abs(value) < 1e-4:
        return "<0.0001" if value > 0 else "-0.0000"
    return number(value)


def signed(value: float | None) -> str:
    """Returns the text of a change, always with its sign: one nearer to 0 than 0.0001 is +0.0000 or -0.0000."""
    if value is None or value < 1e-9:
        return metric_text(value)
    return f"+{metric_text(value)}" if value >= 1e-4 else "+0.0000"


def ends(interval: Sequence[float] | None, show: Callable[[float], str] = metric_text) -> str:
    """Returns the ends of an interval; empty where there is none."""
    return "" if interval is None else f"{show(interval[0])} to {show(interval[1])}"


def between(interval: Sequence[float] | None, confidence: float | None = None) -> str:
    """Returns the interval of a change in words, with its confidence where that is known."""
    if interval is None:
        return "no interval"
    share = "" if confidence is None else f"{100 * confidence:.4g}% "
    return f"{share}interval {ends(interval, signed)}"


def chance(p: float | None) -> str:
    """Returns a p value in words."""
    return "p undefined" if p is None else "p < 0.001" if p < 0.001 else f"p {p:.3f}"


def percent(part: float) -> str:
    """Returns a share in whole percent, or as precisely as tells it from nothing and from all."""
    rest, digits = min(part, 1 - part), 0
    while 0 < rest < 0.01 / 10**digits and digits < 6:
        digits += 1
    return f"{part:.{digits}%}"


def duration(seconds: float) -> str:
    """Returns a time in the unit that a person would say."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    for limit, unit, name in ((90, 1, "s"), (90 * 60, 60, "min"), (36 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86400:,.0f} days"


def size(count: int) -> str:
    """Returns a number of bytes in the unit that a person would say, of a thousand each."""
    value, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return (
        counted(count, "byte") if unit == "bytes" else f"{value:.1f} {unit}" if value < 9.95 else f"{value:.0f} {unit}"
    )


def window_text(spans: Sequence[str] | None) -> str:
    """Returns the first and the last of some spans."""
    return "" if not spans else spans[0] if len(spans) == 1 else f"{spans[0]} to {spans[-1]}"


def of_window(spans: Sequence[str], word: str = "of") -> str:
    """Returns the same after what they are of; empty where a source has but one, without a name."""
    return "" if not spans or list(spans) == ["all"] else f" {word} {window_text(spans)}"


def usual(metrics: Mapping[str, Any]) -> list[str]:
    """Returns the names of the most important metrics that have a value, the first one first."""
    first = ("auc", "ndcg", "loss", "accuracy", "calibration", "deviance", "rmse", "mae", "coverage")
    own = [name for name in metrics if ":" in name]  # of the user's
    return [name for name in (*first, *own) if metrics.get(name) is not None]


def metrics_line(metrics: Mapping[str, Any] | None, baselines: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """Returns the most important metrics with those of the baselines: `auc 0.91 (constant 0.5)`."""

    def beside(name: str) -> str:
        values = {who: of[name] for who, of in (baselines or {}).items() if of.get(name) is not None}
        if not values or name == "calibration":
            return ""
        return " (" + ", ".join(f"{who} {metric_text(value)}" for who, value in values.items()) + ")"

    values = metrics or {}
    return ", ".join(f"{name} {metric_text(values[name])}{beside(name)}" for name in usual(values))


def when(time: object) -> str:
    """Returns a time of a record for a reader: '2026-11-23 04:14'."""
    return str(time or "")[:16].replace("T", " ")


def now() -> str:
    """Returns the time in UTC, ISO 8601 with milliseconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
