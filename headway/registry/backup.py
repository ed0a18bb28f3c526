"""A copy of a store that is whole at every moment, taken while runs write: outputs, versions, runs and pointers.

    result = back_up(store, Path("/backup/churn"))
    result.copied, result.there, result.bytes        # folders copied now, folders that were there, bytes copied

Outputs and versions never change, so a second call copies only what is new. Small files that may point at them are read before
and written after: what a pointer that was read names was there by then, and a copy that is cut off points at whole things alone.
Nothing is ever deleted in the copy, which is a store like any other: `headway verify` reads it, `store:` may name it.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.errors import ConfigError
from headway.monitor import Monitor
from headway.registry.leases import enter
from headway.registry.registry import Registry, names
from headway.registry.versions import numbers
from headway.storage import manifest as manifests
from headway.storage.atomic_io import copy_tree, remove, replace_text, sync_folders, sync_path, writing
from headway.storage.process_identity import mark
from headway.storage.store import Store

_FOLDERS = ("stages", "runs", "models", "watch", "monitor", "requests", "studies")
"""Of checkpoints, locks, summaries and copies for TensorFlow Serving nothing is needed, or made anew."""


@dataclass
class BackUp:
    """What `back_up` did."""

    copied: int = 0
    there: int = 0
    bytes: int = 0


def back_up(store: Store, target: Path, monitor: Monitor | None = None) -> BackUp:
    """Copy what is new in the store; see the module.

    Raises:
        ConfigError: the store is in a bucket, the target lies in the store, or holds other things.
        StoreError: the target cannot be written.
        Locked: garbage collection goes on, and does not end within a minute.
    """
    monitor, done = monitor or Monitor(), BackUp()
    if store.objects.remote:
        problem = f"the store {store.name} is a bucket, which Headway does not copy"
        raise ConfigError(
            problem, where="store", fix="switch on the bucket's versions, or let its provider replicate it"
        )
    if target.resolve().is_relative_to(store.root.resolve()) or store.root.resolve().is_relative_to(target.resolve()):
        raise ConfigError(
            "the copy and the store would lie in each other", where=str(target), fix="name another folder"
        )
    with writing(target):
        _check_target(target)
    copy = Store(target)
    with contextlib.ExitStack() as stack, writing(target):
        enter(stack, store, _FOLDERS, {"command": "backup"}, "this store", monitor.warn)
        copy.create()
        pointers = dict[Path, bytes]()
        for path in _files(store):
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                if path.suffix == ".json":
                    pointers[path] = path.read_bytes()
        folders = [folder for _, folder in store.all_outputs()]
        for model in (store.root / "models" / name for name in names(store)):
            folders += [model / str(number) for number in numbers(store, model)]
        for count, folder in enumerate(folders):
            monitor.check()
            monitor.progress(count, len(folders), "folders")
            _copy_folder(store, copy, folder, done)
        for path in _files(store):
            if path.suffix != ".json":  # logs, reports and logged requests: many, and nothing rests on them
                monitor.check()
                _copy_file(path, target / path.relative_to(store.root), done)
        for path, data in pointers.items():
            there = target / path.relative_to(store.root)
            if not there.is_file() or there.read_bytes() != data:
                replace_text(there, data.decode())
                done.bytes += len(data)
        for name in names(copy):
            Registry(copy, name).repair()  # TensorFlow Serving's copy of the champion
    return done


def _check_target(target: Path) -> None:
    """Raise ConfigError where the target is a file, or a folder of other things, among which a store would be lost."""
    if target.exists() and not target.is_dir():
        raise ConfigError("is a file", where=str(target), fix="name a folder: --to FOLDER")
    names_there = (
        {path.name for path in target.iterdir() if not path.name.startswith(".")} if target.is_dir() else set()
    )
    if names_there and not names_there & {"stages", "runs", "models"}:
        fix = "name a folder of its own for the copy, which need not exist yet: --to FOLDER"
        problem = "is neither empty nor a copy of a store: it has neither stages/ nor runs/ nor models/"
        raise ConfigError(problem, where=str(target), fix=fix)


def _files(store: Store) -> Iterator[Path]:
    """Everything but outputs and versions; what is written aside has a hidden name, and may go at any moment."""
    for top in _FOLDERS[1:]:
        for folder, inner, files in os.walk(store.root / top):  # passes over a removed folder
            of_model = top == "models" and Path(folder).parent == store.root / top
            inner[:] = [] if of_model else sorted(name for name in inner if not name.startswith("."))
            yield from (Path(folder, name) for name in sorted(files) if not name.startswith("."))


def _copy_folder(store: Store, copy: Store, folder: Path, done: BackUp) -> None:
    """Copy an output or a version, unless it is there; one without a valid manifest does not exist."""
    manifest = store.manifest(folder)
    if manifest is None or store.sizes_problem(folder, manifest) is not None:
        return
    target = copy.root / folder.relative_to(store.root)
    if copy.manifest(target) == manifest and copy.sizes_problem(target, manifest) is None:
        done.there += 1
        return
    aside = copy.staging / mark(f"backup-{target.name}")
    try:
        copy_tree(folder, aside)
        for entry in manifest.files:
            sync_path(aside / entry.path)
        sync_path(aside / manifests.NAME)
        sync_folders(aside)
        remove(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        aside.rename(target)
        sync_path(target.parent)
    finally:
        remove(aside)
    done.copied += 1
    done.bytes += sum(entry.bytes for entry in manifest.files)


def _copy_file(path: Path, target: Path, done: BackUp) -> None:
    """Copy a file of any size as a whole, unless the copy has its size and its time; nothing where it was removed meanwhile."""
    aside = target.with_name(mark(f".{target.name}"))
    with contextlib.suppress(FileNotFoundError):
        found = path.stat()
        there = target.stat() if target.is_file() else None
        if there is not None and (there.st_size, there.st_mtime_ns) == (found.st_size, found.st_mtime_ns):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copy2(path, aside)
            sync_path(aside)
            aside.rename(target)
        finally:
            remove(aside)
        done.bytes += found.st_size
