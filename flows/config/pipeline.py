"""The root of the config: reads and validates a `pipeline.yaml`, and makes its paths absolute.

    pipeline = read_pipeline(Path("examples/flights/pipeline.yaml"))
    pipeline.training.learning_rate

Each section is a frozen Pydantic model in the module of the component that it configures; this module composes them. A
stage gets only the sections that it reads, so that its fingerprint covers all that it can depend on.
"""

import copy
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from beam_jobs.runners.config import RunnerConfig
from flows.config.production import (
    DATA_QUEUE,
    AlarmsConfig,
    ArrivalConfig,
    PredictionsConfig,
    QueueName,
    ScheduleConfig,
    Secrets,
    placeholders,
)
from flows.config.tune_config import TuneConfig
from headway.config import Frozen, expand, load, read_yaml
from headway.errors import ConfigError
from headway.evaluation.config import EvaluationConfig, GateConfig
from headway.metrics.ranking import NDCG_AT
from headway.metrics.user_metric import MetricSpec
from headway.redaction import remember
from headway.sources.config import SourceConfig
from headway.sources.spans import ALL, check_window
from headway.storage.filesystem import is_remote
from headway.storage.store import Store, open_store
from headway.tabular.label import LabelConfig
from headway.tabular.splits import SplitConfig
from headway.tasks.table import TaskOrAuto
from headway.validation.config import ValidateConfig
from tfcore.export.config import ExportConfig
from tfcore.models.config import BUILT_IN, ModelConfig
from tfcore.train.config import TrainingConfig
from tfcore.transform.column_config import ColumnConfig, spelled_out


class TrackingConfig(Frozen):
    """The config of an MLflow server that runs, versions and aliases are copied to."""

    uri: str | None = Field(
        default=None, description="http://host:5000, or sqlite:///file; default: MLFLOW_TRACKING_URI, if that is set"
    )
    experiment: str | None = Field(default=None, min_length=1, description="default: the pipeline's name")


