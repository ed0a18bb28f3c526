"""The context of one run: what the run was asked for, its window and columns, and the outputs of its steps so far.

    context = Context(loaded, store, window=12, last="validate")
    context.spans, context.parts["eval"], context.columns           # read from the raw files when they are first asked for
    walk(context, executor)                                         # flows.pipeline.dag
    context.statistics.value, context.settings, context.verdict

A step function builds requests from the context. In a plan a missing result raises `headway.stages.step.NotRunYet`.
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
from headway.evaluation.slices import choose_slices, slice_columns
from headway.evaluation.units import SplitUnits
from headway.evaluation.verdict import Verdict, read_verdict
from headway.evaluation.worst_slices import columns_to_search
from headway.metrics.ranking import COVERAGE, RANKED
from headway.registry.registry import Registry, Version
from headway.schema.calendar_days import Temporal
from headway.schema.columns import LABEL, Column, named_for
from headway.schema.notes import Note
from headway.sources.base import InputFile
from headway.sources.spans import files
from headway.stages.ingested import Ingested
from headway.stages.refs import Examples, Ref
from headway.stages.step import Output
from headway.statistics.stage import StatisticsRequest
from headway.statistics.summary import WindowStatistics
from headway.storage.fingerprint import fingerprint
from headway.storage.store import Store
from headway.tabular.expressions import parse
from headway.tabular.label import LabelConfig
from headway.tabular.splits import SpanSplit, window_splits
from headway.tasks.base import LabelFacts
from headway.tasks.table import task_of
from headway.tasks.user_task import load_task
from headway.user_code import files as user_files
from headway.user_code.quiet_stderr import startup
from headway.validation.anomaly import Anomaly, SplitProof, Validated
from headway.validation.stage import ValidateRequest
from tfcore.evaluation.request import Evaluated
from tfcore.export.request import Exported, ExportRequest
from tfcore.heads.label_parameters import LabelParameters
from tfcore.models.config import ModelConfig
from tfcore.train.auto import Facts
from tfcore.train.auto import resolve as resolve_settings
from tfcore.train.config import TrainingConfig
from tfcore.train.request import Trained, TrialConfig
from tfcore.transform.fit import Transformed, TransformRequest
from tfcore.transform.parameters import TransformParameters

MOST_DISTINCT, MOST_COMPARED = 0.9, 1_000_000
"""Equal eval rows are resampled together if at most the first share of them is distinct, and there are at most the
second number of eval rows. The columns that make rows equal are then stored beside the predictions."""

_BY_TYPE: dict[str, tuple[str, ...]] = {
    "bytes": ("binary", "multiclass"),
    "float32": ("regression", "binary"),
    "int64": ("binary", "multiclass", "regression"),
}


class Prepared(Frozen):
    """A window that another run has prepared up to its transform. The run that trains on it may have no raw files.

    The fields are what the keys of the data stages depend on: facts of raw files and of files beside the pipeline. With
    these facts, the outputs of the data stages are found in the store.
    """

    spans: tuple[str, ...]
    files: dict[str, tuple[InputFile, ...]]
    """{span: its raw files}"""
    schema_text: str
    """The text of the frozen schema file."""
    unread: tuple[str, ...]
    """Columns of the newest files that the schema lacks."""
    serving: dict[str, int | str] | None
    """The checksum of the file that `validation.serving` names; None: no file is named."""


@dataclass(frozen=True)
class Candidate:
    """The trained model, and its predictions of the eval rows."""

    trained: Output[Trained]
    scored: Output[Evaluated]


@dataclass(frozen=True)
class ComparedVersion:
    """A version that the candidate is compared with on the same rows: the champion, or the anchor, an older version."""

    role: str
    """champion or anchor."""
    version: Version
    reason: str | None = None
    """The reason why the version cannot score these rows; None: it can score them."""

    @property
    def title(self) -> str:
        """The title of the step in which the version predicts the eval rows."""
        return f"evaluate {self.role} {self.version.number}"


@dataclass
class Context:
    """The state of one run of a pipeline over a window: what was asked for, and the results of the steps so far."""

    loaded: LoadedPipeline
    store: Store
    window: int | str | None = None
    """The size of the window that this run asks for; None: as pipeline.yaml says (`chosen_window`)."""
    until: str = "latest"
    seed: int | None = None
    force: bool = False
    last: str | None = None
    """The stage to stop after; None: the run goes on to the promotion."""
    alias: str | None = None
    """The alias to point at a candidate that passes; the champion then stays. None: the candidate becomes the champion."""
    trial: TrialConfig | None = None
    """Set for a trial of a study, which trains without a holdout of the train rows; else None."""
    prepared: Prepared | None = None
    reason: str | None = None
    """A person's reason for the promotion; the registry's history has it before the gate's reasons."""
    memo: dict[str, tuple[InputFile, ...]] = field(default_factory=dict)
    """{span: its raw files with their checksums}, read once per process."""

    freezes: bool = True
    """Whether an inferred schema is written to its file once validation has passed; False in a plan."""
    outputs: list[Output[Any]] = field(default_factory=list, init=False)
    """The outputs of all steps so far."""
    notes: list[Note] = field(default_factory=list, init=False)
    column_table: list[dict[str, str]] = field(default_factory=list, init=False)
    """The table of columns (`flows.pipeline.column_table`); empty unless this run infers the schema."""
    infers: bool = field(default=False, init=False)
    """Whether there was no schema file when the run began."""
    reference: dict[str, str | None] | None = field(default=None, init=False)
    """The reference for drift: a model's name, and the fingerprint of its train rows' statistics; None: no champion."""
    anomalies: tuple[Anomaly, ...] = field(default=(), init=False)
    """What validation found."""
    settings: ResolvedSettings | None = field(default=None, init=False)
    """The training's and model's settings, with what pipeline.yaml leaves out chosen; None: not known yet."""
    champion: Version | None = field(default=None, init=False)
    """The champion that the candidate is compared with; None: there is none, or the candidate is the champion."""
    parent: Version | None = field(default=None, init=False)
    """The version whose weights the training begins with; None: it begins with initial weights."""
    judges: list[ComparedVersion] = field(default_factory=list, init=False)
    """The versions that the candidate is compared with."""
    candidate: Candidate | None = field(default=None, init=False)
    same_model: Verdict | None = field(default=None, init=False)
    """The verdict on a candidate that is the champion itself, without a gate; None: it is another model."""
    test: TestMetrics | None = field(default=None, init=False)
    """The metrics on the test split; None unless the candidate passed."""
    facts: dict[str, Any] = field(default_factory=dict, init=False)
    """The facts that the registry keeps of a version that is published from this run."""
    over: bool = field(default=False, init=False)
    """Whether the run ends after the present stage, since nothing is left to do."""
    follows: list[str] = field(default_factory=list, init=False)
    """In a plan: the stages up to the verdict whose steps are not known, since their inputs do not exist yet."""
    later: list[str] = field(default_factory=list, init=False)
    """In a plan: the steps after a verdict that is not known yet."""
    _titles: dict[str, Output[Any]] = field(default_factory=dict, init=False)

    def fresh(self) -> "Context":
        """Returns a copy as it was before the first step; it keeps what was read from the raw files already."""
        other = replace(self)
        other.__dict__ |= {name: self.__dict__[name] for name in ("spans", "parts", "columns") if name in self.__dict__}
        return other

    def begin(self) -> None:
        """Set the notes to the columns' own, and set whether this run infers the schema. Called before the first step."""
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
        """{"module", "task" or "loss": digest of the user's file}; stages that call the user's code have these in their keys."""
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
    def parts(self) -> dict[str, tuple[SpanSplit, ...]]:
        """{split of the window: its pairs (span, split that ingest wrote of it)}; empty for a run that ends with the ingest."""
        # a span alone can be ingested, and be too little to train on
        parts = window_splits(self.pipeline.split, self.spans) if self.last != "ingest" else {}
        return {name: tuple(of) for name, of in parts.items()}

    @cached_property
    def columns(self) -> Columns:
        """The columns that the pipeline reads and stores; the config is checked against them.

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
        """The column whose equal values make rows one group, such as the id of a query; None: there is none."""
        return named_for(self.columns.read, "group")

    @cached_property
    def split_digest(self) -> str:
        """A digest of the settings that assign rows to splits. If two runs differ in it, they draw eval rows differently."""
        hashed = {column.name: f"{column.type}{list(column.shape) or ''}" for column in self.columns.hashed}
        by_place = {"by_place": True} if self.columns.by_place else {}
        return fingerprint(self.pipeline.split.at_ingest() | ({"hashed": hashed} if hashed else {}) | by_place)

    # --- what the steps left

    def add(self, outputs: Sequence[Output[Any]]) -> None:
        """Add the outputs of a step function."""
        self.outputs += outputs
        self._titles |= {output.title: output for output in outputs}

    def output(self, title: str) -> Output[Any]:
        """Returns the last output of the step with this title."""
        return self._titles[title]

    def has_output(self, title: str) -> bool:
        """Returns whether a step with this title left an output."""
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
        """The output with the candidate's metrics on the eval rows."""
        return self.output(MeasureRequest.name)

    @property
    def evaluation(self) -> Measured | None:
        """The candidate's metrics on the eval rows; None where they were not measured."""
        return self.measured.value if self.candidate and self.has_output(MeasureRequest.name) else None

    @property
    def verdict(self) -> Verdict | None:
        """The gate's verdict, or the verdict on a candidate that is the champion itself; None before there is a verdict."""
        if self.same_model is not None or not self.has_output(GateRequest.name):
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
        """The fitted transform; its label names the file of the user's own task, if there is one."""
        fitted = self.transform.value.parameters
        changes = {"file": self.loaded.user_files.get("task")}
        return fitted.model_copy(update={"label": fitted.label.model_copy(update=changes)})

    @property
    def parameters_ref(self) -> Ref[TransformParameters]:
        """A reference to the fitted transform (`parameters`), for the request of a stage that reads it."""
        transform = self.transform
        return Ref[TransformParameters](
            stage=transform.stage, fingerprint=transform.fingerprint, answer=self.parameters
        )

    @property
    def data_facts(self) -> Facts:
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
        """The settings of the training and of the model; settings that pipeline.yaml leaves out are chosen by `data_facts`."""
        return resolve_settings(self.pipeline.training, self.pipeline.model, self.data_facts)

    @property
    def training(self) -> TrainingConfig:
        return self.resolved[0]

    @property
    def model(self) -> ModelConfig:
        return self.resolved[1]

    # --- what the rows are judged by

    @cached_property
    def slices(self) -> tuple[str, ...]:
        """The slices that pipeline.yaml names, else a few chosen ones; empty in a plan that cannot choose them yet."""
        named, found = self.pipeline.evaluation.slices, self.statistics.json()
        if named is not None or not self.validated.known:
            return named or ()
        return choose_slices(
            found["columns"].get("train", []),
            self._strengths,
            eligible=self._sliceable(),
            rows=found["rows"].get("eval", 0),
            least=self.pipeline.gate.slice_min_rows,
        )

    def _sliceable(self) -> list[str]:
        """Returns the columns of which slices may be chosen: stored, one value per row, no dates, times or identifiers."""
        columns = self.columns
        single = [column for column in columns.read if not column.shape and not column.temporal]
        return [c.name for c in single if c.name in columns.stored and c.meaning != "identifier"]

    @cached_property
    def searched(self) -> tuple[str, ...]:
        """The columns whose slices are searched for the worst metrics; a column of numbers is cut into bins."""
        return columns_to_search(self.statistics.json()["columns"].get("train", []), self._strengths, self._sliceable())

    @property
    def _strengths(self) -> dict[str, float]:
        """{column: strength of its association with the label}; empty in a plan without a validation. With few columns,
        only the order of `searched` depends on the strengths, so that even this plan finds stored predictions."""
        return self.validated.value.strengths if self.validated.known else {}

    @property
    def shown(self) -> dict[str, Temporal | None]:
        """{column: kind of its dates or times, else None} of the columns shown beside single rows; the group column first."""
        known = {column.name: column for column in self.columns.read}
        groups = [name for name, column in known.items() if column.role == "group"]
        return {name: known[name].temporal for name in (*groups, *self.pipeline.evaluation.row_values)}

    @property
    def prediction_columns(self) -> tuple[str, ...]:
        """The columns stored beside the predictions: for slices, items, keys, units and `shown`."""
        columns, sliced = self.columns, slice_columns((*self.slices, *self.searched))
        keys = [c.name for c in columns.read if c.role in ("key", "passthrough") and not c.shape and c.name not in OWN]
        stored = [name for name in keys if name in columns.stored]
        return tuple(sorted({*sliced, *self.pipeline.judged_columns, *self.units.equal, *self.shown, *stored}))

    @cached_property
    def units(self) -> SplitUnits:
        """The units of resampling: rows with the same split key, and equal rows. With a group column, equal rows are no unit."""
        key = " and ".join(self.pipeline.split.key) or None
        if self.group is not None:
            return SplitUnits(key=key)
        equal, distinct = self._equal_rows()
        return SplitUnits(key=key, equal=equal, distinct=distinct)

    def _equal_rows(self) -> tuple[tuple[str, ...], int]:
        """Returns the columns whose equal values make eval rows one unit of resampling (none if few rows repeat others, rows are
        too many, or the split is by place), and the number of distinct rows if columns not stored count too, else 0."""
        columns, found = self.columns, self.proof.json().get("splits", {}).get("eval", {})
        rows, distinct = found.get("rows", 0), found.get("distinct", math.inf)
        if distinct > MOST_DISTINCT * rows or rows > MOST_COMPARED or columns.by_place:
            return (), 0
        read = [c for c in columns.read if not c.shape and c.name in columns.stored and c.name not in OWN]
        hashed, single = [column.name for column in columns.hashed], {c.name for c in read}
        stored = tuple(name for name in hashed if name in single)
        return stored, distinct if len(stored) < len(hashed) else 0


def examples_of(ingested: Output[Ingested], part: str) -> Examples:
    """Returns the records of one split of a span."""
    return Examples(fingerprint=ingested.fingerprint, path=ingested.path, split=part, result=ingested.json())


def label_facts(label: LabelParameters, statistics: WindowStatistics) -> LabelFacts:
    """Returns the facts of a label (class counts, mean, median, quantiles) from the fitted transform and the statistics."""
    summary = statistics.of("train").get(LABEL)
    median = summary.median if label.median is None and summary is not None else label.median
    return LabelFacts(
        counts=label.counts or (),
        mean=label.mean,
        median=None if task_of(label.task).has_classes else median,
        quantiles=label.quantiles,
    )


def possible_tasks(task: str, label: LabelConfig, columns: tuple[Column, ...]) -> tuple[str, ...]:
    """Returns the tasks, such as "binary", that pipeline.yaml and the label's type allow, before any row is read."""
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
    """Raise ConfigError if the settings of evaluation or gate ask for something, such as a metric, that no task of `tasks` has.

    Several tasks are alternatives: one of them has to have all the metrics of the gate.
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
                retrieval=pipeline.ranks_among_all_items,
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
