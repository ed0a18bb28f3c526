"""Fetches files of a store in a bucket to this disk while earlier ones are being read.

    with Stager(remote, open_files=64) as stager:         # remote: what store.localize(request.paths(), later=True) gave
        stager.ahead(paths)                                # in the order in which they will be read; returns at once
        open(stager.ensure(path))                          # blocks until the file is there, whole and checked

Every file is checked against the size and crc32c of its manifest, also one that lies here from an earlier run. Several
gets run at once, in the order of `ahead`; a file that somebody waits for goes before all others. A limit on the disk
holds by dropping files, least recently used first; a file that was fetched ahead stays until it was read.
"""

from __future__ import annotations

import collections
import contextlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from headway.config import Frozen
from headway.errors import Cancelled, StoreError
from headway.storage.atomic_io import remove, writing
from headway.storage.bucket import Bucket
from headway.storage.filesystem import entries
from headway.storage.manifest import NAME, FileEntry, checksum
from headway.storage.process_identity import mark

GETS = 8
"""At once. More would share the line, and the file that is needed first would come later."""
OPEN_FILES = 8
FOREIGN_SECONDS = 60.0
"""A file that was used this lately may be another process's that is about to open it."""
_POLL_SECONDS = 0.2


class RemoteFolder(Frozen):
    path: Path
    """The output's folder in the working copy."""
    key: str
    """Where its files lie in the bucket."""
    files: tuple[FileEntry, ...]


class RemoteFiles(Frozen):
    """The location of some outputs' files, for a process that fetches them itself."""

    url: str
    root: Path
    """The working copy."""
    limit: int | None = None
    """Bytes that ingested files in the working copy may take; None: as many as there are."""
    folders: tuple[RemoteFolder, ...]


class _File(NamedTuple):
    key: str
    bytes: int
    crc32c: str


