"""The lineage of a version: the run, the code, the config, the spans, shards and raw files that it was made from.

    lineage = read(registry, registry.named("champion"))

It is written once, into the version's folder (lineage.json), and so outlives the run's record and its outputs.
"""

import json
from typing import Any

from headway.errors import StoreError
from headway.registry.registry import Registry, Version
from headway.registry.versions import LINEAGE
from headway.storage.manifest import check_format


def read(registry: Registry, version: Version) -> dict[str, Any]:
    """The lineage of a version, with `version` and the events that point at it.

    Raises:
        StoreError: its file is not there, is damaged, or has another format.
    """
    path = version.path / LINEAGE
    try:
        registry.store.localize([path])
        lineage = dict(json.loads(path.read_bytes()))
    except (ValueError, OSError):
        raise StoreError("is missing or damaged", where=str(path), fix="restore it from a backup of models/") from None
    check_format(lineage, str(path))
    events = [event.model_dump(mode="json") for event in registry.history() if event.version == version.number]
    return {"model": registry.name, "version": version.number, "created": version.created, **lineage, "events": events}
