"""What may be thrown away: outputs, checkpoints and serving copies that nothing points at.

    plan = collect(store, keep_runs=20)
    remove(plan)

Kept: every output that one of the newest `keep_runs` runs of each pipeline points at, every version in the registry, and
of the serving copies the newest two (a server may still have the one before loaded).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headway import registry
from headway.store import Store

SERVING_COPIES = 2


@dataclass(frozen=True)
class Garbage:
    path: Path
    bytes: int
    why: str


def collect(store: Store, *, keep_runs: int) -> list[Garbage]:
    """What `remove` would take away, and why; nothing is touched."""
    kept_runs, seen = [], dict[str, int]()
    dropped = []
    for run in store.runs():
        seen[run["pipeline"]] = seen.get(run["pipeline"], 0) + 1
        (kept_runs if seen[run["pipeline"]] <= keep_runs else dropped).append(run)
    pointed = {(stage["stage"], stage["fingerprint"]) for run in kept_runs for stage in run["stages"]}
    found = [
        Garbage(folder, _bytes(folder), "no kept run points at it")
        for stage, folder in store.all_outputs()
        if (stage, folder.name) not in pointed
    ]
    trained = {fingerprint for stage, fingerprint in pointed if stage == "train"}
    unfinished = {run.get("training") for run in kept_runs}
    for folder in sorted(store.checkpoints.iterdir()) if store.checkpoints.is_dir() else []:
        if folder.name in trained or folder.name not in unfinished:
            found.append(Garbage(folder, _bytes(folder), "its training is done, or no kept run resumes it"))
    for run in dropped:
        path = store.runs_folder / f"{run['run']}.json"
        found.append(Garbage(path, _bytes(path), f"older than the newest {keep_runs} runs of {run['pipeline']}"))
    for name in registry.names(store):
        folder = registry.Registry(store, name).serving
        copies = sorted((int(e.name), e) for e in folder.iterdir() if e.name.isdigit()) if folder.is_dir() else []
        found += [Garbage(path, _bytes(path), "an older serving copy") for _, path in copies[:-SERVING_COPIES]]
    return found


def _bytes(path: Path) -> int:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    # a hard link to a version frees nothing
    return sum(p.stat().st_size for p in files if p.stat().st_nlink == 1)


def remove(garbage: Sequence[Garbage]) -> int:
    """Remove it; returns the bytes freed. A manifest goes first, so that a cut-off removal leaves nothing half-valid."""
    for item in garbage:
        if item.path.is_dir():
            (item.path / "manifest.json").unlink(missing_ok=True)
            shutil.rmtree(item.path, ignore_errors=True)
        else:
            item.path.unlink(missing_ok=True)
    return sum(item.bytes for item in garbage)
