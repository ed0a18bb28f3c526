"""The answer of the measuring stage, with fields.

    found = Measured.model_validate(result)
    found.of("auc").interval, found.by_slice["carrier"]["EV"].of("auc").value, found.worst_slices.slices[0].loss

Metrics are by name, and intervals beside them; a reader asks for one metric with all that is known of it.
"""

from typing import Any

from pydantic import Field

from headway.config import Result
from headway.evaluation.verdict import MetricValue

Interval = tuple[float, float]
Values = dict[str, float | None]
"""By metric; None: it is undefined, as the AUC of a single class."""


class Metrics(Result):
    """Metrics on the same rows."""

    metrics: Values = Field(default={})
    intervals: dict[str, Interval | None] = Field(default={})

    def of(self, name: str) -> MetricValue:
        """Returns a metric by its name; without a value where it was not measured."""
        return MetricValue(name=name, value=self.metrics.get(name), interval=self.intervals.get(name))

    @property
    def values(self) -> list[MetricValue]:
        """All of them, in their order."""
        return [self.of(name) for name in self.metrics]


class SliceMetrics(Metrics):
    """The candidate on one slice."""

    rows: int


class Threshold(Metrics):
    """Decisions at the threshold."""

    rule: str
    value: float | None = None
    """None: no threshold follows the rule."""
    chosen_on: str = ""


class WorstRow(Result):
    """A row with a great loss."""

    row: int
    """Its number in the split."""
    loss: float
    label: float | str
    """A number, or the name of a class."""
    prediction: float | str | tuple[float, ...]
    """A number, the name of the most likely class, or several numbers."""
    of_label: float | None = None
    """The probability of the label's class, where there are several."""
    values: dict[str, str | int | float | None] = Field(default={})
    """Of the columns whose values a report may tell."""


class WorstSlice(Result):
    """A slice with a loss above that of all other rows beyond chance."""

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
    """What `loss` of a slice is called: loss, or deviance."""
    tried: int = 0
    columns: int = 0
    significant: int = 0
    slices: tuple[WorstSlice, ...] = ()


class Measured(Metrics):
    """One model on the rows of a split."""

    task: str
    rows: int
    sample_of: int | None = None
    """The rows of which these are a random sample; None: all."""
    spans: tuple[str, ...] = ()
    """Of the rows."""
    confidence: float = 0.95
    drawn_by: str | None = None
    """In words: what rows are drawn together by."""
    few_rows: str | None = None
    """In words: which intervals rest on few rows."""
    baselines: dict[str, Values] = Field(default={})
    """Other models on the same rows, the champion among them."""
    by_slice: dict[str, dict[str, SliceMetrics]] = Field(default={})
    """By column and value."""
    threshold: Threshold | None = None
    tables: dict[str, dict[str, list[Any]]] = Field(default={})
    """By name: a list per column."""
    worst_slices: WorstSlices | None = None
    worst_rows: tuple[WorstRow, ...] = ()
    """The greatest loss first."""
