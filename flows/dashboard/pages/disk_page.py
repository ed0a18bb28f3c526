"""What a store takes on the disk, by kind, and what `headway clean` would free; counted aside, since that reads every name."""

import shutil
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flows.dashboard.layout import IDLE_SECONDS, LIVE_SECONDS, Page
from flows.dashboard.opened_stores import OpenedStore
from flows.tell.rendering.parts import Part, Table
from headway.errors import HeadwayError
from headway.messages import counted, duration, size
from headway.registry.gc import collect
from headway.storage.filesystem import entries
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
    **dict.fromkeys(("locks", "monitor", "watch", "control"), "who holds what, and what watchers know"),
}


@dataclass(frozen=True)
class Usage:
    """What a store takes, and what could be freed."""

    kinds: dict[str, tuple[int, int]]
    """By folder, (items, bytes)."""
    could_go: tuple[int, int] | str
    """(items, bytes), or why that cannot be told."""
    seconds: float
    """That the count took."""

    @property
    def bytes(self) -> int:
        return sum(taken for _, taken in self.kinds.values())


def usage_of(store: Store) -> Usage:
    """Count a store. Deletes nothing, and takes no lock."""
    began = time.perf_counter()
    kinds = _in_bucket(store) if store.objects.remote else _on_disk(store)
    could_go: tuple[int, int] | str
    try:
        garbage = collect(store, keep_runs=KEEP_RUNS)
        could_go = (len(garbage), sum(item.bytes for item in garbage))
    except (HeadwayError, LookupError, TypeError, OSError) as error:  # of a store that is damaged
        could_go = str(error)
    return Usage(kinds, could_go, time.perf_counter() - began)


def _on_disk(store: Store) -> dict[str, tuple[int, int]]:
    folders = [store.root / name for name in store.children(store.root) if name != "stages"]
    folders += [store.stages / name for name in store.children(store.stages)]
    linked: set[tuple[int, int]] = set()
    return {
        folder.relative_to(store.root).as_posix(): (len(store.children(folder)), _taken(folder, linked))
        for folder in folders
        if not folder.name.startswith(".")
    }


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


def _in_bucket(store: Store) -> dict[str, tuple[int, int]]:
    """The same by one listing."""
    sizes: Counter[str] = Counter()
    items: dict[str, set[str]] = {}
    for name, found in store.objects.listing("").items():
        parts = name.split("/")
        depth = 2 if parts[0] == "stages" else 1
        kind = "/".join(parts[:depth])
        sizes[kind] += found.bytes
        items.setdefault(kind, set()).add("/".join(parts[: depth + 1]))
    return {kind: (len(items[kind]), total) for kind, total in sizes.items()}


class DiskUsage:
    """The last count of a store, made in a thread when a page asks and the last one is old."""

    def __init__(self, store: Store, *, count: Callable[[Store], Usage] = usage_of):
        self._store, self._count, self._guard = store, count, threading.Lock()
        self._found: Usage | str | None = None
        self._at = float("-inf")
        self._thread: threading.Thread | None = None

    def look(self) -> tuple[Usage | str | None, bool]:
        """(the last count, or why there is none; None before the first, whether one is being made)."""
        with self._guard:
            going_on = self._thread is not None and self._thread.is_alive()
            if not going_on and time.monotonic() - self._at > KEPT_SECONDS:
                self._thread = threading.Thread(target=self._go, name="disk-usage", daemon=True)
                self._thread.start()
                going_on = True
            return self._found, going_on

    def _go(self) -> None:
        try:
            self._found = self._count(self._store)
        except (HeadwayError, OSError) as error:
            self._found = str(error)
        self._at = time.monotonic()


def disk_page(opened: OpenedStore, usage: DiskUsage) -> Page:
    """The disk use of a store."""
    found, going_on = usage.look()
    every = LIVE_SECONDS if going_on else IDLE_SECONDS
    if not isinstance(found, Usage):
        said = found or "The files are being counted; this page shows them when that is done."
        return Page("Disk", "Disk", opened.slug, "Disk", parts=[Part("Disk", [said])], every=every)
    rows = [
        {
            "what": name,
            "count": count,
            "size": size(taken),
            "is": _KINDS.get(name.partition("/")[0], "not of Headway's making"),
        }
        for name, (count, taken) in sorted(found.kinds.items(), key=lambda kind: -kind[1][1])
        if count
    ]
    facts = [("in all", size(found.bytes))]
    if not isinstance(found.could_go, str):
        facts.append(("could be deleted", size(found.could_go[1])))
    root = opened.store.root
    if root.is_dir() and "://" not in opened.store.name:
        space = shutil.disk_usage(root)
        facts.append(("free on this disk", f"{size(space.free)} of {size(space.total)}"))
    counted_in = [f"Counted in {duration(found.seconds)}."]
    parts = [Part("By kind", counted_in, tables=[Table("By kind", rows)]), _clean(opened, found.could_go)]
    return Page("Disk", size(found.bytes), opened.slug, "Disk", facts=facts, parts=parts, every=every)


def _clean(opened: OpenedStore, could_go: tuple[int, int] | str) -> Part:
    title, runs = "What could be deleted", f"the newest {KEEP_RUNS} runs"
    if isinstance(could_go, str):
        return Part(title, [f"This could not be counted: {could_go}"])
    count, freed = could_go
    if not count:
        return Part(title, [f"Nothing: {runs} and the versions need all of it."])
    pipeline = next(iter(opened.pipelines.values()), None)
    said = f"{counted(count, 'item')} of {size(freed)}: no version and none of {runs} needs "
    said += "them. These pages delete nothing; this says what would go, and --yes deletes it:"
    return Part(title, [said], commands=[f"headway clean {pipeline.folder if pipeline else 'PIPELINE'}"])
