"""Small pictures for the rows of a table, as SVG: boxes and intervals.

strips = Strips(2)
strips.box(0, 0.0, 0.4, FIRST)
first, second = strips.svgs()
"""

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from flows.tell.figures.drawing import MUTED

_WIDTH, _HEIGHT = 120.0, 14.0
"""Points."""
Mark = tuple[float, float, float, str]
"""(low end of an interval, value, high end, colour)"""


class Strips:
    """Pictures of one size.

    Args:
        rows: how many.
        limits: the range of x; y is 0 to 1, upwards.
    """

    def __init__(self, rows: int, *, limits: tuple[float, float] = (0.0, 1.0)):
        self._limits = limits
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

    def svgs(self) -> list[Markup]:
        """An <svg> element for each row; its cells say the same, so that screen readers pass over it."""
        head = f'<svg class="strip" aria-hidden="true" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}">'
        return [Markup(f"{head}{''.join(shapes)}</svg>") for shapes in self._shapes]

    def _point(self, x: float, y: float) -> tuple[float, float]:
        """A point in the picture, whose y goes downwards."""
        least, most = self._limits
        return (x - least) / ((most - least) or 1.0) * _WIDTH, (1.0 - y) * _HEIGHT


def interval_strips(
    marks: Sequence[Mark | None],
    *,
    lines: Mapping[float, str] = {0.0: MUTED},
) -> list[Markup]:
    """A picture of a value and its interval for each row, all on one axis.

    Args:
        marks: None: only the lines.
        lines: {place: colour} of what the values are held against.
    """
    places = [*lines, *(at for mark in marks if mark is not None for at in mark[:3])]
    room = 0.03 * ((max(places) - min(places)) or 1.0)
    limits = min(places) - room, max(places) + room
    strips, width = Strips(len(marks), limits=limits), limits[1] - limits[0]
    for row, mark in enumerate(marks):
        for line, colour in lines.items():
            strips.box(row, line - 0.003 * width, line + 0.003 * width, colour, low=0, high=1, alpha=0.6)
        if mark is not None:
            left, at, right, colour = mark
            strips.box(row, left, right, colour, low=0.42, high=0.58, alpha=0.6)
            strips.box(row, at - 0.012 * width, at + 0.012 * width, colour, low=0.25, high=0.75)
    return strips.svgs()


def _fill(colour: str, alpha: float) -> str:
    return f"fill: var(--{colour})" + ("" if alpha == 1.0 else f"; opacity: {alpha:g}")
