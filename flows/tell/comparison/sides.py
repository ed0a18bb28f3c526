"""One side of a comparison: a version of the model, or a run of which no version came.

side = named_side(registry, "champion")          # or a run's name, or the beginning of it
side.facts["metrics"]["auc"]["interval"]
side.material.result("measure")                  # what its steps answered, as far as the store still has it
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from flows.config.pipeline import Pipeline
from flows.records import LATEST, Ran, RunRecord, State, find, record_of
from flows.tell.comparison.kept_predictions import CONFIDENCE, Judged, predictions
from flows.tell.material import Material
from headway.errors import ConfigError, HeadwayError
from headway.evaluation.verdict import Verdict
from headway.registry.registry import Registry, Version
from headway.registry.versions import numbers
from headway.schema.columns import LABEL
from headway.storage.fingerprint import fingerprint

RUN = re.compile(r"\d{8}-?[\da-f-]*")
"""How the name of a run begins; no model has so many versions."""
_MADE = (State.PROMOTED, State.NAMED)
"""States of runs whose version is their own."""
Columns = dict[str, Any]


@dataclass(frozen=True)
class Side:
    """A version or a run, with all that is shown of it."""

    facts: dict[str, Any]
    """What `headway compare --json` has of it: plain values."""
    material: Material
    config: Mapping[str, Any] | None
    code: Mapping[str, Any]
    """tools, modules and git; empty where they were not kept."""
    inputs: Columns | None = None
    """Of a version the columns that its model takes."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The digest of each span's raw files, where it was kept."""
    letter: str = ""
    """A or B."""

    @property
    def name(self) -> str:
        return str(self.facts["name"])

    @property
    def title(self) -> str:
        """ "version 4", or "run 20261123-000714-4081"."""
        return str(self.facts["is"])

    @property
    def label(self) -> str:
        """The same for a heading: "version 4", or "run A", whose name would be too long."""
        return self.title if self.facts["version"] is not None else f"run {self.letter}"

    @property
    def measured(self) -> dict[str, Any]:
        """The result of its evaluation; {} where it is gone."""
        return self.material.result("measure")

    def stored_columns(self) -> Columns | None:
        """The columns of its train rows, without the label; None where their statistics are gone."""
        summaries = (self.material.result("statistics").get("columns") or {}).get("train")
        if not summaries:
            return None
        return {row["column"]: {"type": row["type"]} for row in summaries if row["column"] != LABEL}


def named_side(registry: Registry, name: str) -> Side:
    """Find a version by number, champion, previous or an alias, or a run by its name or as "latest"; of a run that made a
    version, that one.

    Raises:
        StoreError: there is none, or there are several.
        ConfigError: the run is of another pipeline.
    """
    is_run = RUN.fullmatch(name) or (name == LATEST and name not in registry.aliases())
    if not is_run:
        return _of_version(registry, registry.named(name))
    record = find(registry.store, name, pipeline=registry.name)
    if record.pipeline != registry.name:
        problem = f"run {record.run} is of the pipeline {record.pipeline}, not of {registry.name}"
        raise ConfigError(problem, fix="name two runs of one pipeline")
    if record.state in _MADE and record.version in numbers(registry.store, registry.folder):
        return _of_version(registry, registry.version(record.version or 0))
    return _of_run(registry, record)  # also where its version was removed


def _of_version(registry: Registry, version: Version) -> Side:
    from headway.registry.lineage import read
    from tfcore.export.metadata import FILE, describe_model

    lineage, store = read(registry, version), registry.store
    manifest = store.manifest(version.path)
    try:
        store.localize([str(version.saved_model / FILE), str(version.saved_model / "saved_model.pb")])
        inputs = {c.name: c.model_dump(mode="json") for c in describe_model(version.saved_model).columns}
    except HeadwayError:
        inputs = None
    parts, run = lineage["parts"], lineage["run"]["run"]
    # of a version whose run is no longer recorded
    known = RunRecord(run=run or "", pipeline=registry.name, state=State.PROMOTED, started="", version=version.number)
    record = record_of(store, run) or known
    stages = tuple(Ran.model_validate(stage) for stage in lineage["stages"])
    material = Material(store, record.model_copy(update={"stages": stages}))
    places = {"champion": registry.decided_against(), "previous": registry.previous(), **registry.aliases()}
    config = lineage["config"] or _trained_with(registry, version)
    evaluated = {stage["title"]: stage["fingerprint"] for stage in lineage["stages"] if stage["stage"] == "evaluate"}
    if own := version.facts.get("evaluation"):
        evaluated["evaluate"] = own
    facts: dict[str, Any] = {
        "name": str(version.number),
        "is": f"version {version.number}",
        "version": version.number,
        "names": [name for name, at in places.items() if at == version.number],
        "created": version.created,
        "run": run,
        "spans": {split: [part[0] for part in parts[split]] for split in ("train", "eval")},
        "bytes": sum(entry.bytes for entry in manifest.files) if manifest else None,
        "verdict": (lineage["verdict"] or {}) | {"champion": lineage["champion"]},
        "evaluated": evaluated,
        "measured": next((s["fingerprint"] for s in lineage["stages"] if s["title"] == "measure"), None),
        "task": version.facts.get("task"),
    }
    facts |= _counts(material)
    facts["metrics"], facts["problem"] = _metrics(material, facts, version.facts.get("metrics") or {})
    code = lineage["code"] or {}
    return Side(facts, material, config, code, inputs, version.facts.get("data") or {})


