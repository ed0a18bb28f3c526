"""One side of a comparison: a version of the model, or a run of which no version came.

side = named_side(registry, "champion")          # or a run's name, or the beginning of it
side.metrics["auc"].interval
side.material.measured                           # what its steps answered, as far as the store still has it
"""

import re
from collections.abc import Mapping

import pyarrow as pa
from pydantic import ConfigDict, Field, JsonValue, ValidationError

from flows.config.pipeline import Pipeline
from flows.records import LATEST, Code, RunRecord, State, StepRecord, find, record_of
from flows.tell.material import Material
from flows.tell.paired import names_of
from headway.config import Frozen
from headway.errors import ConfigError, HeadwayError
from headway.evaluation.gate_checks import read_predictions
from headway.evaluation.metrics import metrics_of, rows_of
from headway.metrics.base import Metric, Rows
from headway.registry.registry import Registry, Version
from headway.registry.versions import numbers
from headway.schema.columns import LABEL
from headway.storage.fingerprint import fingerprint
from headway.storage.store import Store

CONFIDENCE = 0.95
"""Of every interval of a comparison."""
RUN = re.compile(r"\d{8}-?[\da-f-]*")
"""How the name of a run begins; no model has so many versions."""
_MADE = (State.PROMOTED, State.NAMED)
"""States of runs whose version is their own."""
Interval = tuple[float, float]
Settings = Mapping[str, JsonValue]
Columns = Mapping[str, Settings]
"""What is known of each, its type first."""


class Figure(Frozen):
    """A metric of one side."""

    value: float | None
    interval: Interval | None = None


class Spans(Frozen):
    train: tuple[str, ...] = ()
    eval: tuple[str, ...] = ()


class Decided(Frozen):
    """The gate's decision, in words."""

    model_config = ConfigDict(extra="ignore")

    verdict: str | None = None
    reasons: tuple[str, ...] = ()
    champion: int | None = None
    """The version that it was compared with."""


class Side(Frozen):
    """A version or a run. What `--json` has of it comes first."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: str
    title: str = Field(serialization_alias="is")
    """ "version 4", or "run 20261123-000714-4081"."""
    version: int | None = None
    names: tuple[str, ...] = ()
    """What it stands as: champion, an alias; of a run its state."""
    created: str
    run: str | None
    spans: Spans
    bytes: int | None = None
    verdict: Decided
    evaluated: dict[str, str]
    """Evaluations by title."""
    measured: str | None
    task: str | None
    rows: Mapping[str, int] = {}
    """By split."""
    counts: Mapping[str, int] = {}
    """Rows from the files: read, written, filtered, quarantined."""
    metrics: Mapping[str, Figure] = {}
    problem: str | None = None
    """Why there are no intervals."""

    material: Material = Field(exclude=True)
    config: Settings | None = Field(exclude=True)
    code: Code | None = Field(exclude=True)
    inputs: Columns | None = Field(default=None, exclude=True)
    """The columns that a version's model takes."""
    files: Mapping[str, str] = Field(default={}, exclude=True)
    """The digest of each span's raw files, where it was kept."""
    letter: str = Field(default="", exclude=True)
    """A or B."""

    @property
    def label(self) -> str:
        """The side's name for a heading: "version 4", or "run A", whose name would be too long."""
        return self.title if self.version is not None else f"run {self.letter}"

    @property
    def columns(self) -> Columns | None:
        """Those of its train rows, without the label; None where their statistics are gone."""
        summaries = self.material.statistics.of("train")
        return {name: {"type": of.type} for name, of in summaries.items() if name != LABEL} if summaries else None


def named_side(registry: Registry, name: str, letter: str = "") -> Side:
    """Find a version by number, champion, previous or an alias, or a run by its name or as "latest"; of a run that made a
    version, that one.

    Raises:
        StoreError: there is none, or there are several.
        ConfigError: the run is of another pipeline.
    """
    is_run = RUN.fullmatch(name) or (name == LATEST and name not in registry.aliases())
    if not is_run:
        return _of_version(registry, registry.named(name), letter)
    record = find(registry.store, name, pipeline=registry.name)
    if record.pipeline != registry.name:
        problem = f"run {record.run} is of the pipeline {record.pipeline}, not of {registry.name}"
        raise ConfigError(problem, fix="name two runs of one pipeline")
    if record.state in _MADE and record.version in numbers(registry.store, registry.folder):
        return _of_version(registry, registry.version(record.version or 0), letter)
    return _of_run(registry, record, letter)  # also where its version was removed


