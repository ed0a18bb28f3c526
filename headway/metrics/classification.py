"""Metrics of labels that are classes. Probabilities are clipped to [1e-7, 1 - 1e-7] in the log loss, as Keras does.

Labels are class indices. A binary prediction is [rows], the probability of class 1; other predictions are [rows, classes].
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.metrics.base import Floats, Metric, MomentMetric, OnePartDerivative, Rows, finite, moment_of, unit_sums
from headway.tabular.list_arrays import run_starts, stable_argsort

EPSILON = 1e-7
BINS = 10
_LEAST = 5e-324
ORDER = "order"
"""The key under which `Rows.cached` keeps the order of the rows by prediction."""


def log_loss(label: Floats, prediction: Floats) -> Floats:
    """Returns the natural log loss of each row. [rows]"""
    if prediction.ndim == 2:
        likelihood = prediction[np.arange(len(label)), label.astype(np.int64)]
    else:
        likelihood = np.where(label > 0.5, prediction, 1.0 - prediction)
    np.clip(likelihood, EPSILON, 1.0 - EPSILON, out=likelihood)
    return np.negative(np.log(likelihood, out=likelihood), out=likelihood)


def correct(label: Floats, prediction: Floats) -> Floats:
    """Returns 1.0 where the decided class is the label, else 0.0; NaN where a prediction is not a number. [rows]"""
    unknown = np.isnan(prediction)
    right = (decided(prediction) == label).astype(np.float64)
    return np.where(unknown.any(1) if prediction.ndim == 2 else unknown, np.nan, right) if unknown.any() else right


def decided(prediction: Floats) -> NDArray[Any]:
    """Returns the likeliest class of each row, [rows]. Of two classes at 0.5 it is the positive one, as everywhere (the
    signature `classify`, a chosen threshold, scikit-learn's curves). Of more classes that tie, it is the first."""
    return prediction.argmax(1) if prediction.ndim == 2 else prediction >= 0.5


def squared_distance(label: Floats, prediction: Floats) -> Floats:
    """Returns the Brier score of each row (Brier, "Verification of forecasts expressed in terms of probability",
    1950): with two classes (p - y)^2 of the positive class, with more the sum of (p - y)^2 over all classes. [rows]"""
    if prediction.ndim == 1:
        return (prediction - label) ** 2
    one_hot = np.eye(prediction.shape[1])[label.astype(np.int64)]
    return ((prediction - one_hot) ** 2).sum(1)


class Auc(Metric):
    """The exact area under the ROC curve: the weighted share of (positive, negative) pairs that the score puts in the
    right order, ties counting half. Undefined where a class is missing."""

    name, higher_is_better, unit, within = "auc", True, "classes", (0.0, 1.0)

    def value(self, rows: Rows) -> float | None:
        if not len(rows) or not rows.known:
            return None
        positive, negative = weights_by_score(rows)
        pairs = positive.sum() * negative.sum()
        if not pairs > 0:
            return None
        below = np.cumsum(negative) - negative
        return float(np.dot(positive, below + 0.5 * negative) / pairs)

    def influence(self, rows: Rows) -> Floats | None:
        if (value := self.cached_value(rows)) is None:
            return None
        positive, negative = weights_by_score(rows)
        below = (np.cumsum(negative) - 0.5 * negative) / negative.sum()  # the share of negatives below a positive there
        above = 1.0 - (np.cumsum(positive) - 0.5 * positive) / positive.sum()
        return _by_class(rows, (below - value) / positive.sum(), (above - value) / negative.sum())


def weights_by_score(rows: Rows) -> tuple[Floats, Floats]:
    """Returns the weight of the positive rows and the weight of the negative rows at each distinct score, the lowest
    first. There must be at least one row, and every prediction must be a number."""

    def made() -> tuple[Floats, Floats]:
        ranked = _ranked(rows)
        first = np.flatnonzero(ranked.starts)
        positive = ranked.label if rows.unweighted else ranked.weight * ranked.label
        negative = 1.0 - ranked.label
        negative *= ranked.weight
        return np.add.reduceat(positive, first), np.add.reduceat(negative, first)

    return rows.cached("weights_by_score", made)


def _by_class(rows: Rows, positive: Floats, negative: Floats) -> Floats:
    """Returns for each positive row the number in `positive` at its score, for each negative row that in `negative`; [rows].

    Args:
        positive, negative: a number for each distinct prediction, the lowest first.
    """
    ranked, found = _ranked(rows), np.empty(len(rows))
    found[ranked.order] = np.where(ranked.label > 0.5, positive[ranked.run], negative[ranked.run])
    return found


def scores(rows: Rows) -> Floats:
    """Returns the distinct predictions, the lowest first: the scores of `weights_by_score`."""
    ranked = _ranked(rows)
    return ranked.prediction[ranked.starts]


class _Ranked(NamedTuple):
    """The rows in the order of their predictions, the lowest first; each array is [rows]."""

    order: NDArray[np.int64]
    prediction: Floats
    label: Floats
    weight: Floats
    starts: NDArray[np.bool_]
    """Whether the prediction differs from the one before."""
    run: NDArray[np.int64]
    """The index of the prediction among the distinct ones."""


def _ranked(rows: Rows) -> _Ranked:
    """Returns the rows in the order of their predictions, the lowest first. Every prediction must be a number."""

    def made() -> _Ranked:
        order = rows.cached(ORDER, lambda: stable_argsort(rows.prediction))
        ranked = rows.prediction[order]
        starts = run_starts(ranked)
        weight = rows.weight if rows.unweighted else rows.weight[order]
        return _Ranked(order, ranked, rows.label[order], weight, starts, np.cumsum(starts) - 1)

    return rows.cached("ranked", made)


def orders_of_parts(rows: Rows, parts: Sequence[NDArray[np.int64]]) -> Sequence[NDArray[np.int64] | None]:
    """Returns, for each part of the rows, its order by prediction, taken from the cached order of all rows. Without a
    cached order each part gets None.

    Args:
        parts: the row indices of each part, ascending; no row is in two parts.
    """
    if (order := rows.memo.get(ORDER)) is None:
        return [None] * len(parts)
    part = np.full(len(rows), len(parts), np.min_scalar_type(len(parts)))
    place = np.empty(len(rows), np.int64)
    for number, at in enumerate(parts):
        part[at], place[at] = number, np.arange(len(at))
    grouped = place[order[np.argsort(part[order], kind="stable")]]  # of few values: by radix
    return np.split(grouped, np.cumsum([len(at) for at in parts]))[:-1]


def with_order(rows: Rows, order: NDArray[np.int64] | None) -> Rows:
    """Returns the rows with `order` cached as their order by prediction; unchanged if it is None."""
    return rows if order is None else replace(rows, memo=rows.memo | {ORDER: order})


class AveragePrecision(Metric):
    """The area under the precision-recall curve as a step function: the precision at each distinct score, weighted by how
    much recall rises there. Undefined where no label is positive."""

    name, higher_is_better, unit, within = "pr_auc", True, "classes", (0.0, 1.0)

    def value(self, rows: Rows) -> float | None:
        if not len(rows) or not rows.known:
            return None
        positive, negative = (weights[::-1] for weights in weights_by_score(rows))
        if not positive.sum() > 0:
            return None
        caught, flagged = np.cumsum(positive), np.cumsum(positive + negative)
        precision = caught / np.maximum(flagged, _LEAST)  # where nothing is flagged, nothing is caught
        return finite(float(np.dot(positive, precision) / caught[-1]))

    def influence(self, rows: Rows) -> Floats | None:
        if (value := self.cached_value(rows)) is None:
            return None
        positive, negative = (weights[::-1] for weights in weights_by_score(rows))
        caught, flagged = np.cumsum(positive), np.cumsum(positive + negative)
        some = np.where(flagged > 0, flagged, 1.0)
        # a row counts in the precision at its own score and at every lower one
        ups = np.cumsum((positive / some)[::-1])
        downs = np.cumsum((positive * caught / some**2)[::-1])
        precision = (caught / some)[::-1]
        return _by_class(rows, precision - value + ups - downs, -downs) / caught[-1]


class CalibrationError(Metric):
    """The expected calibration error: the mean of |predicted - observed| over `calibration_bins`, by weight."""

    name, within = "ece", (0.0, 1.0)

    def value(self, rows: Rows) -> float | None:
        if not rows.known:
            return None
        bins = calibration_bins(rows)
        total = sum(b["weight"] for b in bins)
        if not total:
            return None
        return sum(b["weight"] * abs(b["prediction_mean"] - b["label_mean"]) for b in bins) / total

    def influence(self, rows: Rows) -> Floats | None:
        if (value := self.cached_value(rows)) is None:
            return None
        ranked, which = _bins(rows)
        off, mass = ranked.prediction - ranked.label, ranked.weight
        found = np.zeros(len(rows))
        found[ranked.order] = (np.sign(np.bincount(which, mass * off, BINS))[which] * off - value) / mass.sum()
        return found

    def parts(self, rows: Rows) -> Floats | None:
        """Returns each bin's mean prediction minus mean label, times its share of the weight, [bins]."""
        if self.cached_value(rows) is None:
            return None
        ranked, which = _bins(rows)
        off = ranked.weight * (ranked.prediction - ranked.label)
        found: Floats = np.bincount(which, off, BINS) / ranked.weight.sum()
        return found

    def influence_on_parts_by_unit(self, rows: Rows, codes: NDArray[np.int64] | None, units: int) -> Floats | None:
        if (parts := self.parts(rows)) is None:
            return None
        ranked, which = _bins(rows)
        total = ranked.weight.sum()
        # rows without weight move nothing, whatever their bin
        of_row, own = np.zeros(len(rows), which.dtype), np.zeros(len(rows))
        of_row[ranked.order], own[ranked.order] = which, (ranked.prediction - ranked.label) / total
        return unit_sums(OnePartDerivative(of_row, own, -parts / total), rows, codes, units)


def _bins(rows: Rows) -> tuple[_Ranked, NDArray[np.uint8]]:
    """Returns the rows of positive weight and known prediction, in the order of predictions, and each row's calibration bin."""

    def made() -> tuple[_Ranked, NDArray[np.uint8]]:
        kept = None if rows.unweighted and rows.known else (rows.weight > 0) & ~np.isnan(rows.prediction)
        if kept is None or kept.all():
            ranked = _ranked(rows)
        else:
            ranked = _ranked(rows.at(kept))
            ranked = ranked._replace(order=np.flatnonzero(kept)[ranked.order])
        mass = ranked.weight
        below = (np.cumsum(mass) - mass)[ranked.starts]  # each distinct value
        of_value = np.minimum((below / mass.sum() * BINS).astype(np.int64), BINS - 1).astype(np.uint8)
        return ranked, of_value[ranked.run]

    return rows.cached("bins", made)


def calibration_bins(rows: Rows) -> list[dict[str, float | int]]:
    """Returns ten bins of about equal weight by predicted probability. Each has low, high, rows, weight, prediction_mean
    and label_mean. Rows with equal predictions are in one bin, so there may be fewer bins."""
    ranked, which = _bins(rows)
    mass = ranked.weight
    if not len(mass):
        return []
    first = np.flatnonzero(run_starts(which))
    last = np.append(first[1:], len(mass)) - 1
    weights = np.add.reduceat(mass, first)
    predictions = np.add.reduceat(mass * ranked.prediction, first) / weights
    labels = np.add.reduceat(mass * ranked.label, first) / weights
    return [
        {
            "low": float(ranked.prediction[a]),
            "high": float(ranked.prediction[b]),
            "rows": int(b - a + 1),
            "weight": float(weights[i]),
            "prediction_mean": float(predictions[i]),
            "label_mean": float(labels[i]),
        }
        for i, (a, b) in enumerate(zip(first, last, strict=True))
    ]


def _outcomes(rows: Rows) -> Floats:
    """Returns by row 1 or 0: true positive, false positive, false negative at 0.5; NaN without a prediction. [rows, 3]"""
    flagged, positive = decided(rows.prediction), rows.label > 0.5
    counts = np.empty((len(rows), 3))
    counts[:, 0], counts[:, 1], counts[:, 2] = flagged & positive, flagged & ~positive, ~flagged & positive
    if not rows.known:
        counts[np.isnan(rows.prediction)] = np.nan
    return counts


def _class_outcomes(rows: Rows) -> Floats:
    """Returns `_outcomes` of each class against all other classes. [rows, 3 * classes]"""
    width = rows.prediction.shape[1]
    chosen, truth = np.eye(width)[decided(rows.prediction)], np.eye(width)[rows.label.astype(np.int64)]
    counts = np.concatenate([chosen * truth, chosen * (1 - truth), (1 - chosen) * truth], axis=1)
    counts[np.isnan(rows.prediction).any(1)] = np.nan
    return counts


def f1_of(right: Floats, wrong: Floats, missed: Floats) -> Floats:
    """Returns F1 from the weights of true, false and missed positives; 0 where all are 0, as in scikit-learn."""
    both = 2 * right + wrong + missed
    return np.where(both == 0, 0.0, 2 * right / np.where(both == 0, 1.0, both))


def _f1(means: Floats) -> Floats:
    """Returns F1 of the positive class. Without a positive label it is NaN, like recall: the best model could only get 0."""
    right, wrong, missed = np.moveaxis(means, -1, 0)
    return np.where(right + missed == 0, np.nan, f1_of(right, wrong, missed))


def _macro_f1(means: Floats) -> Floats:
    """Returns the mean F1 over the classes that occur, as labels or as predictions."""
    right, wrong, missed = np.split(means, 3, axis=-1)
    there = right + wrong + missed > 0
    scores = np.where(there, f1_of(right, wrong, missed), 0.0).sum(-1) / there.sum(-1)
    return np.where(np.isnan(means).any(-1), np.nan, scores)


def _shares(rows: Rows) -> Floats:
    """Returns each row's predicted probabilities, and then its label as 0 or 1 for each class. [rows, 2 * classes]"""
    width = rows.prediction.shape[1]
    return np.concatenate([rows.prediction, np.eye(width)[rows.label.astype(np.int64)]], axis=1)


def _apart(means: Floats) -> Floats:
    predicted, true = np.split(means, 2, axis=-1)
    return 0.5 * (predicted - true)


LOSS = MomentMetric("loss", moment_of(log_loss), within=(0.0, np.inf))
SHARE = (0.0, 1.0)
ACCURACY = MomentMetric("accuracy", moment_of(correct), higher_is_better=True, within=SHARE)
BRIER = MomentMetric("brier", moment_of(squared_distance), within=(0.0, np.inf))
AUC, PR_AUC, ECE = Auc(), AveragePrecision(), CalibrationError()
_OF_TWO: dict[str, Any] = {"higher_is_better": True, "unit": "classes", "within": SHARE}
PRECISION = MomentMetric("precision", _outcomes, lambda m: m[..., 0] / (m[..., 0] + m[..., 1]), **_OF_TWO)
RECALL = MomentMetric("recall", _outcomes, lambda m: m[..., 0] / (m[..., 0] + m[..., 2]), **_OF_TWO)
F1 = MomentMetric("f1", _outcomes, _f1, **_OF_TWO)
F1_MACRO = MomentMetric("f1_macro", _class_outcomes, _macro_f1, higher_is_better=True, within=SHARE)
SHARES_BIAS = MomentMetric("bias", _shares, of_the_mean=True, within=SHARE, parts=_apart)
"""The share of rows whose class would have to change for the mean probabilities to be the classes' shares."""


def auc(label: Any, score: Any, weight: Any = None) -> float | None:
    """Returns the metric `Auc` of arrays (labels 0 or 1, scores of any range); None if all labels are of one class."""
    label = np.asarray(label, np.float64)
    weight = np.ones(label.shape) if weight is None else np.asarray(weight, np.float64)
    return AUC.value(Rows(label, np.asarray(score, np.float64), weight))
