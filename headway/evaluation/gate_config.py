"""The gate's config.

gate:
  thresholds: {auc: {min: 0.65}, calibration: {min: 0.9, max: 1.1}}
  tolerance: {auc: 0.002, loss: 1%}        # how much worse than the champion is still no worse
  primary: auc                             # the metric that a better model is better on
  hold: true                               # a person promotes
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, field_validator, model_validator

from headway.config import Frozen
from headway.errors import ConfigError
from headway.evaluation.tasks import ALL_COMPARED, ALL_METRICS, COMPARED, METRICS, RANKED, Task
from headway.schema.columns import suggest

DEFAULT_TOLERANCE: dict[str, dict[str, float | str]] = {
    "binary": {"auc": 0.002, "loss": 0.002},
    "multiclass": {"loss": 0.005, "accuracy": 0.005},
    "regression": {"rmse": "1%"},
}
PRIMARY: dict[str, str] = {"binary": "auc", "multiclass": "accuracy", "regression": "rmse"}
"""By task, the metric that a better model is better on; where the order within groups is judged it is ndcg."""
RANKED_TOLERANCE: dict[str, float | str] = {"ndcg": 0.005}
"""Beside them, where the order within groups is judged."""


class Bounds(Frozen):
    """An absolute threshold: the least and the most a metric of the candidate may be."""

    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _some_bound(self) -> Bounds:
        if self.min is None and self.max is None:
            raise ValueError("a threshold needs min or max, as in {min: 0.7}")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


class GateConfig(Frozen):
    """Thresholds of the candidate alone, and how it is compared with the champion."""

    thresholds: dict[str, Bounds] = Field(default={}, description="absolute bounds by metric, over all evaluation rows")
    tolerance: dict[str, float | str] | None = Field(
        default=None,
        description="by metric, how much worse than the champion is accepted: a number, or a percentage like '1%'",
    )
    primary: str | None = Field(
        default=None,
        description="the metric that decides; default: ndcg where the order within groups is judged, "
        "else auc, accuracy or rmse by task, or the first of tolerance when that does not hold it",
    )
    baseline: bool = Field(
        default=True, description="a candidate that does not beat a constant prediction is not promoted"
    )
    reference_champions: int = Field(
        default=10,
        ge=0,
        description="the best of the last so many champions is compared with too; 0 or 1: only the champion",
    )
    slice_min_rows: int = Field(default=1000, ge=2, description="slices with fewer rows are not compared")
    confidence: float = Field(default=0.95, gt=0.5, lt=1.0, description="of the intervals around differences")
    bootstrap: int = Field(default=200, ge=50, le=10_000, description="resamples per comparison")
    hold: bool = Field(default=False, description="hold a candidate that passes, for a person to promote")
    uncomparable: Literal["hold", "thresholds"] = Field(
        default="hold",
        description="when the champion cannot be compared: hold the candidate, or let the thresholds alone decide",
    )

    @field_validator("thresholds")
    @classmethod
    def _known_metrics(cls, value: dict[str, Bounds]) -> dict[str, Bounds]:
        for name in value:
            _known(name, ALL_METRICS)
        return value

    @field_validator("tolerance")
    @classmethod
    def _known_tolerances(cls, value: dict[str, float | str] | None) -> dict[str, float | str] | None:
        if value is not None and not value:
            raise ValueError("it is empty, so nothing would be compared; leave the key out for the defaults")
        for name, tolerance in (value or {}).items():
            _known(name, ALL_COMPARED)
            absolute(tolerance, 1.0)
        return value

    @model_validator(mode="after")
    def _known_primary(self) -> GateConfig:
        if self.primary is not None:
            _known(self.primary, ALL_COMPARED)
            if self.tolerance is not None and self.primary not in self.tolerance:
                raise ValueError(f"primary {self.primary!r} is not among the metrics of tolerance: add it there")
        return self

    def check(self, task: Task, *, ranked: bool = False, where: str = "gate") -> None:
        """ConfigError when a metric that is named does not exist for this task.

        Args:
            ranked: whether the order within groups is judged.
        """
        more = RANKED if ranked else ()
        for key, names, known in (
            ("thresholds", self.thresholds, (*METRICS[task], *more)),
            ("tolerance", self.tolerance or {}, (*COMPARED[task], *more)),
            ("primary", (self.primary,) if self.primary else (), (*COMPARED[task], *more)),
        ):
            for name in names:
                if name in RANKED and not ranked:
                    raise ConfigError(
                        f"metric {name!r} judges the order within groups, and this pipeline has no groups to rank",
                        where=f"{where}.{key}",
                        fix="set training.ranking or evaluation.ndcg_at, and give a column role: group",
                    )
                if name not in known:
                    raise ConfigError(
                        f"metric {name!r} does not exist for a {task} task",
                        where=f"{where}.{key}",
                        fix=f"there is: {', '.join(known)}",
                    )

    def tolerances(self, task: Task, *, ranked: bool = False) -> dict[str, float | str]:
        """The metrics to compare by and how much worse is accepted."""
        if self.tolerance is not None:
            return self.tolerance
        default = DEFAULT_TOLERANCE[task] | (RANKED_TOLERANCE if ranked else {})
        # a primary metric that has no default margin is compared without one
        return default if self.primary is None else default | {self.primary: default.get(self.primary, 0.0)}

    def primary_metric(self, task: Task, *, ranked: bool = False) -> str:
        """The metric that a better model is better on; always one that is compared."""
        if self.primary is not None:
            return self.primary
        usual, compared = "ndcg" if ranked else PRIMARY[task], self.tolerances(task, ranked=ranked)
        return usual if usual in compared else next(iter(compared))


def absolute(tolerance: float | str, champion: float) -> float:
    """A tolerance in the metric's unit; a percentage is of the champion's value."""
    text = str(tolerance).strip()
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = math.nan
    if not (number >= 0 and math.isfinite(number)):
        raise ValueError(f"a tolerance is a number that is not negative, or a percentage like '1%', not {tolerance!r}")
    return abs(champion) * number / 100 if text.endswith("%") else number


def _known(name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise ValueError(f"unknown metric {name!r}; {suggest(name, [*known])}")
