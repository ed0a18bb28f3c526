"""The sections `evaluation:` and `gate:` of pipeline.yaml: what is measured on the eval rows, and what decides on a candidate.

evaluation:
  slices: [carrier, {distance: 4}]
  threshold: {recall: 0.9}

gate:
  thresholds: {auc: {min: 0.65, slices: {carrier=UA: {min: 0.6}}}, calibration: {min: 0.9, max: 1.1}}
  tolerance: {auc: 0.002, loss: 1%}        # how much worse than the champion is still no worse
  primary: auc                             # the metric that a better model is better on
  hold: true                               # a person promotes
"""

import math
import re
from collections.abc import Sequence
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from headway.config import Frozen
from headway.errors import ConfigError
from headway.evaluation.slices import slice_columns
from headway.evaluation.threshold import ThresholdRule
from headway.metrics.base import Better
from headway.metrics.ranking import COVERAGE, RANKED
from headway.metrics.retrieval import RETRIEVAL
from headway.metrics.user_metric import MetricSpec
from headway.schema.columns import suggest
from headway.tasks.base import Task
from headway.tasks.table import ALL_COMPARED, ALL_METRICS, task_of

RANKED_TOLERANCE: dict[str, float | str] = {"ndcg": 0.005}
"""The default tolerances that are added to the task's tolerances where the order within groups is judged."""
OF_GAIN = "% of gain"


class EvaluationConfig(Frozen):
    """The metrics that evaluation computes, and the slices of the eval split that it reports."""

    slices: tuple[str, ...] | None = Field(
        default=None,
        description="columns whose values are measured and compared one by one; crossed: carrier x origin; numbers in "
        "quantile bins: {distance: 4}. Left out: a handful is chosen; []: none",
    )
    slice_min_rows: int = Field(
        default=100,
        ge=1,
        description="smaller slices are not reported (gate.slice_min_rows: not judged)",
    )
    batch_size: int = Field(
        default=4096, ge=1, description="rows that are predicted at once; it bounds the memory and changes no metric"
    )
    ndcg_at: int | None = Field(
        default=None,
        ge=1,
        description="judge the order within groups by NDCG of this many top ranks; default: only with training.ranking, "
        "at its k or 10",
    )
    threshold: ThresholdRule | None = Field(
        default=None,
        description="how a binary model's threshold is chosen: f1, {recall: 0.9}, {precision: 0.8}, "
        "{cost: {false_positive: 1, false_negative: 10}} or a number; precision, recall and costs at it are reported",
    )
    row_values: tuple[str, ...] = Field(
        default=(),
        description="columns whose values the report shows of the rows where the model is most wrong; "
        "default: none, since a report is mailed further than the data",
    )
    metrics: dict[str, Better] = Field(
        default={},
        description="metrics of your own: module:function of a file beside the pipeline, and whether higher or lower is "
        "better; neither: reported and not compared. A list means neither",
    )
    item: str | None = Field(
        default=None,
        description="with ndcg_at: the column that names the ranked item; a candidate then has to beat popularity and the "
        "mean label of an item as well, and item_coverage is reported",
    )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the evaluation reads, each with one value per row."""
        return tuple(
            dict.fromkeys([*slice_columns(self.slices), *self.row_values, *([self.item] if self.item else [])])
        )

    @field_validator("slices", mode="before")
    @classmethod
    def _slices(cls, value: Any) -> Any:
        """Turn a slice such as `distance: 4`, which YAML reads as a mapping, into text."""
        if not isinstance(value, list | tuple):
            return value
        names = [
            f"{next(iter(v))}: {next(iter(v.values()))}" if isinstance(v, dict) and len(v) == 1 else v for v in value
        ]
        slice_columns([name for name in names if isinstance(name, str)])
        return names

    @field_validator("metrics", mode="before")
    @classmethod
    def _own_metrics(cls, value: Any) -> Any:
        value = dict.fromkeys(value, "neither") if isinstance(value, list) else value
        for name in value if isinstance(value, dict) else ():
            if not re.fullmatch(r"[A-Za-z_]\w*:[A-Za-z_]\w*", str(name)):
                known = "it is reported without being named" if name in ALL_METRICS else "write module:function"
                raise ValueError(f"{name!r} is not a metric of your own: {known}")
        return value


class Bounds(Frozen):
    """The least and the most that a metric of the candidate may be."""

    min: float | None = Field(default=None, description="the least that the metric may be; none: no lower bound")
    max: float | None = Field(default=None, description="the most that the metric may be; none: no upper bound")

    @model_validator(mode="after")
    def _some_bound(self) -> Self:
        if not self._bounded():
            raise ValueError("a threshold needs min or max, as in {min: 0.7}")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self

    def _bounded(self) -> bool:
        return self.min is not None or self.max is not None


class Threshold(Bounds):
    """An absolute threshold of a metric: over all evaluation rows, and on slices."""

    slices: dict[str, Bounds] = Field(
        default={},
        description="bounds on slices: carrier, each value with slice_min_rows rows; carrier=UA, this value. Slices are "
        "written as in evaluation.slices",
    )

    @field_validator("slices")
    @classmethod
    def _known_slices(cls, value: dict[str, Bounds]) -> dict[str, Bounds]:
        slice_columns([slice_and_value(key)[0] for key in value])
        return value

    def _bounded(self) -> bool:
        return super()._bounded() or bool(self.slices)


def slice_and_value(key: str) -> tuple[str, str | None]:
    """Returns the slice's name and value in a key like `carrier=UA`. The value is None in `carrier`, which means each value."""
    name, equals, value = key.partition("=")
    return name.strip(), value.strip() if equals else None


