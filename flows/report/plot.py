"""Figures as SVG inside a page: the page's style sheet gives the figures their colours and their font.

    svg = figure(lambda axes: axes.plot(x, y, color=FIRST), label="ROC curve: ...")

A figure takes a millisecond here; the import of matplotlib would take half a second at the end of every run. A colour
is the name of a variable of the style sheet.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import ArrayLike, NDArray

MUTED, LINE, FIRST, SECOND = "muted", "line", "first", "second"
_LARGE, _SMALL = (288.0, 187.0), (240.0, 120.0)
"""Points: width and height of a figure, and of one of many side by side."""
_AROUND = 8.0
"""The points of space above the axes and to their right."""
_MARGIN = 0.05
"""The space between what is drawn and the ends of an axis, as a share of the axis."""
_LETTER, _MOST_TICKS, _FEW_TICKS = 6.6, 6, 3
_ACROSS = 5.5
"""Points that a letter takes below the axes; beside them no text may be cut, so that `_LETTER` is more than most take."""
_DOT = 4.2
"""The diameter of a dot, in points."""
_DASHES = {"-": (), "--": (5.0, 3.0), ":": (1.5, 2.0)}
Floats = NDArray[np.float64]
Ends = tuple[float | None, float | None]
FREE: Ends = (None, None)


class _Axis:
    """One axis: its label, its ticks, and its ends where they were set."""

    def __init__(self, most: int) -> None:
        self.label, self._most = "", most
        self.ends = FREE
        self.ticks: Sequence[tuple[float, str]] = ()
        self._seen: list[Floats] = []

    def see(self, values: ArrayLike) -> Floats:
        """Note values that are drawn, since the axis covers them by default. Returns the values as float64."""
        found = np.atleast_1d(np.asarray(values, np.float64))
        self._seen.append(found[np.isfinite(found)])
        return found

    def limits(self) -> tuple[float, float]:
        seen = np.concatenate([*self._seen, np.zeros(0)])
        low, high = (float(seen.min()), float(seen.max())) if len(seen) else (0.0, 1.0)
        room = _MARGIN * ((high - low) or abs(high) or 1.0)
        first, last = self.ends
        first, last = (low - room if first is None else first), (high + room if last is None else last)
        return (first, last) if first < last else (first - room, first + room)  # an axis of one value

    def told(self, low: float, high: float) -> list[tuple[float, str]]:
        """Returns the ticks from `low` to `high` as (position, label)."""
        if self.ticks:
            return [(at, text) for at, text in self.ticks if low <= at <= high]
        power = 10.0 ** math.floor(math.log10((high - low) / self._most))
        step = next(power * by for by in (1, 2, 2.5, 5, 10) if (high - low) / (power * by) <= self._most)
        places = np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1) * step
        most = max(abs(low), abs(high))
        return [(at, self._text(at, step, most)) for at in places.tolist()]

    def _text(self, value: float, step: float, most: float) -> str:
        last = -math.floor(math.log10(step) + 1e-9) + (f"{step:.3e}"[2] != "0")
        digits = last + math.floor(math.log10(most)) + 1  # significant ones, that tell a tick from the next
        if last <= 4 and (most < 1e6 or (digits > 4 and most < 1e12)):
            return f"{value + 0.0:,.{max(0, last)}f}"
        return f"{value:.{max(4, digits)}g}"


class Plot:
    """A pair of axes to draw on; later shapes cover earlier ones. x and y are in the data's units.

    Args:
        small: whether the figure is one of many side by side.
    """

    def __init__(self, *, small: bool = False):
        self._small, most = small, _FEW_TICKS if small else _MOST_TICKS
        self._x, self._y = _Axis(most), _Axis(most)
        self._shapes: list[tuple[Floats, Floats, str]] = []

    def plot(
        self,
        x: ArrayLike,
        y: ArrayLike,
        *,
        color: str,
        linewidth: float = 1.6,
        linestyle: str = "-",
        alpha: float = 1.0,
        marker: bool = False,
    ) -> None:
        """Add a line, broken where a value is not a number; with `marker` also its points."""
        xs, ys = self._x.see(x), self._y.see(y)
        self._add(xs, ys, _stroke(color, linewidth, linestyle, alpha))
        if marker:  # a line of no length with round ends is a dot
            dots = np.stack([xs, xs, np.full(len(xs), np.nan)], 1).ravel(), np.repeat(ys, 3)
            self._add(*dots, _stroke(color, _DOT, "-", alpha) + "; stroke-linecap: round")

    def stairs(self, heights: ArrayLike, edges: ArrayLike, *, color: str) -> None:
        """Add a histogram as an outline that begins and ends at zero. It is filled in FIRST, dashed in SECOND, so that
        grey print tells them apart."""
        x, y = np.repeat(self._x.see(edges), 2), np.pad(np.repeat(self._y.see(heights), 2), 1)
        self._y.see(0.0)
        line = _stroke(color, 1.6, "--" if color == SECOND else "-", 1.0)
        self._add(x, y, _area(color, 0.4) if color == FIRST else line)

    def fill_between(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, *, color: str, alpha: float) -> None:
        """Add the area between two lines."""
        xs, lows, highs = self._x.see(x), self._y.see(low), self._y.see(high)
        self._add(np.append(xs, xs[::-1]), np.append(lows, highs[::-1]), _area(color, alpha))

    def axhline(self, y: float, *, color: str, linewidth: float, linestyle: str = "-") -> None:
        """Add a horizontal line at y, across the figure."""
        self._y.see(y)
        self._add(np.array([-np.inf, np.inf]), np.array([y, y]), _stroke(color, linewidth, linestyle, 1.0))

    def axvline(self, x: float, *, color: str, linewidth: float, linestyle: str = "-") -> None:
        """Add a vertical line at x, from the foot to the top."""
        self._x.see(x)
        self._add(np.array([x, x]), np.array([-np.inf, np.inf]), _stroke(color, linewidth, linestyle, 1.0))

    def frame(self, x: str = "", y: str = "", *, x_ends: Ends = FREE, y_ends: Ends = FREE) -> None:
        """Set the labels of both axes, and the ends of an axis (FREE: the drawn values decide them)."""
        self._x.label, self._y.label, self._x.ends, self._y.ends = x, y, x_ends, y_ends

    def ticks(self, x: Mapping[float, str], y: Mapping[float, str] | None = None) -> None:
        """Set the ticks of both axes: {position on the axis: label}."""
        self._x.ticks, self._y.ticks = list(x.items()), list((y or {}).items())

    def _add(self, x: Floats, y: Floats, style: str) -> None:
        self._shapes.append((x, y, style))

    def svg(self, label: str) -> Markup:
        """Returns the figure as an <svg> element.

        Args:
            label: what the figure shows, in words, for screen readers.
        """
        (width, height), kind = (_SMALL, "panel") if self._small else (_LARGE, "figure")
        head = f'<svg class="{kind}" role="img" aria-label="{escape(label)}" viewBox="0 0 {width:g} {height:g}">'
        return Markup(f"{head}{''.join(self._elements(width, height))}</svg>")

    def _elements(self, width: float, height: float) -> Iterator[str]:
        (x_low, x_high), (y_low, y_high) = self._x.limits(), self._y.limits()
        beside, below = self._y.told(y_low, y_high), self._x.told(x_low, x_high)
        left = 8 + 14 * bool(self._y.label) + _LETTER * max((len(text) for _, text in beside), default=1)
        right, foot = width - _AROUND, height - 16 - 16 * bool(self._x.label)

        def across(value: Any) -> Any:
            return left + (np.clip(value, x_low, x_high) - x_low) / (x_high - x_low) * (right - left)

        def up(value: Any) -> Any:
            return foot - (np.clip(value, y_low, y_high) - y_low) / (y_high - y_low) * (foot - _AROUND)

        lines = "".join(f"M{left:.4g} {up(at):.4g}H{right:.4g}" for at, _ in beside)
        lines += "".join(f"M{across(at):.4g} {foot:.4g}V{_AROUND:.4g}" for at, _ in below)
        yield f'<path d="{lines}" style="{_stroke(LINE, 0.6, "-", 1.0)}"/>'
        for x, y, style in self._shapes:
            if path := _path(across(x), up(y)):
                yield f'<path d="{path}" style="{style}"/>'
        yield from (_text(text, left - 4, up(at) + 3, "end") for at, text in beside)
        widest = _ACROSS * max((len(text) + 1 for _, text in below), default=0)
        rare = 1 if self._x.ticks else math.ceil(widest * len(below) / (right - left)) or 1
        for at, text in below[::rare]:
            half, place = _ACROSS * len(text) / 2, float(across(at))
            if not self._small:
                yield _text(text, min(place, width - half), foot + 13, "middle")
            elif place - half < left:
                yield _text(text, left, foot + 11, "start")
            else:
                at_end = place + half > right
                yield _text(text, right if at_end else place, foot + 11, "end" if at_end else "middle")
        yield _text(self._x.label, (left + right) / 2, height - 6, "middle")
        middle = (foot + _AROUND) / 2
        yield _text(self._y.label, 9, middle, "middle", f' transform="rotate(-90 9 {middle:.4g})"')


def _path(x: Floats, y: Floats) -> str:
    """Returns the SVG path of a line through points, broken where a coordinate is not a number."""
    drawn, joined = list[str](), False
    for across, up in zip(x.tolist(), y.tolist(), strict=True):
        known = not (math.isnan(across) or math.isnan(up))
        drawn += [f"{'L' if joined else 'M'}{across:.4g} {up:.4g}"] if known else []
        joined = known
    return "".join(drawn)


def _stroke(color: str, width: float, line: str, alpha: float) -> str:
    dashes = _DASHES[line]
    style = f"fill: none; stroke: var(--{color}); stroke-width: {width:g}"
    style += f"; stroke-dasharray: {' '.join(f'{each:g}' for each in dashes)}" if dashes else ""
    return style + (f"; opacity: {alpha:g}" if alpha != 1.0 else "")


def _area(color: str, alpha: float) -> str:
    return f"fill: var(--{color}); opacity: {alpha:g}"


def _text(text: str, x: float, y: float, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.4g}" y="{y:.4g}" text-anchor="{anchor}"{more}>{escape(text)}</text>' if text else ""


def figure(draw: Callable[[Plot], object], *, label: str, small: bool = False) -> Markup:
    """Returns a figure with one pair of axes, as an <svg> element.

    Args:
        draw: the function that draws on the axes.
        label: what the figure shows, in words, for screen readers.
        small: whether the figure is one of many side by side.
    """
    plot = Plot(small=small)
    draw(plot)
    return plot.svg(label)


def thinned(points: Sequence[Any], most: int = 400) -> list[Any]:
    """Returns at most `most` of the points, evenly spread, with the first and the last."""
    if len(points) <= most:
        return list(points)
    return [points[i] for i in np.unique(np.linspace(0, len(points) - 1, most).astype(np.int64))]


def one_line(text: object, most: int = 28) -> str:
    """Returns a value's text for a label: one line of at most `most` characters, all of them printable."""
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))
    return line if len(line) <= most else line[: most - 1] + "…"


def distinct_labels(texts: Iterable[object], most: int = 28) -> dict[Any, str]:
    """Returns {text: its `one_line` label}. Labels that would be equal show the text's end instead, or get a number."""
    texts = list(dict.fromkeys(texts))
    cut = {text: one_line(text, most) for text in texts}
    alike = Counter(cut.values())
    found: dict[Any, str] = {}
    for text, name in cut.items():
        if alike[name] > 1:
            whole = one_line(text, sys.maxsize)
            name = name if len(whole) <= most else f"{whole[: most // 2 - 1]}…{whole[-(most // 2) :]}"
        told, number = name, 2
        while told in found.values():
            told, number = f"{name} ({number})", number + 1
        found[text] = told
    return found