class Pipeline(Frozen):
    """The content of a pipeline.yaml."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$", description="also the model's name in the registry")
    source: SourceConfig = Field(description="the raw files: where they are, and their format")
    window: Annotated[int | str | None, BeforeValidator(check_window)] = Field(
        default=None,
        description="the spans that a run uses: how many, or how much time up to the last one, such as 30d or 12m; null or "
        "all: every span. --window overrides it",
    )
    label: LabelConfig = Field(
        description="what is predicted: a column, or an expression over columns such as arr_delay > 15"
    )
    columns: Annotated[Literal["auto"] | dict[str, ColumnConfig], BeforeValidator(spelled_out)] = Field(
        default="auto",
        description="auto: every column; or a mapping: only the columns that it names, and all others too if it has '*'",
    )
    schema_path: str = Field(
        default="schema.pbtxt",
        alias="schema",
        description="the file of column names and types, beside the pipeline; the first run writes it",
    )
    task: TaskOrAuto = Field(
        default="auto",
        description="binary, multiclass, regression, count, quantiles(0.1, 0.5, 0.9), or module:Class; auto: read off the "
        "label",
    )
    preprocess: str | None = Field(
        default=None,
        description="module:function, of a file beside the pipeline, that computes columns from the raw ones: it takes tensors "
        "by column and returns tensors by column; columns has the transform of those that are not auto",
    )
    split: SplitConfig = Field(
        default_factory=SplitConfig,
        description="which rows are trained on (train), which judge a model (eval), and which only report (test)",
    )
    runner: RunnerConfig = Field(
        default_factory=RunnerConfig,
        description="where raw files are read and batches are predicted: on this machine, or by Beam on Flink, Spark or "
        "Dataflow",
    )
    validation: ValidateConfig = Field(
        default_factory=ValidateConfig,
        description="the limits beyond which the data of a run are an error or a warning",
    )
    model: ModelConfig = Field(default_factory=ModelConfig, description="the network that is trained")
    training: Annotated[
        TrainingConfig,
        BeforeValidator(
            lambda value: {} if value == "auto" else value, json_schema_input_type=Literal["auto"] | TrainingConfig
        ),
    ] = Field(
        default_factory=TrainingConfig,
        description="auto, or a mapping; the number of train rows decides each key that is left out",
    )
    tune: TuneConfig = Field(default_factory=TuneConfig, description="what headway tune varies")
    evaluation: EvaluationConfig = Field(
        default_factory=EvaluationConfig,
        description="what is measured of a model on the eval rows, and on which slices of them",
    )
    gate: GateConfig = Field(
        default_factory=GateConfig, description="when a candidate is promoted in place of the champion"
    )
    export: ExportConfig = Field(
        default_factory=ExportConfig,
        description="how the exported model is tested, and what it may cost a server",
    )
    store: str = Field(
        default="store", description="a folder, relative to the pipeline's own; or s3://bucket/path, gs://bucket/path"
    )
    tracking: TrackingConfig = Field(
        default_factory=TrackingConfig, description="an MLflow server that gets runs and versions too"
    )
    schedule: ScheduleConfig = Field(
        default_factory=ScheduleConfig,
        description="when flows run on a Prefect server: a cron expression for retrain, or {flow: cron}",
    )
    alarms: AlarmsConfig = Field(
        default_factory=AlarmsConfig, description="whom the Prefect server notifies, and of what"
    )
    queues: dict[Literal["tensorflow"], QueueName] = Field(
        default={},
        description="the work queue whose worker trains, and runs every stage after that: {tensorflow: gpu}; none, or data: "
        "where the flow runs. For flows on a Prefect server",
    )
    arrival: ArrivalConfig = Field(
        default_factory=ArrivalConfig, description="when a span that predict --spans or monitor finds is complete"
    )
    predictions: PredictionsConfig = Field(
        default_factory=PredictionsConfig, description="which spans the champion predicts, and where to"
    )
    secrets: Secrets = Field(
        default={},
        description="environment variables of flow runs, and the Secret block of the Prefect server that holds each: "
        "{DB_PASSWORD: db-password}",
    )
    seed: int = Field(
        default=0,
        ge=0,
        lt=2**31,
        description="of every random choice of a run: initial weights, the order of rows, samples; --seed overrides it",
    )

    @field_validator("columns")
    @classmethod
    def _all_others(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("*", ColumnConfig()) != ColumnConfig():
            raise ValueError(
                "'*' stands for every column without a line of its own, and takes no settings: write \"*\": auto, and name "
                "the columns that have some"
            )
        return value

    @field_validator("preprocess")
    @classmethod
    def _module_and_function(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z_]\w*:[A-Za-z_]\w*", value):
            raise ValueError("write module:function, for the function in module.py beside the pipeline")
        return value

    @field_validator("schema_path")
    @classmethod
    def _beside(cls, value: str) -> str:
        if not value or Path(value).is_absolute() or ".." in Path(value).parts:
            raise ValueError(f"should be a file in the pipeline's folder, such as schema.pbtxt (got {value!r})")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "Pipeline":
        if isinstance(self.columns, dict) and not self.columns:
            raise ValueError("columns is empty; list some, or say 'columns: auto'")
        if self.split.mode == "time" and not self.source.has_spans:
            raise ValueError("split.mode: time needs several spans, so source.path needs {span} or {year} in it")
        if self.window not in (None, ALL) and not self.source.has_spans:
            raise ValueError("window needs several spans, so source.path needs {span} or {year} in it")
        if self.split.mode == "path" and not self.source.has_splits:
            raise ValueError("split.mode: path needs {split} in source.path, such as data/{split}/*.csv")
        if self.source.has_splits and self.split.mode != "path":
            raise ValueError("{split} in source.path says each file's split: write split: {mode: path}")
        if self.evaluation.item is not None and self.ndcg_at is None:
            raise ValueError(
                "evaluation.item names what is ranked, and nothing is: set evaluation.ndcg_at or training.ranking"
            )
        if self.training.retrieval is not None and self.model.name != "two_towers":
            raise ValueError(f"training.retrieval: only two_towers has vectors of items, not {self.model.name}")
        for key, path in (("arrival.done", self.arrival.done), ("predictions.path", self.predictions.path)):
            if path is not None and placeholders(path) != placeholders(self.source.path):
                wanted = " ".join(sorted(placeholders(self.source.path))) or "none"
                raise ValueError(f"{key} needs the placeholders of source.path, which are: {wanted} (got {path!r})")
        groups = [name for name, config in self.column_configs().items() if config.role == "group"]
        if len(groups) == 1 and self.split.mode == "hash" and not self.split.key:
            # a query in two splits would be judged by what was learned of it
            self.__dict__["split"] = self.split.model_copy(update={"key": tuple(groups)})
        return self

    @property
    def train_queue(self) -> str | None:
        """The work queue whose worker trains, and runs all stages after it; None: training runs where the flow does."""
        named = self.queues.get("tensorflow")
        return None if named == DATA_QUEUE else named

    def label_columns(self) -> frozenset[str]:
        """Returns the raw columns that the label is computed from; they are not features by themselves."""
        return self.label.columns()

    def column_configs(self) -> dict[str, ColumnConfig]:
        """Returns {column: its config} for the columns that the file names; empty with `columns: auto`."""
        return {k: v for k, v in self.columns.items() if k != "*"} if isinstance(self.columns, dict) else {}

    @property
    def keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Two tuples of key columns: first the columns with `role: key`; second split.key if split.mode is hash, else ()."""
        by_role = tuple(name for name, config in self.column_configs().items() if config.role == "key")
        return by_role, self.split.key if self.split.mode == "hash" else ()

    @property
    def ndcg_at(self) -> int | None:
        """The number of best-ranked rows of each group that NDCG counts; None: no NDCG is computed."""
        ranking = self.training.ranking
        return self.evaluation.ndcg_at or (None if ranking is None else ranking.k or NDCG_AT)

    @property
    def judged_columns(self) -> tuple[str, ...]:
        """The columns that the sections evaluation and gate name; each column must have one value per row."""
        return tuple(dict.fromkeys([*self.evaluation.columns, *self.gate.columns]))

    @property
    def ranks_among_all_items(self) -> bool:
        """Whether the evaluation ranks each row's item among all items of the model's index."""
        item = self.evaluation.item
        return self.model.name == "two_towers" and item is not None and item == self.model.item[0]

    @property
    def only_named(self) -> bool:
        """Whether columns that the file does not name are left out."""
        return isinstance(self.columns, dict) and "*" not in self.columns


