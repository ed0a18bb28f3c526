"""Fetches files of a store in a bucket to this disk while earlier ones are being read.

    remote = store.localize(request.input_paths(), later=True)     # the files that are left to fetch
    with Stager(remote) as stager:
        stager.ahead(paths)         # in the order in which they will be read; returns at once
        open(stager.ensure(path))   # blocks until the file is there, whole and checked

Every file is checked by size and crc32c, also one that an earlier run has fetched. A file for which a reader waits comes first.
"""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from headway.config import Frozen
from headway.errors import Cancelled, StoreError
from headway.storage.atomic_io import remove, writing
from headway.storage.bucket import Bucket
from headway.storage.manifest import FileEntry, checksum
from headway.storage.process_identity import temporary_name

GETS = 8
"""The number of simultaneous downloads; with more of them, the file that is needed first would arrive later."""
_POLL_SECONDS = 0.2


class RemoteFolder(Frozen):
    path: Path
    """The folder of the output in the working copy."""
    key: str
    """The key of the output's files in the bucket."""
    files: tuple[FileEntry, ...]


class RemoteFiles(Frozen):
    """Files of outputs, with their addresses in the bucket and on this disk, for a process that fetches them itself."""

    url: str
    root: Path
    """The folder of the working copy."""
    folders: tuple[RemoteFolder, ...]


class _File(NamedTuple):
    key: str
    bytes: int
    crc32c: str


class Stager(contextlib.AbstractContextManager["Stager"]):
    """Downloads files in the background, in the order in which they will be read. Several threads may share one Stager.

    Args:
        cancelled: called now and then while a reader waits; if it returns True, the wait ends with the error Cancelled.
    """

    def __init__(self, remote: RemoteFiles, *, gets: int = GETS, cancelled: Callable[[], bool] = lambda: False):
        self._bucket, self._root = Bucket(remote.url), remote.root
        self._files = {
            str(folder.path / entry.path): _File(f"{folder.key}/{entry.path}", entry.bytes, entry.crc32c)
            for folder in remote.folders
            for entry in folder.files
        }
        self._gets, self._cancelled = gets, cancelled
        self._changed = threading.Condition()
        self._urgent: collections.deque[str] = collections.deque()
        self._queue: collections.deque[str] = collections.deque()
        self._waiting: collections.Counter[str] = collections.Counter()
        self._getting: set[str] = set()
        self._failed: dict[str, Exception] = {}
        self._here: set[str] = set()
        """The files that were checked, and are on this disk."""
        self._threads: list[threading.Thread] = []
        self._paused = self._closed = False
        self.error: Exception | None = None
        """The error of the last `ensure` that failed, kept since code between `ensure` and the caller may raise another."""
        self.fetched, self.fetched_bytes, self.waited = 0, 0, 0.0
        """The numbers of files and bytes that were downloaded, and the seconds that readers waited."""

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- for readers

    def ahead(self, paths: Iterable[str]) -> None:
        """Fetch files in the background in this order, instead of an earlier order. Files that `remote` lacks are skipped."""
        with self._changed:
            self._queue = collections.deque(path for path in paths if path in self._files)
            self._paused = False
            self._start()
            self._changed.notify_all()

    def ensure(self, path: str) -> str:
        """Wait until the file is complete on this disk, and return `path`. For a file that `remote` lacks, return at once.

        Raises:
            StoreError: the object cannot be downloaded, or its bytes are not those of the manifest.
            Cancelled: `cancelled` returned True.
        """
        if path not in self._files:
            return path
        began = time.monotonic()
        with self._changed:
            self._waiting[path] += 1
            try:
                self._wait(path)
            except Exception as error:
                self.error = error
                raise
            finally:
                self._waiting[path] -= 1
                self.waited += time.monotonic() - began
        return path

    def _wait(self, path: str) -> None:
        if path in self._here and not Path(path).exists():  # the working copy may be deleted at any time
            self._here.discard(path)
        while path not in self._here:
            if path in self._failed:
                raise self._failed.pop(path)
            if self._closed:
                raise StoreError("is not fetched any more: its reader has ended", where=path)
            if self._cancelled():
                raise Cancelled("stopped on request while a shard was being fetched")
            if path not in self._getting and path not in self._urgent:
                self._urgent.append(path)
                self._start()
                self._changed.notify_all()
            self._changed.wait(_POLL_SECONDS)

    def close(self) -> None:
        """Stop fetching; downloads under way end by themselves."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # --- the threads

    def _start(self) -> None:
        while len(self._threads) < self._gets and not self._closed:
            thread = threading.Thread(target=self._work, name="stager", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while (path := self._next()) is not None:
            error: Exception | None = None
            got = 0
            try:
                got = self._fetch(path)
            except Exception as failure:
                error = failure
            with self._changed:
                self._getting.discard(path)
                if error is None:
                    self._here.add(path)
                    self.fetched, self.fetched_bytes = self.fetched + (got > 0), self.fetched_bytes + got
                    self._paused = False
                elif self._waiting[path]:
                    self._failed[path] = error
                    with contextlib.suppress(ValueError):
                        self._queue.remove(path)  # whoever needs it has been told
                else:  # whoever needs it tries again and is told
                    self._queue.appendleft(path)
                    self._paused = True
                self._changed.notify_all()

    def _next(self) -> str | None:
        """Returns the next file to fetch; None when the stager is closed."""
        with self._changed:
            while not self._closed:
                path = self._choose()
                if path is not None:
                    self._getting.add(path)
                    return path
                self._changed.wait()
        return None

    def _choose(self) -> str | None:
        while queue := self._urgent or (() if self._paused else self._queue):
            path = queue.popleft()
            if path not in self._here and path not in self._getting:
                return path
        return None

    def _fetch(self, path: str) -> int:
        """Download a file unless it is intact on this disk. Returns the number of downloaded bytes."""
        key, size, crc32c = self._files[path]
        if intact(Path(path), size, crc32c):
            return 0
        get(self._bucket, self._root, key, Path(path), size, crc32c)
        return size


def intact(path: Path, size: int, crc32c: str) -> bool:
    """Read a file, and return whether it has this size and checksum."""
    try:
        return path.stat().st_size == size and checksum(path) == (size, crc32c)
    except OSError:
        return False


def get(bucket: Bucket, root: Path, key: str, path: Path, size: int, crc32c: str) -> None:
    """Download an object into the working copy under a temporary name, check it, and rename it to `path`.

    Raises:
        StoreError: the object is gone or damaged, the bucket does not answer, or the disk is full.
    """
    temporary = root / "stages" / ".staging" / temporary_name(f"get-{path.name}")
    with writing(root):
        try:
            bucket.get(key, temporary, size, crc32c)
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.replace(path)
        finally:
            remove(temporary)
