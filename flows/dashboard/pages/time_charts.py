"""Charts of what changes over time: champions against those before, a champion's metric and the drift of columns by span."""

from collections.abc import Sequence

from markupsafe import Markup

from flows.tell.figures.drawing import BAD, FIRST, GOOD, MUTED, SECOND, Plot, figure, one_line
from flows.tell.paired import Paired, outcome_of
from flows.tell.rendering.parts import Chart
from headway.messages import number

MOST_POINTS, _MOST_TICKS = 60, 4
_COLOURS = (FIRST, SECOND, GOOD, BAD, MUTED)
Points = tuple[tuple[int, float], ...]
"""(place on the x axis, value)"""


def _drawn(
    places: tuple[str, ...], lines: tuple[Points, ...], level: float | None, y_label: str, label: str, from_zero: bool
) -> Markup:
    def draw(axes: Plot) -> None:
        for colour, points in zip(_COLOURS, lines, strict=False):
            axes.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=3.5)
        if level is not None:
            axes.axhline(level, color=MUTED, linewidth=1, linestyle="--")
        _places(axes, places)
        axes.set_ylabel(y_label)
        if from_zero:
            axes.set_ylim(bottom=0)

    return figure(draw, label=label)


def _places(axes: Plot, places: Sequence[str]) -> None:
    """x is a place by its name."""
    ticks = range(0, len(places), -(-len(places) // _MOST_TICKS))
    axes.set_xticks(ticks, [one_line(places[tick], 12) for tick in ticks])
    axes.set_xlim(-0.4, max(len(places) - 1, 1) + 0.4)


def trend_chart(title: str, metric: str, points: Sequence[tuple[str, float]], at_first: tuple[float, str]) -> Chart:
    """One model's metric by span; each span has rows of its own.

    Args:
        points: (span, value).
        at_first: its value at its promotion, and of which rows.
    """
    places, values = zip(*points, strict=True)
    said = f"{title}, from {number(values[0])} on {places[0]} to {number(values[-1])} on {places[-1]}"
    svg = _drawn(places, (tuple(enumerate(values)),), at_first[0], one_line(metric, 30), said, False)
    keys = [("first", metric), ("muted", f"at its promotion, on {at_first[1]}")]
    note = "A trend of one model: the rows of each span are others, and may be harder or easier."
    return Chart(title, svg, keys, note)


def differences_chart(found: tuple[Paired, ...]) -> Chart:
    """Each champion minus the one that it replaced, both on the same rows, with the interval."""
    checks = [pair.checks[0] for pair in found]
    metric = str(checks[0].metric)

    def draw(axes: Plot) -> None:
        axes.axhline(0, color=MUTED, linewidth=1, linestyle="--")
        for place, check in enumerate(checks):
            colour = {"better": GOOD, "worse": BAD}.get(outcome_of(check), FIRST)
            if check.interval is not None:
                axes.plot([place, place], list(check.interval), color=colour)
            axes.plot([place], [check.change or 0.0], color=colour, marker="o", markersize=4, linestyle="")
        _places(axes, [f"v{pair.version}" for pair in found])
        axes.set_ylabel(f"difference in {one_line(metric, 20)}")

    title = f"{metric} of each champion minus that of the one before it, on the same rows"
    said = f"{title}: " + "; ".join(f"version {pair.version}: {pair.text}" for pair in found[-3:])
    svg = figure(draw, label=said)
    confidences = {check.confidence for check in checks if check.interval is not None}
    share = f"{100 * known:.4g}% " if len(confidences) == 1 and (known := confidences.pop()) else ""
    note = f"Each pair on the eval rows of the newer one's run; the lines are {share}intervals."
    return Chart(title, svg, note=note)


def drift_chart(title: str, places: Sequence[str], columns: dict[str, dict[int, float]], note: str) -> Chart:
    """The distance of columns from the champion's train rows by span; the five that moved furthest."""
    chosen = sorted(columns, key=lambda name: -max(columns[name].values()))[: len(_COLOURS)]
    lines = tuple(tuple(sorted(columns[name].items())) for name in chosen)
    furthest = max(max(columns[name].values()) for name in chosen)
    said = f"{title}: {', '.join(chosen)}; at most {number(furthest)}"
    svg = _drawn(tuple(places), lines, None, "distance", said, True)
    keys = [(colour, one_line(name, 40)) for colour, name in zip(_COLOURS, chosen, strict=False)]
    return Chart(title, svg, keys, note=note)