class LoadedPipeline(Frozen):
    """A pipeline, and the absolute paths of its file and its folder."""

    pipeline: Pipeline
    file: Path
    folder: Path
    overrides: dict[str, Any] = Field(default={})
    """{dotted key: value}: values that replace those of the file, as --set gives them."""

    def with_overrides(self, overrides: Mapping[str, Any]) -> "LoadedPipeline":
        """Returns the pipeline, read again with the values of further keys replaced: {"training.epochs": 3}."""
        return read_pipeline(self.file, self.overrides | dict(overrides))

    @property
    def schema_file(self) -> Path:
        return self.folder / self.pipeline.schema_path

    @property
    def serving_file(self) -> Path | None:
        """The file of serving rows with which validation compares the train rows; None if the pipeline names none."""
        serving = self.pipeline.validation.serving
        return self.folder / serving if serving else None

    def open_store(self) -> Store:
        """Returns the store that the pipeline names, without creating or reading anything."""
        where = self.pipeline.store
        return open_store(where if "://" in where else self.folder / where)

    @property
    def user_files(self) -> dict[str, Path]:
        """{key: the user's Python file that the key names}, for keys such as model.name; the files are beside the pipeline."""
        pipeline = self.pipeline
        named = {
            "model.name": pipeline.model.name,
            "task": pipeline.task,
            "training.loss": pipeline.training.loss or "",
        }
        named["preprocess"] = pipeline.preprocess or ""
        named |= {f"evaluation.metrics: {name!r}": name for name in pipeline.evaluation.metrics}
        return {key: self.folder / f"{name.partition(':')[0]}.py" for key, name in named.items() if ":" in name}

    @property
    def own_metrics(self) -> tuple[MetricSpec, ...]:
        """The user's own metrics."""
        metrics = self.pipeline.evaluation.metrics
        return tuple(
            MetricSpec(name=n, file=self.folder / f"{n.partition(':')[0]}.py", better=better)
            for n, better in metrics.items()
        )


_PATHS = ("source.path", "arrival.done", "predictions.path", "predictions.output")
"""Keys whose values are paths relative to the pipeline's folder."""


def read_pipeline(path: Path, overrides: Mapping[str, object] | None = None) -> LoadedPipeline:
    """Returns the pipeline in `path` (a file, or a folder that holds a pipeline.yaml).

    Args:
        overrides: dotted keys to YAML values, as `--set training.learning_rate=0.01` gives them.

    Raises:
        ConfigError: the file is not valid; the error names the file, the key, the value and what would be right.
    """
    file = (path / "pipeline.yaml" if path.is_dir() else path).resolve()
    raw = read_yaml(file, keys=("name", "source", "label"))
    for key, value in (overrides or {}).items():
        _override(raw, key, value, file)
    folder = file.parent
    for place in (*_PATHS, "tracking.uri"):
        section, _, key = place.partition(".")
        given = raw.get(section)
        if isinstance(given, dict) and isinstance(given.get(key), str) and (given[key] or section == "source"):
            name = expand(given[key], where=f"{file}: {place}")
            local = place in _PATHS and not is_remote(name)
            raw[section] = given | {key: str(folder / name) if local else name}
    store, where = raw.get("store"), f"{file}: store"
    if isinstance(store, str):
        raw["store"] = expand(store, where=where)
    elif isinstance(store, dict):
        raw["store"] = {k: expand(v, where=where) if isinstance(v, str) else v for k, v in store.items()}
    pipeline = load(Pipeline, raw, where=str(file))
    loaded = LoadedPipeline(pipeline=pipeline, file=file, folder=folder, overrides=dict(overrides or {}))
    for name in loaded.pipeline.secrets:
        remember(name, os.environ.get(name, ""), secret=True)
    for what, module in loaded.user_files.items():
        if module.is_file():
            continue
        fix = "put the module with the function beside the pipeline"
        if what == "model.name":
            what = f"{what}: {pipeline.model.name!r}"
            fix = f"put the module beside the pipeline, or name a built-in model: {', '.join(BUILT_IN)}"
        raise ConfigError(f"{what} needs {module}, which does not exist", where=str(file), fix=fix)
    return loaded


def _override(raw: dict[str, Any], key: str, value: Any, file: Path) -> None:
    *parents, last = key.split(".")
    at = raw
    for parent in parents:
        if at is raw and parent == "training" and at.get(parent) == "auto":
            at[parent] = {}  # every key left out is chosen, which is what auto means
        inner = at.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {key}: {parent} is {inner!r}, which has no keys", where=str(file))
        at = inner
    at[last] = copy.deepcopy(value)  # a further key may change what is in it


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema of pipeline.yaml, for editors, with the shorthands that validation accepts."""
    return Pipeline.model_json_schema(by_alias=True) | {"title": "Headway pipeline"}