def _of_run(registry: Registry, record: RunRecord) -> Side:
    stages = {step.title: step.fingerprint for step in record.stages}
    store = registry.store
    key, measured, trained = (
        store.find(stage, stages[stage]) if stage in stages else None for stage in ("splits", "measure", "train")
    )
    parts = key.key["inputs"]["parts"] if key is not None else {}
    config = record.config or (dict(trained.key["config"]) if trained is not None else None)
    champion = record.champion and record.champion.version
    material = Material(store, record)
    facts: dict[str, Any] = {
        "name": record.run,
        "is": f"run {record.run}",
        "version": None,
        "names": [str(record.state)],
        "created": record.started,
        "run": record.run,
        "spans": {split: [part[0] for part in parts.get(split, [])] for split in ("train", "eval")},
        "bytes": None,
        "verdict": _decided(record.verdict) | {"champion": champion},
        "evaluated": {title: fingerprint for title, fingerprint in stages.items() if title.startswith("evaluate")},
        "measured": stages.get("measure"),
        "task": None if measured is None else measured.result["task"],
    }
    facts |= _counts(material)
    facts["metrics"], facts["problem"] = _metrics(material, facts, record.metrics)
    return Side(
        facts,
        material,
        _whole(config),
        record.code.model_dump(mode="json") if record.code else {},
        files=_files(material),
    )


def _decided(verdict: Verdict | None) -> dict[str, Any]:
    """A verdict as the lineage of a version has it."""
    return {} if verdict is None else {"verdict": verdict.verdict, "reasons": verdict.sentences}


def _files(material: Material) -> dict[str, str]:
    """The digest of each span's raw files, as versions keep it."""
    known = {span: material.key(output.title).get("files") for span, output in material.ingested().items()}
    return {
        span: fingerprint({"files": [[file["bytes"], file["crc32c"]] for file in files]})
        for span, files in known.items()
        if files
    }


def _whole(config: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A config with its defaults, as versions keep it; as it is where this Headway does not read it."""
    try:
        return None if config is None else Pipeline.model_validate(config).model_dump(mode="json")
    except (ValidationError, HeadwayError):
        return config


def _trained_with(registry: Registry, version: Version) -> dict[str, Any] | None:
    """The model's and the training's settings, of a version whose whole config was not kept."""
    manifest = registry.store.find("train", str(version.facts.get("train")))
    return None if manifest is None else dict(manifest.key["config"])


def _counts(material: Material) -> dict[str, Any]:
    """Rows by split, and what became of those that were read; empty where the outputs are gone."""
    totals: dict[str, int] = {}
    for output in material.ingested().values():
        for name, count in ((output.result or {}).get("counts") or {}).items():
            totals[name] = totals.get(name, 0) + count
    return {"rows": material.result("statistics").get("rows") or {}, "counts": totals}


def _metrics(
    material: Material, facts: Mapping[str, Any], metrics: Mapping[str, Any]
) -> tuple[dict[str, Any], str | None]:
    """Return {metric: {value, interval}}, and the reason if there are no intervals."""
    found: dict[str, dict[str, Any]] = {
        name: {"value": value, "interval": None} for name, value in metrics.items() if isinstance(value, int | float)
    }
    if not found:
        return found, None
    measured = material.result("measure")
    if measured.get("confidence") == CONFIDENCE:
        known: Mapping[str, Any] = measured.get("intervals") or {}
    else:
        known, problem = _intervals(material, facts)
        if problem is not None:
            return found, problem
    for name, interval in known.items():
        if name in found and interval is not None:
            found[name]["interval"] = list(interval)
    return found, None


def _intervals(material: Material, facts: Mapping[str, Any]) -> tuple[Mapping[str, Any], str | None]:
    """The intervals of the metrics from its predictions, or why there are none."""
    from headway.evaluation.results.intervals import intervals

    task = facts["task"]
    table = predictions(material.store, facts["evaluated"].get("evaluate"))
    if table is None or task is None:
        return {}, "its predictions are no longer in the store, so there are no intervals"
    if ":" in task:
        return {}, "its task is one of your own, so there are no intervals"
    judged = Judged.by(task, material.key("measure"))
    return intervals(judged.rows(table), judged.metrics, confidence=CONFIDENCE), None
