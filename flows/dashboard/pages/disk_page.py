"""What a store takes on the disk, by kind, and what `headway clean` would free; counted aside, since that reads every name."""

from __future__ import annotations

import shutil
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flows.dashboard.layout import IDLE_SECONDS, LIVE_SECONDS, Page
from flows.dashboard.opened_stores import OpenedStore
from flows.tell.parts import Part, Table
from headway.errors import HeadwayError
from headway.messages import counted, duration, size
from headway.registry.gc import collect
from headway.storage.filesystem import entries
from headway.storage.remote_store import BucketStore
from headway.storage.store import Store

KEPT_SECONDS = 120.0
KEEP_RUNS = 20
"""As `headway clean` keeps by default."""
_KINDS = {
    "stages": "outputs of steps",
    "runs": "records, logs and reports of runs",
    "checkpoints": "trainings that did not end",
    "models": "versions of models",
    "serving": "copies for TensorFlow Serving, which share their bytes with the versions",
    "requests": "logged requests",
    "summaries": "TensorBoard's summaries",
}


def usage_of(store: Store) -> dict[str, Any]:
    """Bytes and number by kind, and what could be freed. Deletes nothing, and takes no lock."""
    began = time.perf_counter()
    rows = _in_bucket(store) if isinstance(store, BucketStore) else _on_disk(store)
    try:
        garbage = collect(store, keep_runs=KEEP_RUNS)
        free: Any = {"count": len(garbage), "bytes": sum(item.bytes for item in garbage)}
    except (HeadwayError, LookupError, TypeError, OSError) as error:  # of a store that is damaged
        free = str(error)
    space = shutil.disk_usage(store.root) if store.root.is_dir() and "://" not in store.name else None
    return {
        "rows": rows,
        "bytes": sum(row["bytes"] for row in rows),
        "free": free,
        "disk": space and {"free": space.free, "total": space.total},
        "took": time.perf_counter() - began,
    }


def _on_disk(store: Store) -> list[dict[str, Any]]:
    folders = [store.root / name for name in store.children(store.root) if name != "stages"]
    folders += [store.stages / name for name in store.children(store.stages)]
    linked: set[tuple[int, int]] = set()
    return [
        {
            "kind": folder.relative_to(store.root).as_posix(),
            "count": len(store.children(folder)),
            "bytes": _taken(folder, linked),
        }
        for folder in folders
        if not folder.name.startswith(".")
    ]


def _taken(folder: Path, linked: set[tuple[int, int]]) -> int:
    """The bytes of a folder's files, of one with several names once: `linked` has those that were counted elsewhere."""
    total = 0
    for _, found in entries(folder):
        if not stat.S_ISREG(found.st_mode) or (found.st_dev, found.st_ino) in linked:
            continue
        if found.st_nlink > 1:
            linked.add((found.st_dev, found.st_ino))
        total += found.st_size
    return total


def _in_bucket(store: BucketStore) -> list[dict[str, Any]]:
    """The same by one listing."""
    sizes: dict[str, int] = {}
    items: dict[str, set[str]] = {}
    for name, found in store.bucket.listing("").items():
        parts = name.split("/")
        depth = 2 if parts[0] == "stages" else 1
        kind = "/".join(parts[:depth])
        sizes[kind] = sizes.get(kind, 0) + found.bytes
        items.setdefault(kind, set()).add("/".join(parts[: depth + 1]))
    return [{"kind": kind, "count": len(items[kind]), "bytes": total} for kind, total in sizes.items()]


class DiskUsage:
    """The last count of a store, made in a thread when a page asks and the last one is old."""

    def __init__(self, store: Store, *, count: Callable[[Store], dict[str, Any]] = usage_of):
        self._store, self._count = store, count
        self._guard = threading.Lock()
        self._found: dict[str, Any] | str | None = None
        self._at = 0.0
        self._thread: threading.Thread | None = None

    def look(self) -> tuple[dict[str, Any] | str | None, bool]:
        """(the last count, or why there is none; None before the first, whether one is being made)."""
        with self._guard:
            going_on = self._thread is not None and self._thread.is_alive()
            old = self._found is None or time.monotonic() - self._at > KEPT_SECONDS
            if old and not going_on:
                self._thread = threading.Thread(target=self._go, name="disk-usage", daemon=True)
                self._thread.start()
                going_on = True
        return self._found, going_on

    def _go(self) -> None:
        try:
            found: dict[str, Any] | str = self._count(self._store)
        except (HeadwayError, OSError) as error:
            found = str(error)
        self._found, self._at = found, time.monotonic()


def disk_page(opened: OpenedStore, usage: DiskUsage) -> Page:
    """The disk use of a store."""
    found, going_on = usage.look()
    every = LIVE_SECONDS if going_on else IDLE_SECONDS
    if not isinstance(found, dict):
        said = (
            [found]
            if isinstance(found, str)
            else ["The files are being counted; this page shows them when that is done."]
        )
        return Page("Disk", "Disk", opened.slug, "Disk", parts=[Part("Disk", said)], every=every)
    rows = [
        {
            "what": row["kind"],
            "count": f"{row['count']:,}",
            "size": size(row["bytes"]),
            "is": _KINDS.get(row["kind"].partition("/")[0], "not of Headway's making")
            if row["kind"] not in ("locks", "monitor", "watch", "control")
            else "who holds what, and what watchers know",
        }
        for row in sorted(found["rows"], key=lambda row: -row["bytes"])
        if row["count"]
    ]
    facts = [("in all", size(found["bytes"]))]
    if isinstance(found["free"], dict):
        facts.append(("could be deleted", size(found["free"]["bytes"])))
    if found["disk"]:
        facts.append(("free on this disk", f"{size(found['disk']['free'])} of {size(found['disk']['total'])}"))
    parts = [
        Part("By kind", [f"Counted in {duration(found['took'])}."], tables=[Table("By kind", rows)]),
        _clean(opened, found),
    ]
    return Page("Disk", size(found["bytes"]), opened.slug, "Disk", facts=facts, parts=parts, every=every)


def _clean(opened: OpenedStore, found: dict[str, Any]) -> Part:
    free = found["free"]
    if isinstance(free, str):
        return Part("What could be deleted", [f"This could not be counted: {free}"])
    if not free["count"]:
        return Part("What could be deleted", [f"Nothing: the newest {KEEP_RUNS} runs and the versions need all of it."])
    pipeline = next(iter(opened.pipelines.values()), None)
    what = str(pipeline.folder) if pipeline else "PIPELINE"
    said = f"{counted(free['count'], 'item')} of {size(free['bytes'])}: no version and none of the newest {KEEP_RUNS} runs needs "
    said += "them. These pages delete nothing; this says what would go, and --yes deletes it:"
    return Part("What could be deleted", [said], commands=[f"headway clean {what}"])
