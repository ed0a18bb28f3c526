"""A run as one side of `headway compare`, whether or not a version came of it."""

from __future__ import annotations

import re
from typing import Any

from flows.execution.history import find
from headway.errors import ConfigError
from headway.registry.registry import Registry

RUN = re.compile(r"\d{8}-?[\da-f-]*")
"""How the name of a run begins; no model has so many versions."""
_MADE = ("promoted", "named")
"""States of runs whose version is their own."""


def run_named(registry: Registry, name: str) -> dict[str, Any]:
    """The record of a run of this pipeline.

    Raises:
        StoreError: there is none, or there are several.
        ConfigError: it is of another pipeline.
    """
    record = find(registry.store, name, pipeline=registry.name)
    if record.get("pipeline") != registry.name:
        problem = f"run {record['run']} is of the pipeline {record.get('pipeline')}, not of {registry.name}"
        raise ConfigError(problem, fix="name two runs of one pipeline")
    return record


def version_of(record: dict[str, Any]) -> int | None:
    """The version that a run made."""
    return record.get("version") if record.get("state") in _MADE else None


def run_side(registry: Registry, record: dict[str, Any]) -> dict[str, Any]:
    """What is shown of a run of which no version came; without its metrics."""
    stages = {stage["title"]: stage["fingerprint"] for stage in record.get("stages", [])}
    key, measured, trained = (
        registry.store.find(stage, stages[stage]) if stage in stages else None
        for stage in ("splits", "measure", "train")
    )
    parts = key.key["inputs"]["parts"] if key is not None else {}
    config = record.get("config") or (dict(trained.key["config"]) if trained is not None else None)
    champion = (record.get("champion") or {}).get("version")
    return {
        "name": record["run"],
        "is": f"run {record['run']}",
        "version": None,
        "names": [record["state"]],
        "created": record["started"],
        "run": record["run"],
        "spans": {split: [part[0] for part in parts.get(split, [])] for split in ("train", "eval")},
        "bytes": None,
        "verdict": (record.get("verdict") or {}) | {"champion": champion},
        "evaluated": {title: print_ for title, print_ in stages.items() if title.startswith("evaluate")},
        "measured": stages.get("measure"),
        "task": None if measured is None else measured.result["task"],
        "config": config,
        "columns": None,
        "files": {},
    }
