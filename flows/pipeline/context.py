"""The context of one run: what it was asked for, its window and columns, and what its steps have left so far.

    context = Context(loaded, store, window=12, last="validate")
    context.spans, context.parts["eval"], context.columns           # read from the raw files when they are first asked for
    walk(context, executor)                                         # flows.pipeline.dag
    context.statistics.value, context.settings, context.verdict

A step function takes the context and builds its stage from it. In a plan a result may not be there yet: what needs it raises
`headway.stages.step.Unknown`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from beam_jobs.ingest.request import IngestRequest
from beam_jobs.splits_request import SplitsRequest
from flows.config.columns import Columns, resolve
from flows.config.pipeline import LoadedPipeline, Pipeline
from flows.config.window import ChosenWindow, choose_window
from flows.records import ResolvedSettings, TestMetrics
from headway.config import Frozen
from headway.errors import ConfigError, HeadwayError
from headway.evaluation.measured import Measured
from headway.evaluation.predictions import OWN
from headway.evaluation.requests import GateRequest, MeasureRequest
from headway.evaluation.slices import choose, slice_columns
from headway.evaluation.units import SplitUnits
from headway.evaluation.verdict import Verdict, read_verdict
from headway.evaluation.worst_slices import searched
from headway.metrics.ranking import COVERAGE, RANKED
from headway.registry.registry import Registry, Version
from headway.schema.calendar_days import Temporal
from headway.schema.columns import LABEL, Column, named_for
from headway.schema.notes import Note
from headway.sources.base import InputFile
from headway.sources.discovery.spans import files
from headway.stages.ingested import Ingested
from headway.stages.refs import Examples, Ref
from headway.stages.step import Output
from headway.statistics.stage import StatisticsRequest
from headway.statistics.summary import WindowStatistics
from headway.storage.fingerprint import fingerprint
from headway.storage.store import Store
from headway.tabular.expressions import parse
from headway.tabular.label import LabelConfig
from headway.tabular.splits import Part, window_splits
from headway.tasks.base import LabelFacts
from headway.tasks.table import task_of
from headway.tasks.user_task import load_task
from headway.user_code import files as user_files
from headway.validation.anomaly import Anomaly, SplitProof, Validated
from headway.validation.stage import ValidateRequest
from tfcore.evaluation.results import Evaluated
from tfcore.export.request import Exported, ExportRequest
from tfcore.heads.label_parameters import LabelParameters
from tfcore.models.config import ModelConfig
from tfcore.runtime.tf_import import startup
from tfcore.train.auto import Facts
from tfcore.train.auto import resolve as resolve_settings
from tfcore.train.config import TrainingConfig
from tfcore.train.request import Trained, TrialConfig
from tfcore.transform.fit import Transformed, TransformRequest
from tfcore.transform.parameters import TransformParameters

MOST_DISTINCT, MOST_COMPARED = 0.9, 1_000_000
"""The share of distinct eval rows up to which equal ones are drawn together, and the most eval rows, whose columns predictions
keep for it."""

_BY_TYPE: dict[str, tuple[str, ...]] = {
    "bytes": ("binary", "multiclass"),
    "float32": ("regression", "binary"),
    "int64": ("binary", "multiclass", "regression"),
}


class Prepared(Frozen):
    """The window that another run prepared, up to its transform; this one trains on it, and may see no raw files.

    What the data stages' keys take from raw files and from files beside the pipeline stands here, so that their outputs are
    found in the store.
    """

    spans: tuple[str, ...]
    files: dict[str, tuple[InputFile, ...]]
    """Of each span."""
    schema_text: str
    """The frozen schema file."""
    unread: tuple[str, ...]
    """Columns of the newest files that the schema lacks."""
    serving: dict[str, int | str] | None
    """The checksum of `validation.serving`."""


@dataclass(frozen=True)
class Candidate:
    """The trained model, and its predictions of the eval rows."""

    trained: Output[Trained]
    scored: Output[Evaluated]


@dataclass(frozen=True)
class Judge:
    """A version that the candidate is compared with, scored on the same rows."""

    role: str
    """champion or anchor."""
    version: Version
    reason: str | None = None
    """Why it is not scored."""

    @property
    def title(self) -> str:
        """The title of the step that scores it."""
        return f"evaluate {self.role} {self.version.number}"


@dataclass
class Context:
    """One run of a pipeline over a window."""

    loaded: LoadedPipeline
    store: Store
    window: int | str | None = None
    """Named for this run; None: as pipeline.yaml says (`chosen_window`)."""
    until: str = "latest"
    seed: int | None = None
    force: bool = False
    last: str | None = None
    """The stage to stop after; None: all the way."""
    alias: str | None = None
    """What to point at a candidate that passes, instead of the champion."""
    trial: TrialConfig | None = None
    """Trains as a trial of a study, on the train rows without a holdout of them."""
    prepared: Prepared | None = None
    reason: str | None = None
    """Why somebody promotes it; the registry's history has it before the gate's reasons."""
    memo: dict[str, tuple[InputFile, ...]] = field(default_factory=dict)
    """Checksums of the spans' files, read once a process."""

    freezes: bool = True
    """A schema that was inferred is written once validation has passed; never in a plan."""
    outputs: list[Output[Any]] = field(default_factory=list, init=False)
    """Of all steps so far."""
    notes: list[Note] = field(default_factory=list, init=False)
    column_table: list[dict[str, str]] = field(default_factory=list, init=False)
    """What became of each column, of a run that infers the schema."""
    infers: bool = field(default=False, init=False)
    """There was no schema file when it began."""
    reference: dict[str, str | None] | None = field(default=None, init=False)
    """What the data are held against for drift: the name of a model, and the fingerprint of its train rows' statistics."""
    anomalies: tuple[Anomaly, ...] = field(default=(), init=False)
    """What validation found."""
    settings: ResolvedSettings | None = field(default=None, init=False)
    """The settings of the training and the model, those left out chosen by the train rows; None: not known yet."""
    champion: Version | None = field(default=None, init=False)
    """What the candidate is compared with; None: there is none, or it is the candidate itself."""
    parent: Version | None = field(default=None, init=False)
    """The version that the training begins with."""
    judges: list[Judge] = field(default_factory=list, init=False)
    """The versions that the candidate is compared with."""
    candidate: Candidate | None = field(default=None, init=False)
    same_model: Verdict | None = field(default=None, init=False)
    """Of a candidate that is the champion, which no gate judges."""
    test: TestMetrics | None = field(default=None, init=False)
    """The test split; only of a candidate that passed."""
    facts: dict[str, Any] = field(default_factory=dict, init=False)
    """What a version published from this run says of itself."""
    over: bool = field(default=False, init=False)
    """Nothing is left to do."""
    follows: list[str] = field(default_factory=list, init=False)
    """In a plan: the stages up to the verdict that run on what others have not made yet."""
    later: list[str] = field(default_factory=list, init=False)
    """In a plan: the steps after a verdict that is not known yet."""
    _titles: dict[str, Output[Any]] = field(default_factory=dict, init=False)

    def fresh(self) -> "Context":
        """Returns the same run before its first step; what was read of the raw files is kept."""
        other = replace(self)
        other.__dict__ |= {name: self.__dict__[name] for name in ("spans", "parts", "columns") if name in self.__dict__}
        return other

    def begin(self) -> None:
        """Take what the columns say before the first step."""
        self.notes, self.infers = list(self.columns.notes), self.columns.inferred

    # --- what it was asked for

    @property
    def pipeline(self) -> Pipeline:
        return self.loaded.pipeline

    @property
    def registry(self) -> Registry:
        return Registry(self.store, self.pipeline.name)

    @property
    def chosen_window(self) -> ChosenWindow:
        return choose_window(self.loaded, self.window)

    @property
    def chosen_seed(self) -> int:
        return self.pipeline.seed if self.seed is None else self.seed

    @cached_property
    def code(self) -> dict[str, str]:
        """Digests of the user's files that a stage which calls the model, task or loss depends on."""
        named, keys = self.loaded.user_files, {"module": "model.name", "task": "task", "loss": "training.loss"}
        return {name: user_files.digest(named[key]) for name, key in keys.items() if key in named}

    # --- the window

    @cached_property
    def spans(self) -> tuple[str, ...]:
        """The spans of the window, in their order.

        Raises:
            ConfigError: there are none, or too few.
        """
        return tuple(self.chosen_window.spans(self.until) if self.prepared is None else self.prepared.spans)

    def files(self, span: str) -> tuple[InputFile, ...]:
        if span not in self.memo:
            self.memo[span] = files(self.pipeline.source, span)
        return self.memo[span]

    @cached_property
    def parts(self) -> dict[str, tuple[Part, ...]]:
        """By split of the window, (span, split of the span); none of a run that ends with the ingest."""
        # a span alone can be ingested, and be too little to train on
        parts = window_splits(self.pipeline.split, self.spans) if self.last != "ingest" else {}
        return {name: tuple(of) for name, of in parts.items()}

    @cached_property
    def columns(self) -> Columns:
        """The columns, against which the config is checked.

        Raises:
            ConfigError: the config does not go with the columns.
        """
        loaded, pipeline, prepared = self.loaded, self.pipeline, self.prepared
        _ = self.parts  # too few spans are said before the raw files are read
        frozen = None if prepared is None else prepared.schema_text
        columns = resolve(loaded, self.spans, self.files, schema_text=frozen)
        pipeline.validation.check(columns.schema, where=str(loaded.file))
        serving = loaded.serving_file if prepared is None else None
        if serving is not None and not serving.is_file() and self.last not in ("ingest", "statistics"):
            fix = "name a file of serving rows, JSON lines or tf.Examples, or leave the key out"
            raise ConfigError(f"{serving} is not a file", where=f"{loaded.file}: validation.serving", fix=fix)
        if (task_file := loaded.user_files.get("task")) is not None:
            with startup():
                load_task(pipeline.task, task_file)
        check_metrics(loaded, possible_tasks(pipeline.task, pipeline.label, columns.read))
        return columns

    @property
    def group(self) -> str | None:
        """The column whose equal values are one group."""
        return named_for(self.columns.read, "group")

    @cached_property
    def split_digest(self) -> str:
        """A digest of the settings that assign rows to splits; if it differs, so do the eval rows."""
        hashed = {column.name: f"{column.type}{list(column.shape) or ''}" for column in self.columns.hashed}
        by_place = {"by_place": True} if self.columns.by_place else {}
        return fingerprint(self.pipeline.split.at_ingest() | ({"hashed": hashed} if hashed else {}) | by_place)

    # --- what the steps left

    def add(self, outputs: Sequence[Output[Any]]) -> None:
        """Take the outputs of a step function."""
        self.outputs += outputs
        self._titles |= {output.title: output for output in outputs}

    def output(self, title: str) -> Output[Any]:
        """Returns the last output of a title."""
        return self._titles[title]

    def has(self, title: str) -> bool:
        return title in self._titles

    @cached_property
    def ingested(self) -> dict[str, Output[Ingested]]:
        """The outputs of ingest by span, in the window's order."""
        return {span: self.output(f"{IngestRequest.name} {span}") for span in self.spans}

    @property
    def statistics(self) -> Output[WindowStatistics]:
        return self.output(StatisticsRequest.name)

    @property
    def proof(self) -> Output[SplitProof]:
        return self.output(SplitsRequest.name)

    @property
    def validated(self) -> Output[Validated]:
        return self.output(ValidateRequest.name)

    @property
    def transform(self) -> Output[Transformed]:
        return self.output(TransformRequest.name)

    @property
    def measured(self) -> Output[Measured]:
        """The candidate on the eval rows."""
        return self.output(MeasureRequest.name)

    @property
    def evaluation(self) -> Measured | None:
        """The candidate's metrics on the eval rows; None where they were not measured."""
        return self.measured.value if self.candidate and self.has(MeasureRequest.name) else None

    @property
    def verdict(self) -> Verdict | None:
        """What the gate decided, or what is known of a candidate that is the champion; None before that."""
        if self.same_model is not None or not self.has(GateRequest.name):
            return self.same_model
        judged = self.output(GateRequest.name)
        return read_verdict(self.store.local(judged.path)) if judged.known else None

    @property
    def export(self) -> Output[Exported]:
        """The candidate's SavedModel."""
        return self.output(ExportRequest.name)

    def examples(self, split: str) -> tuple[Examples, ...]:
        """Returns the records of a split of the window."""
        return tuple(examples_of(self.ingested[span], part) for span, part in self.parts[split])

    # --- what follows from the fitted transform

    @property
    def label(self) -> LabelParameters:
        return self.transform.value.parameters.label

    @property
    def label_facts(self) -> LabelFacts:
        return label_facts(self.label, self.statistics.value)

    @cached_property
    def parameters(self) -> TransformParameters:
        """The fitted transform; a task of the user's own is found by its file."""
        fitted = self.transform.value.parameters
        changes = {"file": self.loaded.user_files.get("task")}
        return fitted.model_copy(update={"label": fitted.label.model_copy(update=changes)})

    @property
    def fitted(self) -> Ref[TransformParameters]:
        """The same as the input of a stage."""
        transform = self.transform
        return Ref[TransformParameters](
            stage=transform.stage, fingerprint=transform.fingerprint, answer=self.parameters
        )

    @property
    def size(self) -> Facts:
        """The facts about the data by which settings are chosen."""
        fitted = self.transform.value.parameters
        return Facts(
            rows=self.statistics.value.rows.get("train", 0),
            width=len(fitted.numeric) + len(fitted.categorical),
            task=fitted.label.task,
            images=any(column.pixels is not None for column in fitted.fitted),
        )

    @cached_property
    def resolved(self) -> tuple[TrainingConfig, ModelConfig]:
        """The settings of the training and the model, those left out chosen by size."""
        return resolve_settings(self.pipeline.training, self.pipeline.model, self.size)

    @property
    def training(self) -> TrainingConfig:
        return self.resolved[0]

    @property
    def model(self) -> ModelConfig:
        return self.resolved[1]

    # --- what the rows are judged by

    @cached_property
    def slices(self) -> tuple[str, ...]:
        """The slices that the pipeline names, or a handful that is chosen; none in a plan that cannot know them yet."""
        named, found = self.pipeline.evaluation.slices, self.statistics.get()
        if named is not None or not self.validated.known:
            return named or ()
        return choose(
            found["columns"].get("train", []),
            self._strengths,
            eligible=self._sliceable(),
            rows=found["rows"].get("eval", 0),
            least=self.pipeline.gate.slice_min_rows,
        )

    def _sliceable(self) -> list[str]:
        """Returns the columns that slices can be made of without being named."""
        columns = self.columns
        single = [column for column in columns.read if not column.shape and not column.temporal]
        return [c.name for c in single if c.name in columns.stored and c.meaning != "identifier"]

    @cached_property
    def searched(self) -> tuple[str, ...]:
        """Where the worst slices are looked for."""
        return searched(self.statistics.get()["columns"].get("train", []), self._strengths, self._sliceable())

    @property
    def _strengths(self) -> dict[str, float]:
        """How much each column tells of the label. In a plan without a validation the order is not known; of few columns the
        set is, so that their predictions are found."""
        return self.validated.value.strengths if self.validated.known else {}

    @property
    def shown(self) -> dict[str, Temporal | None]:
        """The columns whose values are told of single rows, the group's first; and the kind of those that are dates or times."""
        known = {column.name: column for column in self.columns.read}
        groups = [name for name, column in known.items() if column.role == "group"]
        return {name: known[name].temporal for name in (*groups, *self.pipeline.evaluation.row_values)}

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns that predictions keep: those of slices, the item, keys, and what is told of rows."""
        columns, sliced = self.columns, slice_columns((*self.slices, *self.searched))
        keys = [c.name for c in columns.read if c.role in ("key", "passthrough") and not c.shape and c.name not in OWN]
        stored = [name for name in keys if name in columns.stored]
        return tuple(sorted({*sliced, *self.pipeline.judged_columns, *self.units.equal, *self.shown, *stored}))

    @cached_property
    def units(self) -> SplitUnits:
        """What the split keeps together, and rows are drawn by; beside a group column no equal rows are looked for."""
        key = " and ".join(self.pipeline.split.key) or None
        if self.group is not None:
            return SplitUnits(key=key)
        equal, distinct = self._equal_rows()
        return SplitUnits(key=key, equal=equal, distinct=distinct)

    def _equal_rows(self) -> tuple[tuple[str, ...], int]:
        """Returns the columns that tell equal rows, and how many rows are distinct in all that a split without a key
        hashes, where these are more; none unless more than a tenth of the eval rows repeat others."""
        columns, found = self.columns, self.proof.get().get("splits", {}).get("eval", {})
        rows, distinct = found.get("rows", 0), found.get("distinct", math.inf)
        if distinct > MOST_DISTINCT * rows or rows > MOST_COMPARED or columns.by_place:
            return (), 0
        read = [c for c in columns.read if not c.shape and c.name in columns.stored and c.name not in OWN]
        hashed, single = [column.name for column in columns.hashed], {c.name for c in read}
        stored = tuple(name for name in hashed if name in single)
        return stored, distinct if len(stored) < len(hashed) else 0


def examples_of(ingested: Output[Ingested], part: str) -> Examples:
    """Returns the records of one split of a span."""
    return Examples(fingerprint=ingested.fingerprint, path=ingested.path, split=part, result=ingested.get())


def label_facts(label: LabelParameters, statistics: WindowStatistics) -> LabelFacts:
    """Returns the facts of a label in a fitted transform and in the window's statistics."""
    summary = statistics.of("train").get(LABEL)
    median = summary.median if label.median is None and summary is not None else label.median
    return LabelFacts(
        counts=label.counts or (),
        mean=label.mean,
        median=None if task_of(label.task).has_classes else median,
        quantiles=label.quantiles,
    )


