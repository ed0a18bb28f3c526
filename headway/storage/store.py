"""The store: outputs of stages, runs, checkpoints, the registry.

    store = Store(Path("store"))
    if (manifest := store.find("ingest", fingerprint)) is None:
        with store.open("ingest", fingerprint, key) as staging:
            (staging.path / "a.tfrecord").write_bytes(...)
            manifest = staging.commit(result={...})

An output is written aside, under stages/.staging/, and renamed into stages/<stage>/<fingerprint>/ once all of it is on
the disk, manifest last. What has no valid manifest does not exist. `headway.storage.remote_store` is the same in a bucket: it
overrides what stands under "what a bucket does otherwise", and nothing else in Headway knows which of the two it has.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import StoreError
from headway.messages import now
from headway.redaction import redacted
from headway.storage import manifest as manifests
from headway.storage.atomic_io import remove, replace_text, sync_folders, sync_path, writing
from headway.storage.clock import disk_time
from headway.storage.filesystem import entries
from headway.storage.fingerprint import Key, shared
from headway.storage.locks import Lock
from headway.storage.manifest import Counts, Manifest
from headway.storage.process_identity import abandoned, mark

if TYPE_CHECKING:
    from headway.storage.prefetch import RemoteFiles


def _known(path: Path) -> Iterator[os.stat_result]:
    """What is known of a file or a folder, and of all in it; nothing where it was removed meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        yield path.lstat()
    yield from (about for _, about in entries(path))


