"""The built-in tasks."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from headway.metrics import classification as classes
from headway.metrics import regression as numbers
from headway.metrics import tables
from headway.metrics.base import Floats, Metric
from headway.tasks.base import Classify, LabelFacts, Output, Task, refuse, shares_of

SHARE, AUC_SHARE = "5% of gain", "2% of gain"
"""Default tolerances: how much worse than the champion's a loss may be, and an AUC (docs/gate.md says why)."""


class Binary(Task):
    """The task with two classes: a prediction is the probability of the second."""

    name, has_classes, probabilities, output, linear = "binary", True, True, "probability", "logistic"
    metrics = (
        classes.LOSS,
        classes.AUC,
        classes.ACCURACY,
        numbers.PREDICTION_MEAN,
        numbers.LABEL_MEAN,
        numbers.CALIBRATION,
        numbers.BINARY_BIAS,
        classes.ECE,
        classes.PR_AUC,
        classes.BRIER,
        classes.PRECISION,
        classes.RECALL,
        classes.F1,
    )
    tables = tables.BINARY
    primary, tolerances = "auc", {"auc": AUC_SHARE, "loss": SHARE, "bias": 0.1}

    def check_label(self, label: Floats, prediction: Floats) -> None:
        refuse(~np.isin(label, (0.0, 1.0)), label, "label", "a label of the binary task is 0 or 1")

    def constant(self, facts: LabelFacts, rows: int, metric: str = "loss") -> Floats | None:
        shares = shares_of(facts.counts)
        return None if shares is None else np.full(rows, shares[1])

    def from_output(self, output: Floats) -> Floats:
        return sigmoid(output[:, 0])

    def outputs(self, classes: Sequence[str | int] = ()) -> tuple[Output, ...]:
        return (Output("probability", "float32"), Output("logit", "float32"))

    def classify(self, classes: Sequence[str | int] = ()) -> Classify:
        """Returns the signature that takes a threshold. Its outputs are each row's decision, probability and threshold."""
        decided = (Output("decision", "bool"), Output("probability", "float32"), Output("threshold", "float32"))
        return Classify(Output("threshold", "float32"), 0.5, decided)


class Multiclass(Task):
    """The task with several classes: a prediction is the probability of each."""

    name, has_classes, per_class, wide, probabilities = "multiclass", True, True, True, True
    output, linear = "probabilities", "logistic"
    metrics = (classes.LOSS, classes.ACCURACY, classes.F1_MACRO, classes.BRIER, classes.SHARES_BIAS)
    tables = tables.CLASSES
    primary, tolerances = "accuracy", {"loss": SHARE, "accuracy": 0.005, "bias": 0.02}

    def check_label(self, label: Floats, prediction: Floats) -> None:
        width = prediction.shape[1]
        is_class = (label >= 0) & (label < width) & (label == np.floor(label))
        refuse(~is_class, label, "label", f"a label is a class index below {width}, a whole number")

    def constant(self, facts: LabelFacts, rows: int, metric: str = "loss") -> Floats | None:
        shares = shares_of(facts.counts)
        return None if shares is None else np.broadcast_to(shares, (rows, len(shares)))

    def from_output(self, output: Floats) -> Floats:
        return softmax(output)

    def outputs(self, classes: Sequence[str | int] = ()) -> tuple[Output, ...]:
        if not classes:
            raise ValueError("a multiclass model needs its classes")
        return (Output("probabilities", "float32", (len(classes),)), Output("class", _class_type(classes)))

    def classify(self, classes: Sequence[str | int] = ()) -> Classify:
        """Returns the signature that lists the likeliest classes of each row, as many as a request asks for."""
        likeliest = (Output("classes", _class_type(classes), (None,)), Output("probabilities", "float32", (None,)))
        return Classify(Output("top_k", "int32"), 1, likeliest)


class Regression(Task):
    """The task of a number, predicted as its mean: the loss is the squared error."""

    name = "regression"
    linear: Literal["ridge", "logistic"] | None = "ridge"
    metrics = (
        numbers.MSE,
        numbers.RMSE,
        numbers.MAE,
        numbers.PREDICTION_MEAN,
        numbers.LABEL_MEAN,
        numbers.CALIBRATION,
        numbers.OFFSET,
        numbers.R2,
    )
    tables = (tables.RESIDUALS,)
    primary, tolerances = "rmse", {"rmse": SHARE, "mae": SHARE, "bias": 0.02}

    def constant(self, facts: LabelFacts, rows: int, metric: str = "loss") -> Floats | None:
        value = facts.median if metric == "mae" and facts.median is not None else facts.mean
        return None if value is None else np.full(rows, value)


class Count(Regression):
    """The task of a count, predicted as the mean of a Poisson distribution."""

    name, linear = "count", None
    metrics = (
        numbers.POISSON,
        numbers.DEVIANCE,
        numbers.RMSE,
        numbers.MAE,
        numbers.PREDICTION_MEAN,
        numbers.LABEL_MEAN,
        numbers.CALIBRATION,
        numbers.BIAS,
    )
    primary, tolerances = "deviance", {"deviance": SHARE, "bias": 0.1}

    @property
    def row_loss(self) -> Metric:
        """The deviance: the Poisson loss of a perfect prediction still depends on how large the count is."""
        return numbers.DEVIANCE

    def check_label(self, label: Floats, prediction: Floats) -> None:
        refuse(~(label >= 0), label, "label", "a count is 0 or more")

    def from_output(self, output: Floats) -> Floats:
        return np.exp(output[:, 0])


class Quantiles(Task):
    """The task of a number that is predicted as quantiles of its distribution, in rising order."""

    wide, output = True, "quantiles"
    primary, tolerances = ("loss", {"loss": SHARE, "miscoverage": 0.01})  # seeds alone: 0.001 to 0.004

    def __init__(self, levels: tuple[float, ...]):
        self.levels = levels
        self.middle = int(np.abs(np.asarray(levels) - 0.5).argmin())
        """The index of the level nearest the median: its quantile is the prediction where one number is wanted."""
        self.name = f"quantiles({', '.join(f'{level:g}' for level in levels)})"
        self.metrics = numbers.quantile_metrics(levels)
        self.tables = tables.level_tables(levels, self.middle)

    def constant(self, facts: LabelFacts, rows: int, metric: str = "loss") -> Floats | None:
        if len(facts.quantiles) != len(self.levels):
            return None
        return np.broadcast_to(np.asarray(facts.quantiles), (rows, len(self.levels)))

    def from_output(self, output: Floats) -> Floats:
        return np.sort(output, axis=1)

    def outputs(self, classes: Sequence[str | int] = ()) -> tuple[Output, ...]:
        return (Output("quantiles", "float32", (len(self.levels),)), Output("prediction", "float32"))


def _class_type(classes: Sequence[str | int]) -> Literal["string", "int64"]:
    return "string" if isinstance((classes or ("",))[0], str) else "int64"


def sigmoid(output: Floats) -> Floats:
    small = np.exp(-np.abs(output))
    return np.where(output >= 0, 1.0, small) / (1.0 + small)


def softmax(output: Floats) -> Floats:
    powers = np.exp(output - output.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
