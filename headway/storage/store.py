"""The store of a pipeline: outputs of stages, run records, checkpoints and model versions, in a folder or in a bucket.

    store = open_store("store")                     # or s3://team/headway, gs://team/headway
    if (manifest := store.find("ingest", fingerprint)) is None:
        with store.open("ingest", fingerprint, key) as staging:
            (staging.path / "a.tfrecord").write_bytes(...)
            manifest = staging.commit(result={...})
    store.local(store.output("ingest", fingerprint))    # its files, on this machine's disk

An output is written to a temporary folder under stages/.staging/. The commit makes it visible as stages/<stage>/<fingerprint>/,
all files at once. An output without a valid manifest counts as absent. On a disk, the commit is a rename. A bucket has no
rename: the files are uploaded to a new folder, stages/<stage>/<fingerprint>/<attempt>/. The commit is the put of manifest.json,
which names the attempt. So no object of a committed output is ever written again, and two machines that commit the same output
cannot mix their files. For a store in a bucket, `root` is a working copy on this machine, which may be deleted between runs.

The code that differs between disk and bucket is in `headway.storage.objects` and `headway.storage.bucket`.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.errors import ConfigError, StoreError
from headway.messages import now
from headway.storage import manifest as manifests
from headway.storage.atomic_io import remove, writing
from headway.storage.bucket import LAST, ORPHAN_SECONDS, Bucket, new_attempt
from headway.storage.filesystem import is_remote
from headway.storage.fingerprint import Key, equal_leaves
from headway.storage.locks import Lock
from headway.storage.manifest import Counts, FileEntry, Manifest
from headway.storage.objects import Folder, ObjectInfo, in_parallel
from headway.storage.prefetch import RemoteFiles, RemoteFolder, get, intact
from headway.storage.process_identity import is_abandoned, temporary_name

RANGES = ".ranges"
"""The subfolder of an unfinished output that holds its finished ranges, the parts of the input files that are done."""


def open_store(where: str | Path, cache: Path | None = None) -> Store:
    """Open the store at `where`: a folder, s3://bucket/path or gs://bucket/path. Raises ConfigError for another scheme.

    Args:
        cache: for a store in a bucket, the folder of its working copy; by default `default_cache`.
    """
    text = str(where)
    if "://" not in text:
        return Store(Path(where))
    if not is_remote(text):
        raise ConfigError(f"{text!r} is not a store", fix="name a folder, s3://bucket/path or gs://bucket/path")
    return Store(cache or default_cache(text), Bucket(text))


def default_cache(url: str) -> Path:
    """Returns the default folder of a bucket's working copy: headway/<scheme>/<bucket>/<path> in XDG_CACHE_HOME or ~/.cache."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "headway" / url.rstrip("/").replace("://", "/")


