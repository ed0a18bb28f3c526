"""A task: how the label is read, the form of its predictions, and how predictions are judged.

task = task_of("binary")
task.rows(label, prediction, weight)         # checked arrays
task.metric("auc")                           # headway.metrics.base.Metric
task.constant(LabelFacts(counts=(880, 120)), 1000)     # what a model that ignores every column predicts
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headway.config import Frozen
from headway.errors import DataError
from headway.metrics.base import Floats, Metric, Rows
from headway.metrics.tables import Table

ROUNDING = 1e-6
"""The distance by which a probability may lie beyond [0, 1]: float32 sums of a softmax do."""


class LabelFacts(Frozen):
    """The facts of the train rows' labels."""

    counts: tuple[int, ...] = ()
    """The number of rows of each class, in the order of the classes; for a binary label: negative, positive."""
    mean: float | None = None
    median: float | None = None
    quantiles: tuple[float, ...] = ()
    """The quantiles of the labels at the levels of a task that predicts quantiles."""


class Output(NamedTuple):
    """One output of an exported model. `shape` is the shape for one row; None in it is a size that the request sets."""

    name: str
    dtype: Literal["float32", "int64", "string", "bool", "int32"]
    shape: tuple[int | None, ...] = ()


class Classify(NamedTuple):
    """The signature `classify` of an exported model: its one argument, the argument's default, and its outputs."""

    argument: Output
    default: float
    outputs: tuple[Output, ...]


class Task:
    """A built-in task, or the base class of a user's own task (`headway.tasks.user_task`)."""

    name: str
    has_classes: bool = False
    """Whether the label is a class, stored as the class's index; else the label is a number."""
    per_class: bool = False
    """Whether a prediction has one probability for each class."""
    wide: bool = False
    """Whether a prediction is several numbers, [rows, width]; else a prediction is one number, [rows]."""
    metrics: tuple[Metric, ...]
    """The metrics that are reported, in this order."""
    tables: tuple[Table, ...] = ()
    """The tables that are reported beside the metrics."""
    primary: str
    """The metric by which a model is better than another."""
    tolerances: Mapping[str, float | str]
    """How much worse than the champion each metric may be, where the config names no tolerance."""
    probabilities: bool = False
    """Whether predictions lie between 0 and 1."""
    output: Literal["probability", "probabilities", "prediction", "quantiles"] = "prediction"
    """The output of an exported model that holds the prediction."""
    linear: Literal["ridge", "logistic"] | None = None
    """The way in which the linear baseline is fitted; None: there is none."""

    @property
    def metric_names(self) -> tuple[str, ...]:
        return tuple(metric.name for metric in self.metrics)

    @property
    def compared(self) -> tuple[str, ...]:
        """The metrics by which models can be compared: for each, higher or lower values are better."""
        return tuple(metric.name for metric in self.metrics if metric.higher_is_better is not None)

    @property
    def row_loss(self) -> Metric:
        """The metric whose value for each row is used to find the worst slices and the worst rows."""
        return self.metrics[0]

    def tables_for(self, rows: Rows) -> tuple[Table, ...]:
        """Returns the tables that fit these rows' predictions."""
        return self.tables

    def metric(self, name: str) -> Metric:
        """Returns the task's metric of that name; KeyError where there is none."""
        for metric in self.metrics:
            if metric.name == name:
                return metric
        raise KeyError(name)

    def rows(
        self,
        label: ArrayLike,
        prediction: ArrayLike,
        weight: ArrayLike | None = None,
        *,
        groups: NDArray[np.int64] | None = None,
        columns: Mapping[str, NDArray[Any]] | None = None,
        units: NDArray[np.int64] | None = None,
    ) -> Rows:
        """Returns the checked arrays as float64. A prediction that is not finite becomes NaN. A row of weight 0 gets
        the label and prediction of a row with weight, so that its own values do not matter.

        Raises:
            DataError: the shapes do not agree, or a value breaks the task's rules.
        """
        label, prediction = np.asarray(label, np.float64), np.asarray(prediction, np.float64)
        weight = np.ones(label.shape) if weight is None else np.asarray(weight, np.float64)
        if label.ndim != 1 or prediction.shape[:1] != label.shape or weight.shape != label.shape:
            raise DataError(
                f"labels {label.shape}, predictions {prediction.shape} and weights {weight.shape} do not agree"
            )
        if prediction.ndim != (2 if self.wide else 1):
            raise DataError(f"predictions of shape {prediction.shape} do not fit the task {self.name}")
        refuse(~(weight >= 0) | np.isinf(weight), weight, "weight", "a weight is a number that is not negative")
        counts = weight > 0
        if (
            counts.any() and not counts.all()
        ):  # infinity times 0 is not 0: rows that do not count get one's values that does
            place = np.where(counts, np.arange(len(weight)), counts.argmax())
            label, prediction = label[place], prediction[place]
        self.check_label(label, prediction)
        known = np.isfinite(prediction)
        if not known.all():
            prediction = np.where(known, prediction, np.nan)
        if self.probabilities:
            _check_probabilities(prediction)
        return Rows(label, prediction, weight, groups, columns, units)

    def check_label(self, label: Floats, prediction: Floats) -> None:
        """Raise DataError for a label that is not valid for the task."""

    def constant(self, facts: LabelFacts, rows: int, metric: str = "loss") -> Floats | None:
        """Returns the predictions of the constant that is best by `metric`, for `rows` rows; None if the facts of the
        labels give no constant."""
        return None

    def from_output(self, output: Floats) -> Floats:
        """Returns float64 predictions from a model's raw outputs [rows, outputs]."""
        return output[:, 0]

    def outputs(self, classes: Sequence[str | int] = ()) -> tuple[Output, ...]:
        """Returns the outputs that an exported model has for each row."""
        return (Output("prediction", "float32"),)

    def classify(self, classes: Sequence[str | int] = ()) -> Classify | None:
        """Returns the signature `classify`, which decides by a number in the request; None if the task has no such signature."""
        return None

    def __repr__(self) -> str:
        return f"Task({self.name!r})"


def shares_of(counts: Sequence[int]) -> Floats | None:
    """Returns the share of each class; None where no rows were counted."""
    return np.asarray(counts, np.float64) / sum(counts) if sum(counts) else None


def refuse(wrong: NDArray[np.bool_], values: Floats, column: str, rule: str) -> None:
    """Raise a DataError that names the first row where `wrong` is true; do nothing if there is none."""
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(f"{rule}, but row {row} is {values[row]:.6g}", where=f"column {column!r}")


def _check_probabilities(prediction: Floats) -> None:
    with np.errstate(invalid="ignore"):
        outside = (prediction < -ROUNDING) | (prediction > 1.0 + ROUNDING)
    if outside.any():
        at = tuple(int(place) for place in np.argwhere(outside)[0])
        which = f"row {at[0]}" + (f", class {at[1]}" if len(at) > 1 else "")
        raise DataError(
            f"a probability lies between 0 and 1, but {which} is {prediction[at]:.6g}",
            where="column 'prediction'",
            fix="write probabilities, not logits",
        )
