"""Where everything lives: outputs of stages, runs, checkpoints, the registry.

    store = Store(Path("store"))
    if (manifest := store.find("ingest", fingerprint)) is None:
        with store.open("ingest", fingerprint, key) as staging:
            (staging.path / "a.tfrecord").write_bytes(...)
            manifest = staging.commit(result={...})

An output is written aside, under stages/.staging/, and renamed into stages/<stage>/<fingerprint>/ once all of it is on
the disk, manifest last. What has no valid manifest does not exist.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headway import manifest as manifests
from headway.errors import StoreError
from headway.fingerprint import Key, shared
from headway.manifest import Counts, Manifest

_FOREIGN_SECONDS = 24 * 3600
"""A staging folder of another host is torn once nothing in it changed for this long."""


class Store:
    """A store on a local disk. Layout: stages/, runs/, checkpoints/, models/, serving/, locks/, summaries/."""

    def __init__(self, root: Path):
        self.root = root
        self.stages, self.runs_folder = root / "stages", root / "runs"
        self.checkpoints, self.locks, self.summaries = root / "checkpoints", root / "locks", root / "summaries"
        self.staging = self.stages / ".staging"

    def create(self) -> None:
        """Make the folders.

        Raises:
            StoreError: the disk or its permissions are against it.
        """
        with _disk(self.root):
            for folder in (self.staging, self.runs_folder, self.checkpoints, self.locks):
                folder.mkdir(parents=True, exist_ok=True)

    def output(self, stage: str, fingerprint: str) -> Path:
        """Where an output is, or would be."""
        return self.stages / stage / fingerprint

    def find(self, stage: str, fingerprint: str) -> Manifest | None:
        """The manifest of an output whose files are all there with their sizes; None when it must be made."""
        folder = self.output(stage, fingerprint)
        found = manifests.read(folder)
        if found is None or found.fingerprint != fingerprint or manifests.sizes_problem(folder, found):
            return None
        return found

    def check(self, stage: str, fingerprint: str) -> str | None:
        """Why an output that was once made cannot be used; None when it can, or never was."""
        folder = self.output(stage, fingerprint)
        if not folder.exists():
            return None
        found = manifests.read(folder)
        if found is None:
            return "its manifest is gone or damaged"
        return manifests.sizes_problem(folder, found)

    @contextlib.contextmanager
    def open(self, stage: str, fingerprint: str, key: Key) -> Iterator[Staging]:
        """A folder aside to write an output in; it is gone afterwards unless it was committed."""
        name = f"{stage}-{fingerprint}@{socket.gethostname()}@{os.getpid()}@{uuid.uuid4().hex[:8]}"
        path = self.staging / name
        with _disk(path):
            path.mkdir(parents=True)
            try:
                yield Staging(self, stage, fingerprint, key, path)
            finally:
                shutil.rmtree(path, ignore_errors=True)

    def manifests(self, stage: str) -> list[Manifest]:
        """Every valid manifest of a stage, newest first."""
        folder = self.stages / stage
        if not folder.is_dir():
            return []
        found = [m for entry in folder.iterdir() if entry.is_dir() and (m := manifests.read(entry)) is not None]
        return sorted(found, key=lambda m: m.created, reverse=True)

    def nearest(self, stage: str, key: Key) -> Manifest | None:
        """The output of the stage whose key has most in common with `key`; the newest of equals."""
        return max(self.manifests(stage), key=lambda m: shared(m.key, key), default=None)

    def all_outputs(self) -> Iterator[tuple[str, Path]]:
        """(stage, folder) of every output."""
        if not self.stages.is_dir():
            return
        for stage in sorted(self.stages.iterdir()):
            if stage.is_dir() and not stage.name.startswith("."):
                for folder in sorted(stage.iterdir()):
                    yield stage.name, folder

    def verify(self) -> Iterator[tuple[Path, str]]:
        """(file, problem) for everything under stages/ that is not what its manifest says. Reads every byte."""
        for _, folder in self.all_outputs():
            found = manifests.read(folder)
            if found is None:
                yield folder / manifests.NAME, "is gone or damaged"
                continue
            for name, problem in manifests.checksum_problems(folder, found):
                yield folder / name, problem

    def sweep(self) -> list[Path]:
        """Remove staging folders whose owner is dead; returns what was removed."""
        swept = []
        for folder in sorted(self.staging.iterdir()) if self.staging.is_dir() else []:
            parts = folder.name.split("@")
            host, pid = (parts[1], parts[2]) if len(parts) == 4 else ("?", "0")
            if host == socket.gethostname() and pid.isdigit():
                torn = not alive(int(pid))
            else:
                torn = time.time() - folder.stat().st_mtime > _FOREIGN_SECONDS
            if torn:
                shutil.rmtree(folder, ignore_errors=True)
                swept.append(folder)
        return swept

    def save_run(self, run: dict[str, Any]) -> Path:
        """Write runs/<run>.json, replacing it as a whole."""
        path = self.runs_folder / f"{run['run']}.json"
        replace_text(path, json.dumps(run, indent=1) + "\n")
        return path

    def run(self, name: str) -> dict[str, Any]:
        """One run; "latest" is the newest.

        Raises:
            StoreError: there is no such run.
        """
        known = self.runs()
        if name == "latest" and known:
            return known[0]
        for run in known:
            if run["run"] == name:
                return run
        listed = ", ".join(run["run"] for run in known[:5]) or "none yet"
        raise StoreError(f"there is no run {name!r}", where=str(self.root), fix=f"newest runs: {listed}")

    def runs(self) -> list[dict[str, Any]]:
        """All runs, newest first."""
        if not self.runs_folder.is_dir():
            return []
        paths = sorted(self.runs_folder.glob("*.json"), reverse=True)
        found = []
        for path in paths:
            with contextlib.suppress(ValueError, OSError):
                found.append(json.loads(path.read_text(encoding="utf-8")))
        return found


class Staging:
    """An output being written."""

    def __init__(self, store: Store, stage: str, fingerprint: str, key: Key, path: Path):
        self._store, self._stage, self._fingerprint, self._key = store, stage, fingerprint, key
        self.path = path

    def commit(self, *, result: dict[str, Any], counts: Counts | None = None, seconds: float = 0.0) -> Manifest:
        """Sync every file, write the manifest, make the whole visible by one rename."""
        manifest = Manifest(
            stage=self._stage,
            fingerprint=self._fingerprint,
            key=self._key,
            files=manifests.entries(self.path, sync=True),
            created=now(),
            seconds=round(seconds, 3),
            tools=manifests.tools(),
            counts=counts,
            result=result,
        )
        manifests.write(self.path, manifest)
        for folder in [self.path, *(p for p in self.path.rglob("*") if p.is_dir())]:
            manifests.sync_path(folder)
        target = self._store.output(self._stage, self._fingerprint)
        target.parent.mkdir(parents=True, exist_ok=True)
        self._publish(target)
        manifests.sync_path(target.parent)
        return manifest

    def _publish(self, target: Path) -> None:
        for _ in range(3):
            try:
                self.path.rename(target)
                return
            except OSError:
                if not target.exists():
                    raise
            if self._store.find(self._stage, self._fingerprint) is not None:
                return  # somebody else made the same output meanwhile
            # a damaged output stands in the way
            aside = self._store.staging / f"{target.name}@{socket.gethostname()}@0@{uuid.uuid4().hex[:8]}"
            with contextlib.suppress(FileNotFoundError):
                target.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
        raise StoreError("cannot be put in place: another process keeps replacing it", where=str(target))


@contextlib.contextmanager
def _disk(path: Path) -> Iterator[None]:
    """A full or read-only disk as a StoreError."""
    try:
        yield
    except PermissionError as error:
        raise StoreError("may not be written", where=error.filename or str(path), fix="give this user the right to write there") from None
    except OSError as error:
        if error.errno not in (28, 30, 122):  # ENOSPC, EROFS, EDQUOT
            raise
        raise StoreError(f"cannot be written: {error.strerror}", where=str(path), fix="make room: headway gc, or another store") from None


def alive(pid: int) -> bool:
    """Whether a process of this host lives."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def now() -> str:
    """The time in UTC, ISO 8601 with milliseconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def replace_text(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    with _disk(path):
        try:
            manifests.write_synced(aside, text)
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
        manifests.sync_path(path.parent)