class Store:
    """A store with the folders stages/, runs/, checkpoints/, models/, serving/, locks/ and summaries/. Its paths lie below
    `root`, also those of a store in a bucket.

    Args:
        root: the store's folder; for a store in a bucket, its working copy on this machine.
        bucket: the bucket that holds the store; None: the folder `root` is the store.
    """

    def __init__(self, root: Path, bucket: Bucket | None = None):
        self.root = root
        self.objects: Folder | Bucket = bucket or Folder(root)
        self.name = self.objects.url
        """The store's name in messages: its folder, or its address in the bucket."""
        self.stages, self.runs_folder = root / "stages", root / "runs"
        self.checkpoints, self.locks, self.summaries = root / "checkpoints", root / "locks", root / "summaries"
        self.staging = self.stages / ".staging"
        self._copy = None if bucket is None else WorkingCopy(bucket, root, self._placed)
        self._read: dict[str, tuple[ObjectInfo, tuple[Manifest, str] | None]] = {}

    def _key(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def create(self) -> None:
        """Check the bucket, and make the missing folders of the store. Only owner and group can read a new store.

        Raises:
            StoreError: the bucket is not usable, the disk is full, a permission is missing, or a file has the name of a folder.
        """
        self.objects.check()
        with writing(self.root):
            for folder in (self.root, self.staging, self.runs_folder, self.checkpoints, self.locks):
                try:
                    # the data of a store that is there already are whose they are
                    folder.mkdir(mode=0o770, parents=True, exist_ok=True)
                except (FileExistsError, NotADirectoryError):
                    problem = "a file is in the way of a folder"
                    raise StoreError(problem, where=str(folder), fix="name another store") from None
                except FileNotFoundError:
                    fix = "name a store on a disk that can be written"
                    raise StoreError("this folder cannot be made", where=str(folder), fix=fix) from None

    def output(self, stage: str, fingerprint: str) -> Path:
        """Returns the folder of an output, whether or not the folder exists.

        Raises:
            StoreError: `stage` or `fingerprint` would lead out of the store, as in a record that was changed by hand.
        """
        for name in (stage, fingerprint):
            if "/" in name or not manifests.is_inside(name):
                raise StoreError(f"{name!r} is not the name of an output", where=self.name, fix="headway verify")
        return self.stages / stage / fingerprint

    def find(self, stage: str, fingerprint: str) -> Manifest | None:
        """Returns the manifest of an output if all its files have the right sizes; None when the output must be made (again)."""
        return self._judge(self.output(stage, fingerprint), stage, fingerprint)[0]

    def check(self, stage: str, fingerprint: str) -> str | None:
        """Returns the reason why an existing output cannot be used; None when the output is usable, or does not exist."""
        return self._judge(self.output(stage, fingerprint), stage, fingerprint)[1]

    def _judge(self, folder: Path, stage: str, fingerprint: str) -> tuple[Manifest | None, str | None]:
        """Returns (manifest, None) for a valid output, (None, reason) for a damaged output, (None, None) for no output.
        In a bucket, damage counts only if a new listing still shows it: another machine may just have uploaded the
        missing files."""
        judged, placed = self._look(folder, stage, fingerprint), self._placed(folder)
        while judged[1] is not None and self.objects.remote:
            before = placed
            self.refresh()
            judged, placed = self._look(folder, stage, fingerprint), self._placed(folder)
            if placed == before:
                break
        return judged

    def _look(self, folder: Path, stage: str, fingerprint: str) -> tuple[Manifest | None, str | None]:
        manifest = self.manifest(folder)
        if manifest is None:
            return None, "its manifest is gone or damaged" if self.objects.has_output(self._key(folder)) else None
        if (manifest.stage, manifest.fingerprint) != (stage, fingerprint):
            return None, f"its manifest is that of {manifest.stage}/{manifest.fingerprint}"
        problem = self.sizes_problem(folder, manifest)
        return (None, problem) if problem else (manifest, None)

    def _placed(self, folder: Path) -> tuple[Manifest, str] | None:
        """Returns the manifest of an output or a model version, and the key of the folder that really holds its files: in a
        bucket, of the upload attempt that the manifest names. None without a valid manifest.

        The manifest is cached until its object changes, since a plan over a year of days asks for each a hundred times.
        """
        base = self._key(folder)
        key = f"{base}/{manifests.NAME}"
        found = self.objects.seen(key)
        if found is None:
            return None
        cached = self._read.get(key)
        if cached is None or cached[0] != found:
            manifest, attempt = manifests.manifest_and_attempt(self.objects.read(key) or b"", self.objects.address(key))
            if manifest is None or (self.objects.remote and attempt is None):
                cached = self._read[key] = (found, None)
            else:
                cached = self._read[key] = (found, (manifest, f"{base}/{attempt}" if attempt else base))
        return cached[1]

    def exists(self) -> bool:
        """Returns whether the store exists: on a disk, the folder stages/; in a bucket, any object below stages/."""
        return bool(self.children(self.stages)) if self.objects.remote else self.stages.is_dir()

    def local(self, folder: Path) -> Path:
        """Fetch the missing files of `folder`, an output or a model version, to this machine's disk; returns `folder`.

        Raises:
            StoreError: a file is gone or damaged, or cannot be fetched from the bucket.
        """
        if self._copy is not None:
            self._copy.fetch({folder: None})
        return folder

    def url(self, path: Path) -> str | None:
        """Returns the address in the bucket of an output or a model version, or of a file or folder in it; None when the
        store is a folder on a disk."""
        if not self.objects.remote:
            return None
        folder = self.root.joinpath(*path.relative_to(self.root).parts[:3])
        inside = "" if path == folder else f"/{path.relative_to(folder).as_posix()}"
        return self.objects.address(self._files(folder) + inside)

    def shown(self, path: Path) -> str:
        """Returns the name by which people know a file or a folder: its address in the bucket, or its path on the disk."""
        return self.url(path) or str(path)

    def localize(self, paths: Iterable[Path], *, later: bool = False) -> RemoteFiles | None:
        """Fetch files of outputs and model versions to this machine's disk.

        Args:
            paths: the files or folders to fetch; paths outside the store are ignored.
            later: skip the files of ingested spans (such as a month of rows), because their reader fetches them itself.

        Returns:
            The skipped files, which the reader fetches with `headway.storage.prefetch.Stager`; None when none was skipped.

        Raises:
            StoreError: a file is gone or damaged.
        """
        return None if self._copy is None else self._copy.localize(paths, later=later)

    def prefetch(self, stage: str, fingerprints: Sequence[str]) -> None:
        """Read and cache the manifests of a stage's outputs in parallel; does nothing for a store in a folder."""
        if self.objects.remote and fingerprints:
            self.objects.seen(f"stages/{stage}/")  # once, not in every thread
            in_parallel(lambda name: self._placed(self.output(stage, name)), fingerprints)

    def refresh(self) -> None:
        """Drop the cached listings of the bucket, because another process may have written to the bucket."""
        self.objects.refresh()

    def children(self, folder: Path) -> list[str]:
        """Returns the names right below a folder, sorted; an empty list when there is no such folder."""
        return self.objects.children("" if folder == self.root else self._key(folder))

    def manifest(self, folder: Path) -> Manifest | None:
        """Returns the manifest of an output or a model version, without a check of the files; None if no manifest is valid."""
        placed = self._placed(folder)
        return placed[0] if placed else None

    def _files(self, folder: Path) -> str:
        """Returns the key below which the files of `folder` lie: its own, or in a bucket that of the upload attempt."""
        placed = self._placed(folder)
        return placed[1] if placed else self._key(folder)

    def sizes_problem(self, folder: Path, manifest: Manifest) -> str | None:
        """Returns the problem of the first file that is missing or has the wrong size, in an output or a model version;
        None when all sizes are right."""
        base = self._files(folder)
        return manifests.sizes_problem(manifest, lambda name: self.objects.size_or_reason(f"{base}/{name}"))

    def checksum_problems(self, folder: Path, manifest: Manifest) -> list[tuple[str, str]]:
        """Returns the name and the problem of each file that differs from its manifest entry. Reads every byte."""
        base = self._files(folder)
        states = self.objects.checksums([f"{base}/{entry.path}" for entry in manifest.files])
        return manifests.checksum_problems(manifest, states)

    def publish(self, temporary: Path, target: Path) -> None:
        """Rename (in a bucket, upload) a finished temporary folder to `target`, which appears at once and complete.

        Raises:
            StoreError: `target` exists, since another process was faster.
        """

        def good(key: str) -> bool:
            raise StoreError("another process made it meanwhile", where=self.objects.address(key), fix="run again")

        self._publish(temporary, target, good)

    def _publish(self, temporary: Path, target: Path, good: Callable[[str], bool]) -> None:
        self.objects.publish(temporary, self._key(target), good)
        self._read.pop(f"{self._key(target)}/{manifests.NAME}", None)
        if self._copy is not None:
            self._copy.swap(temporary, target)

    def is_published(self, target: Path) -> bool:
        """Returns whether a serving copy has been published completely."""
        return self.objects.is_published(self._key(target))

    def read(self, path: Path) -> bytes:
        """Returns the bytes of a small file, never from a cache, since it may change at any time.

        Raises:
            FileNotFoundError: there is no such file.
        """
        data = self.objects.read(self._key(path))
        if data is None:
            raise FileNotFoundError(str(path))
        return data

    def replace(self, path: Path, text: str) -> None:
        """Write a small file atomically: readers see the old text or the new text, never a part."""
        self.objects.write(self._key(path), text.encode())
        self.refresh()

    def size(self, path: Path) -> int:
        """Returns the number of bytes that removing a file or a folder would free."""
        return self.objects.freed(self._key(path))

    def last_write_in(self, folder: Path) -> float:
        """Returns the time of the last write in a folder, in seconds since 1970; the present time when the folder is
        gone."""
        return self.objects.last_write_in(self._key(folder))

    def discard(self, path: Path) -> None:
        """Remove a file or a folder, also in the bucket. If interrupted, it leaves nothing that looks like a damaged output."""
        self.objects.remove(self._key(path))
        if self.objects.remote:
            remove(path)

    def clock(self) -> float:
        """Returns the present time in seconds since 1970 by the clock of the disk or the bucket, which all machines share."""
        return self.objects.time()

    def lock(self, name: str, facts: dict[str, Any] | None = None, *, once: bool = False) -> Lock:
        """Returns the lock `name`, not yet taken. `facts` describe its holder; `once`: nobody else ever takes this name."""
        return Lock(self.objects, f"locks/{name}.json", facts=facts, once=once, on_taken=self.refresh)

    @contextlib.contextmanager
    def checkpointing(self, fingerprint: str) -> Iterator[None]:
        """Download a training's newest checkpoint before the block, and upload new ones during it. Does nothing on a disk."""
        if self._copy is None:
            yield
        else:
            with self._copy.checkpointing(self.checkpoints / fingerprint):
                yield

    @contextlib.contextmanager
    def open(self, stage: str, fingerprint: str, key: Key, *, resumes: bool = False) -> Iterator[Staging]:
        """Yields a new output in a temporary folder. The caller writes files there and calls `commit`; else they are deleted.

        Args:
            resumes: take over the folder of a dead process that was writing the same output, with its files.

        Raises:
            StoreError: the disk is full, or this user may not write to it.
        """
        path = self.staging / temporary_name(f"{stage}-{fingerprint}")
        with writing(self.root):
            for old in self.staging.glob(f"{stage}-{fingerprint}@*") if resumes else ():
                if is_abandoned(old):
                    with contextlib.suppress(OSError):  # another process was faster, or took over another one
                        old.rename(path)
            path.mkdir(parents=True, exist_ok=resumes)
            staging = Staging(self, stage, fingerprint, key, path)
            try:
                yield staging
            finally:
                remove(path)
                staging.delete_uncommitted()

    def _commit(self, staging: Staging, manifest: Manifest, attempt: str | None) -> None:
        """Publish the written files as the output that `manifest` describes, unless another process has just published it.

        Args:
            attempt: the upload attempt (a folder in the bucket) with the files; None: they are in the staging folder.
        """
        stage, fingerprint = manifest.stage, manifest.fingerprint
        target = self.output(stage, fingerprint)

        def good(key: str) -> bool:
            return self._judge(self.root / key, stage, fingerprint)[0] is not None

        if attempt is not None and isinstance(self.objects, Bucket):
            self.objects.commit(self._key(target), attempt, manifest, good)
        else:
            manifests.write(staging.path, manifest)
            self._publish(staging.path, target, good)

    def manifests(self, stage: str) -> list[Manifest]:
        """Returns the valid manifests of all outputs of a stage, newest first."""
        folder, names = self.stages / stage, self.children(self.stages / stage)
        self.prefetch(stage, names)
        manifests_there = [m for name in names if (m := self.manifest(folder / name)) is not None]
        return sorted(manifests_there, key=lambda m: m.created, reverse=True)

    def nearest(self, stage: str, key: Key, *, but: Collection[str] = ()) -> Manifest | None:
        """Returns the manifest of the stage's output whose key is most similar to `key`, the newest of equals; None: no output.

        Args:
            but: names of key entries. An output whose key has such an entry is skipped, unless `key` has that entry too.
        """
        other = set(but) - key.keys()
        manifests = [manifest for manifest in self.manifests(stage) if not other & manifest.key.keys()]
        return max(manifests, key=lambda m: equal_leaves(m.key, key), default=None)

    def all_outputs(self) -> Iterator[tuple[str, Path]]:
        """Yields the stage's name and the folder of every output."""
        for stage in self.children(self.stages):
            if not stage.startswith("."):
                for name in self.children(self.stages / stage):
                    yield stage, self.stages / stage / name

    def verify(self) -> Iterator[tuple[Path, str]]:
        """Yields the file and the problem for each damage to an output or a run record. Reads every byte.

        `Registry.verify` does the same for a model's versions and pointers.
        """
        for stage, folder in self.all_outputs():
            yield from self.output_problems(stage, folder)
        for path in self._run_files():
            if self._run(path) is None:
                yield path, "is not a run's JSON"

    def output_problems(self, stage: str, folder: Path) -> Iterator[tuple[Path, str]]:
        """Yields the path and the problem of each damaged file of one output. Reads every byte of the output."""
        manifest = self.manifest(folder)
        if manifest is None:
            yield folder / manifests.NAME, "is gone or damaged"
            return
        if (manifest.stage, manifest.fingerprint) != (stage, folder.name):
            yield folder / manifests.NAME, f"is that of {manifest.stage}/{manifest.fingerprint}"
        for name, problem in self.checksum_problems(folder, manifest):
            yield folder / name, problem

    def sweep(self) -> list[Path]:
        """Delete dead processes' temporary folders, except resumable ones, and old unused upload attempts; returns the paths."""
        asides = list(self.staging.iterdir()) if self.staging.is_dir() else []
        # the registry writes beside its target, since serving/ may be a disk of its own
        for pattern in ("models/*", "serving/*", "runs", "locks"):
            asides += self.root.glob(f"{pattern}/.*@*")
        swept = [path for path in sorted(asides) if is_abandoned(path) and not _resumable(path)]
        for path in swept:
            remove(path)
        if isinstance(self.objects, Bucket):
            for attempt in self.objects.attempts():
                placed = self._placed(self.root / attempt.rpartition("/")[0])
                if placed is None or placed[1] != attempt:
                    self.objects.delete_folder(attempt)
                    swept.append(self.root / attempt)
            self.refresh()
        return swept

    def runs(self) -> Iterator[dict[str, Any]]:
        """Yields the record of each run, newest first. Damaged records are skipped. On a disk, it reads one record at a time."""
        files = self._run_files()[::-1]
        return (run for run in (in_parallel if self.objects.remote else map)(self._run, files) if run is not None)

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


def _resumable(path: Path) -> bool:
    """Returns whether a dead process's temporary folder has a folder for finished ranges that changed less than a day ago. The
    next run of the same step takes such a folder over."""
    try:
        return time.time() - (path / RANGES).stat().st_mtime < ORPHAN_SECONDS
    except OSError:
        return False


class Staging:
    """An output that is being written, in a temporary folder, until `commit` makes it visible."""

    def __init__(self, store: Store, stage: str, fingerprint: str, key: Key, path: Path):
        self._store, self._stage, self._fingerprint, self._key = store, stage, fingerprint, key
        self.path = path
        self._attempt: str | None = None

    @property
    def upload_folder(self) -> str | None:
        """The address of a new folder in the bucket, to which workers on any machine upload files; None for a store on a disk."""
        if isinstance(self._store.objects, Bucket):
            self._attempt = self._attempt or new_attempt()
            return self._store.objects.address(self._folder)
        return None

    @property
    def _folder(self) -> str:
        return f"stages/{self._stage}/{self._fingerprint}/{self._attempt}"

    def delete_uncommitted(self) -> None:
        """Delete the uncommitted files in `upload_folder`. Errors are ignored: a later `Store.sweep` deletes the rest."""
        if self._attempt is not None and isinstance(self._store.objects, Bucket):
            with contextlib.suppress(StoreError):
                self._store.objects.delete_folder(self._folder)

    def commit(
        self,
        *,
        result: dict[str, Any],
        counts: Counts | None = None,
        seconds: float = 0.0,
        files: Sequence[Mapping[str, Any]] | None = None,
    ) -> Manifest:
        """Write the manifest, and make the output visible with all its files at once.

        Args:
            files: the manifest entries of the files, in `upload_folder` if that was used, else in `path`; None: all in `path`.

        Returns:
            The manifest as read back from the store, so that `result` has passed through JSON as for every later reader.
        """
        entries = manifests.entries(self.path) if files is None else [FileEntry(**entry) for entry in files]
        manifest = Manifest(
            stage=self._stage,
            fingerprint=self._fingerprint,
            key=self._key,
            files=tuple(entries),
            created=now(),
            seconds=round(seconds, 3),
            tools=manifests.tools(),
            counts=counts,
            result=result,
        )
        self._store._commit(self, manifest, self._attempt)
        self._attempt = None
        stored = self._store.find(self._stage, self._fingerprint)
        if stored is None:
            where = str(self._store.output(self._stage, self._fingerprint))
            raise StoreError("was removed or damaged as it was written", where=where, fix="run again")
        return stored


CHECKPOINT_SECONDS = 60.0
"""The seconds between two uploads of a training's new checkpoints."""


class WorkingCopy:
    """The working copy of a store in a bucket: a folder on this machine's disk, with its downloads and uploads.

    Args:
        placed: returns the manifest of an output or a version and the key of its files; None when there is none.
    """

    def __init__(self, bucket: Bucket, root: Path, placed: Callable[[Path], tuple[Manifest, str] | None]):
        self.bucket, self.root, self._placed = bucket, root, placed
        self.staging = root / "stages" / ".staging"

    def _key(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def localize(self, paths: Iterable[Path], *, later: bool) -> RemoteFiles | None:
        """Fetch files to this disk, and return those that their reader fetches itself. Implements `Store.localize`."""
        files_of: dict[Path, set[str] | None] = {}
        for path in paths:
            parts = path.relative_to(self.root).parts if path.is_relative_to(self.root) else ()
            if len(parts) < 3 or parts[0] not in ("stages", "models"):
                continue
            folder, inner = self.root.joinpath(*parts[:3]), "/".join(parts[3:])
            files = files_of.setdefault(folder, set())
            if not inner:
                files_of[folder] = None
            elif files is not None:
                files.add(inner)
        staged = [folder for folder in sorted(files_of) if later and folder.parent == self.root / "stages" / "ingest"]
        self.fetch({folder: files_of[folder] for folder in sorted(files_of) if folder not in staged})
        if not staged:
            return None
        folders = []
        for folder in staged:
            key, entries, _ = self._entries(folder, files_of[folder])
            folders.append(RemoteFolder(path=folder, key=key, files=tuple(entries)))
        return RemoteFiles(url=self.bucket.url, root=self.root, folders=tuple(folders))

    def _entries(self, folder: Path, paths: set[str] | None) -> tuple[str, list[FileEntry], Manifest]:
        """Returns, for an output or a model version, the key of the folder with its files, the manifest entries of the files
        at or below `paths` (None: of all files), and the whole manifest. Raises StoreError if there is no manifest."""
        placed = self._placed(folder)
        if placed is None:
            where = self.bucket.address(self._key(folder))
            raise StoreError("is gone", where=where, fix="headway run makes it again")
        manifest, key = placed
        entries = [e for e in manifest.files if paths is None or any(f"{e.path}/".startswith(f"{n}/") for n in paths)]
        return key, entries, manifest

    def fetch(self, files_of: Mapping[Path, set[str] | None]) -> None:
        """Download missing files, and check each. `files_of` holds for each folder the paths in it, or None for all files."""
        missing: list[tuple[str, Path, int, str]] = []
        whole: dict[Path, Manifest] = {}
        for folder, paths in files_of.items():
            key, entries, manifest = self._entries(folder, paths)
            trusted = manifests.read(folder) == manifest
            if paths is None and not trusted:
                whole[folder] = manifest
            for entry in entries:
                path = folder / entry.path
                sized = manifests.value_or_reason(path, manifests.size) == entry.bytes
                if not (sized and (trusted or intact(path, entry.bytes, entry.crc32c))):
                    missing.append((f"{key}/{entry.path}", path, entry.bytes, entry.crc32c))
        in_parallel(lambda item: get(self.bucket, self.root, *item), missing)
        with writing(self.root):
            for folder, manifest in whole.items():
                folder.mkdir(parents=True, exist_ok=True)
                manifests.write(folder, manifest)

    def swap(self, temporary: Path, target: Path) -> None:
        """Rename the folder `temporary` to `target` in the working copy, and delete the old `target`."""
        target.parent.mkdir(parents=True, exist_ok=True)
        old = self.staging / temporary_name(f"old-{target.name}")
        with contextlib.suppress(FileNotFoundError):
            target.rename(old)
        # another process of this machine may have fetched the same meanwhile
        with contextlib.suppress(OSError):
            temporary.rename(target)
        remove(old)

    @contextlib.contextmanager
    def checkpointing(self, folder: Path) -> Iterator[None]:
        """Do the work of `Store.checkpointing` for `folder`, which holds the checkpoints of one training."""
        self._get_newest(folder)
        stop = threading.Event()

        def put() -> None:
            while not stop.wait(CHECKPOINT_SECONDS):
                self._put_new(folder)

        thread = threading.Thread(target=put, name="checkpoints", daemon=True)
        thread.start()
        try:
            yield
        except BaseException:
            stop.set()
            thread.join()
            self._put_new(folder)
            raise
        else:
            stop.set()
            thread.join()

    def _put_new(self, folder: Path) -> None:
        """Upload the complete checkpoints that the bucket lacks. Errors are ignored: the next call tries again."""
        with contextlib.suppress(StoreError, OSError):
            listing = self.bucket.listing(self._key(folder))
            for step in folder.iterdir() if folder.is_dir() else []:
                done = f"{self._key(step)}/{LAST[1]}"
                if step.name.isdigit() and done not in listing:
                    self.bucket.publish_plain(step, self._key(step))

    def _get_newest(self, folder: Path) -> None:
        """Download the newest complete checkpoint unless the disk has it. Its crc32c is left to the training to check."""
        key = self._key(folder)
        listing = self.bucket.listing(key)
        whole = [name.split("/")[-2] for name in listing if name.endswith("/" + LAST[1])]
        newest = max((int(step) for step in whole if step.isdigit()), default=None)
        if newest is None or (folder / str(newest)).is_dir():
            return
        temporary, inside = self.staging / temporary_name(f"get-{newest}"), f"{key}/{newest}/"

        def fetch(name: str) -> None:
            self.bucket.copy(name, temporary / name.removeprefix(inside))

        in_parallel(fetch, [name for name in listing if name.startswith(inside)])
        self.swap(temporary, folder / str(newest))
