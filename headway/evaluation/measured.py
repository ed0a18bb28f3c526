"""The result of the measuring stage, as a class with fields.

    found = Measured.model_validate(result)
    found.of("auc").interval, found.by_slice["carrier"]["EV"].of("auc").value, found.worst_slices.slices[0].loss

Metrics and their intervals are stored by name; `of` returns one metric with its interval.
"""

from typing import Any

from pydantic import Field

from headway.config import Result
from headway.evaluation.verdict import MetricValue

Interval = tuple[float, float]
Values = dict[str, float | None]
"""By metric; None: the metric is undefined, as the AUC of a single class."""


class Metrics(Result):
    """The metrics of one model on some rows, with their intervals."""

    metrics: Values = Field(default={})
    intervals: dict[str, Interval | None] = Field(default={})

    def of(self, name: str) -> MetricValue:
        """Returns a metric by its name; its value is None where it was not measured."""
        return MetricValue(name=name, value=self.metrics.get(name), interval=self.intervals.get(name))

    @property
    def values(self) -> list[MetricValue]:
        """All metrics, in their order."""
        return [self.of(name) for name in self.metrics]


class SliceMetrics(Metrics):
    """The metrics on one slice."""

    rows: int


class Threshold(Metrics):
    """The chosen threshold, and the metrics of the decisions by it."""

    rule: str
    value: float | None = None
    """None: no threshold follows the rule."""
    chosen_on: str = ""


class WorstRow(Result):
    """One of the rows with the greatest losses."""

    row: int
    """The row's number in the split."""
    loss: float
    label: float | str
    """A number, or the name of a class."""
    prediction: float | str | tuple[float, ...]
    """A number, the name of the most likely class, or several numbers."""
    of_label: float | None = None
    """The predicted probability of the label's class, where a prediction has one for each class."""
    values: dict[str, str | int | float | None] = Field(default={})
    """The values of the columns that a report may show."""


class WorstSlice(Result):
    """A slice with a loss that is higher than the loss of all other rows, beyond chance."""

    slice: str
    value: str
    rows: int
    loss: float
    loss_of_others: float
    p_adjusted: float = 0.0
    prediction_mean: float | None = None
    label_mean: float | None = None


class WorstSlices(Result):
    metric: str = "loss"
    """The name of the metric that a slice's `loss` is: loss, or deviance."""
    tried: int = 0
    columns: int = 0
    significant: int = 0
    slices: tuple[WorstSlice, ...] = ()


class Measured(Metrics):
    """The metrics of one model on the rows of a split: the result of the measuring stage."""

    task: str
    rows: int
    sample_of: int | None = None
    """The number of rows that the measured rows are a random sample of; None: all rows were measured."""
    spans: tuple[str, ...] = ()
    """The spans, such as days, that the rows come from."""
    confidence: float = 0.95
    drawn_by: str | None = None
    """A sentence that says which rows are resampled together; None: each by itself."""
    few_rows: str | None = None
    """A warning about intervals that rest on few rows; None: there are no such intervals."""
    baselines: dict[str, Values] = Field(default={})
    """The metrics of other models on the same rows, by name; the champion is one of them."""
    by_slice: dict[str, dict[str, SliceMetrics]] = Field(default={})
    """By the name of the slice and its value."""
    threshold: Threshold | None = None
    tables: dict[str, dict[str, list[Any]]] = Field(default={})
    """The tables by name; each has a list for each column."""
    worst_slices: WorstSlices | None = None
    worst_rows: tuple[WorstRow, ...] = ()
    """The rows with the greatest losses, the greatest first."""
