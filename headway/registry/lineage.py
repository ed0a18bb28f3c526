"""The lineage of a version: the run, the code, the config, the spans, shards and raw files that it was made from.

    lineage = read(registry, registry.named("champion"))

It is written once, into the version's folder (lineage.json), and so outlives the run's record and its outputs. A version without
one, which no run published, has `recorded: false` and what it says of itself.
"""

import json
from typing import Any

from headway.errors import StoreError
from headway.registry.registry import Registry, Version
from headway.registry.versions import LINEAGE

FORMAT = 1


def read(registry: Registry, version: Version) -> dict[str, Any]:
    """The lineage of a version, with `version`, `recorded` and the events that point at it.

    Raises:
        StoreError: its file is damaged, or of a newer Headway.
    """
    path = version.path / LINEAGE
    manifest = registry.store.manifest(version.path)
    if manifest is None or all(entry.path != LINEAGE for entry in manifest.files):
        lineage = _unrecorded(version) | {"recorded": False}
    else:
        registry.store.localize([path])
        try:
            lineage = dict(json.loads(path.read_bytes())) | {"recorded": True}
        except (ValueError, OSError):
            raise StoreError("is damaged", where=str(path), fix="restore it from a backup of models/") from None
        if lineage.get("format", 0) > FORMAT:
            problem = f"has format {lineage['format']}, and this Headway knows up to {FORMAT}"
            raise StoreError(problem, where=str(path), fix="update Headway")
    events = [event.model_dump(mode="json") for event in registry.history() if event.version == version.number]
    return {"model": registry.name, "version": version.number, "created": version.created, **lineage, "events": events}


def _unrecorded(version: Version) -> dict[str, Any]:
    """What a version without a lineage file says of itself."""
    facts = version.facts
    return {
        "run": {"run": facts.get("run"), "seed": facts.get("seed")},
        "code": None,
        "config": None,
        "schema": None,
        "champion": (facts.get("standing") or {}).get("against"),
        "verdict": None,
        "parts": {"train": facts.get("train_parts", []), "eval": facts.get("eval_parts", [])},
        "spans": [{"span": span, "ingest": None, "files": [], "shards": []} for span in facts.get("spans", [])],
        "stages": [],
    }
