"""A store in a bucket, with a folder on this machine's disk as its working copy.

    store = open_store("s3://team/headway")         # or gs://, or a local folder: a plain Store
    store.find("ingest", fingerprint)               # asks the bucket
    store.local(store.output("ingest", fingerprint))    # its files, fetched and checked, on this disk

The layout is the local store's, with one folder more. A bucket has no rename, so the files of an output or a version are
put under a new name, stages/<stage>/<fingerprint>/<attempt>/, and the put of stages/<stage>/<fingerprint>/manifest.json,
which names the attempt, is the commit: no object of a committed output is ever written again, two machines that commit
the same output cannot mix their files, and an attempt that no manifest names does not exist.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.errors import ConfigError, StoreError
from headway.storage import manifest as manifests
from headway.storage.atomic_io import remove, writing
from headway.storage.filesystem import is_remote
from headway.storage.locks import Lock
from headway.storage.manifest import FileEntry, Manifest
from headway.storage.object_store import Bucket, Found, each
from headway.storage.prefetch import RemoteFiles, RemoteFolder, get, intact, names
from headway.storage.process_identity import mark
from headway.storage.store import Store

_LAST = ("saved_model.pb", "checkpoint.json")
"""What makes a serving copy or a checkpoint whole is put last."""
_LISTING_SECONDS = 2.0


def open_store(where: str | Path, cache: Path | None = None, limit: int | None = None) -> Store:
    """Open the store at a folder or at s3://bucket/path, gs://bucket/path.

    Args:
        cache: the folder of the working copy; by default one below ~/.cache/headway.
        limit: bytes that shards may take there; None: as many as there are.
    """
    text = str(where)
    if "://" not in text:
        return Store(Path(where))
    if not is_remote(text):
        raise ConfigError(f"{text!r} is not a store", fix="name a folder, s3://bucket/path or gs://bucket/path")
    return BucketStore(text, cache or default_cache(text), limit)


def default_cache(url: str) -> Path:
    """The default working copy: ~/.cache/headway/<scheme>/<bucket>/<path>, with XDG_CACHE_HOME for ~/.cache."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "headway" / url.rstrip("/").replace("://", "/")


