"""The metrics of both sides with their intervals, curves over one another, and the slices on which they differ most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flows.tell.comparison.compared import Compared
from flows.tell.comparison.outcome import UNCLEAR, capital, outcome_of, primary_of, rows_of_both
from flows.tell.evaluation_tables import interval_text
from flows.tell.figures import score_charts
from flows.tell.figures.drawing import BAD, FIRST, GOOD, MUTED, SECOND, short
from flows.tell.figures.strips import Strips
from flows.tell.parts import Chart, Part, Table
from headway.messages import number, signed
from headway.metrics.base import Rows
from headway.metrics.classification import decided
from headway.tasks.table import task_of

_MOST_SLICES = 40
Facts = dict[str, Any]


def metrics(comparison: Compared) -> Part | None:
    """The part on metrics; None where neither side has any."""
    a, b, same = comparison.a, comparison.b, comparison.same
    if not a.facts["metrics"] and not b.facts["metrics"]:
        return None
    if same is not None:
        sentences = [
            f"Differences are {b.label} − {a.label} on the {rows_of_both(same.facts)}, with 95% intervals. "
            "The metrics are those of each one's own evaluation."
        ]
    else:
        sentences = [f"{capital(comparison.value['no_difference'])}."]
    charts = list(_charts(comparison))
    tables = [Table("Metrics", list(_metrics(comparison)), _NOTE), *_decisions(comparison)]
    return Part("Metrics", sentences, charts, tables)


_NOTE = "Both intervals: the first side above, the second below, on one axis per metric."


def _metrics(comparison: Compared) -> Iterator[Facts]:
    a, b = comparison.a, comparison.b
    mine, theirs = a.facts["metrics"], b.facts["metrics"]
    primary, better = primary_of(a, b)
    names = sorted(mine | theirs, key=lambda name: name != primary)
    spreads = comparison.value["difference"]["metrics"] if comparison.value["difference"] else {}
    strips = Strips(len(names), height=18)
    for row, name in enumerate(names):
        _both(strips, row, mine.get(name), theirs.get(name))
    for name, picture in zip(names, strips.svgs(), strict=True):
        spread = spreads.get(name)
        yield {
            "metric": name,
            a.label: _value(mine.get(name)),
            f"interval of {a.label}": _interval(mine.get(name)),
            b.label: _value(theirs.get(name)),
            f"interval of {b.label}": _interval(theirs.get(name)),
            "both intervals": picture,
            "difference": signed(spread["difference"]) if spread and spread["difference"] is not None else "",
            "its interval": _signed_interval(spread),
            f"{b.label} is": outcome_of(name, spread, better if name == primary else None),
        }


def _both(strips: Strips, row: int, mine: Facts | None, theirs: Facts | None) -> None:
    spans = [_ends(each) for each in (mine, theirs)]
    known = [end for span in spans if span is not None for end in span]
    if not known:
        return
    low, high = min(known), max(known)
    width = (high - low) or 1.0
    for span, figure, colour, at in zip(spans, (mine, theirs), (FIRST, SECOND), (0.72, 0.28), strict=True):
        if span is None or figure is None:
            continue
        left, value, right = (0.03 + 0.94 * (end - low) / width for end in (span[0], figure["value"], span[1]))
        strips.box(row, left, right, colour, low=at - 0.09, high=at + 0.09, alpha=0.6)
        strips.box(row, value - 0.012, value + 0.012, colour, low=at - 0.22, high=at + 0.22)


def _ends(figure: Facts | None) -> tuple[float, float] | None:
    if figure is None or figure["value"] is None:
        return None
    low, high = figure["interval"] or (figure["value"], figure["value"])
    return min(low, figure["value"]), max(high, figure["value"])


def _value(figure: Facts | None) -> str:
    return "" if figure is None or figure["value"] is None else number(figure["value"])


def _interval(figure: Facts | None) -> str:
    return "" if figure is None else interval_text(figure["interval"])


def _signed_interval(spread: Mapping[str, Any] | None) -> str:
    interval = spread["interval"] if spread else None
    return "" if interval is None else f"{signed(interval[0])} to {signed(interval[1])}"


# --- figures


def _charts(comparison: Compared) -> Iterator[Chart]:
    a, b, same = comparison.a, comparison.b, comparison.same
    mine, theirs = (side.measured.get("tables") or {} for side in (a, b))
    if same is not None:
        first, second = same.rows
        tables = [table for table in task_of(a.facts["task"]).tables if table.name in score_charts.DRAWN]
        mine, theirs = ({table.name: table.on(rows) for table in tables} for rows in (first, second))
    names = score_charts.Names(a.label, b.label)
    if mine:
        yield from score_charts.charts_of(mine, theirs, names, beside=bool(theirs))
    elif theirs:
        yield from score_charts.charts_of(theirs, {}, score_charts.Names(b.label))
    if same is not None and all(_plain(rows) for rows in same.rows):
        first, second = same.rows
        if "residuals" in mine:
            yield score_charts.errors(first, second, names)
        elif "roc" in mine:
            yield score_charts.agreement(first, second, names)


def _plain(rows: Rows) -> bool:
    return rows.prediction.ndim == 1 and rows.known and rows.total > 0


# --- decisions


def _decisions(comparison: Compared) -> Iterator[Table]:
    """How many rows each side gets right, of a task that decides between classes."""
    same, task = comparison.same, comparison.a.facts["task"]
    if same is None or task not in ("binary", "multiclass") or not all(rows.known for rows in same.rows):
        return
    right = [decided(rows.prediction) == rows.label for rows in same.rows]
    cells = {
        "both": right[0] & right[1],
        f"only {comparison.a.label}": right[0] & ~right[1],
        f"only {comparison.b.label}": ~right[0] & right[1],
        "neither": ~right[0] & ~right[1],
    }
    rows = [
        {"who is right": what, "rows": f"{int(at.sum()):,}", "share": f"{at.mean():.1%}"} for what, at in cells.items()
    ]
    how = "A probability of 0.5 or more counts as class 1." if task == "binary" else "The likeliest class counts."
    yield Table("Rows whose class they get right", rows, how)


# --- slices


def slices(comparison: Compared) -> Part | None:
    """The slices, those first on which the two differ most; None where there are none."""
    a, b = comparison.a, comparison.b
    metric, better = primary_of(a, b)
    found = list(_slices(comparison, metric))
    if metric is None or not found:
        return None
    found.sort(key=lambda each: (_outcome(each, better) in (UNCLEAR, ""), -abs(each["difference"])))
    shown = found[:_MOST_SLICES]
    pictures = _pictures(shown, better)
    rows = [
        {
            "slice": f"{each['slice']}: {short(each['value'], 40)}",
            "rows": f"{each['rows']:,}" if isinstance(each["rows"], int) else each["rows"],
            a.label: _value(each["a"]),
            b.label: _value(each["b"]),
            "difference": signed(each["difference"]),
            "its interval": _signed_interval(each),
            "picture": picture,
            f"{b.label} is": _outcome(each, better),
        }
        for each, picture in zip(shown, pictures, strict=True)
    ]
    note = "The line in the picture marks equal values. " if comparison.same is not None else ""
    if more := len(found) - len(shown):
        note += f"{more:,} more" + (": --json has all." if comparison.same is not None else ", which differ less.")
    if comparison.same is not None:
        sentence = f"{metric} on the same rows: first where the difference is beyond chance, the largest first."
        sentence += " Of many slices some are beyond chance by chance: one in twenty."
    else:
        sentence = (
            f"{metric} on each one's own rows, the largest difference first; no interval says whether it is chance."
        )
    return Part("Slices", [sentence], tables=[Table("Slices", rows, note)])


def _slices(comparison: Compared, metric: str | None) -> Iterator[Facts]:
    if comparison.same is not None:
        for each in comparison.same.facts["slices"]:
            if each["metric"] == metric and each["difference"] is not None:
                yield each
        return
    mine, theirs = (side.measured.get("by_slice") or {} for side in (comparison.a, comparison.b))
    for name, values in mine.items():
        for value, facts in values.items():
            other = theirs.get(name, {}).get(value)
            if other is None or facts.get(metric) is None or other.get(metric) is None:
                continue
            figures = [
                {"value": each[metric], "interval": (each.get("intervals") or {}).get(metric)}
                for each in (facts, other)
            ]
            yield {
                "slice": name,
                "value": value,
                "rows": f"{facts['rows']:,} and {other['rows']:,}",
                "a": figures[0],
                "b": figures[1],
                "difference": other[metric] - facts[metric],
                "interval": None,
                "metric": metric,
            }


def _outcome(each: Facts, better: str | None) -> str:
    return outcome_of(each["metric"], each, better)


def _pictures(found: list[Facts], better: str | None) -> list[Any]:
    """A picture of each difference and its interval, all on one axis."""
    if all(each["interval"] is None for each in found):
        return [""] * len(found)
    ends = [0.0, *(end for each in found for end in each["interval"] or (each["difference"],))]
    low, high = min(ends), max(ends)
    width = (high - low) or 1.0
    strips = Strips(len(found), limits=(low - 0.03 * width, high + 0.03 * width), height=14)
    colours = {"better": GOOD, "worse": BAD}
    for row, each in enumerate(found):
        colour = colours.get(_outcome(each, better), FIRST)
        strips.box(row, -0.004 * width, 0.004 * width, MUTED, low=0, high=1, alpha=0.6)
        left, right = each["interval"] or (each["difference"],) * 2
        strips.box(row, left, right, colour, low=0.42, high=0.58, alpha=0.6)
        at = each["difference"]
        strips.box(row, at - 0.012 * width, at + 0.012 * width, colour, low=0.25, high=0.75)
    return strips.svgs()