class GateConfig(Frozen):
    """Thresholds of the candidate alone, and how it is compared with the champion."""

    thresholds: dict[str, Threshold] = Field(
        default={}, description="absolute bounds by metric, over all evaluation rows and on slices"
    )
    tolerance: dict[str, float | str] | None = Field(
        default=None,
        description="by metric, how much worse than the champion is accepted: a number, a percentage like '1%', or a share "
        "of what the champion gains over a constant prediction, like '5% of gain'; default: the task's",
    )
    primary: str | None = Field(
        default=None,
        description="the metric that decides; default: ndcg if the order within groups is judged, else the task's, or the "
        "first of tolerance if tolerance lacks that",
    )
    baseline: bool = Field(
        default=True, description="a candidate that does not beat a constant prediction is not promoted"
    )
    # a constant prediction on a slice of 200 rows, of 10,000, was found in half of all simulated cases
    slice_min_rows: int = Field(
        default=200,
        ge=2,
        description="smaller slices are not judged (evaluation.slice_min_rows: not reported)",
    )
    confidence: float = Field(
        default=0.95, gt=0.5, lt=1.0, description="confidence level of the intervals around differences"
    )
    hold: bool = Field(default=False, description="hold a candidate that passes, for a person to promote")

    @field_validator("thresholds")
    @classmethod
    def _known_metrics(cls, value: dict[str, Threshold]) -> dict[str, Threshold]:
        for name in value:
            _check_metric(name, ALL_METRICS)
        return value

    @field_validator("tolerance")
    @classmethod
    def _known_tolerances(cls, value: dict[str, float | str] | None) -> dict[str, float | str] | None:
        if value is not None and not value:
            raise ValueError("it is empty, so nothing would be compared; leave the key out for the defaults")
        for name, tolerance in (value or {}).items():
            _check_metric(name, ALL_COMPARED)
            parse_tolerance(tolerance)
        return value

    @model_validator(mode="after")
    def _known_primary(self) -> Self:
        if self.primary is not None:
            _check_metric(self.primary, ALL_COMPARED)
            if self.tolerance is not None and self.primary not in self.tolerance:
                raise ValueError(f"primary {self.primary!r} is not among the metrics of tolerance: add it there")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the slices in `thresholds`."""
        keys = dict.fromkeys(key for bounds in self.thresholds.values() for key in bounds.slices)
        return slice_columns([slice_and_value(key)[0] for key in keys])

    def check(
        self,
        task: Task | str,
        *,
        ranked: bool = False,
        items: bool = False,
        retrieval: bool = False,
        own: Sequence[MetricSpec] = (),
        where: str = "gate",
    ) -> None:
        """Raise ConfigError if the config names a metric that does not exist for this task.

        Args:
            ranked: whether the order within groups is judged.
            items: whether a column names the item of a row.
            retrieval: whether rows are ranked among all items of an index.
            own: the user's own metrics.
        """
        task = task_of(task)
        ranking = (*(RANKED if ranked else ()), *((COVERAGE,) if ranked and items else ()))
        reported = tuple(spec.name for spec in own)
        directed = tuple(spec.name for spec in own if spec.better != "neither")
        for key, names, metrics in (
            (
                "thresholds",
                self.thresholds,
                (*task.metric_names, *ranking, *(RETRIEVAL if retrieval else ()), *reported),
            ),
            ("tolerance", self.tolerance or {}, (*task.compared, *ranking, *directed)),
            ("primary", (self.primary,) if self.primary else (), (*task.compared, *ranking, *directed)),
        ):
            for name in names:
                if name in metrics:
                    continue
                problem = f"metric {name!r} does not exist for a {task.name} task"
                fix = f"there is: {', '.join(metrics)}"
                if name in RANKED:
                    problem = f"metric {name!r} judges the order within groups, and this pipeline has no groups to rank"
                    fix = "set training.ranking or evaluation.ndcg_at, and give a column role: group"
                elif name == COVERAGE:
                    problem = f"{name} counts items, and none are named"
                    fix = "set evaluation.item to the column that names the ranked item, beside ndcg_at"
                elif name in RETRIEVAL:
                    problem = (
                        f"{name} is for thresholds" if retrieval else f"{name} needs a model of two towers and its item"
                    )
                    fix = "gate.thresholds" if retrieval else "evaluation.item: the first column of model.item"
                elif ":" in name:
                    problem = f"{name} is not among evaluation.metrics"
                    if name in reported:
                        problem = f"it is not said whether more or less of {name} is better"
                    fix = f"evaluation.metrics: {{'{name}': higher}}, or lower"
                raise ConfigError(problem, where=f"{where}.{key}", fix=fix)

    def tolerances(self, task: Task | str, *, ranked: bool = False) -> dict[str, float | str]:
        """Returns how much worse each metric may be, by the metric's name; models are compared by these metrics."""
        if self.tolerance:
            return self.tolerance
        default = dict(task_of(task).tolerances) | (RANKED_TOLERANCE if ranked else {})
        # a primary metric that has no default margin is compared without one
        return default if self.primary is None else default | {self.primary: default.get(self.primary, 0.0)}

    def primary_metric(self, task: Task | str, *, ranked: bool = False) -> str:
        """Returns the metric that a better model must be better on; always one of `tolerances`."""
        if self.primary is not None:
            return self.primary
        usual, compared = "ndcg" if ranked else task_of(task).primary, self.tolerances(task, ranked=ranked)
        return usual if usual in compared else next(iter(compared))


def parse_tolerance(tolerance: float | str) -> tuple[float, str]:
    """Returns the number and the unit of a tolerance; the unit is "", "%" or "% of gain".

    Raises:
        ValueError: `tolerance` is not a tolerance.
    """
    text = " ".join(str(tolerance).split())
    unit = next((unit for unit in (OF_GAIN, "%") if text.endswith(unit)), "")
    try:
        value = float(text.removesuffix(unit))
    except ValueError:
        value = math.nan
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(
            f"a tolerance is a number that is not negative, a percentage like '1%', or '5% of gain', not {tolerance!r}"
        )
    return value, unit


def _check_metric(name: str, metrics: tuple[str, ...]) -> None:
    if name not in metrics and ":" not in name:
        raise ValueError(f"unknown metric {name!r}; {suggest(name, [*metrics])}")
