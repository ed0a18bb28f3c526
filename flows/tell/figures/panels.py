"""Small figures with axes, many of one kind side by side, as SVG: lines and histograms.

    panel = Panel("predictions by delay", x=("0", "50", "100"), y=("0", "0.5"))
    panel.line([(0.0, 0.2), (1.0, 0.9)], FIRST)             # shares of the width and the height
    panel.steps([0.2, 1.0, 0.4], SECOND, dashed=True)
    panel.svg()

Their axes have only the labels that they are given: `flows.tell.figures.drawing` has larger ones with ticks.
"""

from collections.abc import Sequence

from markupsafe import Markup, escape

from flows.tell.figures.drawing import short
from headway.messages import number
from headway.schema.calendar_days import Temporal, moment

_WIDTH, _HEIGHT = 240.0, 120.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 40.0, 8.0, 8.0, 20.0
_LONGEST = 12
"""Characters of a label."""


class Panel:
    """A figure with one pair of axes.

    Args:
        label: what it shows, for who cannot see it.
        x: the labels below the axis, evenly spread from its left end to its right.
        y: the same beside the axis, from its foot to its top.
    """

    def __init__(self, label: str, *, x: Sequence[str], y: Sequence[str]):
        self._label, self._x, self._y = label, x, y
        self._shapes: list[str] = []

    def line(self, points: Sequence[tuple[float, float]], colour: str, *, dashed: bool = False) -> None:
        """Add a line through points; both coordinates are 0 to 1, upwards."""
        self._shapes.append(self._path(points, f"fill: none; {_stroke(colour, dashed)}"))

    def steps(self, heights: Sequence[float], colour: str, *, fill: bool = False, dashed: bool = False) -> None:
        """Add a histogram of bins of equal width; heights are 0 to 1; none: nothing."""
        if not len(heights):
            return
        style = f"fill: var(--{colour}); opacity: 0.4" if fill else f"fill: none; {_stroke(colour, dashed)}"
        self._shapes.append(self._path(_outline(heights), style))

    def svg(self) -> Markup:
        """The figure as an <svg> element."""
        head = f'<svg class="panel" role="img" aria-label="{escape(self._label)}" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}">'
        return Markup(f"{head}{self._axes()}{''.join(self._shapes)}</svg>")

    def _axes(self) -> str:
        corners = [self._point(*corner) for corner in ((0, 1), (0, 0), (1, 0))]
        path = "M" + "L".join(f"{x:.4g} {y:.4g}" for x, y in corners)
        texts = [f'<path d="{path}" style="fill: none; stroke: var(--line)"/>']
        for place, text in enumerate(self._x):
            share = place / max(len(self._x) - 1, 1)
            x, _ = self._point(share, 0)
            anchor = "start" if share == 0 else "end" if share == 1 else "middle"
            texts.append(_text(text, x, _HEIGHT - 5, anchor))
        for place, text in enumerate(self._y):
            _, y = self._point(0, place / max(len(self._y) - 1, 1))
            texts.append(_text(text, _LEFT - 4, y + 4, "end"))
        return "".join(texts)

    def _path(self, points: Sequence[tuple[float, float]], style: str) -> str:
        path = "M" + "L".join(f"{x:.4g} {y:.4g}" for x, y in (self._point(*point) for point in points))
        return f'<path d="{path}" style="{style}"/>'

    @staticmethod
    def _point(x: float, y: float) -> tuple[float, float]:
        """A point in the picture, whose y goes downwards."""
        return _LEFT + x * (_WIDTH - _LEFT - _RIGHT), _TOP + (1 - y) * (_HEIGHT - _TOP - _BOTTOM)


def tick(value: float, digits: int = 3) -> str:
    """A number of an axis."""
    return number(float(f"{value:.{digits}g}"))


def axis_value(value: float | str, kind: Temporal | None) -> str:
    """A value of a column at an axis; of dates and times a date or a time."""
    return value if isinstance(value, str) else tick(value, 4) if kind is None else moment(value, kind)


def _outline(heights: Sequence[float]) -> list[tuple[float, float]]:
    """The corners of a histogram of bins of equal width, from its foot to its foot; x is 0 to 1."""
    edges = [at / len(heights) for at in range(len(heights) + 1)]
    tops = [(edges[at + side], height) for at, height in enumerate(heights) for side in (0, 1)]
    return [(0.0, 0.0), *tops, (1.0, 0.0)]


def _stroke(colour: str, dashed: bool) -> str:
    return f"stroke: var(--{colour}); stroke-width: 1.6" + ("; stroke-dasharray: 5 3" if dashed else "")


def _text(text: str, x: float, y: float, anchor: str) -> str:
    return f'<text x="{x:.4g}" y="{y:.4g}" text-anchor="{anchor}">{escape(short(text, _LONGEST))}</text>'
