"""The request of the measuring stage: predictions that evaluation kept, and what is wanted of them."""

from typing import Annotated, Any, Generic

from pydantic import Field

from headway.evaluation.results.measured import Measured
from headway.evaluation.results.threshold import ThresholdRule
from headway.evaluation.slices import slice_columns
from headway.evaluation.units import SplitUnits
from headway.metrics.retrieval import RETRIEVAL_COLUMNS
from headway.metrics.user_metric import MetricSpec, as_key
from headway.schema.calendar_days import Temporal
from headway.stages.refs import Ref
from headway.stages.stage_class import Answer, Key, Stage
from headway.tasks.base import LabelFacts
from headway.tasks.table import TaskName

VERSION = 12
"""Raised by whoever changes what measuring writes for the same request."""


class OfPredictions(Stage[Answer], Generic[Answer]):
    """A stage that computes what is wanted of predictions."""

    slices: Annotated[tuple[str, ...], Key(always=True)] = ()
    units: Annotated[SplitUnits, Key(always=True)] = Field(
        default=SplitUnits(), description="what the split keeps together, and rows are drawn by"
    )
    ndcg_at: Annotated[int | None, Key()] = Field(
        default=None, ge=1, description="judge the order within groups too, its first ranks"
    )
    item: Annotated[str | None, Key()] = Field(default=None, description="the column that names the item of a row")
    retrieval: Annotated[bool, Key()] = Field(
        default=False, description="judge by the ranks among all items of the index too"
    )
    metrics: Annotated[tuple[MetricSpec, ...], Key("own_metrics", of=as_key)] = Field(
        default=(), description="metrics of the user's own"
    )
    task: TaskName
    label: LabelFacts | None = Field(default=None, description="of the train rows: what the constant baseline predicts")
    group: str | None = Field(default=None, description="column whose equal values are resampled together")

    @property
    def measured_columns(self) -> tuple[str, ...]:
        """The columns of the predictions that metrics look at, slices apart."""
        single = (name for name in (self.group, self.item) if name)
        return (*single, *(RETRIEVAL_COLUMNS if self.retrieval else ()))


class MeasureRequest(OfPredictions[Measured]):
    """Everything that the result of an evaluation depends on."""

    name, version, runs = "measure", VERSION, "headway.evaluation.results.stage:measure"
    slice_min_rows: Annotated[int, Key("config", "slice_min_rows", always=True)] = Field(
        default=100, ge=1, description="slices with fewer rows are left out"
    )
    threshold: Annotated[ThresholdRule | None, Key("config", "threshold", always=True)] = Field(
        default=None, description="how a binary model's threshold is chosen"
    )
    searched: Annotated[tuple[str, ...], Key(always=True)] = Field(
        default=(), description="where the worst slices are looked for"
    )
    shown: Annotated[dict[str, Temporal | None], Key()] = Field(
        default={}, description="columns whose values are told of the worst rows; of dates and times their kind"
    )
    group: Annotated[str | None, Key(always=True)] = Field(
        default=None, description="column whose equal values belong together"
    )
    confidence: Annotated[float, Key(always=True)] = Field(default=0.95, gt=0.5, lt=1.0, description="of the intervals")
    given_threshold: Annotated[float | None, Key(always=True)] = Field(
        default=None, description="the threshold, where other rows chose it"
    )
    seed: Annotated[int, Key(always=True)] = 0
    predictions: Annotated[Ref[Any], Key("inputs", "predictions")] = Field(
        description="Parquet file over the evaluation rows"
    )
    statistics: Annotated[Ref[Any] | None, Key("inputs", "statistics", always=True)] = Field(
        default=None, description="of the window: what is said of the train labels is of them"
    )
    beside: Annotated[dict[str, Ref[Any]], Key("inputs", "beside", always=True)] = Field(
        default={}, description="predictions of other models on the same rows, by name; without a path they have none"
    )
    baselines: dict[str, Ref[Any]] = Field(default={}, description="the same of baselines, which evaluation wrote")
    classes: tuple[str | int, ...] = Field(
        default=(), description="names of the classes, in the order of their indices"
    )
    spans: tuple[str, ...] = Field(default=(), description="whose rows these are")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the predictions that are read."""
        named = (*slice_columns(self.slices), *slice_columns(self.searched), *self.units.equal, *self.shown)
        return tuple(dict.fromkeys((*self.columns_of_others, *named)))

    @property
    def columns_of_others(self) -> tuple[str, ...]:
        """Those that are read of other models' predictions: what metrics look at."""
        own = self.metrics or ":" in self.task  # which may look at any column
        sliced = slice_columns(self.slices) if own or self.group or self.item or self.retrieval else ()
        return tuple(dict.fromkeys((*self.measured_columns, *sliced)))
