"""The answer of the evaluation stage as an object with fields; TensorFlow-free.

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
    """The metric of the model as it is."""
    rows: int = 0
    columns: tuple[ColumnImportance, ...] = ()
    """The importance of each column, the most important first."""


class Evaluated(Metrics):
    """The answer of the evaluation stage: one model's pass over the rows of a split."""

    rows: int = 0
    predictions: str | None = None
    """The name of the predictions' file in the output."""
    baselines: dict[str, str] = Field(default={})
    """The names of the output's files with the predictions of baselines, by the baseline's name."""
    incompatible: str | None = None
    """Why a SavedModel cannot score these rows; None: the rows were scored."""
    importance: Importance | None = None
    """The importance of columns, on a small sample; None where that would take long, and for a user's task."""
