"""Figures of an evaluation, two models over one another: from the tables of `headway.metrics.tables`, and from rows.

charts = list(charts_of(tables, champion_tables, Names("candidate", "version 3")))
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flows.tell.figures.drawing import FIRST, MUTED, SECOND, Plot, figure
from flows.tell.rendering.parts import Chart
from headway.messages import number
from headway.metrics.base import Rows
from headway.tasks.table import task_of

Columns = Mapping[str, Sequence[Any]]
Tables = Mapping[str, Columns]
_BINS = 30
_EVEN: Any = {"color": MUTED, "linewidth": 0.9, "linestyle": (0, (3, 3)), "alpha": 0.7}


class Names(NamedTuple):
    """What the two models are called."""

    ours: str
    theirs: str = ""


def charts_of(ours: Tables, theirs: Tables, names: Names) -> Iterator[Chart]:
    """The charts of tables, those that have any.

    Args:
        theirs: the other model's tables; empty where it has none on these rows.
    """
    for name, chart in _CHARTS:
        columns = ours.get(name)
        if columns:
            yield chart(columns, theirs.get(name) or {}, names)


def _keys(theirs: Columns, names: Names, *more: tuple[str, str]) -> list[tuple[str, str]]:
    return [(FIRST, names.ours), *([(SECOND, names.theirs)] if theirs else []), *more]


def _values(columns: Columns, name: str) -> NDArray[np.float64]:
    return np.asarray([np.nan if value is None else value for value in columns[name]], np.float64)


def _lines(axes: Plot, ours: Columns, theirs: Columns, x: str, y: str, **style: Any) -> None:
    if theirs:
        axes.plot(_values(theirs, x), _values(theirs, y), color=SECOND, linestyle="--", **style)
    axes.plot(_values(ours, x), _values(ours, y), color=FIRST, **style)


def _roc(ours: Columns, theirs: Columns, names: Names) -> Chart:
    def draw(axes: Plot) -> None:
        axes.plot([0, 1], [0, 1], **_EVEN)
        _lines(axes, ours, theirs, "false_positive_rate", "true_positive_rate")
        _shares(axes, "false positives, share of all negatives", "found, share of all positives")

    return Chart("ROC curve", figure(draw, label="ROC curve"), _keys(theirs, names))


def _precision_recall(ours: Columns, theirs: Columns, names: Names) -> Chart:
    def draw(axes: Plot) -> None:
        _lines(axes, ours, theirs, "recall", "precision")
        _shares(axes, "recall", "precision")

    title = "Precision and recall"
    return Chart(title, figure(draw, label=f"{title} by threshold"), _keys(theirs, names))


def _lift(ours: Columns, theirs: Columns, names: Names) -> Chart:
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


def _reliability(ours: Columns, theirs: Columns, names: Names) -> Chart:
    def draw(axes: Plot) -> None:
        low, high = _range(ours, theirs, "prediction_mean", "label_mean")
        axes.plot([low, high], [low, high], **_EVEN)
        _lines(axes, ours, theirs, "prediction_mean", "label_mean", marker="o", markersize=3)
        axes.set_xlabel("predicted, mean")
        axes.set_ylabel("observed, mean")

    note = "A point is a tenth of the rows, by prediction. On the line, what is predicted is what is observed."
    svg = figure(draw, label="Predicted and observed means, by tenths of the rows")
    return Chart("Calibration", svg, _keys(theirs, names), note)


def _residuals(ours: Columns, theirs: Columns, names: Names) -> Chart:
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


def _levels(ours: Columns, theirs: Columns, names: Names) -> Chart:
    def draw(axes: Plot) -> None:
        axes.plot([0, 1], [0, 1], **_EVEN)
        _lines(axes, ours, theirs, "level", "labels_below", marker="o", markersize=3)
        _shares(axes, "predicted quantile", "labels at or below it")

    svg = figure(draw, label="Share of labels at or below each predicted quantile")
    return Chart("Coverage of the quantiles", svg, _keys(theirs, names))


_CHARTS: Sequence[tuple[str, Callable[[Columns, Columns, Names], Chart]]] = (
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


def plain(rows: Rows | None) -> bool:
    """Whether each row has one prediction and a label, so that its error can be drawn."""
    return rows is not None and rows.prediction.ndim == 1 and bool(rows.known) and rows.total > 0


def scores(rows: Rows) -> Chart:
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


def errors(rows: Rows, theirs: Rows | None, names: Names) -> Chart:
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
