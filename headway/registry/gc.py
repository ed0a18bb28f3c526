"""Garbage collection: removes outputs, checkpoints, runs, serving copies and old versions that nothing refers to.

    with removal_lock(store) as remover:          # no run of any pipeline is active or starts meanwhile
        garbage = collect(store, keep_runs=20)    # lists the garbage, and deletes nothing
        removed = remove(remover, garbage)

Runs: the newest `keep_runs` of each pipeline are kept, and the run that made each version. Outputs: kept if such a run or a
version refers to them. Versions: all are kept; with `keep_versions`, only the newest so many, the last ten champions, the
anchor (with which the gate also compares candidates), and versions with an alias. Serving copies: the champion's and the two
newest are kept, since a server may still have the one before loaded. Checkpoints of an unfinished training, and pages of
comparisons, are kept for two weeks. Whatever a reader holds is kept, too (`headway.registry.leases`).

A run holds a lease on the folders that it uses. While there is such a lease, `removal_lock` refuses. A run that begins later
waits. Versions and serving copies are removed under their model's lock, after another look at the pointers.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import Locked
from headway.messages import counted
from headway.registry import registry
from headway.registry.leases import REMOVER, WAIT_SECONDS, Remover, lease
from headway.registry.pointers import anchor_of
from headway.storage.fingerprint import texts
from headway.storage.locks import Lock, describe
from headway.storage.store import Store

OUTPUTS = ("stages", "runs", "checkpoints")
"""The folders that a run writes; no run may be active while garbage in them is removed."""
SERVING_COPIES, CHAMPIONS = 2, 10
CHECKPOINT_SECONDS = 14 * 24 * 3600
COMPARED = "compare-"
"""The prefix of the names of the pages that `headway compare` leaves in runs/."""
COMPARED_SECONDS = 14 * 24 * 3600


@contextlib.contextmanager
def removal_lock(store: Store, command: str = "clean") -> Iterator[Remover]:
    """Hold the store's removal lock in the block: no run of any pipeline is active or starts meanwhile.

    Raises:
        Locked: a pipeline runs, or another process holds the lock.
    """
    lock = store.lock(REMOVER, {"command": command, "removing": list(OUTPUTS)})
    with lock.held():
        remover = Remover(store, lock)
        if users := remover.users(OUTPUTS):
            raise Locked(f"held by {describe(users[0])}", where=store.name, fix="wait until that run has ended")
        yield remover


@contextlib.contextmanager
def run_lease(
    store: Store,
    model: str,
    run: str,
    *,
    wait_seconds: float = WAIT_SECONDS,
    on_wait: Callable[[str], None] = lambda who: None,
) -> Iterator[Lock]:
    """Hold a lease in the block, so that no file that the run `run` reads or writes is removed as garbage.

    Raises:
        Locked: another process is still removing garbage after `wait_seconds`.
    """
    paths = [*OUTPUTS, f"models/{model}", f"serving/{model}"]
    with lease(store, paths, {"run": run}, wait_seconds=wait_seconds, on_wait=on_wait) as held:
        yield held


@dataclass(frozen=True)
class Garbage:
    path: Path
    bytes: int
    """The number of bytes that removing this file or folder frees."""
    why: str


@dataclass(frozen=True)
class CleanResult:
    """The items that `clean` removed from a store, or would remove if this is a dry run."""

    removed: list[Garbage]
    bytes: int
    swept: list[Path]
    """The temporary folders of dead processes and the uncommitted uploads, which were removed too."""
    in_use: list[Path]
    dry_run: bool

    @property
    def left(self) -> list[str]:
        lines = [f"{path}: left, it is in use" for path in self.in_use]
        return lines + [f"{path}: left behind by a process that died" for path in self.swept]


def clean(store: Store, keep_runs: int, keep_versions: int | None, *, dry_run: bool) -> CleanResult:
    """Find the store's garbage. Unless `dry_run`, delete the garbage and the temporary folders of dead processes.

    Raises:
        Locked: a pipeline runs, or another process removes garbage.
    """
    with removal_lock(store) as remover:
        planned = collect(store, keep_runs=keep_runs, keep_versions=keep_versions)
        removed = planned if dry_run else remove(remover, planned, keep_versions=keep_versions)
        swept = [] if dry_run else store.sweep()
    in_use = [item.path for item in planned if item not in removed]
    return CleanResult(removed, sum(item.bytes for item in removed), swept, in_use, dry_run)


def collect(store: Store, *, keep_runs: int, keep_versions: int | None = None) -> list[Garbage]:
    """Returns the garbage that `remove` would delete if it is not in use, with reasons; deletes nothing.

    Args:
        keep_versions: how many newest versions of a model to keep, besides its last champions, anchor and aliases; None: all.
    """
    models = [registry.Registry(store, name) for name in registry.model_names(store)]
    garbage = [item for model in models for item in _of_model(model, keep_versions)]
    old = {item.path for item in garbage}
    versions = [version for model in models for version in model.versions() if version.path not in old]
    makers = {version.facts.get("run") for version in versions}
    kept, dropped = _runs(store, keep_runs, makers)
    named = set(texts([kept, [version.facts for version in versions]]))
    garbage += [
        Garbage(folder, store.size(folder), "no kept run and no version points at it")
        for _, folder in store.all_outputs()
        if folder.name not in named
    ]
    garbage += _checkpoints(store)
    why = f"older than the newest {counted(keep_runs, 'run')} of its pipeline"
    present = set(store.children(store.runs_folder))
    files = [f"{name}.{kind}" for name in dropped for kind in ("json", "log", "html", "progress", "prepared")]
    records = [store.runs_folder / file for file in files if file in present]
    garbage += [Garbage(path, store.size(path), why) for path in records]
    return [*garbage, *_comparisons(store, present)]


def _of_model(model: registry.Registry, keep_versions: int | None) -> list[Garbage]:
    return [*_versions(model, keep_versions), *_serving(model)]


def _versions(model: registry.Registry, keep: int | None) -> Iterator[Garbage]:
    if keep is None:
        return
    history = model.history()
    champions = dict.fromkeys(event.version for event in reversed(history))
    versions = model.versions()
    pointed = {*list(champions)[:CHAMPIONS], anchor_of(history), *model.aliases().values()}
    for version in versions[: max(0, len(versions) - keep)]:
        if version.number not in pointed:
            why = f"older than the newest {counted(keep, 'version')}, and nothing points at it"
            yield Garbage(version.path, model.store.size(version.path), why)


def _runs(store: Store, keep: int, makers: set[Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns the records of the runs to keep, and the names of the other runs. Runs named in `makers` are always kept."""
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


