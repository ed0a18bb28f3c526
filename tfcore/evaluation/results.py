"""The answer of the evaluation stage, with fields; TensorFlow-free.

Evaluated.model_validate(result).of("auc").value
Evaluated.model_validate(result).importance.columns[0].permuted
"""

from pydantic import Field

from headway.config import Result
from headway.evaluation.measured import Interval, Metrics


class ColumnImportance(Result):
    column: str
    permuted: float | None = None
    """How much worse the metric is with the column's values permuted."""
    interval: Interval | None = None


class Importance(Result):
    """How much each raw column matters to a model."""

    metric: str
    value: float | None = None
    """Of the model as it is."""
    rows: int = 0
    columns: tuple[ColumnImportance, ...] = ()
    """The most important first."""


class Evaluated(Metrics):
    """One model's pass over the rows of a split."""

    rows: int = 0
    predictions: str | None = None
    """A file of the output."""
    baselines: dict[str, str] = Field(default={})
    """Files of the output with the predictions of other models, by name."""
    incompatible: str | None = None
    """Why a SavedModel cannot score these rows."""
    importance: Importance | None = None
    """On a small sample; None where that would take long, and for a task of the user's own."""
