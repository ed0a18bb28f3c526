"""What may be thrown away: outputs, checkpoints, runs and serving copies that nothing points at.

    garbage = collect(store, keep_runs=20)    # a plan: nothing is touched
    remove(garbage)

Kept: the newest `keep_runs` runs of each pipeline and the run that made each version, with every output that they or a
version point at; every version in the registry; of the serving copies the champion's and the newest two (a server may
still have the one before loaded); checkpoints of a training that did not end, for two weeks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway import disk, registry
from headway.errors import Locked
from headway.locks import Lock, describe
from headway.manifest import NAME
from headway.owner import place
from headway.store import Store

SERVING_COPIES = 2
CHECKPOINT_SECONDS = 14 * 24 * 3600


@dataclass(frozen=True)
class Garbage:
    path: Path
    bytes: int
    """What removing it frees."""
    why: str


def collect(store: Store, *, keep_runs: int) -> list[Garbage]:
    """What `remove` would take away, and why; nothing is touched.

    Raises:
        Locked: another process runs a pipeline in this store: its outputs have no run yet that points at them.
    """
    _nobody_runs(store)
    versions = [version for name in registry.names(store) for version in registry.Registry(store, name).versions()]
    makers = {version.facts.get("run") for version in versions}
    kept, dropped = _runs(store, keep_runs, makers)
    named = set(_strings([kept, [version.facts for version in versions]]))
    found = [
        Garbage(folder, _bytes(folder), "no kept run and no version points at it")
        for _, folder in store.all_outputs()
        if folder.name not in named
    ]
    found += _checkpoints(store)
    why = f"older than the newest {keep_runs} runs of its pipeline"
    found += [Garbage(path, _bytes(path), why) for path in (store.runs_folder / f"{name}.json" for name in dropped)]
    for name in registry.names(store):
        found += _serving(registry.Registry(store, name))
    return found


def _nobody_runs(store: Store) -> None:
    for path in sorted(store.locks.glob("run-*.json")):
        holder = Lock(path).holder()
        if holder is not None and (holder.get("host"), holder.get("pid")) != (place(), os.getpid()):
            raise Locked(f"held by {describe(holder)}", where=str(path), fix="wait until that run has ended")


def _runs(store: Store, keep: int, makers: set[Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """(runs that are kept, names of those that are not)."""
    kept: list[dict[str, Any]] = []
    dropped: list[str] = []
    seen: dict[Any, int] = {}
    for run in store.runs():
        pipeline = run.get("pipeline")
        seen[pipeline] = seen.get(pipeline, 0) + 1
        if seen[pipeline] <= keep or run["run"] in makers:
            kept.append(run)
        else:
            dropped.append(run["run"])
    return kept, dropped


def _strings(value: Any) -> Iterator[str]:
    """Every string in some JSON: whatever a run or a version calls its fingerprints, they are among these."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _checkpoints(store: Store) -> Iterator[Garbage]:
    for folder in sorted(store.checkpoints.iterdir()) if store.checkpoints.is_dir() else []:
        if store.find("train", folder.name) is not None:
            yield Garbage(folder, _bytes(folder), "its training is done")
        elif time.time() - max(p.lstat().st_mtime for p in [folder, *folder.rglob("*")]) > CHECKPOINT_SECONDS:
            yield Garbage(folder, _bytes(folder), f"no training went on from it for {CHECKPOINT_SECONDS // 86400} days")


def _serving(model: registry.Registry) -> list[Garbage]:
    if not model.serving.is_dir():
        return []
    copies = sorted((e for e in model.serving.iterdir() if e.name.isdigit()), key=lambda e: int(e.name))
    history = model.history()
    champion = str(history[-1].serving) if history else None
    return [Garbage(e, _bytes(e), "an older serving copy") for e in copies[:-SERVING_COPIES] if e.name != champion]


def _bytes(path: Path) -> int:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    # a hard link to a version frees nothing
    return sum(p.stat().st_size for p in files if p.stat().st_nlink == 1)


def remove(garbage: Sequence[Garbage]) -> int:
    """Remove it; returns the bytes freed. A manifest goes first, so that a cut-off removal leaves nothing half-valid."""
    for item in garbage:
        if item.path.is_dir():
            (item.path / NAME).unlink(missing_ok=True)
        disk.remove(item.path)
    return sum(item.bytes for item in garbage)