class Stager(contextlib.AbstractContextManager["Stager"]):
    """Fetches files in the background, in the order in which they are read; see the module. Threads may share one.

    Args:
        open_files: how many files the reader holds open at once; so many of those last asked for are never dropped.
        cancelled: asked while waiting; true ends the wait with Cancelled.
    """

    def __init__(
        self,
        remote: RemoteFiles,
        *,
        open_files: int = OPEN_FILES,
        gets: int = GETS,
        cancelled: Callable[[], bool] = lambda: False,
    ):
        self._bucket, self._root, self._limit = Bucket(remote.url), remote.root, remote.limit
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
        self._here: collections.OrderedDict[str, bool] = collections.OrderedDict()
        """Checked files, least recently used first; whether each was asked for since it was fetched or listed ahead."""
        self._recent: collections.OrderedDict[str, None] = collections.OrderedDict()
        self._open_files = max(1, open_files)
        self._threads: list[threading.Thread] = []
        self._paused = self._closed = False
        self.error: Exception | None = None
        """What the last `ensure` that failed has raised: a reader in between may not pass it on as it was."""
        self.fetched, self.fetched_bytes, self.waited = 0, 0, 0.0
        """Files and bytes got from the bucket, and the seconds that readers waited."""
        self._old = self._ingested_files() if self._limit is not None else collections.OrderedDict()
        self._bytes = sum(self._old.values())
        self._make_room(None, urgent=False)

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- for readers

    def ahead(self, paths: Iterable[str]) -> None:
        """Set the order in which files will be read next. Names that are not staged are skipped."""
        with self._changed:
            self._queue = collections.deque(path for path in paths if path in self._files)
            self._here.update(dict.fromkeys(self._here, True))
            self._paused = False
            self._start()
            self._changed.notify_all()

    def ensure(self, path: str) -> str:
        """Return `path` once its file is whole on this disk; at once when it is not a staged one.

        Raises:
            StoreError: the bucket does not give it, or gives other bytes; it names the object.
            Cancelled: `cancelled` said so.
        """
        if path not in self._files:
            return path
        began = time.monotonic()
        with self._changed:
            self._recent[path] = None
            self._recent.move_to_end(path)
            if len(self._recent) > self._open_files:
                self._recent.popitem(last=False)
            self._waiting[path] += 1
            try:
                self._wait(path)
            except Exception as error:
                self.error = error
                raise
            finally:
                self._waiting[path] -= 1
                self.waited += time.monotonic() - began
            self._here[path] = True
            self._here.move_to_end(path)
            self._changed.notify_all()  # what was read may make room
        return path

    def _wait(self, path: str) -> None:
        if path in self._here and not Path(path).exists():  # the working copy may be deleted at any time
            self._forget(path)
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
        with contextlib.suppress(OSError):
            os.utime(path)  # the order of use outlives this process

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
                    self._here[path] = False
                    self.fetched, self.fetched_bytes = self.fetched + (got > 0), self.fetched_bytes + got
                    self._paused = False
                else:
                    self._bytes -= self._files[path].bytes
                    if self._waiting[path]:
                        self._failed[path] = error
                        with contextlib.suppress(ValueError):
                            self._queue.remove(path)  # whoever needs it has been told
                    else:  # whoever needs it tries again and is told
                        self._queue.appendleft(path)
                        self._paused = True
                self._changed.notify_all()

    def _next(self) -> str | None:
        """The next file to fetch; None when the stager is closed."""
        with self._changed:
            while not self._closed:
                path = self._choose()
                if path is not None:
                    self._getting.add(path)
                    self._bytes += self._files[path].bytes - self._old.pop(path, 0)
                    return path
                self._changed.wait()
        return None

    def _choose(self) -> str | None:
        while self._urgent:
            path = self._urgent.popleft()
            if path not in self._here and path not in self._getting:
                self._make_room(path, urgent=True)
                return path
        while self._queue and not self._paused:
            path = self._queue[0]
            if path in self._here or path in self._getting:
                if path in self._here and path not in self._recent:
                    self._here[path] = False
                self._queue.popleft()
            elif self._make_room(path, urgent=False):
                return self._queue.popleft()
            else:
                return None
        return None

    def _fetch(self, path: str) -> int:
        """Fetch a file unless it is here intact; return the downloaded bytes."""
        key, size, crc32c = self._files[path]
        if intact(Path(path), size, crc32c):
            return 0
        get(self._bucket, self._root, key, Path(path), size, crc32c)
        return size

    # --- the disk

    def _ingested_files(self) -> collections.OrderedDict[str, int]:
        """The bytes of the ingested files on this disk, unchecked: first those that this reader does not need, then by
        last use."""
        files = [
            (str(path) in self._files, about.st_mtime, str(path), about.st_size)
            for path, about in entries(self._root / "stages" / "ingest")
            if stat.S_ISREG(about.st_mode) and path.name != NAME
        ]
        return collections.OrderedDict((name, size) for _, _, name, size in sorted(files))

    def _make_room(self, coming: str | None, *, urgent: bool) -> bool:
        """Drop files until one more fits; return whether it does. Urgent files are fetched even if not."""
        if self._limit is None:
            return True
        needed = self._files[coming].bytes - self._old.get(coming, 0) if coming else 0
        pinned = {coming, *self._recent, *(path for path, waiting in self._waiting.items() if waiting)}
        candidates = [path for path in self._old if path not in pinned]
        candidates += [path for path, used in self._here.items() if used and path not in pinned]
        if urgent:
            candidates += [path for path, used in reversed(self._here.items()) if not used and path not in pinned]
        now = time.time()
        for path in candidates:
            if self._bytes + needed <= self._limit:
                return True
            if path in self._old:
                with contextlib.suppress(OSError):
                    if now - Path(path).stat().st_mtime < FOREIGN_SECONDS:
                        continue
            remove(Path(path))
            self._forget(path)
        return self._bytes + needed <= self._limit

    def _forget(self, path: str) -> None:
        if self._here.pop(path, None) is not None:
            self._bytes -= self._files[path].bytes
        else:
            self._bytes -= self._old.pop(path, 0)


def intact(path: Path, size: int, crc32c: str) -> bool:
    """Whether a file exists with this size and checksum; reads it."""
    try:
        return path.stat().st_size == size and checksum(path) == (size, crc32c)
    except OSError:
        return False


def get(bucket: Bucket, root: Path, key: str, path: Path, size: int, crc32c: str) -> None:
    """Download an object into the working copy: to a temporary name, checked, then renamed.

    Raises:
        StoreError: it is gone or damaged, the bucket is away, or the disk is full.
    """
    temporary = root / "stages" / ".staging" / mark(f"get-{path.name}")
    with writing(root):
        try:
            bucket.get(key, temporary, size, crc32c)
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.replace(path)
        finally:
            remove(temporary)
