"""The charts of a report: curves of an evaluation, two models over one another, and histograms of a column, several sides with
the same bars.

charts = list(charts_of(tables, champion_tables, ModelNames("candidate", "version 3")))
shares([ours, theirs]).heights                     # of each side's `ColumnStatistics`, which may be None
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flows.report.model import Chart
from flows.report.plot import FIRST, MUTED, SECOND, Plot, figure
from headway.messages import number
from headway.metrics.base import Rows
from headway.statistics.column_statistics import ColumnStatistics
from headway.tasks.table import task_of
from headway.validation.drift import drift_distance

Columns = Mapping[str, Sequence[Any]]
Tables = Mapping[str, Columns]
_BINS = 30
_EVEN: Any = {"color": MUTED, "linewidth": 0.9, "linestyle": (0, (3, 3)), "alpha": 0.7}


class ModelNames(NamedTuple):
    """The names of the two models in a legend."""

    ours: str
    theirs: str = ""


def charts_of(ours: Tables, theirs: Tables, names: ModelNames) -> Iterator[Chart]:
    """The charts of tables, those that have any.

    Args:
        theirs: the other model's tables; empty where it has none on these rows.
    """
    for name, chart in _CHARTS:
        columns = ours.get(name)
        if columns:
            yield chart(columns, theirs.get(name) or {}, names)


def _keys(theirs: Columns, names: ModelNames, *more: tuple[str, str]) -> list[tuple[str, str]]:
    return [(FIRST, names.ours), *([(SECOND, names.theirs)] if theirs else []), *more]


def _values(columns: Columns, name: str) -> NDArray[np.float64]:
    return np.asarray([np.nan if value is None else value for value in columns[name]], np.float64)


def _lines(axes: Plot, ours: Columns, theirs: Columns, x: str, y: str, **style: Any) -> None:
    if theirs:
        axes.plot(_values(theirs, x), _values(theirs, y), color=SECOND, linestyle="--", **style)
    axes.plot(_values(ours, x), _values(ours, y), color=FIRST, **style)


def _roc(ours: Columns, theirs: Columns, names: ModelNames) -> Chart:
    def draw(axes: Plot) -> None:
        axes.plot([0, 1], [0, 1], **_EVEN)
        _lines(axes, ours, theirs, "false_positive_rate", "true_positive_rate")
        _shares(axes, "false positives, share of all negatives", "found, share of all positives")

    return Chart("ROC curve", figure(draw, label="ROC curve"), _keys(theirs, names))


def _precision_recall(ours: Columns, theirs: Columns, names: ModelNames) -> Chart:
    def draw(axes: Plot) -> None:
        _lines(axes, ours, theirs, "recall", "precision")
        _shares(axes, "recall", "precision")

    title = "Precision and recall"
    return Chart(title, figure(draw, label=f"{title} by threshold"), _keys(theirs, names))


def _lift(ours: Columns, theirs: Columns, names: ModelNames) -> Chart:
    def draw(axes: Plot) -> None:
        axes.plot([0, 1], [0, 1], **_EVEN)
        for side, colour, line in ((theirs, SECOND, "--"), (ours, FIRST, "-")):
            if side:
                x, y = (np.append(0.0, _values(side, name)) for name in ("share_of_rows", "share_of_positives"))
                axes.plot(x, y, color=colour, linestyle=line, marker="o", markersize=3)
        _shares(axes, "share of the rows, the highest predictions first", "share of all positives")

    return Chart(
        "Gain",
        figure(draw, label="Share of positives among the highest predictions"),
        _keys(theirs, names),
    )


def _reliability(ours: Columns, theirs: Columns, names: ModelNames) -> Chart:
    def draw(axes: Plot) -> None:
        low, high = _range(ours, theirs, "prediction_mean", "label_mean")
        axes.plot([low, high], [low, high], **_EVEN)
        _lines(axes, ours, theirs, "prediction_mean", "label_mean", marker="o", markersize=3)
        axes.set_xlabel("predicted, mean")
        axes.set_ylabel("observed, mean")

    note = "A point is a tenth of the rows, by prediction. On the line, what is predicted is what is observed."
    svg = figure(draw, label="Predicted and observed means, by tenths of the rows")
    return Chart("Calibration", svg, _keys(theirs, names), note)


def _residuals(ours: Columns, theirs: Columns, names: ModelNames) -> Chart:
    def draw(axes: Plot) -> None:
        x, mean, apart = (_values(ours, name) for name in ("prediction_mean", "residual_mean", "residual_deviation"))
        axes.axhline(0, color=MUTED, linewidth=0.8)
        axes.fill_between(x, mean - apart, mean + apart, color=FIRST, alpha=0.15)
        _lines(axes, ours, theirs, "prediction_mean", "residual_mean", marker="o", markersize=3)
        axes.set_xlabel("predicted")
        axes.set_ylabel("label − prediction")

    note = "The mean by tenths of the predictions; "
    whose = "the candidate" if names.ours == "candidate" else names.ours
    note += f"the band is one standard deviation of the residuals of {whose}."
    svg = figure(draw, label="Residuals by prediction")
    return Chart("Residuals", svg, _keys(theirs, names), note)


def _levels(ours: Columns, theirs: Columns, names: ModelNames) -> Chart:
    def draw(axes: Plot) -> None:
        axes.plot([0, 1], [0, 1], **_EVEN)
        _lines(axes, ours, theirs, "level", "labels_below", marker="o", markersize=3)
        _shares(axes, "predicted quantile", "labels at or below it")

    svg = figure(draw, label="Share of labels at or below each predicted quantile")
    return Chart("Coverage of the quantiles", svg, _keys(theirs, names))


_CHARTS: Sequence[tuple[str, Callable[[Columns, Columns, ModelNames], Chart]]] = (
    ("roc", _roc),
    ("precision_recall", _precision_recall),
    ("reliability", _reliability),
    ("lift", _lift),
    ("residuals", _residuals),
    ("residuals", _reliability),
    ("levels", _levels),
)
_DRAWN = frozenset(name for name, _ in _CHARTS)


def tables_of(task: str, rows: Rows) -> dict[str, Columns]:
    """The tables of a task that are drawn, of the rows that a model scored."""
    return {table.name: table.on(rows) for table in task_of(task).tables if table.name in _DRAWN}


def has_plain_predictions(rows: Rows | None) -> bool:
    """Whether each row has one prediction and a label, so that its error can be drawn."""
    return rows is not None and rows.prediction.ndim == 1 and bool(rows.known) and rows.total > 0


def score_histogram(rows: Rows) -> Chart:
    """The predicted probabilities of a binary model, by label."""
    edges = np.linspace(0, 1, _BINS + 1)
    positive = rows.label > 0
    sides = [np.histogram(rows.prediction[at], edges, weights=rows.weight[at])[0] for at in (~positive, positive)]
    shares = [side / max(side.sum(), 1e-12) for side in sides]

    def draw(axes: Plot) -> None:
        axes.stairs(shares[0], edges, color=MUTED, linewidth=1.4)
        axes.stairs(shares[1], edges, color=FIRST, fill=True, alpha=0.55)
        axes.set_xlim(0, 1)
        axes.set_xlabel("predicted probability")
        axes.set_ylabel("share of the rows")

    keys = [(FIRST, "label 1"), (MUTED, "label 0")]
    svg = figure(draw, label="Predicted probabilities of rows with label 1 and with label 0")
    return Chart("Predictions by label", svg, keys)


def error_histogram(rows: Rows, theirs: Rows | None, names: ModelNames) -> Chart:
    """The distribution of label - prediction, without the outermost hundredth on both sides."""
    ours = rows.label - rows.prediction
    low, high = (float(value) for value in np.quantile(ours, (0.01, 0.99)))
    edges = np.linspace(low, high if high > low else low + 1.0, _BINS + 1)

    def shares(each: Rows) -> NDArray[np.float64]:
        return np.histogram(each.label - each.prediction, edges, weights=each.weight)[0] / max(each.total, 1e-12)

    def draw(axes: Plot) -> None:
        axes.stairs(shares(rows), edges, color=FIRST, fill=True, alpha=0.55)
        if theirs is not None:
            axes.stairs(shares(theirs), edges, color=SECOND, linewidth=1.4, linestyle="--")
        axes.set_xlabel("label − prediction")
        axes.set_ylabel("share of the rows")

    keys = [(FIRST, names.ours), *([(SECOND, names.theirs)] if theirs is not None else [])]
    label = f"Distribution of label - prediction; 98% of the rows are within {number(low)} and {number(high)}"
    return Chart("How far predictions are off", figure(draw, label=label), keys)


def _shares(axes: Plot, x: str, y: str) -> None:
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.01)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def _range(ours: Columns, theirs: Columns, *names: str) -> tuple[float, float]:
    values = np.concatenate([_values(side, name) for side in (ours, theirs) if side for name in names])
    return float(np.nanmin(values)), float(np.nanmax(values))


BINS, FEW, _OUTER = 20, 20, (0.01, 0.99)
"""Numbers of few different values have a bar for each; of others the outermost bins hold all that lies beyond."""
_LOOKED_UP, _MOST_WORDS = 2000, 200_000
"""Of the champion's most frequent words; words of a column that are looked through."""


