"""The root of the config: reads and validates one `pipeline.yaml` and makes its paths absolute.

    pipeline = read_pipeline(Path("examples/flights/pipeline.yaml"))
    pipeline.training.learning_rate

Each part is a frozen model that lives beside the component it configures; this module only composes them. A stage gets
its own part and nothing else, so that what it fingerprints is what it can read.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from beam_jobs.runners.config import RunnerConfig
from flows.config.tune_config import TuneConfig
from headway.config import Frozen, Grown, expand, load, read_yaml
from headway.errors import ConfigError
from headway.evaluation.gate_config import GateConfig
from headway.evaluation.results.threshold import ThresholdRule
from headway.evaluation.slices import slice_columns
from headway.metrics.ranking import NDCG_AT
from headway.metrics.user_metric import Better, MetricSpec
from headway.records.spec import RecordsConfig
from headway.schema import columns
from headway.schema.columns import suggest
from headway.sources.config import SourceConfig
from headway.storage.filesystem import is_remote
from headway.storage.remote_store import open_store
from headway.storage.store import Store
from headway.tabular.label import ONE_LABEL, LabelConfig
from headway.tabular.splits import SplitConfig
from headway.tasks.table import ALL_METRICS, TaskOrAuto
from headway.validation.config import ValidateConfig
from tfcore.export.metadata import FORMATS, NEEDED, Format
from tfcore.export.serving_limits import ServingLimits
from tfcore.models.config import BUILT_IN, ModelConfig
from tfcore.train.settings.config import TrainingConfig
from tfcore.transform.config import MAX_LENGTH, OPS, POOL, ImputeConfig, PoolConfig, PreprocessConfig, TransformConfig


class ColumnConfig(columns.ColumnConfig):
    """One column: its type, role and nullability, and its transform and other settings of the model's inputs."""

    transform: TransformConfig = "auto"
    impute: ImputeConfig = Field(default_factory=ImputeConfig)
    max_length: int | None = Field(default=None, ge=1, le=4096, description=MAX_LENGTH)
    pool: PoolConfig = POOL

    @model_validator(mode="after")
    def _transforms_features(self) -> ColumnConfig:
        if self.transform != "auto" and (self.role in ("ignore", "passthrough") or self.feature is False):
            role = (
                f"a column with the role {self.role} is" if self.feature is None else "with feature: false a column is"
            )
            raise ValueError(f"{role} not a feature, and its transform would do nothing: leave out one of them")
        return self


