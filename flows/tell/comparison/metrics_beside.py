"""Two models on the rows that both scored: metrics, curves over one another, and the slices on which they differ most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flows.tell.comparison.compared import Compared
from flows.tell.comparison.outcome import UNCLEAR, capital, outcome_of, primary_of, rows_of_both
from flows.tell.comparison.sides import Side
from flows.tell.figures import score_charts
from flows.tell.figures.drawing import BAD, FIRST, GOOD, MUTED, short
from flows.tell.figures.strips import Strips
from flows.tell.parts import Chart, Part, Table
from flows.tell.sections.evaluation_tables import interval_text
from headway.messages import number, sentence, signed, window_text
from headway.metrics.base import Rows
from headway.metrics.classification import decided
from headway.tasks.table import task_of

_MOST_SLICES = 40
Facts = dict[str, Any]


def metrics(comparison: Compared, *, drawn: bool) -> Part | None:
    """The part on metrics; None where neither side has any.

    Values of the two stand side by side only where they are of the same rows.
    """
    a, b, same = comparison.a, comparison.b, comparison.same
    if not a.facts["metrics"] and not b.facts["metrics"]:
        return None
    charts = list(_charts(comparison)) if drawn else []
    if same is None:
        said = [sentence(str(comparison.value["no_difference"]))]
        return Part("Metrics", said, charts, [_own(side) for side in (a, b) if side.facts["metrics"]])
    said = [f"Both on the {rows_of_both(same.facts)}; differences are {b.label} − {a.label}, with 95% intervals."]
    tables = [Table("Metrics", list(_metrics(comparison)), whole=("difference",)), *_decisions(comparison)]
    return Part("Metrics", said, charts, [*tables, *(_own(side) for side in (a, b) if _further(side, same.facts))])


def _further(side: Side, found: Mapping[str, Any]) -> bool:
    """Whether a side's own evaluation is of other rows than those that both scored."""
    return found["run"] not in (None, side.facts["run"])


def _own(side: Side) -> Table:
    """The metrics of one side's own evaluation."""
    spans = window_text(side.facts["spans"]["eval"])
    rows = [
        {"metric": name, "value": _value(figure), "interval": _interval(figure)}
        for name, figure in side.facts["metrics"].items()
    ]
    return Table(f"{capital(side.label)} on the eval rows of {spans or 'its own run'}", rows)


def _metrics(comparison: Compared) -> Iterator[Facts]:
    a, b = comparison.a, comparison.b
    assert comparison.same is not None
    primary, better = primary_of(a, b)
    spreads = comparison.same.facts["metrics"]
    names = sorted(spreads, key=lambda name: name != primary)
    pictures = _pictures([{"metric": name, **spreads[name]} for name in names], better)
    for name, picture in zip(names, pictures, strict=True):
        spread = spreads[name]
        yield {
            "metric": name,
            a.label: number(spread["a"]),
            b.label: number(spread["b"]),
            "difference": signed(spread["difference"]) if spread["difference"] is not None else "",
            "its interval": _signed_interval(spread),
            "picture": picture,
            f"{b.label} is": outcome_of(name, spread, better if name == primary else None),
        }


def _value(figure: Facts | None) -> str:
    return "" if figure is None or figure["value"] is None else number(figure["value"])


def _interval(figure: Facts | None) -> str:
    return "" if figure is None else interval_text(figure["interval"])


def _signed_interval(spread: Mapping[str, Any] | None) -> str:
    interval = spread["interval"] if spread else None
    return "" if interval is None else f"{signed(interval[0])} to {signed(interval[1])}"


# --- figures


def _charts(comparison: Compared) -> Iterator[Chart]:
    """Curves over one another, of the rows that both scored; else of one alone, where only that has any."""
    a, b, same = comparison.a, comparison.b, comparison.same
    if same is None:
        return
    tables = [table for table in task_of(a.facts["task"]).tables if table.name in score_charts.DRAWN]
    mine, theirs = ({table.name: table.on(rows) for table in tables} for rows in same.rows)
    names = score_charts.Names(a.label, b.label)
    if mine:
        yield from score_charts.charts_of(mine, theirs, names, beside=bool(theirs))
    if all(_plain(rows) for rows in same.rows):
        if "residuals" in mine:
            yield score_charts.errors(*same.rows, names)
        elif "roc" in mine:
            yield score_charts.agreement(*same.rows, names)


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
    """The slices of the rows that both scored, those first on which the two differ most; None where there are none."""
    a, b, same = comparison.a, comparison.b, comparison.same
    metric, better = primary_of(a, b)
    of_metric = [] if same is None else [each for each in same.facts["slices"] if each["metric"] == metric]
    found = [each for each in of_metric if each["difference"] is not None]
    if not found:
        return None
    found.sort(key=lambda each: (_outcome(each, better) in (UNCLEAR, ""), -abs(each["difference"])))
    shown = found[:_MOST_SLICES]
    rows = [
        {
            "slice": f"{each['slice']}: {short(each['value'], 40)}",
            "rows": f"{each['rows']:,}",
            a.label: _value(each["a"]),
            b.label: _value(each["b"]),
            "difference": signed(each["difference"]),
            "its interval": _signed_interval(each),
            "picture": picture,
            f"{b.label} is": _outcome(each, better),
        }
        for each, picture in zip(shown, _pictures(shown, better), strict=True)
    ]
    more = f"{len(found) - len(shown):,} more: --json has all." if len(found) > len(shown) else ""
    said = f"{metric} on the same rows: first where the difference is beyond chance, the largest first. Of many slices some "
    said += "are beyond chance by chance: one in twenty."
    return Part("Slices", [said], tables=[Table("Slices", rows, more)])


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
