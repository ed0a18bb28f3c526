"""The requests of the stages that judge predictions: to measure one model, and to decide about a candidate.

MeasureRequest(task="binary", predictions=path, slices=("carrier",))
GateRequest(task="binary", candidate=Candidate(model="3f2a...", predictions=path), champion=None)
"""

from typing import Annotated, Any, Generic, Self

from pydantic import Field, model_validator

from headway.config import Frozen
from headway.evaluation.config import GateConfig
from headway.evaluation.measured import Measured
from headway.evaluation.slices import slice_columns
from headway.evaluation.threshold import ThresholdRule
from headway.evaluation.units import SplitUnits
from headway.evaluation.verdict import Check, Decision, MetricsWithErrors
from headway.metrics.retrieval import RETRIEVAL_COLUMNS
from headway.metrics.user_metric import MetricSpec, as_key
from headway.schema.calendar_days import Temporal
from headway.stages.refs import Ref
from headway.stages.stage_class import Answer, Key, Stage
from headway.tasks.base import LabelFacts
from headway.tasks.table import TaskName, task_of

MEASURE_VERSION, GATE_VERSION = 15, 19
"""The versions of what the two stages write. Raise a version when its stage writes something else for the same request."""
Parts = tuple[tuple[str, str], ...]
"""Pairs of a span, such as a day, and one of its splits as ingested: "train", "eval", "test" or "all"."""


def _tolerances(task: str) -> dict[str, str | float | None]:
    """Returns the metrics of a built-in task, each with its default tolerance or None, for the key of a request. So a new metric
    changes the key, and old results without it are not used. Empty for a user's task, which the predictions' key covers."""
    if ":" in task:
        return {}
    built_in = task_of(task)
    return {name: built_in.tolerances.get(name) for name in built_in.metric_names}


class PredictionsStage(Stage[Answer], Generic[Answer]):
    """The base class of the stages that judge predictions, with the fields that they share."""

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
    task: Annotated[TaskName, Key("judged_by", of=_tolerances)]
    label: LabelFacts | None = Field(default=None, description="of the train rows: what the constant baseline predicts")
    group: str | None = Field(default=None, description="column whose equal values are drawn together")

    @property
    def measured_columns(self) -> tuple[str, ...]:
        """The columns of the predictions that metrics read, apart from the columns of slices."""
        single = (name for name in (self.group, self.item) if name)
        return (*single, *(RETRIEVAL_COLUMNS if self.retrieval else ()))


class MeasureRequest(PredictionsStage[Measured]):
    """The request to measure one model: everything that the result depends on."""

    name, version, runs = "measure", MEASURE_VERSION, "headway.evaluation.measure:measure"
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
        """The columns to read from other models' predictions: only the columns that metrics need."""
        own = self.metrics or ":" in self.task  # which may look at any column
        sliced = slice_columns(self.slices) if own or self.group or self.item or self.retrieval else ()
        return tuple(dict.fromkeys((*self.measured_columns, *sliced)))


class Candidate(Frozen):
    model: str = Field(description="what identifies the model: the fingerprint of its training")
    predictions: Ref[Any] = Field(description="Parquet file over the evaluation rows")
    rolled_back: str | None = Field(default=None, description="set when this model was rolled back: which version, why")
    train: Parts = Field(default=(), description="what it was trained on")
    data: dict[str, str] = Field(default={}, description="digest of the raw files of each span that it was trained on")

    def as_key(self) -> object:
        return {"train": self.model, "candidate": self.predictions}


class Champion(Frozen):
    version: int
    model: str
    predictions: Ref[Any] | None = Field(default=None, description="Parquet file over the same evaluation rows")
    scored: str | None = Field(default=None, description="the fingerprint of its evaluation, or why there is none")
    incompatible: str | None = Field(default=None, description="why it cannot score these rows")
    train: Parts = Field(default=(), description="what it was trained on")
    data: dict[str, str] = Field(default={}, description="digest of the raw files of each span that it was trained on")
    eval: Parts = Field(default=(), description="the parts that it was judged on")
    worth: MetricsWithErrors | None = Field(
        default=None, description="its metrics when it was promoted; None: they were not measured"
    )
    split: str = Field(default="", description="digest of the split config its spans were ingested with")

    @model_validator(mode="after")
    def _scored_or_not(self) -> Self:
        if self.predictions is not None and self.incompatible is not None:
            raise ValueError("a champion that is incompatible has no predictions")
        return self

    def as_key(self) -> object:
        return {"version": self.version, "scored": self.scored, "worth": self.worth}


