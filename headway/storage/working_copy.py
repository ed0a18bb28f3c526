"""The working copy of a store in a bucket: a folder on this machine's disk, and what goes between the two.

copy.fetch({folder: None})               # the files of an output, each checked, each by a rename
copy.localize(request.paths(), later=True)       # of all outputs that a request reads
with copy.checkpointing(folder, 3):      # a training here, which another machine may go on with
    ...
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from headway.errors import StoreError
from headway.storage import manifest as manifests
from headway.storage.atomic_io import remove, writing
from headway.storage.bucket import LAST, Bucket
from headway.storage.manifest import FileEntry, Manifest
from headway.storage.objects import each
from headway.storage.prefetch import RemoteFiles, RemoteFolder, get, intact
from headway.storage.process_identity import mark

CHECKPOINT_SECONDS = 60.0
"""How often a training's new checkpoints are put."""


class WorkingCopy:
    """The folder `root`, filled from a bucket.

    Args:
        placed: the manifest of an output or a version, and the key of its files; None when there is none.
    """

    def __init__(self, bucket: Bucket, root: Path, placed: Callable[[Path], tuple[Manifest, str] | None]):
        self.bucket, self.root, self._placed = bucket, root, placed
        self.staging = root / "stages" / ".staging"

    def _key(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def localize(self, paths: Iterable[Path], *, later: bool) -> RemoteFiles | None:
        """Do what `Store.localize` promises."""
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
        """(key, entries, manifest) of an output's or a version's files: those at or below `paths`, or all (None)."""
        placed = self._placed(folder)
        if placed is None:
            where = self.bucket.name(self._key(folder))
            raise StoreError("is gone", where=where, fix="headway run makes it again")
        manifest, key = placed
        entries = [e for e in manifest.files if paths is None or any(f"{e.path}/".startswith(f"{n}/") for n in paths)]
        return key, entries, manifest

    def fetch(self, files_of: Mapping[Path, set[str] | None]) -> None:
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

    def swap(self, temporary: Path, target: Path) -> None:
        """Replace the working copy's folder by `aside`."""
        target.parent.mkdir(parents=True, exist_ok=True)
        old = self.staging / mark(f"old-{target.name}")
        with contextlib.suppress(FileNotFoundError):
            target.rename(old)
        # another process of this machine may have fetched the same meanwhile
        with contextlib.suppress(OSError):
            temporary.rename(target)
        remove(old)

    @contextlib.contextmanager
    def checkpointing(self, folder: Path) -> Iterator[None]:
        """Do what `Store.checkpointing` promises."""
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
        """Put the whole checkpoints that the bucket lacks; a failure costs another machine some steps, not this one."""
        with contextlib.suppress(StoreError, OSError):
            listing = self.bucket.listing(self._key(folder))
            for step in folder.iterdir() if folder.is_dir() else []:
                done = f"{self._key(step)}/{LAST[1]}"
                if step.name.isdigit() and done not in listing:
                    self.bucket.publish_plain(step, self._key(step))

    def _get_newest(self, folder: Path) -> None:
        """Fetch the newest whole checkpoint unless it is here; the training checks its crc32c itself."""
        key = self._key(folder)
        listing = self.bucket.listing(key)
        whole = [name.split("/")[-2] for name in listing if name.endswith("/" + LAST[1])]
        newest = max((int(step) for step in whole if step.isdigit()), default=None)
        if newest is None or (folder / str(newest)).is_dir():
            return
        temporary, inside = self.staging / mark(f"get-{newest}"), f"{key}/{newest}/"

        def fetch(name: str) -> None:
            self.bucket.copy(name, temporary / name.removeprefix(inside))

        each(fetch, [name for name in listing if name.startswith(inside)])
        self.swap(temporary, folder / str(newest))