class EvaluationConfig(Frozen):
    """The metrics that evaluation computes, and the slices of the eval split that it reports."""

    slices: tuple[str, ...] | None = Field(
        default=None,
        description="columns whose values are measured and compared one by one; crossed: carrier x origin; numbers in "
        "quantile bins: {distance: 4}. Left out: a handful is chosen; []: none",
    )
    slice_min_rows: int = Field(default=100, ge=1, description="smaller slices are left out of the report")
    batch_size: int = Field(default=4096, ge=1)
    ndcg_at: int | None = Field(
        default=None,
        ge=1,
        description="score the order within groups by NDCG at this many top ranks; default: with training.ranking",
    )
    threshold: ThresholdRule | None = Field(
        default=None,
        description="how a binary model's threshold is chosen: f1, {recall: 0.9}, {precision: 0.8}, "
        "{cost: {false_positive: 1, false_negative: 10}} or a number; precision, recall and costs at it are reported",
    )
    importance: int | None = Field(
        default=None,
        ge=20,
        description="measure how much each column matters to the model, on so many eval rows at most; left out: not measured",
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
        """Columns of one value per row that the evaluation reads."""
        return tuple(dict.fromkeys([*slice_columns(self.slices), *([self.item] if self.item else [])]))

    @field_validator("slices", mode="before")
    @classmethod
    def _slices(cls, value: Any) -> Any:
        """`distance: 4` is a mapping in YAML."""
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


class ExportConfig(Grown):
    """How the SavedModel is checked before it may be promoted, and what is written beside it."""

    newer = ("formats",)

    replay_rows: int = Field(default=1000, ge=1, description="raw eval rows replayed in a fresh process")
    limits: ServingLimits = Field(default_factory=ServingLimits, description="what the model may cost a server")
    formats: tuple[Format, ...] = Field(
        default=(), description="the model behind the transform in other formats too, compared with the SavedModel"
    )

    @field_validator("formats", mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        names = [value] if isinstance(value, str) else value
        for name in names if isinstance(names, list | tuple) else ():
            if name not in FORMATS:
                raise ValueError(f"{name!r} is not a format; {suggest(str(name), [*FORMATS])}")
        return tuple(dict.fromkeys(names)) if isinstance(names, list | tuple) else names

    def check_installed(self, where: str) -> None:
        """Check that the converters are here; only a run that exports needs them, so that a server can do without.

        Raises:
            ConfigError: one is missing.
        """
        for name in self.formats:
            if missing := [package for package in NEEDED.get(name, ()) if find_spec(package) is None]:
                fix = "pip install 'headway[onnx]'"
                raise ConfigError(f"{name} needs {' and '.join(missing)}", where=f"{where}: export.formats", fix=fix)


class TrackingConfig(Frozen):
    """An MLflow server that is told of runs, versions and aliases."""

    uri: str | None = Field(
        default=None, description="http://host:5000, or sqlite:///file; default: MLFLOW_TRACKING_URI, if that is set"
    )
    experiment: str | None = Field(default=None, min_length=1, description="default: the pipeline's name")


class BucketConfig(Frozen):
    """A store in a bucket."""

    url: str = Field(pattern=r"^(s3|gs)://[^/]+(/.*)?$", description="s3://bucket/path or gs://bucket/path")
    cache: str | None = Field(
        default=None, description="folder of the working copy, relative to the pipeline's; else below ~/.cache/headway"
    )
    max_cache_bytes: int | None = Field(
        default=None, ge=1, description="bytes that ingested shards may take in the working copy; default: no limit"
    )


class Pipeline(Frozen):
    """A whole pipeline.yaml."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$", description="also the model's name in the registry")
    source: SourceConfig
    label: LabelConfig
    columns: Literal["auto"] | dict[str, ColumnConfig] = Field(
        default="auto", description="auto: every column; a mapping: those named, and with '*' in it all others too"
    )
    schema_path: str = Field(default="schema.pbtxt", alias="schema", description="frozen schema, beside the pipeline")
    task: TaskOrAuto = "auto"
    preprocess: PreprocessConfig | None = Field(
        default=None, description="module:function that computes columns from the raw ones, in TensorFlow"
    )
    split: SplitConfig = Field(default_factory=SplitConfig)
    records: RecordsConfig = Field(default_factory=RecordsConfig)
    runner: RunnerConfig = Field(default_factory=RunnerConfig)
    validation: ValidateConfig = Field(default_factory=ValidateConfig)
    model: ModelConfig = Field(default_factory=ModelConfig)
    training: Annotated[
        TrainingConfig,
        BeforeValidator(
            lambda value: {} if value == "auto" else value, json_schema_input_type=Literal["auto"] | TrainingConfig
        ),
    ] = Field(
        default_factory=TrainingConfig,
        description="auto: chosen by the number of train rows, as is each key left out",
    )
    tune: TuneConfig = Field(default_factory=TuneConfig, description="what headway tune varies")
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    gate: GateConfig = Field(default_factory=GateConfig)
    export: ExportConfig = Field(default_factory=ExportConfig)
    store: str | BucketConfig = Field(
        default="store", description="a folder, relative to the pipeline's own; or s3://bucket/path, gs://bucket/path"
    )
    tracking: TrackingConfig = Field(default_factory=TrackingConfig, description="MLflow, beside the store")
    seed: int = Field(default=0, ge=0, lt=2**31)

    @model_validator(mode="before")
    @classmethod
    def _one_label(cls, value: Any) -> Any:
        if isinstance(value, dict) and "labels" in value:
            raise ValueError(f"labels: {ONE_LABEL}")
        return value

    @field_validator("columns", mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        """Expand `carrier: vocabulary` and `delay: [clip, standardize]` to {transform: ...}; a bare name means auto."""
        if isinstance(value, list):
            value = dict.fromkeys(value)
        if not isinstance(value, dict):
            return value
        return {name: _column(entry) for name, entry in value.items()}

    @field_validator("schema_path")
    @classmethod
    def _beside(cls, value: str) -> str:
        if not value or Path(value).is_absolute() or ".." in Path(value).parts:
            raise ValueError(f"should be a file in the pipeline's folder, such as schema.pbtxt (got {value!r})")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Pipeline:
        if isinstance(self.columns, dict) and not self.columns:
            raise ValueError("columns is empty; list some, or say 'columns: auto'")
        if self.split.mode == "time" and not self.source.has_spans:
            raise ValueError("split.mode: time needs several spans, so source.path needs {span} or {year} in it")
        if self.evaluation.item is not None and self.ndcg_at is None:
            raise ValueError(
                "evaluation.item names what is ranked, and nothing is: set evaluation.ndcg_at or training.ranking"
            )
        groups = [name for name, config in self.column_configs().items() if config.role == "group"]
        if len(groups) == 1 and self.split.mode == "hash" and not self.split.key:
            # a query in two splits would be judged by what was learnt of it
            self.__dict__["split"] = self.split.model_copy(update={"key": tuple(groups)})
        return self

    def column_configs(self) -> dict[str, ColumnConfig]:
        """Return the configs of single columns in the file; empty with `columns: auto`."""
        return {k: v for k, v in self.columns.items() if k != "*"} if isinstance(self.columns, dict) else {}

    @property
    def ndcg_at(self) -> int | None:
        """The number of ranks that NDCG counts within groups; None: the order is not scored."""
        ranking = self.training.ranking
        return self.evaluation.ndcg_at or (None if ranking is None else ranking.k or NDCG_AT)

    @property
    def only_named(self) -> bool:
        """Whether columns that the file does not name are left out."""
        return isinstance(self.columns, dict) and "*" not in self.columns


_ROLES = ("key", "time", "group", "weight", "passthrough", "ignore")


def _column(entry: Any) -> Any:
    if entry is None:
        return {}
    if isinstance(entry, str) and (entry in _ROLES or _nearly(entry, _ROLES)):
        return {"role": entry}
    if isinstance(entry, dict) and (
        not entry
        or set(entry) & set(ColumnConfig.model_fields)
        or any(_nearly(k, ColumnConfig.model_fields) for k in entry)
    ):
        return entry
    return {"transform": entry} if isinstance(entry, str | list | dict) else entry


def _nearly(word: Any, words: Iterable[str]) -> bool:
    """Whether a word is closer to one of these than to an operation, so that the error names the likely intent."""
    if not isinstance(word, str) or word in ("auto", *OPS):
        return False
    close = difflib.get_close_matches(word, [*words, *OPS], 1, 0.7)
    return bool(close) and close[0] not in OPS


class LoadedPipeline(Frozen):
    """A pipeline and where it was read: `file` and `folder` are absolute."""

    pipeline: Pipeline
    file: Path
    folder: Path

    @property
    def schema_file(self) -> Path:
        return self.folder / self.pipeline.schema_path

    @property
    def serving_file(self) -> Path | None:
        """Logged requests that validation compares the train rows with; relative to the pipeline's folder."""
        serving = self.pipeline.validation.serving
        return self.folder / serving if serving else None

    def open_store(self) -> Store:
        """The store that the pipeline names; nothing is made or asked yet."""
        where = self.pipeline.store
        if isinstance(where, BucketConfig):
            cache = self.folder / where.cache if where.cache else None
            return open_store(where.url, cache, where.max_cache_bytes)
        return open_store(where if "://" in where else self.folder / where)

    @property
    def control_file(self) -> Path:
        """The local file from which a running training of this pipeline reads knobs set by hand."""
        return self.open_store().checkpoints.parent / "control" / f"{self.pipeline.name}.json"

    @property
    def module_file(self) -> Path | None:
        """The user's Python file that `model.name: module:function` points at, beside the pipeline."""
        return self._python_file(self.pipeline.model.name)

    @property
    def preprocess_file(self) -> Path | None:
        """The user's Python file that `preprocess` points at, beside the pipeline."""
        config = self.pipeline.preprocess
        return self._python_file(config.function) if config else None

    @property
    def task_file(self) -> Path | None:
        """The user's Python file that `task: module:Class` points at, beside the pipeline."""
        return self._python_file(self.pipeline.task)

    @property
    def loss_file(self) -> Path | None:
        """The user's Python file that `training.loss: module:function` points at, beside the pipeline."""
        return self._python_file(self.pipeline.training.loss or "")

    @property
    def own_metrics(self) -> tuple[MetricSpec, ...]:
        """The metrics of the user's own."""
        metrics = self.pipeline.evaluation.metrics
        return tuple(
            MetricSpec(name=n, file=self.folder / f"{n.partition(':')[0]}.py", better=better)
            for n, better in metrics.items()
        )

    def _python_file(self, name: str) -> Path | None:
        module, _, function = name.partition(":")
        return self.folder / f"{module}.py" if function else None


def read_pipeline(path: Path, overrides: dict[str, Any] | None = None) -> LoadedPipeline:
    """The pipeline in `path` (a file, or a folder that holds a pipeline.yaml).

    Args:
        overrides: dotted keys to YAML values, as `--set training.learning_rate=0.01` gives them.

    Raises:
        ConfigError: naming the file, the key, the value and what would be right.
    """
    file = (path / "pipeline.yaml" if path.is_dir() else path).resolve()
    raw = read_yaml(file, keys=("name", "source", "label"))
    for key, value in (overrides or {}).items():
        _override(raw, key, value, file)
    folder = file.parent
    source = raw.get("source")
    if isinstance(source, dict) and isinstance(source.get("path"), str):
        name = expand(source["path"], where=f"{file}: source.path")
        raw["source"] = source | {"path": name if is_remote(name) else str(folder / name)}
    tracking = raw.get("tracking")
    if isinstance(tracking, dict) and isinstance(tracking.get("uri"), str):
        raw["tracking"] = tracking | {"uri": expand(tracking["uri"], where=f"{file}: tracking.uri")}
    store, where = raw.get("store"), f"{file}: store"
    if isinstance(store, str):
        raw["store"] = expand(store, where=where)
    elif isinstance(store, dict):
        raw["store"] = {k: expand(v, where=where) if isinstance(v, str) else v for k, v in store.items()}
    loaded = LoadedPipeline(pipeline=load(Pipeline, raw, where=str(file)), file=file, folder=folder)
    own = f"put the module beside the pipeline, or name a built-in model: {', '.join(BUILT_IN)}"
    beside = "put the module with the function beside the pipeline"
    for what, module, fix in (
        (f"model.name: {loaded.pipeline.model.name!r}", loaded.module_file, own),
        ("preprocess", loaded.preprocess_file, beside),
        ("task", loaded.task_file, beside),
        ("training.loss", loaded.loss_file, beside),
        *((f"evaluation.metrics: {spec.name!r}", spec.file, beside) for spec in loaded.own_metrics),
    ):
        if module and not module.is_file():
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
    at[last] = value


def json_schema() -> dict[str, Any]:
    """JSON Schema of pipeline.yaml, for editors; spells out the shorthands that validation accepts."""
    return Pipeline.model_json_schema(by_alias=True) | {"title": "Headway pipeline"}
