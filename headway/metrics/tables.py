"""Tables of an evaluation: what one number cannot say. A table is an object with a name and a function of the rows.

    RELIABILITY.compute(rows)     # {"low": [0.01, ...], "high": [...], "rows": [...], "prediction_mean": [...], ...}

Reports show `confusion` and `per_class` as tables, the others as curves.

`Table.compute` returns a list per column, ready for JSON. It returns {} without rows of positive weight, or if a
prediction is not a number. An undefined number (the recall of a class that no row has) is None. Each task names its
tables (`headway.tasks.base.Task.tables`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.metrics.base import Floats, Rows
from headway.metrics.classification import calibration_bins, decided, f1_of, scores, weights_by_score

POINTS = 200
"""The most points of a curve: its ends, and exact values at about equal steps along it."""
MOST_PAIRS = 400
"""The most pairs of classes in a confusion matrix: the pairs of the greatest weight."""

Columns = Mapping[str, NDArray[Any] | Sequence[Any]]


@dataclass(frozen=True)
class Table:
    """A kind of table that an evaluation reports.

    Args:
        name: what the evaluation's result calls it.
        columns: computes the columns, all of one length, from rows of positive weight.
        decides: whether it judges decided classes; in a binary task the rows then have 0 or 1 as predictions.
    """

    name: str
    columns: Callable[[Rows], Columns]
    decides: bool = False

    def compute(self, rows: Rows) -> dict[str, list[Any]]:
        """Returns the table of these rows, a list per column; {} without weight, or if a prediction is not a number."""
        if not (rows.total > 0 and rows.known):
            return {}
        weighty = rows if (rows.weight > 0).all() else rows.at(rows.weight > 0)
        return {name: _plain(np.asarray(values)) for name, values in self.columns(weighty).items()}


def _plain(values: NDArray[Any]) -> list[Any]:
    if values.dtype.kind != "f":
        return list(values.tolist())
    return [value if np.isfinite(value) else None for value in values.tolist()]


def _divided(a: Floats, b: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(a / b, np.float64)


def _of_bins(rows: Rows) -> dict[str, Floats]:
    bins = calibration_bins(rows)
    return {name: np.asarray([each[name] for each in bins]) for name in (bins[0] if bins else ())}


def _confidence(rows: Rows) -> Columns:
    """Returns bins by the probability of the likeliest class, beside the share of rows where that class is right."""
    right = (decided(rows.prediction) == rows.label).astype(np.float64)
    return _of_bins(Rows(right, rows.prediction.max(1), rows.weight))


def _lift(rows: Rows) -> Columns:
    bins = {name: values[::-1] for name, values in _of_bins(rows).items()}
    positive, weight = bins["label_mean"] * bins["weight"], bins["weight"]
    captured = _divided(np.cumsum(positive), positive.sum())
    return {"share_of_rows": np.cumsum(weight) / weight.sum(), "share_of_positives": captured}


def _falling(rows: Rows) -> list[Floats]:
    """Returns the weights of positive and of negative rows at or above each distinct score, the highest first."""
    return [np.cumsum(weight[::-1]) for weight in weights_by_score(rows)]


def _roc(rows: Rows) -> Columns:
    rates = [_divided(np.append(0.0, of), of[-1]) for of in _falling(rows)]
    at = _along(*(rate if np.isfinite(rate[-1]) else np.zeros_like(rate) for rate in rates[::-1]))
    caught, wrong = (rate[at] for rate in rates)
    threshold = np.append(np.nan, scores(rows)[::-1])[at]  # nothing reaches the first one
    return {"threshold": threshold, "false_positive_rate": wrong, "true_positive_rate": caught}


def _precision_recall(rows: Rows) -> Columns:
    caught, wrong = _falling(rows)
    precision, recall = _divided(caught, caught + wrong), _divided(caught, caught[-1])
    del caught, wrong
    at = _along(recall if np.isfinite(recall[-1]) else np.zeros_like(recall), np.cumsum(_steps(precision)))
    return {"threshold": scores(rows)[::-1][at], "precision": precision[at], "recall": recall[at]}


def _along(x: Floats, y: Floats) -> NDArray[np.int64]:
    """Returns the indices of at most POINTS points of the curve (x, y), at about equal steps along the curve."""
    if len(x) <= POINTS:
        return np.arange(len(x))
    moved = _steps(y)
    moved *= x[-1] or 1
    moved /= y[-1] or 1
    moved += _steps(x)
    np.cumsum(moved, out=moved)
    places = np.searchsorted(moved, np.linspace(0, moved[-1], POINTS))
    return np.unique(np.append(places[:-1], [0, len(x) - 1]))


def _steps(values: Floats) -> Floats:
    """Returns the distance of each value from the one before it; 0 for the first."""
    found = np.zeros(len(values))
    np.subtract(values[1:], values[:-1], out=found[1:])
    return np.abs(found, out=found)


def _classes(rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Returns the label of each row, the decided class of each row, and the number of classes."""
    chosen = decided(rows.prediction).astype(np.int64)
    width = 2 if rows.prediction.ndim == 1 else rows.prediction.shape[1]
    return rows.label.astype(np.int64), chosen, width


