"""Finds recorded runs by name, and completes the record of a run whose process died.

history = runs_of(store)                  # newest first; a run whose process is gone says "killed"
record = find(store, "20261122-0354", pipeline="flights")
"""

from __future__ import annotations

import datetime
import functools
from pathlib import Path
from typing import Any

from headway.errors import StoreError
from headway.storage.locks import gone
from headway.storage.store import Store

KILLED = "killed"
LATEST = "latest"


def runs_of(store: Store) -> list[dict[str, Any]]:
    """All runs, newest first, each with its true state."""
    owner, clock = functools.cache(lambda pipeline: store.lock(f"run-{pipeline}").owner()), functools.cache(store.clock)
    return [
        settled(run, owner(run.get("pipeline")), clock()) if run.get("state") == "running" else run
        for run in store.runs()
    ]


def settled(run: dict[str, Any], owner: dict[str, Any] | None, time: float) -> dict[str, Any]:
    """Correct the record of a run marked as running: add its time so far, or mark it killed if its process is gone.

    Args:
        owner: who holds, or last held, the lock of its pipeline.
        time: of the store's clock.
    """
    ours = owner is not None and owner.get("run") == run["run"]
    last: datetime.datetime | None
    if ours and not gone(owner or {}, time):
        last, state = datetime.datetime.now(datetime.UTC), "running"
    else:
        # the lease's last sign of life, or the last stage that it wrote down
        renewed = (owner or {}).get("renewed") if ours else None
        last, state = _time(renewed) or _time(run.get("seen")) or _time(run["started"]), KILLED
    began = _time(run["started"])
    seconds = max(0.0, (last - began).total_seconds()) if last and began else 0.0
    return run | {"state": state, "seconds": max(round(seconds, 3), run.get("seconds", 0.0))}


def find(store: Store, name: str | None, *, pipeline: str) -> dict[str, Any]:
    """One run by its name or the beginning of it; "latest" is the newest of a pipeline, None the newest that trained.

    Raises:
        StoreError: there is none, or there are several.
    """
    runs = runs_of(store)
    own = [run for run in runs if run.get("pipeline") == pipeline]
    if name is None:
        trained = [run for run in own if any(s["stage"] == "train" for s in run["stages"]) or run.get("metrics")]
        matches = (trained or own)[:1]
    elif name == LATEST:
        matches = own[:1]
    else:
        matches = [run for run in runs if run["run"] == name] or [run for run in runs if run["run"].startswith(name)]
    if len(matches) == 1:
        return matches[0]
    listed = ", ".join(run["run"] for run in (matches or own)[:5])
    if matches:
        raise StoreError(f"{len(matches)} runs begin with {name!r}", where=store.name, fix=f"name one: {listed}")
    problem = "there is no run yet" if name in (None, LATEST) else f"there is no run {name!r}"
    raise StoreError(problem, where=store.name, fix=f"newest runs: {listed}" if listed else "headway run makes one")


def find_with_step(store: Store, step: str, *, pipeline: str) -> dict[str, Any]:
    """The newest run of a pipeline that finished a step, named by its stage or title: the record of a run that ended before,
    as on a usage error, or in the step, has nothing of it. Where none did, the newest run that finished any step, else the
    newest.

    Raises:
        StoreError: there is no run.
    """
    own = [run for run in runs_of(store) if run.get("pipeline") == pipeline]
    having = [run for run in own if any(step in (each["stage"], each["title"]) for each in run["stages"])]
    some = having or [run for run in own if run["stages"]]
    return some[0] if some else find(store, LATEST, pipeline=pipeline)


def _time(text: Any) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return None


def log_path(store: Store, run: str) -> Path:
    """The log of a run, beside its record."""
    return store.runs_folder / f"{run}.log"


def read_log(store: Store, run: str) -> str | None:
    """Return the log of a run; None where there is none."""
    path = log_path(store, run)
    try:
        return store.read(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