def _checkpoints(store: Store) -> Iterator[Garbage]:
    for folder in (store.checkpoints / name for name in store.children(store.checkpoints)):
        if store.find("train", folder.name) is not None:
            yield Garbage(folder, store.size(folder), "its training is done")
        elif store.clock() - store.last_write_in(folder) > CHECKPOINT_SECONDS:
            yield Garbage(
                folder, store.size(folder), f"no training went on from it for {CHECKPOINT_SECONDS // 86400} days"
            )


def _comparisons(store: Store, names: Iterable[str]) -> Iterator[Garbage]:
    for path in (store.runs_folder / name for name in sorted(names) if name.startswith(COMPARED)):
        if store.clock() - store.last_write_in(path) > COMPARED_SECONDS:
            why = f"a comparison of more than {COMPARED_SECONDS // 86400} days ago; headway compare draws it again"
            yield Garbage(path, store.size(path), why)


def _serving(model: registry.Registry) -> list[Garbage]:
    copies = sorted((name for name in model.store.children(model.serving) if name.isdigit()), key=int)
    history = model.history()
    champion = str(history[-1].serving) if history else None
    old = [model.serving / name for name in copies[:-SERVING_COPIES] if name != champion]
    return [Garbage(path, model.store.size(path), "an older serving copy") for path in old]


def remove(remover: Remover, garbage: Sequence[Garbage], *, keep_versions: int | None = None) -> list[Garbage]:
    """Delete garbage, and return the deleted items. Items that are in use, or to which something refers by now, are left.

    Raises:
        Locked: this process paused so long that it lost the removal lock.
    """
    store = remover.store
    places = {item.path.relative_to(store.root).as_posix(): item for item in garbage}
    others = [place for place in places if place.partition("/")[0] not in OUTPUTS]
    free = remover.claim(OUTPUTS, others)
    removed = []
    for name in registry.model_names(store):
        mine = [places[place] for place in places if place in free and place.split("/")[1] == name]
        if mine:
            model = registry.Registry(store, name)
            with model.lock():
                still = {item.path for item in _of_model(model, keep_versions)}
                removed += _discard(remover, [item for item in mine if item.path in still])
    return removed + _discard(remover, [item for place, item in places.items() if place not in others])


def _discard(remover: Remover, garbage: Sequence[Garbage]) -> list[Garbage]:
    for item in garbage:
        remover.lock.check()
        remover.store.discard(item.path)
    return list(garbage)