def possible_tasks(task: str, label: LabelConfig, columns: tuple[Column, ...]) -> tuple[str, ...]:
    """Returns the tasks that the pipeline and the label's type allow, before any row is read."""
    if task != "auto":
        return (task,)
    if (
        label.expression is not None
        and parse(label.expression).decides
        and label.columns() <= {c.name for c in columns}
    ):
        return ("binary",)
    try:
        return _BY_TYPE[label.stored(columns).type]
    except HeadwayError:  # what is wrong with the label is ingest's to say
        return _BY_TYPE["int64"]


def check_metrics(loaded: LoadedPipeline, tasks: Sequence[str]) -> None:
    """ConfigError when a metric that evaluation or the gate names exists for none of these tasks.

    Several tasks are several possibilities: the names have to fit one of them together.
    """
    pipeline, ranked = loaded.pipeline, loaded.pipeline.ndcg_at is not None
    items = pipeline.evaluation.item is not None
    if ranked and all(task_of(task).wide for task in tasks):
        raise ConfigError(
            f"ndcg_at needs an order, and the predictions of a {tasks[0]} task have none",
            where=f"{loaded.file}: evaluation.ndcg_at",
            fix="leave it out",
        )
    if pipeline.evaluation.threshold is not None and "binary" not in tasks:
        raise ConfigError(
            f"a threshold decides between two classes, and the task is {' or '.join(tasks)}",
            where=f"{loaded.file}: evaluation.threshold",
            fix="leave it out",
        )
    problems: list[ConfigError] = []
    for task in tasks:
        try:
            pipeline.gate.check(
                task,
                ranked=ranked,
                items=items,
                retrieval=pipeline.ranks_index,
                own=loaded.own_metrics,
                where=f"{loaded.file}: gate",
            )
        except ConfigError as error:
            problems.append(error)
    if len(problems) < len(tasks):
        return
    if len({str(problem) for problem in problems}) == 1:
        raise problems[0]
    ranking = (*(RANKED if ranked else ()), *((COVERAGE,) if ranked and items else ()))
    either = " or ".join(f"{task} ({', '.join((*task_of(task).metric_names, *ranking))})" for task in tasks)
    gate = pipeline.gate
    named = sorted({*gate.thresholds, *(gate.tolerance or {})} | ({gate.primary} if gate.primary else set()))
    raise ConfigError(
        f"the metrics {', '.join(named)} do not all exist for any one task that this label can have",
        where=f"{loaded.file}: gate",
        fix=f"the label's task is {either}; gate.tolerance compares "
        + "; ".join(f"{task}: {', '.join((*task_of(task).compared, *ranking))}" for task in tasks),
    )
