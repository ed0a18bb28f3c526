"""Small pictures for the rows of a table, as SVG: boxes and histograms.

strips = Strips(3)
strips.box(0, 0.0, 0.4, FIRST)
strips.steps(1, [0.2, 1.0, 0.4], SECOND, fill=False)
first, second, third = strips.svgs()
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from flows.tell.figures.drawing import VARIABLES

_FOOT, _ROOM = 0.04, 0.92
"""Of a histogram: what lies below it and how high it may be, in shares of the picture."""


class Strips:
    """Pictures of one size.

    Args:
        rows: how many.
        limits: the range of x; y is 0 to 1, upwards.
        width, height: in points.
    """

    def __init__(
        self, rows: int, *, limits: tuple[float, float] = (0.0, 1.0), width: float = 120.0, height: float = 20.0
    ):
        self._limits, self._size = limits, (width, height)
        self._shapes: list[list[str]] = [[] for _ in range(rows)]

    def box(
        self,
        row: int,
        left: float,
        right: float,
        colour: str,
        *,
        low: float = 0.2,
        high: float = 0.8,
        alpha: float = 1.0,
    ) -> None:
        """Add a filled box; what lies beyond the limits is cut."""
        least, most = self._limits
        (x, y), (to_x, to_y) = (
            self._point(min(max(side, least), most), at) for side, at in ((left, high), (right, low))
        )
        self._shapes[row].append(
            f'<rect x="{x:.4g}" y="{y:.4g}" width="{to_x - x:.4g}" height="{to_y - y:.4g}" style="{_fill(colour, alpha)}"/>'
        )

    def steps(self, row: int, heights: Sequence[float], colour: str, *, fill: bool) -> None:
        """Add a histogram of bins of equal width; heights are 0 to 1; none: nothing."""
        if not heights:
            return
        least, most = self._limits
        edges = [least + (most - least) * i / len(heights) for i in range(len(heights) + 1)]
        corners = [(edges[0], _FOOT)]
        for i, height in enumerate(heights):
            corners += [(edges[i], _FOOT + _ROOM * height), (edges[i + 1], _FOOT + _ROOM * height)]
        corners.append((edges[-1], _FOOT))
        path = "M" + "L".join(f"{x:.4g} {y:.4g}" for x, y in (self._point(*corner) for corner in corners))
        style = _fill(colour, 0.55) if fill else f"fill: none; stroke: var(--{VARIABLES[colour]})"
        self._shapes[row].append(f'<path d="{path}{"Z" if fill else ""}" style="{style}"/>')

    def svgs(self) -> list[Markup]:
        """An <svg> element for each row; its cells say the same, so that screen readers pass over it."""
        width, height = self._size
        head = f'<svg class="strip" aria-hidden="true" viewBox="0 0 {width:g} {height:g}">'
        return [Markup(f"{head}{''.join(shapes)}</svg>") for shapes in self._shapes]

    def _point(self, x: float, y: float) -> tuple[float, float]:
        """A point in the picture, whose y goes downwards."""
        least, most = self._limits
        width, height = self._size
        return (x - least) / ((most - least) or 1.0) * width, (1.0 - y) * height


def _fill(colour: str, alpha: float) -> str:
    return f"fill: var(--{VARIABLES[colour]})" + ("" if alpha == 1.0 else f"; opacity: {alpha:g}")
