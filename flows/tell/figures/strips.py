"""Small pictures for the rows of a table, as SVG: filled boxes on one axis, such as values with their intervals.

strip([Box(0.0, 0.4, FIRST)])
first, second = interval_strips([(0.1, 0.2, 0.3, GOOD), None])
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from flows.tell.figures.drawing import MUTED

_WIDTH, _HEIGHT = 120.0, 14.0
"""Points."""
Mark = tuple[float, float, float, str]
"""(low end of an interval, value, high end, colour)"""


class Box(NamedTuple):
    """A box from `left` to `right` in the data's units, and as shares of the height from `low` to `high`."""

    left: float
    right: float
    colour: str
    low: float = 0.2
    high: float = 0.8
    opacity: float = 1.0


def strip(boxes: Iterable[Box], limits: tuple[float, float] = (0.0, 1.0)) -> Markup:
    """An <svg> element; the cells of its row say the same, so that screen readers pass over it.

    Args:
        limits: of what is shown, in the data's units; what lies beyond is cut.
    """
    least, most = limits
    drawn = []
    for box in boxes:
        left, right = (
            (min(max(at, least), most) - least) / ((most - least) or 1.0) * _WIDTH for at in (box.left, box.right)
        )
        place = f'x="{left:.4g}" y="{(1 - box.high) * _HEIGHT:.4g}"'
        size = f'width="{right - left:.4g}" height="{(box.high - box.low) * _HEIGHT:.4g}"'
        faint = "" if box.opacity == 1.0 else f"; opacity: {box.opacity:g}"
        drawn.append(f'<rect {place} {size} style="fill: var(--{box.colour}){faint}"/>')
    head = f'<svg class="strip" aria-hidden="true" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}">'
    return Markup(f"{head}{''.join(drawn)}</svg>")


def interval_strips(marks: Sequence[Mark | None], *, line: float = 0.0) -> list[Markup]:
    """A picture of a value and its interval for each row, all on one axis.

    Args:
        marks: None: only the line.
        line: what the values are held against.
    """
    places = [line, *(at for mark in marks if mark is not None for at in mark[:3])]
    room = 0.03 * ((max(places) - min(places)) or 1.0)
    limits = min(places) - room, max(places) + room
    width = limits[1] - limits[0]

    def boxes(mark: Mark | None) -> Iterator[Box]:
        yield Box(line - 0.003 * width, line + 0.003 * width, MUTED, 0.0, 1.0, 0.6)
        if mark is not None:
            low, at, high, colour = mark
            yield Box(low, high, colour, 0.42, 0.58, 0.6)
            yield Box(at - 0.012 * width, at + 0.012 * width, colour, 0.25, 0.75)

    return [strip(boxes(mark), limits) for mark in marks]
