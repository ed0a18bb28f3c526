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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headway import manifest as manifests
from headway.disk import remove, replace_text, sync_folders, sync_path, writing
from headway.errors import StoreError
from headway.fingerprint import Key, shared
from headway.manifest import Counts, Manifest
from headway.owner import abandoned, mark


class Store:
    """A store on a local disk. Layout: stages/, runs/, checkpoints/, models/, serving/, locks/, summaries/."""

    def __init__(self, root: Path):
        self.root = root
        self.stages, self.runs_folder = root / "stages", root / "runs"
        self.checkpoints, self.locks, self.summaries = root / "checkpoints", root / "locks", root / "summaries"
        self.staging = self.stages / ".staging"
        self._read: dict[Path, tuple[int, Manifest]] = {}

    def create(self) -> None:
        """Make the folders.

        Raises:
            StoreError: the disk or its permissions are against it, or a file is in the way.
        """
        with writing(self.root):
            for folder in (self.staging, self.runs_folder, self.checkpoints, self.locks):
                try:
                    folder.mkdir(parents=True, exist_ok=True)
                except (FileExistsError, NotADirectoryError):
                    raise StoreError(
                        "a file is in the way of a folder", where=str(folder), fix="name another store"
                    ) from None

    def output(self, stage: str, fingerprint: str) -> Path:
        """Where an output is, or would be."""
        return self.stages / stage / fingerprint

    def find(self, stage: str, fingerprint: str) -> Manifest | None:
        """The manifest of an output whose files are all there with their sizes; None when it must be made."""
        return self._look(stage, fingerprint)[0]

    def check(self, stage: str, fingerprint: str) -> str | None:
        """Why an output that was once made cannot be used; None when it can, or never was."""
        return self._look(stage, fingerprint)[1]

    def _look(self, stage: str, fingerprint: str) -> tuple[Manifest | None, str | None]:
        return _judge(self.output(stage, fingerprint), stage, fingerprint)

    @contextlib.contextmanager
    def open(self, stage: str, fingerprint: str, key: Key) -> Iterator[Staging]:
        """A folder aside to write an output in; it is gone afterwards unless it was committed.

        Raises:
            StoreError: the disk is full, or may not be written.
        """
        path = self.staging / mark(f"{stage}-{fingerprint}")
        with writing(self.root):
            path.mkdir(parents=True)
            try:
                yield Staging(self, stage, fingerprint, key, path)
            finally:
                remove(path)

    def manifests(self, stage: str) -> list[Manifest]:
        """Every valid manifest of a stage, newest first."""
        folder = self.stages / stage
        if not folder.is_dir():
            return []
        found = [m for entry in folder.iterdir() if (m := self._manifest(entry)) is not None]
        return sorted(found, key=lambda m: m.created, reverse=True)

    def _manifest(self, folder: Path) -> Manifest | None:
        """As it was read last, if it has not changed: a plan over a year of days asks for each a hundred times."""
        try:
            changed = (folder / manifests.NAME).stat().st_mtime_ns
        except OSError:
            return None
        known = self._read.get(folder)
        if known is None or known[0] != changed:
            found = manifests.read(folder)
            if found is None:
                return None
            self._read[folder] = known = (changed, found)
        return known[1]

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
        """(file, problem) for every output and run that is not as it was written. Reads every byte.

        The models' part is `Registry.verify`.
        """
        for stage, folder in self.all_outputs():
            found = manifests.read(folder)
            if found is None:
                yield folder / manifests.NAME, "is gone or damaged"
                continue
            if (found.stage, found.fingerprint) != (stage, folder.name):
                yield folder / manifests.NAME, f"is that of {found.stage}/{found.fingerprint}"
            for name, problem in manifests.checksum_problems(folder, found):
                yield folder / name, problem
        for path in sorted(self.runs_folder.glob("*.json")):
            if _run(path) is None:
                yield path, "is not a run's JSON"

    def sweep(self) -> list[Path]:
        """Remove folders that were being written by a process that is dead; returns what was removed."""
        asides = list(self.staging.iterdir()) if self.staging.is_dir() else []
        # the registry writes beside its target, since serving/ may be a disk of its own
        asides += [*self.root.glob("models/*/.*@*"), *self.root.glob("serving/*/.*@*")]
        swept = [path for path in sorted(asides) if abandoned(path)]
        for path in swept:
            remove(path)
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
        paths = sorted(self.runs_folder.glob("*.json"), reverse=True)
        return [run for path in paths if (run := _run(path)) is not None]


def _judge(folder: Path, stage: str, fingerprint: str) -> tuple[Manifest | None, str | None]:
    """(its manifest, None) of a folder that is that output; (None, why not) of one that is not; two None of nothing."""
    found = manifests.read(folder)
    if found is None:
        return None, "its manifest is gone or damaged" if folder.exists() else None
    if (found.stage, found.fingerprint) != (stage, fingerprint):
        return None, f"its manifest is that of {found.stage}/{found.fingerprint}"
    problem = manifests.sizes_problem(folder, found)
    return (None, problem) if problem else (found, None)


def _run(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, OSError):
        return None
    return value if isinstance(value, dict) and "run" in value else None


class Staging:
    """An output being written."""

    def __init__(self, store: Store, stage: str, fingerprint: str, key: Key, path: Path):
        self._store, self._stage, self._fingerprint, self._key = store, stage, fingerprint, key
        self.path = path

    def commit(self, *, result: dict[str, Any], counts: Counts | None = None, seconds: float = 0.0) -> Manifest:
        """Sync every file, write the manifest, make the whole visible by one rename.

        Returns:
            The manifest as it stands in the store: JSON, as every later reader gets it.
        """
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
        sync_folders(self.path)
        target = self._store.output(self._stage, self._fingerprint)
        target.parent.mkdir(parents=True, exist_ok=True)
        self._publish(target)
        sync_path(target.parent)
        found = self._store.find(self._stage, self._fingerprint)
        if found is None:
            raise StoreError("was removed or damaged as it was written", where=str(target), fix="run again")
        return found

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
            self._clear(target)
        raise StoreError("cannot be put in place: another process keeps replacing it", where=str(target))

    def _clear(self, target: Path) -> None:
        """Move a damaged output out of the way."""
        aside = self._store.staging / mark(f"damaged-{target.name}")
        with contextlib.suppress(FileNotFoundError):
            target.rename(aside)
        if _judge(aside, self._stage, self._fingerprint)[0] is not None:
            # another process replaced the damaged one between our look and our move: what we moved is good
            with contextlib.suppress(OSError):
                aside.rename(target)
        remove(aside)


def now() -> str:
    """The time in UTC, ISO 8601 with milliseconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
