"""The lineage of a version: the run, the code, the config, the spans, shards and raw files that it was made from.

    lineage = read(registry, registry.named("champion"))
    found = look(registry.store, lineage, read_bytes=True)      # what of it is gone or changed today

It is written once, into the version's folder (lineage.json), and so outlives the run's record and its outputs. A version without
one, which no run published, has `recorded: false` and what it says of itself.
"""

import json
from typing import Any

import pyarrow.fs as pafs

from headway.errors import HeadwayError, StoreError
from headway.registry.registry import Registry, Version
from headway.registry.versions import LINEAGE
from headway.storage.filesystem import checksum, resolve
from headway.storage.objects import each
from headway.storage.store import Store

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


def look(store: Store, lineage: dict[str, Any], *, read_bytes: bool = False) -> dict[str, Any]:
    """Return the changed parts of a lineage: {files: {path: problem}, outputs: {fingerprint: problem}}.

    Args:
        read_bytes: read every raw file for its checksum; else its presence and its size are looked at.
    """
    files = [file for span in lineage["spans"] for file in span["files"] if "path" in file]
    problems = each(lambda file: _problem(file, read_bytes), files)
    outputs = {}
    for stage in lineage["stages"]:
        name, fingerprint = stage["stage"], stage["fingerprint"]
        if store.find(name, fingerprint) is None:
            outputs[fingerprint] = store.check(name, fingerprint) or "is gone"
    return {
        "files": {f["path"]: problem for f, problem in zip(files, problems, strict=True) if problem},
        "outputs": outputs,
    }


def _problem(file: dict[str, Any], read_bytes: bool) -> str | None:
    """Why a raw file is not the one that was read; None when it is, as far as was looked."""
    try:
        filesystem, path = resolve(file["path"])
        info = filesystem.get_file_info(path)
        if info.type != pafs.FileType.File:
            return "is gone"
        if info.size != file["bytes"]:
            return f"has changed: {info.size:,} bytes instead of {file['bytes']:,}"
        if read_bytes:
            _, crc = checksum(file["path"])
            if crc != file["crc32c"]:
                return f"has changed: crc32c {crc} instead of {file['crc32c']}"
    except (HeadwayError, OSError) as error:
        return f"cannot be read: {getattr(error, 'problem', None) or str(error).splitlines()[0]}"
    return None
