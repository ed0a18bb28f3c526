"""Figures as SVG that stand inside a page: its style sheet gives their colours and their font.

    svg = figure(lambda axes: axes.plot(x, y, color=FIRST), name="roc", label="ROC curve: ...")

    with reused(earlier_page):                    # a figure that the earlier page has is not drawn again
        svg = figure(...)

A colour here is the name of a variable of the style sheet, in the form of a colour that matplotlib accepts. Nothing of the
process is changed: no pyplot, no backend, settings only within a call. matplotlib takes half a second to import, so only what
has to be drawn imports it: a figure carries the digest of all that it shows.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup, escape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CODE = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
"""What turns a figure's calls into a picture is this module alone: when it changes, figures are drawn again. Outputs have a
version by hand instead, since to make one again may take hours; a figure takes a tenth of a second."""
VARIABLES = {
    "#010101": "ink",
    "#020202": "muted",
    "#030303": "line",
    "#040404": "first",
    "#050505": "second",
    "#060606": "good",
    "#070707": "bad",
}
INK, MUTED, LINE, FIRST, SECOND, GOOD, BAD = VARIABLES
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
_COLOUR = re.compile(r"(fill|stroke): (" + "|".join(VARIABLES) + ")")


class Plot:
    """Stands for matplotlib's axes while a figure is described: keeps the calls, which are drawn later, if at all.

    plot.plot(x, y, color=FIRST)
    plot.thousands_of_x()                         # 20k instead of 20000
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)

        def keep(*values: Any, **options: Any) -> None:
            self.calls.append((name, values, options))

        return keep

    def digest(self, *more: str) -> str:
        """The digest of all that is shown, and of what draws it."""
        told = json.dumps([CODE, metadata.version("matplotlib"), more, self.calls], default=_plain)
        return hashlib.sha256(told.encode()).hexdigest()[:24]

    def draw(self, axes: Axes) -> None:
        from matplotlib.ticker import EngFormatter

        for name, values, options in self.calls:
            if name == "thousands_of_x":
                axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            else:
                getattr(axes, name)(*values, **options)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


_EARLIER: ContextVar[dict[str, str] | None] = ContextVar("earlier", default=None)
_FIGURE = re.compile(r'<svg class="figure" data-figure="(\w+)".*?</svg>', re.DOTALL)


@contextmanager
def reused(page: str | None) -> Iterator[None]:
    """Take the figures of an earlier page that show the same, for the block."""
    found = {} if page is None else {match[1]: match[0] for match in _FIGURE.finditer(page)}
    before = _EARLIER.set(found)
    try:
        yield
    finally:
        _EARLIER.reset(before)


def figure(draw: Callable[[Plot], object], *, name: str, label: str) -> Markup:
    """A figure with one pair of axes, as an <svg> element.

    Args:
        draw: draws on the axes, by matplotlib's methods.
        name: of its own on the page.
        label: what it shows, for who cannot see it.
    """
    plot = Plot()
    draw(plot)
    digest = plot.digest(name, label)
    earlier = (_EARLIER.get() or {}).get(digest)
    return Markup(earlier) if earlier is not None else _drawn(plot, name, label, digest)


def _drawn(plot: Plot, name: str, label: str, digest: str) -> Markup:
    from matplotlib.figure import Figure

    with _settings(name):
        drawn = Figure((_WIDTH, _HEIGHT))
        box = (
            _LEFT / _WIDTH,
            _BOTTOM / _HEIGHT,
            (_WIDTH - _LEFT - _RIGHT) / _WIDTH,
            (_HEIGHT - _BOTTOM - _TOP) / _HEIGHT,
        )
        plot.draw(drawn.add_axes(box))
        text = _svg_text(drawn)
    _, _, inside = text.partition("<g")
    inside = _OWN_ID.sub("", "<g" + inside.rpartition("</svg>")[0])
    view = f"0 0 {72 * _WIDTH:g} {72 * _HEIGHT:g}"
    said = f'role="img" aria-label="{escape(label)}"'
    return Markup(f'<svg class="figure" data-figure="{digest}" {said} viewBox="{view}">{inside}</svg>')


def thinned(points: Sequence[Any], most: int = 400) -> list[Any]:
    """At most so many of the points, evenly spread, the first and the last among them."""
    if len(points) <= most:
        return list(points)
    return [points[i] for i in np.unique(np.linspace(0, len(points) - 1, most).astype(np.int64))]


def short(text: object, most: int = 28) -> str:
    """A value's text for a label: of one line, cut, without characters that cannot be seen."""
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))
    return line if len(line) <= most else line[: most - 1] + "…"


def apart(texts: Iterable[object], most: int = 28) -> dict[Any, str]:
    """The `short` text of each; those that would be the same keep their ends too, or have a number."""
    texts = list(dict.fromkeys(texts))
    cut = {text: short(text, most) for text in texts}
    alike = Counter(cut.values())
    found: dict[Any, str] = {}
    for text, name in cut.items():
        if alike[name] > 1:
            whole = short(text, sys.maxsize)
            name = name if len(whole) <= most else f"{whole[: most // 2 - 1]}…{whole[-(most // 2) :]}"
        told, number = name, 2
        while told in found.values():
            told, number = f"{name} ({number})", number + 1
        found[text] = told
    return found


@contextmanager
def _settings(name: str) -> Iterator[None]:
    import matplotlib

    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of its font cache
    # ids are digests of what they name and of this salt: the same figure has the same ids in every report
    with matplotlib.rc_context(_SETTINGS | {"svg.hashsalt": f"headway-{name}"}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its font has no sign of some script; the page's font draws it
        yield


def _svg_text(drawn: Figure) -> str:
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    drawn.patch.set_visible(False)
    written = io.StringIO()
    FigureCanvasSVG(drawn).print_svg(written, metadata={"Date": None})
    text = _COLOUR.sub(lambda found: f"{found[1]}: var(--{VARIABLES[found[2]]})", written.getvalue())
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", text)  # so up to matplotlib 3.10
    text = re.sub(r" font-family: [^;\"]*;", "", text)
    return re.sub(r' transform="rotate\(-0 [^"]*"', "", text)