class BucketStore(Store):
    """A store in a bucket; `root` is the working copy, which may be deleted at any time between runs."""

    orphan_seconds = 24 * 3600.0
    """Objects of an attempt that no manifest names are swept once all are older than this."""
    checkpoint_seconds = 60.0
    """How often a training's new checkpoints are put."""

    def __init__(self, url: str, cache: Path, limit: int | None = None):
        super().__init__(cache)
        self.bucket, self.limit = Bucket(url), limit
        self._listings: dict[str, tuple[float, dict[str, Found]]] = {}
        self._manifests: dict[str, tuple[Found, tuple[Manifest, str] | None]] = {}

    @property
    def name(self) -> str:
        return self.bucket.url

    def create(self) -> None:
        self.bucket.check()
        super().create()

    def exists(self) -> bool:
        return bool(self.bucket.children("stages"))

    # --- what is there

    def _key(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _listing(self, key: str) -> dict[str, Found]:
        """Every object of the stage or the model that `key` belongs to, listed at most seconds ago."""
        area = "/".join(key.split("/")[:2])
        listings = self._listings  # another one after a refresh: what was listed before must not outlive it
        cached = listings.get(area)
        if cached is None or time.monotonic() > cached[0]:
            began = time.monotonic()
            files = self.bucket.listing(area)
            took = time.monotonic() - began
            # a listing that takes long is asked for less often
            cached = listings[area] = (time.monotonic() + max(_LISTING_SECONDS, 10 * took), files)
        return cached[1]

    def refresh(self) -> None:
        self._listings = {}

    def _placed(self, folder: Path) -> tuple[Manifest, str] | None:
        """The valid manifest of an output or a version, and the attempt that it names."""
        key = f"{self._key(folder)}/{manifests.NAME}"
        file = self._listing(key).get(key)
        if file is None:
            return None
        cached = self._manifests.get(key)
        if cached is None or cached[0] != file:
            cached = self._manifests[key] = (file, self._parse(key, self.bucket.read(key)))
        return cached[1]

    def _parse(self, key: str, data: bytes | None) -> tuple[Manifest, str] | None:
        try:
            value = json.loads(data or b"")
            attempt = value.pop("attempt")
        except (ValueError, KeyError, AttributeError, TypeError):
            return None
        manifest = manifests.parse(json.dumps(value).encode(), self.bucket.name(key))
        return None if manifest is None else (manifest, str(attempt))

    def _judge(self, folder: Path, stage: str, fingerprint: str) -> tuple[Manifest | None, str | None]:
        """As on a disk. A manifest that another machine has just put names files that an older listing lacks: a problem
        counts when a listing that is newer than the manifest shows it too."""
        judged, placed = super()._judge(folder, stage, fingerprint), self._placed(folder)
        while judged[1] is not None:
            before = placed
            self.refresh()
            judged, placed = super()._judge(folder, stage, fingerprint), self._placed(folder)
            if placed == before:
                break
        return judged

    def _is_there(self, folder: Path) -> bool:
        key = f"{self._key(folder)}/{manifests.NAME}"
        return key in self._listing(key)

    def prefetch(self, stage: str, fingerprints: Sequence[str]) -> None:
        self._listing(f"stages/{stage}")  # once, not in every thread
        each(lambda name: self._placed(self.output(stage, name)), fingerprints)

    def manifest(self, folder: Path) -> Manifest | None:
        placed = self._placed(folder)
        return placed[0] if placed else None

    _manifest = manifest

    def manifests(self, stage: str) -> list[Manifest]:
        self.prefetch(stage, self.children(self.stages / stage))
        return super().manifests(stage)

    def _files(self, folder: Path) -> str:
        """The key of a folder's files: in its attempt, or, for a serving copy, which has none, in the folder."""
        placed = self._placed(folder)
        return f"{self._key(folder)}/{placed[1]}" if placed else self._key(folder)

    def sizes_problem(self, folder: Path, manifest: Manifest) -> str | None:
        base = self._files(folder)
        listed = self._listing(base)

        def size_of(name: str) -> int | str:
            file = listed.get(f"{base}/{name}")
            return "is gone" if file is None else file.bytes

        return manifests.sizes_problem(manifest, size_of)

    def checksum_problems(self, folder: Path, manifest: Manifest) -> list[tuple[str, str]]:
        base = self._files(folder)
        states = each(lambda entry: self.bucket.checksum(f"{base}/{entry.path}") or "is gone", manifest.files)
        return manifests.checksum_problems(manifest, states)

    def children(self, folder: Path) -> list[str]:
        key = self._key(folder)
        if "/" not in key:
            return self.bucket.children(key)
        cut = len(key) + 1
        listed = [name[cut:] for name in self._listing(key) if name.startswith(key + "/")]
        if key.startswith(("stages/", "models/")) and key.count("/") == 1:
            # an attempt that was never committed is not a child
            whole = [name.removesuffix("/" + manifests.NAME) for name in listed if name.endswith("/" + manifests.NAME)]
            listed = [*(n for n in whole if "/" not in n), *(n for n in listed if "/" not in n)]
        return sorted({name.split("/", 1)[0] for name in listed})

    def runs(self) -> list[dict[str, Any]]:
        return [run for run in each(self._run, self._run_files()[::-1]) if run is not None]

    def size(self, path: Path) -> int:
        key = self._key(path)
        return sum(f.bytes for name, f in self.bucket.listing(key.rpartition("/")[0]).items() if _inside(name, key))

    def changed(self, folder: Path) -> float:
        key = self._key(folder)
        listed = self.bucket.listing(key.rpartition("/")[0] if folder.suffix == ".html" else key)
        times = [file.changed for name, file in listed.items() if _inside(name, key)]
        return max(times, default=time.time_ns()) / 1e9

    # --- from the bucket to the disk

    def local(self, folder: Path) -> Path:
        self._fetch({folder: None})
        return folder

    def localize(self, value: Any, *, later: bool = False) -> RemoteFiles | None:
        files_of: dict[Path, set[str] | None] = {}
        root = str(self.root) + os.sep
        for name in {str(text) for text in names(value)}:
            parts = Path(name).relative_to(self.root).parts if name.startswith(root) else ()
            if len(parts) < 3 or parts[0] not in ("stages", "models"):
                continue
            folder, inner = self.root.joinpath(*parts[:3]), "/".join(parts[3:])
            files = files_of.setdefault(folder, set())
            if not inner:
                files_of[folder] = None
            elif files is not None:
                files.add(inner)
        staged = [folder for folder in sorted(files_of) if later and folder.parent == self.stages / "ingest"]
        self._fetch({folder: files_of[folder] for folder in sorted(files_of) if folder not in staged})
        if not staged:
            return None
        folders = []
        for folder in staged:
            key, entries, _ = self._entries(folder, files_of[folder])
            folders.append(RemoteFolder(path=folder, key=key, files=tuple(entries)))
        return RemoteFiles(url=self.bucket.url, root=self.root, limit=self.limit, folders=tuple(folders))

    def _entries(self, folder: Path, paths: set[str] | None) -> tuple[str, list[FileEntry], Manifest]:
        """(key, entries, manifest) of an output's or a version's files: those at or below `paths`, or all (None)."""
        placed = self._placed(folder)
        if placed is None:
            where = self.bucket.name(self._key(folder))
            raise StoreError("is gone", where=where, fix="headway run makes it again")
        manifest, attempt = placed
        entries = [e for e in manifest.files if paths is None or any(_inside(e.path, name) for name in paths)]
        return f"{self._key(folder)}/{attempt}", entries, manifest

    def _fetch(self, files_of: Mapping[Path, set[str] | None]) -> None:
        """Download the missing files of outputs and versions: in parallel, each checked, each by a rename."""
        missing: list[tuple[str, Path, int, str]] = []
        whole: dict[Path, Manifest] = {}
        for folder, paths in files_of.items():
            key, entries, manifest = self._entries(folder, paths)
            trusted = manifests.read(folder) == manifest
            if paths is None and not trusted:
                whole[folder] = manifest
            for entry in entries:
                path = folder / entry.path
                sized = manifests.on_disk(path, manifests.size) == entry.bytes
                if not (sized and (trusted or intact(path, entry.bytes, entry.crc32c))):
                    missing.append((f"{key}/{entry.path}", path, entry.bytes, entry.crc32c))
        each(lambda item: get(self.bucket, self.root, *item), missing)
        with writing(self.root):
            for folder, manifest in whole.items():
                folder.mkdir(parents=True, exist_ok=True)
                manifests.write(folder, manifest)

    def _swap(self, temporary: Path, target: Path) -> None:
        """Replace the working copy's folder by `aside`."""
        target.parent.mkdir(parents=True, exist_ok=True)
        old = self.staging / mark(f"old-{target.name}")
        with contextlib.suppress(FileNotFoundError):
            target.rename(old)
        # another process of this machine may have fetched the same meanwhile
        with contextlib.suppress(OSError):
            temporary.rename(target)
        remove(old)

    def read(self, path: Path) -> bytes:
        data = self.bucket.read(self._key(path))
        if data is None:
            raise FileNotFoundError(str(path))
        return data

    # --- from the disk to the bucket

    def _commit(self, staging: Path, stage: str, fingerprint: str) -> None:
        self._put(staging, self._key(self.output(stage, fingerprint)))
        self._swap(staging, self.output(stage, fingerprint))

    def _put(self, folder: Path, key: str) -> None:
        """Put a whole folder that has a manifest, manifest last."""
        manifest = manifests.read(folder)
        if manifest is None:
            raise StoreError("its manifest is gone or damaged", where=str(folder))
        attempt = uuid.uuid4().hex[:12]
        base = f"{key}/{attempt}"
        self.bucket.put_all((f"{base}/{e.path}", folder / e.path, e.crc32c) for e in manifest.files)
        listing = self.bucket.listing(base)
        for entry in manifest.files:
            stored = listing.get(f"{base}/{entry.path}")
            if stored is None or stored.bytes != entry.bytes:
                name = self.bucket.name(f"{base}/{entry.path}")
                raise StoreError("the uploaded object is missing or has the wrong size", where=name, fix="run again")
        value = {"attempt": attempt, **manifest.model_dump(mode="json")}
        self.bucket.write(f"{key}/{manifests.NAME}", (json.dumps(value, indent=1) + "\n").encode())
        self._manifests.pop(f"{key}/{manifests.NAME}", None)
        self.refresh()

    def place(self, temporary: Path, target: Path) -> None:
        if (temporary / manifests.NAME).exists():
            self._put(temporary, self._key(target))
        else:
            self._put_plain(temporary, self._key(target))
        self._swap(temporary, target)

    def _put_plain(self, folder: Path, key: str) -> None:
        """Put a folder for readers without manifests; the file that makes it whole goes last."""
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        for last in (False, True):
            chosen = [path for path in files if (path.name in _LAST) == last]
            self.bucket.put_all(
                (f"{key}/{path.relative_to(folder).as_posix()}", path, manifests.checksum(path)[1]) for path in chosen
            )
        self.refresh()

    def placed(self, target: Path) -> bool:
        key = f"{self._key(target)}/{_LAST[0]}"
        return key in self._listing(key)

    def replace(self, path: Path, text: str) -> None:
        self.bucket.write(self._key(path), text.encode())
        self.refresh()

    def discard(self, path: Path) -> None:
        key = self._key(path)
        if path.suffix in (".json", ".log", ".html"):
            self.bucket.delete([key])
        else:
            self.bucket.delete([f"{key}/{manifests.NAME}"])
            self.bucket.delete_folder(key)
        self.refresh()
        remove(path)

    def sweep(self) -> list[Path]:
        swept = super().sweep()
        now = time.time()
        for area in ("stages", "models"):
            attempts: dict[Path, list[int]] = {}
            for key, file in self.bucket.listing(area).items():
                parts = key.split("/")
                if len(parts) > 4:
                    attempts.setdefault(self.root.joinpath(*parts[:4]), []).append(file.changed)
            for folder, changed in attempts.items():
                if now - max(changed) / 1e9 < self.orphan_seconds:
                    continue
                placed = self._placed(folder.parent)
                if placed is None or placed[1] != folder.name:
                    self.bucket.delete_folder(self._key(folder))
                    swept.append(folder)
        self.refresh()
        return swept

    # --- locks and checkpoints

    def clock(self) -> float:
        return self.bucket.time()

    def lock(self, name: str, facts: dict[str, Any] | None = None, *, once: bool = False) -> Lock:
        from headway.storage.object_lock import BucketLock

        path = self.locks / f"{name}.json"
        return BucketLock(self.bucket, path, facts=facts, once=once, on_taken=self.refresh)

    @contextlib.contextmanager
    def checkpointing(self, fingerprint: str, *, keep_best: int = 0) -> Iterator[None]:
        folder = self.checkpoints / fingerprint
        self._get_checkpoints(folder, keep_best)
        stop = threading.Event()
        thread = threading.Thread(target=self._put_checkpoints, args=(folder, stop), name="checkpoints", daemon=True)
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

    def _put_checkpoints(self, folder: Path, stop: threading.Event) -> None:
        while not stop.wait(self.checkpoint_seconds):
            self._put_new(folder)

    def _put_new(self, folder: Path) -> None:
        """Put the whole checkpoints that the bucket lacks; a failure costs another machine some steps, not this one."""
        with contextlib.suppress(StoreError, OSError):
            listing = self.bucket.listing(self._key(folder))
            for step in folder.iterdir() if folder.is_dir() else []:
                done = f"{self._key(step)}/{_LAST[1]}"
                if step.name.isdigit() and done not in listing:
                    self._put_plain(step, self._key(step))

    def _get_checkpoints(self, folder: Path, keep_best: int) -> None:
        """Fetch the newest whole checkpoint and the best ones unless they are here; the training checks their crc32c
        itself."""
        key = self._key(folder)
        listing = self.bucket.listing(key)
        whole = [name.split("/")[-2] for name in listing if name.endswith("/" + _LAST[1])]
        steps = sorted(int(step) for step in whole if step.isdigit())
        needed = {*steps[-1:], *self._best(key, steps, keep_best)}
        missing = [step for step in needed if not (folder / str(step)).is_dir()]
        temporaries = {step: self.staging / mark(f"get-{step}") for step in missing}

        def fetch(item: tuple[int, str]) -> None:
            step, name = item
            self.bucket.copy(name, temporaries[step] / name.removeprefix(f"{key}/{step}/"))

        each(fetch, [(step, name) for step in missing for name in listing if name.startswith(f"{key}/{step}/")])
        for step, temporary in temporaries.items():
            self._swap(temporary, folder / str(step))

    def _best(self, key: str, steps: Sequence[int], most: int) -> list[int]:
        """The steps of the lowest losses. The disk may hold more checkpoints than the training keeps; the best ones are
        kept."""

        def loss(step: int) -> tuple[float, int] | None:
            try:
                return float(json.loads(self.bucket.read(f"{key}/{step}/{_LAST[1]}") or b"")["loss"]), step
            except (ValueError, KeyError, TypeError):  # none was looked at there, or it is torn
                return None

        losses = [pair for pair in each(loss, steps) if pair is not None] if most else []
        return [step for _, step in sorted(losses)[:most]]


def _inside(name: str, key: str) -> bool:
    return name == key or name.startswith(key + "/")