class Store:
    """A store on a local disk. Layout: stages/, runs/, checkpoints/, models/, serving/, locks/, summaries/."""

    def __init__(self, root: Path):
        self.root = root
        self.stages, self.runs_folder = root / "stages", root / "runs"
        self.checkpoints, self.locks, self.summaries = root / "checkpoints", root / "locks", root / "summaries"
        self.staging = self.stages / ".staging"
        self._read: dict[Path, tuple[int, Manifest]] = {}

    def create(self) -> None:
        """Make the store's folders; a new store can be read by its owner and group alone, as the umask allows.

        Raises:
            StoreError: the disk or its permissions are against it, or a file is in the way.
        """
        with writing(self.root):
            for folder in (self.root, self.staging, self.runs_folder, self.checkpoints, self.locks):
                try:
                    # the data of a store that is there already are whose they are
                    folder.mkdir(mode=0o770, parents=True, exist_ok=True)
                except (FileExistsError, NotADirectoryError):
                    raise StoreError(
                        "a file is in the way of a folder", where=str(folder), fix="name another store"
                    ) from None
                except FileNotFoundError:
                    raise StoreError(
                        "this folder cannot be made",
                        where=str(folder),
                        fix="name a store on a disk that can be written",
                    ) from None

    def output(self, stage: str, fingerprint: str) -> Path:
        """The folder of an output, made or not.

        Raises:
            StoreError: a name, from a record that was changed by hand, leads out of the store.
        """
        for name in (stage, fingerprint):
            if "/" in name or not manifests.is_inside(name):
                raise StoreError(f"{name!r} is not the name of an output", where=self.name, fix="headway verify")
        return self.stages / stage / fingerprint

    def find(self, stage: str, fingerprint: str) -> Manifest | None:
        """The manifest of an output whose files all have their sizes; None when the output must be made."""
        return self._judge(self.output(stage, fingerprint), stage, fingerprint)[0]

    def check(self, stage: str, fingerprint: str) -> str | None:
        """The reason why an existing output cannot be used; None when it can, or does not exist."""
        return self._judge(self.output(stage, fingerprint), stage, fingerprint)[1]

    def _judge(self, folder: Path, stage: str, fingerprint: str) -> tuple[Manifest | None, str | None]:
        """(manifest, None) if the folder is that output, (None, reason) if it is not, (None, None) if it does not
        exist."""
        manifest = self.manifest(folder)
        if manifest is None:
            return None, "its manifest is gone or damaged" if self._is_there(folder) else None
        if (manifest.stage, manifest.fingerprint) != (stage, fingerprint):
            return None, f"its manifest is that of {manifest.stage}/{manifest.fingerprint}"
        problem = self.sizes_problem(folder, manifest)
        return (None, problem) if problem else (manifest, None)

    # --- what a bucket does otherwise; every path is one below `root`

    @property
    def name(self) -> str:
        """The user's name for the store."""
        return str(self.root)

    def exists(self) -> bool:
        """Whether the store has ever held an output."""
        return self.stages.is_dir()

    def local(self, folder: Path) -> Path:
        """The folder of an output or a version, with its files on this machine's disk.

        Raises:
            StoreError: they cannot be had whole.
        """
        return folder

    def localize(self, value: Any, *, later: bool = False) -> RemoteFiles | None:
        """Fetch the files of outputs and versions that a request names by path to this machine's disk.

        Args:
            later: leave the files of ingested spans to whoever reads them.

        Returns:
            How that reader gets them (`headway.storage.prefetch`); None when all are here.

        Raises:
            StoreError: something is gone or damaged.
        """
        return None

    def prefetch(self, stage: str, fingerprints: Sequence[str]) -> None:
        """Look up the manifests of outputs that will be asked for next."""

    def refresh(self) -> None:
        """Forget what was seen of the store: somebody else has written to it."""

    def children(self, folder: Path) -> list[str]:
        """The names in a folder, sorted; none when there is no such folder."""
        return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []

    def _is_there(self, folder: Path) -> bool:
        """Whether any part of an output exists."""
        return folder.exists()

    def manifest(self, folder: Path) -> Manifest | None:
        """The valid manifest of an output or a version, whether or not its files are valid."""
        return manifests.read(folder)

    def sizes_problem(self, folder: Path, manifest: Manifest) -> str | None:
        """The first file of an output or a version that is missing or has the wrong size; None when there is none."""
        return manifests.sizes_problem(manifest, lambda name: manifests.on_disk(folder / name, manifests.size))

    def checksum_problems(self, folder: Path, manifest: Manifest) -> list[tuple[str, str]]:
        """(file, problem) for each file unlike its manifest. Reads every byte."""
        states = (manifests.on_disk(folder / entry.path, manifests.checksum) for entry in manifest.files)
        return manifests.checksum_problems(manifest, states)

    def place(self, temporary: Path, target: Path) -> None:
        """Make a folder that was written aside visible as `target`, which does not exist yet."""
        for path in temporary.rglob("*"):
            if path.is_file():
                sync_path(path)
        sync_folders(temporary)
        temporary.rename(target)
        sync_path(target.parent)

    def placed(self, target: Path) -> bool:
        """Whether `place` finished for this target."""
        return target.is_dir()

    def read(self, path: Path) -> bytes:
        """Read a small file that changes.

        Raises:
            FileNotFoundError: there is none.
        """
        return path.read_bytes()

    def replace(self, path: Path, text: str) -> None:
        """Write a small file atomically: readers see the old text or the new."""
        replace_text(path, text)

    def size(self, path: Path) -> int:
        """The bytes that discarding a file or a folder frees."""
        # a hard link to a version frees nothing
        return sum(about.st_size for about in _known(path) if stat.S_ISREG(about.st_mode) and about.st_nlink == 1)

    def changed(self, folder: Path) -> float:
        """The time of the last write in a folder, in seconds since 1970; now, where it was removed meanwhile."""
        times = [about.st_mtime for about in _known(folder)]
        return max(times) if times else self.clock()

    def discard(self, path: Path) -> None:
        """Remove a file or a folder: by one rename, so that a removal cut off leaves nothing that looks damaged."""
        if path.is_dir():
            # models/ and serving/ may be disks of their own
            inside = path.parent.parent in (self.root / "models", self.root / "serving")
            aside = (path.parent if inside else self.staging) / mark(".removed")
            try:
                path = path.rename(aside)
            except OSError:  # another disk after all
                (path / manifests.NAME).unlink(missing_ok=True)
        remove(path)

    def clock(self) -> float:
        """Seconds since 1970 by the clock of whoever keeps the store: the same for every machine."""
        return disk_time(self.locks)

    def lock(self, name: str, facts: dict[str, Any] | None = None, *, once: bool = False) -> Lock:
        """The lock of this name, not yet taken."""
        return Lock(self.locks / f"{name}.json", facts=facts, once=once)

    @contextlib.contextmanager
    def checkpointing(self, fingerprint: str, *, keep_best: int = 0) -> Iterator[None]:
        """The context of a training that writes to and resumes from checkpoints/<fingerprint>/, the newest and so many
        best."""
        yield

    def _commit(self, staging: Path, stage: str, fingerprint: str) -> None:
        """Make a whole folder visible as that output."""
        target = self.output(stage, fingerprint)
        target.parent.mkdir(parents=True, exist_ok=True)
        self._publish(staging, target, stage, fingerprint)
        sync_path(target.parent)

    def _publish(self, path: Path, target: Path, stage: str, fingerprint: str) -> None:
        for _ in range(3):
            try:
                path.rename(target)
                return
            except OSError:
                if not target.exists():
                    raise
            if self._judge(target, stage, fingerprint)[0] is not None:
                return  # somebody else made the same output meanwhile
            self._clear(target, stage, fingerprint)
        raise StoreError("cannot be put in place: another process keeps replacing it", where=str(target))

    def _clear(self, target: Path, stage: str, fingerprint: str) -> None:
        """Move a damaged output out of the way."""
        damaged = self.staging / mark(f"damaged-{target.name}")
        with contextlib.suppress(FileNotFoundError):
            target.rename(damaged)
        if self._judge(damaged, stage, fingerprint)[0] is not None:
            # another process replaced the damaged one between our look and our move: what we moved is good
            with contextlib.suppress(OSError):
                damaged.rename(target)
        remove(damaged)

    # --- the same everywhere

    @contextlib.contextmanager
    def open(self, stage: str, fingerprint: str, key: Key) -> Iterator[Staging]:
        """A temporary folder to write an output in; deleted at the end unless it was committed.

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
        manifests_there = [m for name in self.children(folder) if (m := self._manifest(folder / name)) is not None]
        return sorted(manifests_there, key=lambda m: m.created, reverse=True)

    def _manifest(self, folder: Path) -> Manifest | None:
        """The manifest, cached while its file is unchanged: a plan over a year of days asks for each a hundred times."""
        try:
            changed = (folder / manifests.NAME).stat().st_mtime_ns
        except OSError:
            return None
        cached = self._read.get(folder)
        if cached is None or cached[0] != changed:
            manifest = manifests.read(folder)
            if manifest is None:
                return None
            self._read[folder] = cached = (changed, manifest)
        return cached[1]

    def nearest(self, stage: str, key: Key, *, but: Collection[str] = ()) -> Manifest | None:
        """The output of the stage whose key has most in common with `key`; the newest of equals.

        Args:
            but: parts of a key; outputs whose key has one of these and `key` has not are passed over.
        """
        other = set(but) - key.keys()
        manifests = [manifest for manifest in self.manifests(stage) if not other & manifest.key.keys()]
        return max(manifests, key=lambda m: shared(m.key, key), default=None)

    def all_outputs(self) -> Iterator[tuple[str, Path]]:
        """(stage, folder) of every output."""
        for stage in self.children(self.stages):
            if not stage.startswith("."):
                for name in self.children(self.stages / stage):
                    yield stage, self.stages / stage / name

    def verify(self) -> Iterator[tuple[Path, str]]:
        """(file, problem) for every damaged output and run. Reads every byte.

        The models' part is `Registry.verify`.
        """
        for stage, folder in self.all_outputs():
            yield from self.output_problems(stage, folder)
        for path in self._run_files():
            if self._run(path) is None:
                yield path, "is not a run's JSON"

    def output_problems(self, stage: str, folder: Path) -> Iterator[tuple[Path, str]]:
        """(file, problem) of one output. Reads every byte of it."""
        manifest = self.manifest(folder)
        if manifest is None:
            yield folder / manifests.NAME, "is gone or damaged"
            return
        if (manifest.stage, manifest.fingerprint) != (stage, folder.name):
            yield folder / manifests.NAME, f"is that of {manifest.stage}/{manifest.fingerprint}"
        for name, problem in self.checksum_problems(folder, manifest):
            yield folder / name, problem

    def sweep(self) -> list[Path]:
        """Remove unfinished folders of dead processes; return their names."""
        asides = list(self.staging.iterdir()) if self.staging.is_dir() else []
        # the registry writes beside its target, since serving/ may be a disk of its own
        for pattern in ("models/*", "serving/*", "runs", "locks"):
            asides += self.root.glob(f"{pattern}/.*@*")
        swept = [path for path in sorted(asides) if abandoned(path)]
        for path in swept:
            remove(path)
        return swept

    def save_run(self, run: dict[str, Any]) -> Path:
        """Write runs/<run>.json, without secrets, atomically."""
        path = self.runs_folder / f"{run['run']}.json"
        self.replace(path, json.dumps(redacted(run), indent=1) + "\n")
        return path

    def runs(self) -> list[dict[str, Any]]:
        """All runs, newest first."""
        return [run for path in reversed(self._run_files()) if (run := self._run(path)) is not None]

    def _run_files(self) -> list[Path]:
        folder = self.runs_folder
        names = [name for name in self.children(folder) if name.endswith(".json") and not name.startswith(".")]
        return [folder / name for name in names]

    def _run(self, path: Path) -> dict[str, Any] | None:
        try:
            value = json.loads(self.read(path))
        except (ValueError, OSError):
            return None
        return value if isinstance(value, dict) and "run" in value else None


class Staging:
    """An output being written."""

    def __init__(self, store: Store, stage: str, fingerprint: str, key: Key, path: Path):
        self._store, self._stage, self._fingerprint, self._key = store, stage, fingerprint, key
        self.path = path

    def commit(self, *, result: dict[str, Any], counts: Counts | None = None, seconds: float = 0.0) -> Manifest:
        """Sync every file, write the manifest, and make the output visible by one rename.

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
        self._store._commit(self.path, self._stage, self._fingerprint)
        stored = self._store.find(self._stage, self._fingerprint)
        if stored is None:
            where = str(self._store.output(self._stage, self._fingerprint))
            raise StoreError("was removed or damaged as it was written", where=where, fix="run again")
        return stored
