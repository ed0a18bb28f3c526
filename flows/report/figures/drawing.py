"""Figures as SVG that stand inside a page: its style sheet gives their colours and their font.

    svg = figure(lambda axes: axes.plot(x, y, color=FIRST), name="roc", label="ROC curve: ...")
    strips = Strips(3, name="stages")             # small pictures, one for each row of a table, drawn in one go
    strips.box(0, 0.0, 0.4, FIRST)
    first, second, third = strips.svgs()

A colour here is the name of a variable of the style sheet, in the form of a colour that matplotlib accepts. Nothing of the
process is changed: no pyplot, no backend, settings only within a call.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of its font cache

_VARIABLES = {
    "#010101": "ink",
    "#020202": "muted",
    "#030303": "line",
    "#040404": "first",
    "#050505": "second",
    "#060606": "good",
    "#070707": "bad",
}
INK, MUTED, LINE, FIRST, SECOND, GOOD, BAD = _VARIABLES
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "text.color": MUTED,
    "axes.facecolor": "none",
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
}
_WIDTH, _HEIGHT = 4.0, 2.6
_LEFT, _RIGHT, _BOTTOM, _TOP = 0.56, 0.1, 0.46, 0.1
"""Inches."""
_OWN_ID = re.compile(r' id="[\w.]+_\d+"')
_COLOUR = re.compile(r"(fill|stroke): (" + "|".join(_VARIABLES) + ")")
_ROW = re.compile(r'<g id="row(\d+)">\s*(.*?)\s*</g>', re.DOTALL)


def figure(draw: Callable[[Axes], object], *, name: str, label: str) -> Markup:
    """A figure with one pair of axes, as an <svg> element.

    Args:
        draw: draws on the axes.
        name: of its own on the page.
        label: what it shows, for who cannot see it.
    """
    with _settings(name):
        drawn = Figure((_WIDTH, _HEIGHT))
        box = (
            _LEFT / _WIDTH,
            _BOTTOM / _HEIGHT,
            (_WIDTH - _LEFT - _RIGHT) / _WIDTH,
            (_HEIGHT - _BOTTOM - _TOP) / _HEIGHT,
        )
        draw(drawn.add_axes(box))
        text = _svg_text(drawn)
    _, _, inside = text.partition("<g")
    inside = _OWN_ID.sub("", "<g" + inside.rpartition("</svg>")[0])
    return _element(inside, (0, 0, 72 * _WIDTH, 72 * _HEIGHT), label, "figure")


class Strips:
    """Small pictures of one size, drawn as one figure: a figure for each would take a hundred times as long.

    Args:
        rows: how many.
        name: of its own on the page.
        limits: the range of x; y is 0 to 1, upwards.
        width, height: in points.
    """

    def __init__(
        self,
        rows: int,
        *,
        name: str,
        limits: tuple[float, float] = (0.0, 1.0),
        width: float = 120.0,
        height: float = 20.0,
    ):
        self._rows, self._name, self._limits, self._size = rows, name, limits, (width, height)
        self._shapes: list[Callable[[Axes], Any]] = []
        self._owners: list[int] = []

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
        left, right = min(max(left, least), most), min(max(right, least), most)
        base = self._base(row)

        def shape(axes: Axes) -> Any:
            patch = Rectangle((left, base + low), right - left, high - low, color=colour, alpha=alpha, linewidth=0)
            return axes.add_patch(patch)

        self._add(row, shape)

    def steps(self, row: int, heights: Sequence[float], colour: str, *, fill: bool) -> None:
        """Add a histogram of bins of equal width; heights are 0 to 1."""
        edges, base = np.linspace(*self._limits, len(heights) + 1), self._base(row)
        values = base + 0.04 + 0.92 * np.asarray(heights, np.float64)
        width = 0.0 if fill else 1.0
        self._add(
            row,
            lambda axes: axes.stairs(
                values,
                edges,
                baseline=base + 0.04,
                fill=fill,
                color=colour,
                alpha=0.55 if fill else 1.0,
                linewidth=width,
            ),
        )

    def svgs(self) -> list[Markup]:
        """An <svg> element for each row; its cells say the same, so that screen readers pass over it."""
        if not self._rows:
            return []
        width, height = self._size
        with _settings(self._name):
            drawn = Figure((width / 72, self._rows * height / 72))
            axes = drawn.add_axes((0, 0, 1, 1))
            axes.set_axis_off()
            for row, shape in zip(self._owners, self._shapes, strict=True):
                patch = shape(axes)
                patch.set_gid(f"row{row}")
                patch.set_clip_on(False)
            axes.set_xlim(*self._limits)
            axes.set_ylim(0, self._rows)
            text = _svg_text(drawn)
        inside = [""] * self._rows
        for found in _ROW.finditer(text):
            inside[int(found[1])] += found[2]
        return [_element(shapes, (0, row * height, width, height), None, "strip") for row, shapes in enumerate(inside)]

    def _base(self, row: int) -> float:
        return float(self._rows - 1 - row)

    def _add(self, row: int, shape: Callable[[Axes], Any]) -> None:
        self._owners.append(row)
        self._shapes.append(shape)


def thinned(points: Sequence[Any], most: int = 400) -> list[Any]:
    """At most so many of the points, evenly spread, the first and the last among them."""
    if len(points) <= most:
        return list(points)
    return [points[i] for i in np.unique(np.linspace(0, len(points) - 1, most).astype(np.int64))]


def short(text: object, most: int = 28) -> str:
    """A value's text for a label: of one line, cut, without characters that cannot be seen."""
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))
    return line if len(line) <= most else line[: most - 1] + "…"


@contextmanager
def _settings(name: str) -> Iterator[None]:
    # ids are digests of what they name and of this salt: the same figure has the same ids in every report
    with matplotlib.rc_context(_SETTINGS | {"svg.hashsalt": f"headway-{name}"}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its font has no sign of some script; the page's font draws it
        yield


def _svg_text(drawn: Figure) -> str:
    drawn.patch.set_visible(False)
    written = io.StringIO()
    FigureCanvasSVG(drawn).print_svg(written, metadata={"Date": None})
    text = _COLOUR.sub(lambda found: f"{found[1]}: var(--{_VARIABLES[found[2]]})", written.getvalue())
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", text)  # so up to matplotlib 3.10
    text = re.sub(r" font-family: [^;\"]*;", "", text)
    return re.sub(r' transform="rotate\(-0 [^"]*"', "", text)


def _element(inside: str, box: tuple[float, float, float, float], label: str | None, kind: str) -> Markup:
    said = 'aria-hidden="true"' if label is None else f'role="img" aria-label="{escape(label)}"'
    view = " ".join(f"{number:g}" for number in box)
    return Markup(f'<svg class="{kind}" {said} viewBox="{view}">{inside}</svg>')
