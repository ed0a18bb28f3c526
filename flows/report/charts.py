"""The charts of a report: curves of an evaluation, with two models in one chart; and histograms of a column, with the same
bars for several sets of rows.

charts = list(charts_of(tables, champion_tables, ModelNames("candidate", "version 3")))
shares([ours, theirs]).heights                     # of each side's `ColumnStatistics`, which may be None
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from flows.report.model import Chart
from flows.report.plot import FIRST, FREE, MUTED, SECOND, Floats, Plot, figure
from headway.metrics.base import Rows
from headway.statistics.column_statistics import ColumnStatistics
from headway.tasks.table import task_of
from headway.validation.drift import drift_distance

Columns = Mapping[str, Sequence[Any]]
Tables = Mapping[str, Columns]


class ModelNames(NamedTuple):
    """The names of the two models in a legend."""

    ours: str
    theirs: str = ""


def charts_of(ours: Tables, theirs: Tables, names: ModelNames) -> Iterator[Chart]:
    """Yields a chart for each table of a model that is drawn as a curve.

    Args:
        theirs: the other model's tables; empty where it has none on these rows.
    """
    for curve in _CURVES:
        if columns := ours.get(curve.table):
            yield curve.chart(columns, theirs.get(curve.table) or {}, names)


def _values(columns: Columns, name: str) -> Floats:
    return np.asarray([np.nan if value is None else value for value in columns[name]], np.float64)


class _Curve(NamedTuple):
    """How a chart is drawn from a table: one column over another column."""

    table: str
    title: str
    x: str
    y: str
    x_label: str
    y_label: str
    even: bool = False
    """Whether the diagonal is drawn."""
    share: bool = False
    """Whether both axes go from 0 to 1."""
    from_zero: bool = False
    marker: bool = False
    note: str = ""
    band: str = ""
    """The column with half the width of a band around the curve; a line at 0 is drawn with it."""

    def _points(self, columns: Columns) -> tuple[Floats, Floats]:
        x, y = (np.append([0.0] * self.from_zero, _values(columns, name)) for name in (self.x, self.y))
        return x, y

    def chart(self, ours: Columns, theirs: Columns, names: ModelNames) -> Chart:
        def draw(axes: Plot) -> None:
            sides = [(*self._points(ours), FIRST, "-"), *([(*self._points(theirs), SECOND, "--")] if theirs else [])]
            if self.even:
                values = np.concatenate([each for x, y, *_ in sides for each in (x, y)])
                even = (0.0, 1.0) if self.share else (np.nanmin(values), np.nanmax(values))
                axes.plot(even, even, color=MUTED, linewidth=0.9, linestyle=":", alpha=0.7)
            if self.band:
                x, y, apart = (_values(ours, name) for name in (self.x, self.y, self.band))
                axes.axhline(0, color=MUTED, linewidth=0.8)
                axes.fill_between(x, y - apart, y + apart, color=FIRST, alpha=0.15)
            for x, y, colour, line in reversed(sides):
                axes.plot(x, y, color=colour, linestyle=line, marker=self.marker)
            x_ends, y_ends = ((0, 1), (0, 1.01)) if self.share else (FREE, FREE)
            axes.frame(self.x_label, self.y_label, x_ends=x_ends, y_ends=y_ends)

        keys = [(FIRST, names.ours), *([(SECOND, names.theirs)] if theirs else [])]
        return Chart(self.title, figure(draw, label=f"{self.title}: {self.y_label} by {self.x_label}"), keys, self.note)


_CALIBRATION = _Curve(
    "reliability",
    "Calibration",
    "prediction_mean",
    "label_mean",
    "predicted, mean",
    "observed, mean",
    even=True,
    marker=True,
    note="A point is a tenth of the rows, by prediction. On the line, what is predicted is what is observed.",
)
_CURVES = (
    _Curve(
        "roc",
        "ROC curve",
        "false_positive_rate",
        "true_positive_rate",
        "false positives, share of all negatives",
        "found, share of all positives",
        even=True,
        share=True,
    ),
    _Curve("precision_recall", "Precision and recall", "recall", "precision", "recall", "precision", share=True),
    _CALIBRATION,
    _Curve(
        "lift",
        "Gain",
        "share_of_rows",
        "share_of_positives",
        "share of the rows, the highest predictions first",
        "share of all positives",
        even=True,
        from_zero=True,
        share=True,
        marker=True,
    ),
    _Curve(
        "residuals",
        "Residuals",
        "prediction_mean",
        "residual_mean",
        "predicted",
        "label − prediction",
        marker=True,
        note="The mean by tenths of the predictions; the band is one standard deviation of the first model's residuals.",
        band="residual_deviation",
    ),
    _CALIBRATION._replace(table="residuals"),
    _Curve(
        "levels",
        "Coverage of the quantiles",
        "level",
        "labels_below",
        "predicted quantile",
        "labels at or below it",
        even=True,
        share=True,
        marker=True,
    ),
)
_DRAWN = frozenset(curve.table for curve in _CURVES)


def tables_of(task: str, rows: Rows) -> dict[str, Columns]:
    """Returns the task's tables that are drawn as charts, computed on the rows that a model scored."""
    return {table.name: table.compute(rows) for table in task_of(task).tables if table.name in _DRAWN}


