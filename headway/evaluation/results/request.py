"""The request of the measuring stage: predictions that evaluation kept, and what is wanted of them."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from headway.config import Frozen
from headway.evaluation.clusters import ClusterSources
from headway.evaluation.further_labels import FurtherLabel, columns_of
from headway.evaluation.results.threshold import ThresholdRule
from headway.evaluation.slices import slice_columns
from headway.metrics.retrieval import RETRIEVAL_COLUMNS
from headway.metrics.user_metric import MetricSpec
from headway.tasks.base import LabelFacts
from headway.tasks.table import TaskName


class MeasureRequest(Frozen):
    """Everything that the result of an evaluation depends on."""

    task: TaskName
    predictions: Path = Field(description="Parquet file over the evaluation rows")
    baselines: dict[str, Path] = Field(
        default={}, description="predictions of other models by name, over the same rows"
    )
    label: LabelFacts | None = Field(default=None, description="of the train rows: what the constant baseline predicts")
    classes: tuple[str | int, ...] = Field(
        default=(), description="names of the classes, in the order of their indices"
    )
    slices: tuple[str, ...] = ()
    slice_min_rows: int = Field(default=100, ge=1, description="slices with fewer rows are left out")
    searched: tuple[str, ...] = Field(default=(), description="where the worst slices are looked for")
    group: str | None = Field(default=None, description="column whose equal values belong together")
    clusters: ClusterSources = Field(default=ClusterSources(), description="what rows are drawn by, or may be alike by")
    ndcg_at: int | None = Field(default=None, ge=1, description="judge the order within groups too, its first ranks")
    item: str | None = Field(default=None, description="the column that names the item of a row")
    labels: tuple[FurtherLabel, ...] = Field(default=(), description="further labels that the model predicts")
    retrieval: bool = Field(default=False, description="judge by the ranks among all items of the index too")
    metrics: tuple[MetricSpec, ...] = Field(default=(), description="metrics of the user's own")
    threshold: ThresholdRule | None = Field(default=None, description="how a binary model's threshold is chosen")
    given_threshold: float | None = Field(default=None, description="the threshold, where other rows chose it")
    spans: tuple[str, ...] = Field(default=(), description="whose rows these are")
    confidence: float = Field(default=0.95, gt=0.5, lt=1.0, description="of the intervals")
    seed: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the predictions that are read."""
        single = (name for name in (self.group, self.item) if name)
        ranks = RETRIEVAL_COLUMNS if self.retrieval else ()
        named = (*slice_columns(self.slices), *slice_columns(self.searched), *self.clusters.stored, *single, *ranks)
        named = (*named, *columns_of(self.labels))
        return tuple(dict.fromkeys(named))