class GateRequest(PredictionsStage[Decision]):
    """The request to decide about a candidate: everything that the verdict depends on."""

    name, version, runs = "gate", GATE_VERSION, "headway.evaluation.gate:gate"
    config: Annotated[GateConfig, Key(always=True)] = GateConfig()
    slices_chosen: Annotated[bool, Key(always=True)] = Field(default=False, description="nobody named the slices")
    eval: Annotated[Parts, Key(always=True)] = Field(
        default=(), description="the parts that the evaluation rows come from"
    )
    split: Annotated[str, Key(always=True)] = Field(
        default="", description="digest of the split config of this run's spans"
    )
    force: Annotated[bool, Key(always=True)] = False
    own_objective: Annotated[bool, Key(always=True)] = Field(
        default=False, description="training.loss or class_weights: it was not trained for the task's loss"
    )
    candidate: Annotated[Candidate, Key("inputs", spread=True)]
    champion: Annotated[Champion | None, Key("inputs", "champion")] = None
    anchor: Annotated[Champion | None, Key("inputs", "anchor")] = Field(
        default=None, description="the earlier champion that newer models are held against; None: the champion is"
    )
    baselines: dict[str, Ref[Any]] = Field(
        default={}, description="predictions of other baselines by name, over the same rows; shown"
    )
    to_beat: tuple[str, ...] = Field(default=(), description="of those, the ones that a candidate has to beat")
    seed: int = 0

    def key(self) -> dict[str, Any]:
        return super().key() | {"rolled_back": self.candidate.rolled_back}

    @model_validator(mode="after")
    def _has_groups(self) -> Self:
        if self.ndcg_at is not None and self.group is None:
            raise ValueError("ndcg_at needs a column with role: group")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the predictions that are read."""
        sliced = (*slice_columns(self.slices), *self.config.columns)
        return tuple(dict.fromkeys((*sliced, *self.units.equal, *self.measured_columns)))

    @property
    def ranked(self) -> bool:
        """True if the order within groups is judged."""
        return self.ndcg_at is not None


def newer_data_check(candidate: Candidate, champion: Champion) -> Check:
    """Returns a check that passes if the candidate's train data are known to be newer than the champion's.

    The data are newer if the last span is later. With the same last span, they are newer if raw files have changed in
    a span that both models were trained on. The check names the two last spans, or the spans whose files changed."""
    check = Check(name="newer data", against=f"version {champion.version}", outcome="not known", passed=False)
    if not candidate.train or not champion.train:
        return check
    ours, theirs = (max(span for span, _ in parts) for parts in (candidate.train, champion.train))
    if ours > theirs:
        return check.model_copy(update={"outcome": "later spans", "names": (ours, theirs), "passed": True})
    before = champion.data
    changed = [span for span, digest in sorted(candidate.data.items()) if before.get(span, digest) != digest]
    if ours == theirs and changed:
        return check.model_copy(update={"outcome": "changed files", "names": tuple(changed), "passed": True})
    return check.model_copy(update={"outcome": "not newer", "names": (ours, theirs)})


def spans_trained_on(train: Parts, train_split: str, evaluation: Parts, evaluation_split: str) -> list[str]:
    """Returns the spans whose evaluation rows a model may have been trained on, sorted.

    Two splits of one span share no rows only if they have different names and the same split config made them. The
    split "all" overlaps every other split of its span."""
    by_span: dict[str, set[str]] = {}
    for span, split in train:
        by_span.setdefault(span, set()).add(split)
    spans = {
        span
        for span, split in evaluation
        if (splits := by_span.get(span))
        and (split == "all" or "all" in splits or split in splits or train_split != evaluation_split)
    }
    return sorted(spans)
