"""Objects in a bucket: put, get, list, delete; in parallel, with retries, and errors that name the object.

    bucket = Bucket("s3://team/headway")
    bucket.put_all([("stages/x/a", Path("a"), "1c291ca3")])    # (key, file, its crc32c)
    bucket.listing("stages/")                                       # {"stages/x/a": Found(bytes=..., changed=...)}
    bucket.get("stages/x/a", Path("b"), 17, "1c291ca3")             # checked against bytes and crc32c

An object appears whole or not at all, when its put ends; there is no rename, and pyarrow has no conditional put.
"""

from __future__ import annotations

import contextlib
import errno
import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

from headway.errors import HeadwayError, StoreError
from headway.storage import manifest
from headway.storage.clock import Offset
from headway.storage.filesystem import lists_no_folders, resolve

TRIES, TRIES_WHILE_REPLACED = 3, 20
PARALLEL = 16
_WAIT_SECONDS = 0.2
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
_HOPELESS = re.compile(
    "ACCESS_DENIED|NO_SUCH_BUCKET|INVALID_ACCESS_KEY|SIGNATURE_DOES_NOT_MATCH|InvalidAccessKeyId|"
    "NoSuchBucket|Permission denied|UNAUTHENTICATED|PERMISSION_DENIED"
)
_FIX = "check the bucket's name, the credentials and the network; running again goes on from what is whole"

Result = TypeVar("Result")
Item = TypeVar("Item")


class Found(NamedTuple):
    bytes: int
    changed: int
    """Nanoseconds since 1970, by the bucket's clock; S3 counts in whole seconds."""


class _Damaged(OSError):
    """An object whose bytes are wrong, perhaps only in this transfer."""


class _Replaced(OSError):
    """An object that changed while it was read: no fault, so it is tried more often."""