BINS, FEW, _OUTER = 20, 20, (0.01, 0.99)
"""Numbers of at most FEW values have a bar for each; else the outermost of the BINS hold all that lies beyond."""
_LOOKED_UP, _MOST_WORDS = 2000, 200_000
"""How many of the champion's most frequent words are looked up; the most words of a column that is drawn."""


def distance(ours: ColumnStatistics | None, theirs: ColumnStatistics | None) -> float | None:
    """Returns the drift between two statistics of a column, as validation measures it. None: unknown, or slow to compute."""
    if ours is None or theirs is None or (ours.type == "bytes" and not (_countable(ours) and _countable(theirs))):
        return None
    return drift_distance(ours, theirs)


class Shares(NamedTuple):
    """Histograms of one column in several sets of rows (sides), with the same bars: the share of a side's values in each bar."""

    sides: list[Floats | None]
    bars: list[Any]
    """The value of each bar; or the edges of the bars, one more than there are bars."""

    @property
    def highest(self) -> float:
        """The greatest share."""
        return max(float(side.max(initial=0.0)) for side in self.sides if side is not None) or 1.0

    @property
    def heights(self) -> list[list[float]]:
        """The bars of each side as shares of the highest bar of all sides; an empty list for a side that is None."""
        return [[] if side is None else (side / self.highest).tolist() for side in self.sides]


def shares(sides: Sequence[ColumnStatistics | None]) -> Shares | None:
    """Returns the histograms of a column, in the same bars; None if the first side has no values, or too many or uncounted texts.

    Args:
        sides: the statistics of one column in several sets of rows; sides of another type than the first become None.
    """
    ours = sides[0]
    if ours is None:
        return None
    known = [side if side is not None and side.type == ours.type else None for side in sides]
    if ours.type == "bytes":
        return _of_words(ours, known) if _countable(ours) and ours.values else None
    if not ours.finite:
        return None
    known = [side if side is not None and side.finite else None for side in known]
    return _of_values(known) or _of_bins(ours, known)


def _countable(column: ColumnStatistics) -> bool:
    """Returns whether a text column was counted, and has few enough distinct values to look through quickly."""
    return column.text is not None and column.distinct <= _MOST_WORDS


def _of_words(ours: ColumnStatistics, sides: Sequence[ColumnStatistics | None]) -> Shares:
    words = [word for word, _ in ours.top(FEW)]

    def of(side: ColumnStatistics | None) -> Floats | None:
        if side is None or not _countable(side):
            return None
        counts = dict(side.top(FEW if side is ours else _LOOKED_UP))
        return np.array([counts.get(word, 0) for word in words], np.float64) / max(side.values, 1)

    return Shares(list(map(of, sides)), [word.decode("utf-8", "backslashreplace") for word in words])


def _of_values(sides: Sequence[ColumnStatistics | None]) -> Shares | None:
    """Returns histograms with a bar for each distinct value; None if there are many, or they were not counted."""
    if any(side is not None and (side.numbers is None or side.distinct > FEW) for side in sides):
        return None
    counts = [None if side is None else dict(side.top()) for side in sides]
    values = sorted({value for each in counts if each is not None for value in each})
    if len(values) > FEW:
        return None

    def of(each: dict[Any, int] | None) -> Floats | None:
        return None if each is None else np.array([each.get(v, 0) for v in values]) / max(sum(each.values()), 1)

    return Shares(list(map(of, counts)), values)


def _of_bins(ours: ColumnStatistics, sides: Sequence[ColumnStatistics | None]) -> Shares:
    low, high = (float(value) for value in ours.quantile(_OUTER))
    ends = [float(end) for side in sides if side for end in (side.minimum, side.maximum) if end is not None]
    least, most = min(ends), max(ends)
    if not low < high:
        low, high = least, most
    if not low < high:
        return Shares([np.ones(1), *([None] * (len(sides) - 1))], [low])
    shown = np.linspace(low, high, BINS + 1)
    edges = shown.copy()
    edges[0], edges[-1] = min(least, low), max(most, high)
    return Shares([None if side is None else side.per_bin(edges) / side.finite for side in sides], shown.tolist())
