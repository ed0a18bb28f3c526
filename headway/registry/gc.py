"""Garbage collection: removes outputs, checkpoints, runs and serving copies that nothing refers to.

    with alone(store) as lock:                    # no run of any pipeline goes on or begins meanwhile
        garbage = collect(store, keep_runs=20)    # a plan: nothing is touched
        remove(store, garbage, check=lock.check)

Kept: the newest `keep_runs` runs of each pipeline and the run that made each version, with every output that they or a
version point at; every version in the registry; of the serving copies the champion's and the newest two (a server may
still have the one before loaded); checkpoints of a training that did not end, for two weeks.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import Locked
from headway.messages import counted
from headway.registry import registry
from headway.storage.locks import Lock, describe, wait_while
from headway.storage.process_identity import place
from headway.storage.store import Store

LOCK = "gc"
SERVING_COPIES = 2
CHECKPOINT_SECONDS = 14 * 24 * 3600


@contextlib.contextmanager
def alone(store: Store, command: str = "gc") -> Iterator[Lock]:
    """While this is held, no run of any pipeline in the store goes on or begins.

    A run takes its pipeline's lock first and then waits for this one (`not_collecting`); here this one is taken first,
    and then every pipeline's is looked at. So of a run and a collection that begin together, one sees the other.

    Raises:
        Locked: a pipeline runs, or another process collects.
    """
    lock = store.lock(LOCK, {"command": command})
    with lock.held():
        _nobody_runs(store)
        yield lock


def not_collecting(store: Store, *, wait_seconds: float, on_wait: Callable[[str], None]) -> None:
    """For a run that holds its pipeline's lock: return once nobody collects.

    Raises:
        Locked: somebody still does after `wait_seconds`.
    """
    lock = store.lock(LOCK)

    def fix(holder: dict[str, Any]) -> str:
        return f"wait until headway {holder.get('command', 'gc')} has ended"

    wait_while(lock.holder, str(lock.path), fix, wait_seconds=wait_seconds, on_wait=on_wait)


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
    garbage = [
        Garbage(folder, store.size(folder), "no kept run and no version points at it")
        for _, folder in store.all_outputs()
        if folder.name not in named
    ]
    garbage += _checkpoints(store)
    why = f"older than the newest {counted(keep_runs, 'run')} of its pipeline"
    records = [store.runs_folder / f"{name}.json" for name in dropped]
    garbage += [Garbage(path, store.size(path), why) for path in records]
    for name in registry.names(store):
        garbage += _serving(registry.Registry(store, name))
    return garbage


def _nobody_runs(store: Store) -> None:
    names = [name for name in store.children(store.locks) if name.startswith("run-") and name.endswith(".json")]
    for path in (store.locks / name for name in names):
        holder = store.lock(path.stem).holder()
        if holder is not None and (holder.get("host"), holder.get("pid")) != (place(), os.getpid()):
            raise Locked(f"held by {describe(holder)}", where=str(path), fix="wait until that run has ended")


def _runs(store: Store, keep: int, makers: set[Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """(runs that are kept, names of those that are not)."""
    kept: list[dict[str, Any]] = []
    dropped: list[str] = []
    counts: dict[Any, int] = {}
    for run in store.runs():
        pipeline = run.get("pipeline")
        counts[pipeline] = counts.get(pipeline, 0) + 1
        if counts[pipeline] <= keep or run["run"] in makers:
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
    for folder in (store.checkpoints / name for name in store.children(store.checkpoints)):
        if store.find("train", folder.name) is not None:
            yield Garbage(folder, store.size(folder), "its training is done")
        elif time.time() - store.changed(folder) > CHECKPOINT_SECONDS:
            yield Garbage(
                folder, store.size(folder), f"no training went on from it for {CHECKPOINT_SECONDS // 86400} days"
            )


def _serving(model: registry.Registry) -> list[Garbage]:
    copies = sorted((name for name in model.store.children(model.serving) if name.isdigit()), key=int)
    history = model.history()
    champion = str(history[-1].serving) if history else None
    old = [model.serving / name for name in copies[:-SERVING_COPIES] if name != champion]
    return [Garbage(path, model.store.size(path), "an older serving copy") for path in old]


def remove(store: Store, garbage: Sequence[Garbage], *, check: Callable[[], None] = lambda: None) -> int:
    """Remove it; returns the bytes freed. A manifest goes first, so that a cut-off removal leaves nothing half-valid.

    Args:
        check: called before each item; raises when the store may no longer be collected.
    """
    for item in garbage:
        check()
        store.discard(item.path)
    return sum(item.bytes for item in garbage)
