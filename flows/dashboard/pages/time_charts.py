"""Charts of what changes over time: a champion's metric, and the drift of columns, span by span.

Drawn once for the same values, one at a time: matplotlib's settings belong to the process.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from flows.tell.figures.drawing import BAD, FIRST, GOOD, MUTED, SECOND, Plot, figure, short
from flows.tell.parts import Chart
from headway.messages import number

DRAWING = threading.Lock()
MOST_POINTS = 60
_COLOURS = (("first", FIRST), ("second", SECOND), ("good", GOOD), ("bad", BAD), ("muted", MUTED))
Points = tuple[tuple[int, float], ...]
"""(place on the x axis, value)"""


@functools.lru_cache(maxsize=64)
def _drawn(
    places: tuple[str, ...], lines: tuple[Points, ...], level: float | None, y_label: str, label: str, from_zero: bool
) -> Markup:
    def draw(axes: Plot) -> None:
        for (_, colour), points in zip(_COLOURS, lines, strict=False):
            axes.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=3.5)
        if level is not None:
            axes.axhline(level, color=MUTED, linewidth=1, linestyle="--")
        at = MaxNLocator(4, integer=True, min_n_ticks=1).tick_values(0, max(len(places) - 1, 1))
        ticks = [int(tick) for tick in at if 0 <= tick < len(places)]
        axes.set_xticks(ticks, [short(places[tick], 12) for tick in ticks])
        axes.set_xlim(-0.4, max(len(places) - 1, 1) + 0.4)
        axes.set_ylabel(y_label)
        if from_zero:
            axes.set_ylim(bottom=0)

    with DRAWING:
        return figure(draw, name=label, label=label)


def metric_chart(title: str, metric: str, places: Sequence[str], values: Sequence[float], **settings: object) -> Chart:
    """A metric by place.

    Args:
        settings: level (a dashed line), level_name, note.
    """
    level = settings.get("level")
    level = float(level) if isinstance(level, int | float) else None
    points = tuple(enumerate(values))
    said = f"{title}: {metric} from {number(values[0])} at {places[0]} to {number(values[-1])} at {places[-1]}"
    svg = _drawn(tuple(places), (points,), level, short(metric, 30), said, False)
    keys = [("first", metric)] + ([("muted", str(settings.get("level_name")))] if level is not None else [])
    return Chart(title, svg, keys, note=str(settings.get("note") or ""))


def drift_chart(title: str, places: Sequence[str], columns: dict[str, dict[int, float]], note: str) -> Chart:
    """The distance of columns from the champion's train rows by span; the five that moved furthest."""
    chosen = sorted(columns, key=lambda name: -max(columns[name].values()))[: len(_COLOURS)]
    lines = tuple(tuple(sorted(columns[name].items())) for name in chosen)
    furthest = max(max(columns[name].values()) for name in chosen)
    said = f"{title}: {', '.join(chosen)}; at most {number(furthest)}"
    svg = _drawn(tuple(places), lines, None, "distance", said, True)
    keys = [(key, short(name, 40)) for (key, _), name in zip(_COLOURS, chosen, strict=False)]
    return Chart(title, svg, keys, note=note)