def _of_version(registry: Registry, version: Version, letter: str) -> Side:
    from tfcore.export.metadata import FILE, describe_model

    lineage, store, facts = registry.lineage(version), registry.store, version.facts
    manifest = store.manifest(version.path)
    try:
        store.localize([version.saved_model / FILE, version.saved_model / "saved_model.pb"])
        inputs = {c.name: c.model_dump(mode="json") for c in describe_model(version.saved_model).columns}
    except HeadwayError:
        inputs = None
    run = lineage["run"]["run"]
    # of a version whose run is no longer recorded
    known = RunRecord(run=run or "", pipeline=registry.name, state=State.PROMOTED, started="", version=version.number)
    stages = tuple(StepRecord.model_validate(stage) for stage in lineage["stages"])
    record = record_of(store, run) or known
    material = Material(store, record.model_copy(update={"stages": stages}))
    evaluated = {stage.title: stage.fingerprint for stage in stages if stage.stage == "evaluate"}
    return _measured(
        Side(
            name=str(version.number),
            title=f"version {version.number}",
            version=version.number,
            names=names_of(registry, version.number),
            created=version.created,
            run=run,
            spans=_spans(lineage["parts"]),
            bytes=sum(entry.bytes for entry in manifest.files) if manifest else None,
            verdict=Decided.model_validate(lineage["verdict"] | {"champion": lineage["champion"]}),
            evaluated=evaluated | ({"evaluate": facts["evaluation"]} if facts.get("evaluation") else {}),
            measured=next((stage.fingerprint for stage in stages if stage.title == "measure"), None),
            task=facts.get("task"),
            material=material,
            config=lineage["config"],
            code=Code.model_validate(lineage["code"]) if lineage["code"] else None,
            inputs=inputs,
            files=facts.get("data") or {},
            letter=letter,
        ),
        facts.get("metrics") or {},
    )


def _of_run(registry: Registry, record: RunRecord, letter: str) -> Side:
    material = Material(registry.store, record)
    stages = {step.title: step.fingerprint for step in record.stages}
    return _measured(
        Side(
            name=record.run,
            title=f"run {record.run}",
            names=(str(record.state),),
            created=record.started,
            run=record.run,
            spans=_spans((material.key("splits").get("inputs") or {}).get("parts") or {}),
            verdict=_decided(record),
            evaluated={step.title: step.fingerprint for step in record.stages if step.stage == "evaluate"},
            measured=stages.get("measure"),
            task=material.measured.task if material.measured is not None else None,
            material=material,
            config=whole(record.config),
            code=record.code,
            files=_files(material),
            letter=letter,
        ),
        record.metrics,
    )


def _decided(record: RunRecord) -> Decided:
    champion = record.champion.version if record.champion else None
    if (verdict := record.verdict) is None:
        return Decided(champion=champion)
    return Decided(verdict=verdict.verdict, reasons=tuple(verdict.sentences), champion=champion)


def _spans(parts: Mapping[str, list[list[str]]]) -> Spans:
    return Spans.model_validate({split: [part[0] for part in parts.get(split, [])] for split in ("train", "eval")})


def _files(material: Material) -> dict[str, str]:
    """The digest of each span's raw files, as versions keep it."""
    known = {span: material.key(output.title).get("files") for span, output in material.ingested().items()}
    return {
        span: fingerprint({"files": [[file["bytes"], file["crc32c"]] for file in files]})
        for span, files in known.items()
        if files
    }


def whole(config: Settings | None) -> Settings | None:
    """A config with its defaults, as versions keep it; as it is where this Headway does not read it."""
    try:
        return None if config is None else Pipeline.model_validate(config).model_dump(mode="json")
    except (ValidationError, HeadwayError):
        return config


# --- what it scored


def _measured(side: Side, metrics: Mapping[str, object]) -> Side:
    """The side with its rows and its metrics, these with their intervals."""
    counts: dict[str, int] = {}
    for output in side.material.ingested().values():
        for name, count in ((output.result or {}).get("counts") or {}).items():
            counts[name] = counts.get(name, 0) + count
    values = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    measured = side.material.measured
    known: Mapping[str, Interval | None] = measured.intervals if measured is not None else {}
    problem = None
    if values and (not known or measured is None or measured.confidence != CONFIDENCE):
        known, problem = _intervals(side)
    figures = {name: Figure(value=value, interval=known.get(name)) for name, value in values.items()}
    rows = side.material.statistics.rows
    return side.model_copy(update={"rows": rows, "counts": counts, "metrics": figures, "problem": problem})


def _intervals(side: Side) -> tuple[Mapping[str, Interval | None], str | None]:
    """The intervals of the metrics from its predictions, or why there are none."""
    from headway.evaluation.results.intervals import intervals

    settings = side.material.key("measure")
    table = predictions(side.material.store, side.evaluated.get("evaluate"), settings.get("group"))
    if table is None or side.task is None:
        return {}, "its predictions are no longer in the store, so there are no intervals"
    if ":" in side.task:
        return {}, "its task is one of your own, so there are no intervals"
    judged = Judged.model_validate({**settings, "task": side.task})
    return intervals(judged.rows(table), judged.metrics, confidence=CONFIDENCE), None


def predictions(store: Store, evaluation: str | None, group: str | None) -> pa.Table | None:
    """The predictions of an evaluation that the store still has; None when they are gone."""
    manifest = store.find("evaluate", evaluation) if evaluation else None
    if manifest is None or evaluation is None or "predictions" not in manifest.result:
        return None
    path = store.output("evaluate", evaluation) / manifest.result["predictions"]
    store.localize([path])
    return read_predictions(path, group=group)


class Judged(Frozen):
    """How a run judges predictions: its task, and of a ranking the group, the item and how many ranks."""

    model_config = ConfigDict(extra="ignore")

    task: str
    group: str | None = None
    item: str | None = None
    ndcg_at: int | None = None

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return metrics_of(self.task, self.ndcg_at, item=self.item)

    def rows(self, table: pa.Table) -> Rows:
        """The rows of a predictions table; those of one group belong together."""
        read = tuple(name for name in (self.group, self.item) if name) if self.ndcg_at is not None else ()
        return rows_of(table, self.task, self.group, columns=read)
