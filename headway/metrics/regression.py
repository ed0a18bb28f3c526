"""Metrics of labels that are numbers. A prediction is [rows], or for quantiles [rows, levels]."""

from collections.abc import Callable, Sequence

import numpy as np

from headway.metrics.base import Floats, MomentMetric, Rows, moment_of

LEAST_COUNT = 1e-9
"""Predicted counts are taken as at least this in a Poisson loss, whose logarithm has no value at 0."""


def squared_error(label: Floats, prediction: Floats) -> Floats:
    return (prediction - label) ** 2


def absolute_error(label: Floats, prediction: Floats) -> Floats:
    return np.abs(prediction - label)


def poisson_loss(label: Floats, prediction: Floats) -> Floats:
    """Returns the Poisson negative log likelihood without its constant term: p - y log p. [rows]"""
    rate = np.maximum(prediction, LEAST_COUNT)
    return rate - label * np.log(rate)


def poisson_deviance(label: Floats, prediction: Floats) -> Floats:
    """Returns 2 (y log(y / p) - y + p) (McCullagh and Nelder, "Generalized linear models", 1989, 2.3.3). [rows]"""
    rate = np.maximum(prediction, LEAST_COUNT)
    some = np.where(label > 0, label, 1.0)
    return 2 * (np.where(label > 0, label * np.log(some / rate), 0.0) - label + rate)


def _fit(rows: Rows) -> Floats:
    # about the mean: squares of large numbers would leave nothing of a small spread
    label = rows.label - rows.label.mean() if len(rows) else rows.label
    return np.stack([squared_error(rows.label, rows.prediction), label, label**2], axis=1)


def _r2(means: Floats) -> Floats:
    """Returns 1 - mean squared error / variance of the label; NaN where the label does not vary."""
    spread = means[..., 2] - means[..., 1] ** 2
    return 1 - means[..., 0] / np.where(spread > 0, spread, np.nan)


def _both(rows: Rows) -> Floats:
    return np.stack([rows.prediction, rows.label], axis=1)


POSITIVE = (0.0, np.inf)
MSE = MomentMetric("loss", moment_of(squared_error), within=POSITIVE, heavy=True)
RMSE = MomentMetric("rmse", moment_of(squared_error), lambda means: np.sqrt(means[..., 0]), within=POSITIVE, heavy=True)
MAE = MomentMetric("mae", moment_of(absolute_error), within=POSITIVE, heavy=True)
R2 = MomentMetric("r2", _fit, _r2, higher_is_better=True, within=(-np.inf, 1.0), ratio=True, heavy=True)
POISSON = MomentMetric("loss", moment_of(poisson_loss), heavy=True)
DEVIANCE = MomentMetric("deviance", moment_of(poisson_deviance), within=POSITIVE, heavy=True)

PREDICTION_MEAN = MomentMetric("prediction_mean", lambda rows: rows.prediction[:, None], higher_is_better=None)
LABEL_MEAN = MomentMetric("label_mean", lambda rows: rows.label[:, None], higher_is_better=None)
CALIBRATION = MomentMetric(
    "calibration", _both, lambda means: means[..., 0] / means[..., 1], higher_is_better=None, ratio=True
)


def _factor(means: Floats) -> Floats:
    return np.log(means[..., :1] / means[..., 1:])


BIAS = MomentMetric("bias", _both, of_the_mean=True, within=POSITIVE, parts=_factor)
"""How far the mean prediction is from the mean label, as a factor: |log(prediction mean / label mean)|, 0.1 being 10%."""
BINARY_BIAS = MomentMetric("bias", _both, unit="classes", of_the_mean=True, within=POSITIVE, parts=_factor)
"""The same for a binary task, where the standard error rests on the rows of the rarer class."""


def _offset(rows: Rows) -> Floats:
    label = rows.label - rows.label.mean() if len(rows) else rows.label
    return np.stack([rows.prediction - rows.label, label, label**2], axis=1)


def _in_deviations(means: Floats) -> Floats:
    spread = means[..., 2:] - means[..., 1:2] ** 2
    return means[..., :1] / np.sqrt(np.where(spread > 0, spread, np.nan))


OFFSET = MomentMetric("bias", _offset, of_the_mean=True, within=POSITIVE, parts=_in_deviations)
"""How far the mean prediction is from the mean label, in standard deviations of the label."""


def pinball(levels: Sequence[float]) -> Callable[[Floats, Floats], Floats]:
    """Returns the function that computes the quantile loss of each row, [rows], as the mean over the levels (Koenker
    and Bassett, "Regression quantiles", 1978)."""
    at = np.asarray(levels, np.float64)

    def loss(label: Floats, prediction: Floats) -> Floats:
        above = label[:, None] - prediction
        return np.maximum(at * above, (at - 1) * above).mean(1)

    return loss


def quantile_metrics(levels: Sequence[float]) -> tuple[MomentMetric, ...]:
    """Returns the quantile loss, `mae` of the level nearest the median, `miscoverage`, `coverage`, `width` and the mean
    label. `coverage` is the share of labels between the outermost predictions, ideally their levels' difference; `width`
    is their distance. `miscoverage` is the mean distance of a level from the share of labels below its prediction."""
    at = np.asarray(levels, np.float64)
    middle = int(np.abs(np.asarray(levels) - 0.5).argmin())

    def covered(rows: Rows) -> Floats:
        inside = (rows.label >= rows.prediction[:, 0]) & (rows.label <= rows.prediction[:, -1])
        return np.where(np.isnan(rows.prediction).any(1), np.nan, inside.astype(np.float64))[:, None]

    def below(rows: Rows) -> Floats:
        under = (rows.label[:, None] <= rows.prediction).astype(np.float64)
        return np.where(np.isnan(rows.prediction), np.nan, under)

    return (
        MomentMetric("loss", moment_of(pinball(levels)), within=POSITIVE, heavy=True),
        MomentMetric(
            "mae",
            lambda rows: absolute_error(rows.label, rows.prediction[:, middle])[:, None],
            within=POSITIVE,
            heavy=True,
        ),
        MomentMetric(
            "miscoverage", below, of_the_mean=True, within=(0.0, 1.0), parts=lambda means: (means - at) / len(at)
        ),
        MomentMetric("coverage", covered, higher_is_better=None, within=(0.0, 1.0)),
        MomentMetric("width", lambda rows: rows.prediction[:, -1:] - rows.prediction[:, :1], higher_is_better=None),
        LABEL_MEAN,
    )
