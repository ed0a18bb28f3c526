"""Metrics of the user's own: functions of (label, prediction, columns) in a Python file beside the pipeline.

    def cost(label, prediction, columns):        # NumPy arrays: [rows], [rows] or [rows, width], {name: [rows]}
        return float((columns["weight"] * (prediction - label).clip(0)).sum())

`columns` has the slice columns and the group column as text, and "weight". A metric's interval comes from calling the function
twenty times more, each time without a twentieth of the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from headway.config import Frozen
from headway.errors import ConfigError
from headway.metrics.base import Better, Metric, Rows, finite
from headway.user_code.files import digest
from headway.user_code.loading import line_of, load_function

Function = Callable[[NDArray[Any], NDArray[Any], Mapping[str, NDArray[Any]]], float | None]


class UserMetric(Metric):
    """A metric that calls a function of the user's own.

    Args:
        name: as the config writes it, "module:function".
        better: which values are better; "neither" is reported and not compared.
        file: the function's file, for messages.
    """

    reads_columns = True

    def __init__(self, name: str, function: Function, better: Better = "neither", file: Path | None = None):
        self.name, self._function, self._file = name, function, file
        self.higher_is_better = {"higher": True, "lower": False, "neither": None}[better]

    def value(self, rows: Rows) -> float | None:
        columns = {**(rows.columns or {}), "weight": rows.weight}
        try:
            value = self._function(rows.label, rows.prediction, columns)
            return None if value is None else finite(float(value))
        except Exception as error:
            where = line_of(error, self._file) if self._file else self.name
            problem = f"the metric {self.name} failed: {type(error).__name__}: {error}"
            fix = "it is called with (label, prediction, columns) and returns one number; columns are: "
            raise ConfigError(problem, where=where, fix=fix + ", ".join(columns)) from error


class MetricSpec(Frozen):
    """The name, file and direction of a metric of the user's own."""

    name: str
    """module:function"""
    file: Path
    better: Better = "neither"

    def load(self) -> UserMetric:
        """Returns the metric; ConfigError when the file or the function is missing."""
        return UserMetric(self.name, load_function(self.file, self.name.partition(":")[2]), self.better, self.file)


def as_key(specs: Sequence[MetricSpec]) -> dict[str, list[str]]:
    """Returns the direction and the file's digest of each metric by name, for the cache key of a stage that computes them."""
    return {spec.name: [spec.better, digest(spec.file)] for spec in specs}