def distance(ours: ColumnStatistics | None, theirs: ColumnStatistics | None) -> float | None:
    """How far a column is from the champion's, as validation measures it; None where it cannot be told."""
    if ours is None or theirs is None or (ours.type == "bytes" and not (_countable(ours) and _countable(theirs))):
        return None
    return drift_distance(ours, theirs)


class Shares(NamedTuple):
    """The share of the values in each bar, of every side that is known; and what the bars stand for."""

    sides: list[NDArray[np.float64] | None]
    bars: list[Any]
    """The value of each bar, or the edges between them, one more."""

    @property
    def highest(self) -> float:
        """The greatest share."""
        return max(float(side.max(initial=0.0)) for side in self.sides if side is not None) or 1.0

    @property
    def heights(self) -> list[list[float]]:
        """The bars of each side as shares of the highest; none of an unknown side."""
        return [[] if side is None else (side / self.highest).tolist() for side in self.sides]


def shares(sides: Sequence[ColumnStatistics | None]) -> Shares | None:
    """The same bars for all sides, chosen by the first; None where nothing was counted.

    Args:
        sides: of one column; those of another type are left out.
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
    """Whether text was counted, and has not so many values that looking through them takes long."""
    return column.text is not None and column.distinct <= _MOST_WORDS


def _of_words(ours: ColumnStatistics, sides: Sequence[ColumnStatistics | None]) -> Shares:
    words = [word for word, _ in ours.top(FEW)]

    def of(side: ColumnStatistics | None) -> NDArray[np.float64] | None:
        if side is None or not _countable(side):
            return None
        counts = dict(side.top(FEW if side is ours else _LOOKED_UP))
        return np.array([counts.get(word, 0) for word in words], np.float64) / max(side.values, 1)

    return Shares(list(map(of, sides)), [word.decode("utf-8", "backslashreplace") for word in words])


def _of_values(sides: Sequence[ColumnStatistics | None]) -> Shares | None:
    """The shares of each value; None where there are many values, or they were not counted."""
    if any(side is not None and (side.numbers is None or side.distinct > FEW) for side in sides):
        return None
    counts = [None if side is None else dict(side.top()) for side in sides]
    values = sorted({value for each in counts if each is not None for value in each})
    if len(values) > FEW:
        return None

    def of(each: dict[Any, int] | None) -> NDArray[np.float64] | None:
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
