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
    """Returns a count with its noun, "2,000 rows". `plural` is needed only if the plural is not the singular with an s."""
    return f"{count:,} {agree(count, singular, plural or singular + 's')}"


def amount(done: float, total: float | None, unit: str) -> str:
    """Returns progress as text, "300 of 1,000 rows"; "" if `unit` is "", which means that nothing was reported yet."""
    of = f" of {total:,.0f}" if total else ""
    return f"{done:,.0f}{of} {unit}" if unit else ""


def agree(count: int, singular: str, plural: str) -> str:
    """Returns `singular` for a count of 1, else `plural`."""
    return singular if count == 1 else plural


def some(names: Sequence[object], most: int, show: Callable[[object], str] = str, sep: str = ", ") -> str:
    """Returns the first `most` names as text, joined by `sep`, and how many more there are: "a, b and 1 more"."""
    rest = f" and {len(names) - most:,} more" if len(names) > most else ""
    return sep.join(map(show, names[:most])) + rest


def listed(names: Sequence[str], word: str = "and") -> str:
    """Returns all names as text: "a, b and c". `word` stands before the last name."""
    return f" {word} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def capital(text: str) -> str:
    """Returns the text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """Returns the text as a sentence: its first letter in upper case, and a full stop at the end; "" for ""."""
    return f"{capital(text)}{'' if text.endswith('.') else '.'}" if text else ""


def short(text: str, most: int) -> str:
    """Returns the text. If it is longer than `most` characters, it is cut to that length and ends with "..."."""
    return text if len(text) <= most else text[: most - 3] + "..."


def did_you_mean(name: object, names: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """Returns "did you mean NAME?" with the name that is most similar; `otherwise` when no name is similar."""
    close = difflib.get_close_matches(str(name), list(names), 1, cutoff)
    return f"did you mean {close[0]!r}?" if close else otherwise


def number(value: float | None) -> str:
    """Returns a number as text with about four significant digits and thousands separators; 'undefined' for None."""
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
    """Returns the value of a metric as text, as `number` does. Values between 0 and 0.0001 are '<0.0001'; values between -0.0001
    and 0 are '-0.0000'; values nearer to 0 than 1e-9 are '0'."""
    if value is not None and 1e-9 <= abs(value) < 1e-4:
        return "<0.0001" if value > 0 else "-0.0000"
    return number(value)


def signed(value: float | None) -> str:
    """Returns a change as text with its sign. A change of less than 0.0001 is '+0.0000' or '-0.0000'; of less than 1e-9, '0'."""
    if value is None or value < 1e-9:
        return metric_text(value)
    return f"+{metric_text(value)}" if value >= 1e-4 else "+0.0000"


def ends(interval: Sequence[float] | None, show: Callable[[float], str] = metric_text) -> str:
    """Returns the two ends of an interval as text, '0.7 to 0.72'; "" when the interval is None."""
    return "" if interval is None else f"{show(interval[0])} to {show(interval[1])}"


def interval_text(interval: Sequence[float] | None, confidence: float | None = None) -> str:
    """Returns the interval of a change as text, '95% interval -0.01 to +0.02', the 95% only if `confidence` is given."""
    if interval is None:
        return "no interval"
    share = "" if confidence is None else f"{100 * confidence:.4g}% "
    return f"{share}interval {ends(interval, signed)}"


def p_text(p: float | None) -> str:
    """Returns a p value as text: 'p 0.012', 'p < 0.001'; 'p undefined' for None."""
    return "p undefined" if p is None else "p < 0.001" if p < 0.001 else f"p {p:.3f}"


def percent(part: float) -> str:
    """Returns a share in percent, with up to six decimals, so that a share near 0 or 1 does not show as 0% or 100%."""
    rest, digits = min(part, 1 - part), 0
    while 0 < rest < 0.01 / 10**digits and digits < 6:
        digits += 1
    return f"{part:.{digits}%}"


def duration(seconds: float) -> str:
    """Returns a duration as text, in seconds, minutes, hours or days, whichever suits its length."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    for limit, unit, name in ((90, 1, "s"), (90 * 60, 60, "min"), (36 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86400:,.0f} days"


def size(count: int) -> str:
    """Returns a number of bytes as text, in bytes, kB, MB, GB or TB, whichever suits; a kB is 1000 bytes."""
    value, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return (
        counted(count, "byte") if unit == "bytes" else f"{value:.1f} {unit}" if value < 9.95 else f"{value:.0f} {unit}"
    )


def window_text(spans: Sequence[str] | None) -> str:
    """Returns a window as text by its first and last span, '2013-01 to 2013-02'; "" when there are no spans."""
    return "" if not spans else spans[0] if len(spans) == 1 else f"{spans[0]} to {spans[-1]}"


def of_window(spans: Sequence[str], word: str = "of") -> str:
    """Returns a window as text after `word`: ' of 2013-01 to 2013-02'; "" for no spans, and for a source without spans."""
    return "" if not spans or list(spans) == ["all"] else f" {word} {window_text(spans)}"


def main_metrics(metrics: Mapping[str, Any]) -> list[str]:
    """Returns the names of the metrics that have a value: first the main ones, then the user's own (with a colon in the name)."""
    first = ("auc", "ndcg", "loss", "accuracy", "calibration", "deviance", "rmse", "mae", "coverage")
    own = [name for name in metrics if ":" in name]  # of the user's
    return [name for name in (*first, *own) if metrics.get(name) is not None]


def metrics_line(metrics: Mapping[str, Any] | None, baselines: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """Returns the main metrics as text. The baselines' follow in brackets, but for calibration: 'auc 0.91 (constant 0.5)'."""

    def beside(name: str) -> str:
        values = {who: of[name] for who, of in (baselines or {}).items() if of.get(name) is not None}
        if not values or name == "calibration":
            return ""
        return " (" + ", ".join(f"{who} {metric_text(value)}" for who, value in values.items()) + ")"

    values = metrics or {}
    return ", ".join(f"{name} {metric_text(values[name])}{beside(name)}" for name in main_metrics(values))


def when(time: object) -> str:
    """Returns the ISO time of a record as text for people, '2026-11-23 04:14'; "" for no time."""
    return str(time or "")[:16].replace("T", " ")


def now() -> str:
    """Returns the present time in UTC, ISO 8601 with milliseconds: '2026-11-23T04:14:05.123Z'."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