class Bucket:
    """The objects below one prefix of a bucket; keys are relative to it.

    Args:
        url: s3://bucket/path or gs://bucket/path.
    """

    def __init__(self, url: str):
        self.url = url.rstrip("/")
        self._files, self._base = resolve(self.url)
        self._flat = lists_no_folders(self.url)
        self._clock = Offset(self._ask_time)

    def name(self, key: str) -> str:
        """The full name of an object, for messages."""
        return f"{self.url}/{key}"

    def check(self) -> None:
        """Raise StoreError unless the bucket exists and can be listed."""
        first = self._base.split("/", 1)[0]
        info = self._try(self.url, lambda: self._files.get_file_info(first))
        if info.type == pafs.FileType.NotFound:
            raise StoreError(f"there is no bucket {first!r}", where=self.url, fix="create it; Headway never does")

    def time(self) -> float:
        """Seconds since 1970 by the bucket's clock."""
        return self._clock.time()

    def _ask_time(self) -> float:
        """When an object that is put now was put, as the bucket says."""
        key = f".clock-{uuid.uuid4().hex[:12]}"
        self.write(key, b"{}")
        try:
            return self._files.get_file_info(self._path(key)).mtime_ns / 1e9
        finally:
            self.delete([key])

    def listing(self, prefix: str = "") -> dict[str, Found]:
        """Every object below a folder, by key, from one listing."""
        selector = pafs.FileSelector(self._path(prefix).rstrip("/"), recursive=True, allow_not_found=True)
        infos = self._try(self.name(prefix), lambda: self._files.get_file_info(selector))
        cut = len(self._base) + 1
        return {i.path[cut:]: Found(i.size, i.mtime_ns or 0) for i in infos if i.type == pafs.FileType.File}

    def children(self, prefix: str) -> list[str]:
        """The names right below a folder, sorted."""
        if self._flat:
            cut = len(prefix.rstrip("/")) + 1 if prefix else 0
            return sorted({key[cut:].split("/", 1)[0] for key in self.listing(prefix)})
        selector = pafs.FileSelector(self._path(prefix).rstrip("/"), allow_not_found=True)
        infos = self._try(self.name(prefix), lambda: self._files.get_file_info(selector))
        return sorted(info.base_name for info in infos)

    def read(self, key: str) -> bytes | None:
        """Read a small object; None when it does not exist."""

        def action() -> bytes:
            data, tag, problem = b"", None, None
            try:
                with self._open(key) as file:
                    tag = file.metadata()
                    data = file.read()
            except OSError as error:
                if tag is None:  # it was not even opened
                    raise
                problem = error
            # S3 is asked for the size first: what was replaced by then is an error, comes cut, or filled up with zeros
            if not _is_json(data) and self._tag(key) != tag:
                raise _Replaced("was replaced while it was being read")
            if problem is not None:
                raise problem
            return data

        return self._ask(key, action)

    def write(self, key: str, data: bytes) -> None:
        """Put a small object atomically: readers see the old bytes or the new."""

        self._fill(key, lambda out: out.write(data))

    def put(self, key: str, path: Path, crc32c: str) -> None:
        """Upload a file, whose checksum is computed on the way.

        Raises:
            StoreError: the bucket does not take it, or the file's bytes are not those of `crc32c` any more.
        """

        def fill(out: pa.NativeFile) -> None:
            with path.open("rb", buffering=0) as file:
                _, actual = manifest.crc32c(manifest.blocks(file, out.write))
            if actual != crc32c:
                raise StoreError("changed on the disk before it was in the bucket", where=str(path), fix="run again")

        self._fill(key, fill)

    def _fill(self, key: str, fill: Callable[[pa.NativeFile], object]) -> None:
        """Put the bytes that `fill` writes."""

        def action() -> None:
            path = self._path(key)
            with self._files.open_output_stream(path, compression=None) as out, _unclosed("the connection broke"):
                fill(out)

        try:
            self._try(self.name(key), action)
        except FileNotFoundError as error:
            if error.filename is not None:  # on the disk
                raise
            # so Cloud Storage calls it when there is no bucket
            raise StoreError("there is no such bucket", where=self.name(key), fix=_FIX) from None

    def get(self, key: str, path: Path, bytes: int, crc32c: str) -> None:
        """Download an object to a file, whose folder is made.

        Raises:
            StoreError: it is gone, or has other bytes than it should, however often it is read.
        """

        def check(size: int, crc: str) -> None:
            if size != bytes:
                raise _Damaged(f"has {size} bytes instead of {bytes}")
            if crc != crc32c:
                raise _Damaged(f"has crc32c {crc} instead of {crc32c}: its bytes changed")

        if not self.copy(key, path, check):
            raise StoreError("is gone", where=self.name(key), fix="headway run makes it again")

    def copy(self, key: str, path: Path, check: Callable[[int, str], None] = lambda size, crc: None) -> bool:
        """Download an object to a file, block by block; return whether it exists. A missing one leaves no file.

        Args:
            check: looks at its bytes and crc32c; it is read again where this raises an OSError.

        Raises:
            StoreError: its name leads out of the bucket's folder on a disk.
        """
        if not manifest.is_inside(key):
            raise StoreError("the name of this object leads out of the store", where=self.name(key), fix="delete it")

        def action() -> bool:
            with path.open("wb") as out:
                size_and_crc = self._stream(key, out.write)
            check(*size_and_crc)
            return True

        path.parent.mkdir(parents=True, exist_ok=True)
        if self._ask(key, action):
            return True
        path.unlink(missing_ok=True)
        return False

    def checksum(self, key: str) -> tuple[int, str] | None:
        """(bytes, crc32c) of an object, read in full; None when it does not exist."""
        return self._ask(key, lambda: self._stream(key, lambda block: None))

    def _stream(self, key: str, write: Callable[[bytes], object]) -> tuple[int, str]:
        with self._open(key) as file:
            return manifest.crc32c(manifest.blocks(file, write))

    def put_all(self, files: Iterable[tuple[str, Path, str]]) -> None:
        """Put each (key, file, crc32c), several at once."""
        each(lambda item: self.put(*item), files)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; missing ones count as deleted."""
        each(lambda key: self._ask(key, lambda: self._files.delete_file(self._path(key))), keys)

    def delete_folder(self, prefix: str) -> None:
        """Delete everything below a folder, in as few requests as the bucket allows."""
        if self._flat:
            self.delete(self.listing(prefix))
            return
        self._ask(prefix, lambda: self._files.delete_dir(self._path(prefix).rstrip("/")))

    @contextlib.contextmanager
    def _open(self, key: str) -> Iterator[pa.NativeFile]:
        """Open an object for reading."""
        with self._files.open_input_file(self._path(key)) as file, _unclosed("was replaced while it was being read"):
            yield file

    def _tag(self, key: str) -> Any:
        """The tag that differs between objects of the same name."""
        with self._open(key) as file:
            return file.metadata()

    def _path(self, key: str) -> str:
        return f"{self._base}/{key}"

    def _ask(self, key: str, action: Callable[[], Result]) -> Result | None:
        """Call `action` with retries; None when there is no such object."""
        try:
            return self._try(self.name(key), action)
        except FileNotFoundError:
            return None

    def _try(self, name: str, action: Callable[[], Result]) -> Result:
        faults = 0
        for _ in range(TRIES_WHILE_REPLACED):
            try:
                return action()
            except (HeadwayError, FileNotFoundError):
                raise
            except OSError as error:
                if isinstance(error.filename, str | bytes) or error.errno in _DISK:  # the disk's, not the bucket's
                    raise
                reason = (error.strerror or str(error)).splitlines()[0][:300]
                faults += not isinstance(error, _Replaced)
                if faults == TRIES or _HOPELESS.search(reason):
                    fix = "delete it: headway run makes it again" if isinstance(error, _Damaged) else _FIX
                    raise StoreError(reason, where=name, fix=fix) from None
                time.sleep(_WAIT_SECONDS * 4 ** max(0, faults - 1))
        raise StoreError("changed each time it was read", where=name, fix="run again when nothing else writes it")


def _is_json(data: bytes) -> bool:
    """Whether bytes are a whole JSON object, as most small objects of a store are."""
    try:
        return isinstance(json.loads(data), dict)
    except ValueError:
        return False


@contextlib.contextmanager
def _unclosed(problem: str) -> Iterator[None]:
    """Raise OSError for what pyarrow calls a closed file: an object of Cloud Storage whose connection broke, or that
    was replaced after it was opened."""
    try:
        yield
    except ValueError:
        raise OSError(problem) from None


def each(action: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Call `action` on each item, several at once; the first failure cancels the calls that have not begun."""
    with ThreadPoolExecutor(PARALLEL, thread_name_prefix="bucket") as pool:
        futures = [pool.submit(action, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