def _confusion(rows: Rows) -> Columns:
    label, chosen, width = _classes(rows)
    pairs = label * width + chosen
    weight = np.bincount(pairs, rows.weight, width * width)
    count = np.bincount(pairs, minlength=width * width)
    shown = np.arange(width * width)
    if len(shown) > MOST_PAIRS:
        shown = np.sort(np.argsort(-weight, kind="stable")[:MOST_PAIRS])
        shown = shown[count[shown] > 0]
    return {"label": shown // width, "predicted": shown % width, "rows": count[shown], "weight": weight[shown]}


def _per_class(rows: Rows) -> Columns:
    label, chosen, width = _classes(rows)
    right = _sums(label, rows.weight * (label == chosen), width)
    there, given = _sums(label, rows.weight, width), _sums(chosen, rows.weight, width)
    return {
        "class": np.arange(width),
        "rows": np.bincount(label, minlength=width),
        "weight": there,
        "precision": _divided(right, given),
        "recall": _divided(right, there),
        "f1": f1_of(right, given - right, there - right),
    }


def _sums(codes: NDArray[np.int64], values: Floats, width: int) -> Floats:
    return np.asarray(np.bincount(codes, values, width), np.float64)


def residuals(of: Callable[[Floats], Floats] = lambda prediction: prediction) -> Callable[[Rows], Columns]:
    """Returns the function that computes residuals (label - prediction) in ten bins of the rows by prediction.

    Args:
        of: takes one number from each row's prediction.
    """

    def columns(rows: Rows) -> Columns:
        rows = rows.predicted(of(rows.prediction))
        found = _of_bins(rows)
        which = np.searchsorted(found["high"], rows.prediction)
        residual, width = rows.label - rows.prediction, len(found["high"])
        mean = found["label_mean"] - found["prediction_mean"]
        apart = (residual - mean[which]) ** 2
        return found | {
            "residual_mean": mean,
            "residual_deviation": np.sqrt(np.bincount(which, rows.weight * apart, width) / found["weight"]),
        }

    return columns


def level_tables(levels: Sequence[float], middle: int) -> tuple[Table, ...]:
    """Returns the tables of predicted quantiles: the share of labels below each level, and residuals of the middle level."""

    def columns(rows: Rows) -> Columns:
        below = (rows.weight / rows.total) @ (rows.label[:, None] <= rows.prediction)
        return {"level": np.asarray(levels), "labels_below": below}

    return Table("levels", columns), Table("residuals", residuals(lambda prediction: prediction[:, middle]))


RELIABILITY = Table("reliability", _of_bins)
"""The mean prediction beside the mean label, by tenths of the rows."""
CONFIDENCE = Table("reliability", _confidence)
ROC = Table("roc", _roc)
PRECISION_RECALL = Table("precision_recall", _precision_recall)
LIFT = Table("lift", _lift)
"""The share of all positives found so far, by tenths of the rows, the highest predictions first."""
CONFUSION = Table("confusion", _confusion, decides=True)
PER_CLASS = Table("per_class", _per_class, decides=True)
RESIDUALS = Table("residuals", residuals())

BINARY = (RELIABILITY, LIFT, CONFUSION, PER_CLASS, ROC, PRECISION_RECALL)
BY_ORDER = (LIFT, ROC, PRECISION_RECALL)
"""The tables that need nothing but the order of the predictions."""
CLASSES = (CONFIDENCE, CONFUSION, PER_CLASS)
