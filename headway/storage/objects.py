"""Small objects under keys, on a disk or in a bucket. The store, its locks and the registry's pointers consist of them.

    objects = Folder(Path("store"))                        # or headway.storage.bucket.Bucket("s3://team/headway")
    tag = objects.create("locks/gc.json", b"{}")           # None when the object exists already
    tag = objects.replace("locks/gc.json", b"{...}", tag)  # None when the object does not have this tag any more
    objects.look("locks/gc.json")                          # ObjectData(data=b"{...}", tag=...)

The six primitives are listing, look, write, create, replace and delete. If several processes create one key, or replace one
tag's object, exactly one succeeds. On a disk, an object is a file that appears by a rename; a file lock guards both calls.

Times that several machines compare (ends of leases, ages of files) are read from the clock of the disk or the bucket:

    disk_time(store.locks)               # seconds since 1970 by the disk's clock: of this machine, or of the file server
    CorrectedClock(measure).time()       # by a clock that is costly to ask, such as a bucket's

The clocks of two machines may differ by an hour. By its own clock, one machine would then see the other's lease end too early
or too late.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from headway.errors import StoreError
from headway.storage import manifest as manifests
from headway.storage.atomic_io import remove, replace_text, sync_path, writing
from headway.storage.filesystem import entries
from headway.storage.process_identity import temporary_name

PARALLEL = 16
Result = TypeVar("Result")
Item = TypeVar("Item")


class ObjectInfo(NamedTuple):
    bytes: int
    changed: int
    """The time of the last change in nanoseconds since 1970, by the clock of the disk or the bucket; S3 counts in whole
    seconds."""


class ObjectData(NamedTuple):
    data: bytes
    tag: str
    """An identifier of these bytes. `replace` takes the tag, and writes nothing if the object has changed meanwhile."""


class Folder:
    """The objects below a folder on a disk. Keys are paths relative to that folder, with forward slashes."""

    remote = False

    def __init__(self, root: Path):
        self.root, self.url = root, str(root)

    def listing(self, prefix: str = "") -> dict[str, ObjectInfo]:
        """Returns the size and the time of the last change of every object below a folder, by key."""
        return {
            path.relative_to(self.root).as_posix(): ObjectInfo(about.st_size, about.st_mtime_ns)
            for path, about in entries(self.root / prefix)
            if stat.S_ISREG(about.st_mode)
        }

    def look(self, key: str) -> ObjectData | None:
        """Returns a small object's bytes, and the tag that identifies these bytes; None when there is no such object."""
        data = self.read(key)
        return None if data is None else ObjectData(data, _tag(data))

    def write(self, key: str, data: bytes) -> None:
        """Write an object atomically, whether or not it exists: readers see the old bytes or the new."""
        replace_text(self.root / key, data.decode())

    def create(self, key: str, data: bytes) -> str | None:
        """Write a new object, and return its tag. If the key exists already, write nothing and return None."""
        path = self.root / key
        with self._guard():
            if path.exists():
                return None
            self.write(key, data)
            return _tag(data)

    def replace(self, key: str, data: bytes, tag: str) -> str | None:
        """Replace an object if it still has the tag `tag`, and return the new tag; if it changed or is gone, return None."""
        with self._guard():
            if (stored := self.look(key)) is None or stored.tag != tag:
                return None
            self.write(key, data)
            return _tag(data)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects. Missing objects are no error."""
        for key in keys:
            (self.root / key).unlink(missing_ok=True)

    def move(self, key: str, other: str) -> None:
        """Rename the object `key` to `other`."""
        (self.root / key).replace(self.root / other)

    def delete_folder(self, prefix: str) -> None:
        """Delete everything below a folder."""
        remove(self.root / prefix)

    def check(self) -> None:
        """Do nothing: only a bucket has to be checked (`Bucket.check`)."""

    def address(self, key: str) -> str:
        """Returns the path of an object on the disk, for messages."""
        return str(self.root / key)

    def read(self, key: str) -> bytes | None:
        """Returns the bytes of a small object; None when there is no such object."""
        try:
            return (self.root / key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._unreadable(key, error) from None

    def _unreadable(self, key: str, error: OSError) -> StoreError:
        fix = "let this user read it" if isinstance(error, PermissionError) else "check the disk"
        return StoreError(f"{manifests.UNREADABLE}: {error.strerror}", where=self.address(key), fix=fix)

    def seen(self, key: str) -> ObjectInfo | None:
        """Returns an object's size and time of change; None if there is no such object. A bucket's answer may be seconds old."""
        try:
            about = (self.root / key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._unreadable(key, error) from None
        return ObjectInfo(about.st_size, about.st_mtime_ns)

    def refresh(self) -> None:
        """Drop the cached listings of a bucket, so that the next call lists it again; does nothing on a disk."""

    def children(self, prefix: str) -> list[str]:
        """Returns the names right below a folder, sorted; an empty list when there is no such folder."""
        folder = self.root / prefix
        return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []

    def has_output(self, folder: str) -> bool:
        """Returns whether an output exists: on a disk, its folder; in a bucket, its manifest."""
        return (self.root / folder).exists()

    def size_or_reason(self, key: str) -> int | str:
        """Returns the size of an object in bytes; if it cannot be read, returns the reason as text, such as "is gone"."""
        return manifests.value_or_reason(self.root / key, manifests.size)

    def checksums(self, keys: Sequence[str]) -> list[tuple[int, str] | str]:
        """Returns the size and the crc32c of each object, after reading all of it; if that fails, the reason as text."""
        return [manifests.value_or_reason(self.root / key, manifests.checksum) for key in keys]

    def freed(self, key: str) -> int:
        """Returns the number of bytes that removing an object or a folder would free."""
        # a hard link to a version frees nothing
        return sum(about.st_size for about in self._known(key) if stat.S_ISREG(about.st_mode) and about.st_nlink == 1)

    def last_write_in(self, key: str) -> float:
        """Returns when an object or a folder was last written to, in seconds since 1970; the present time if it is gone."""
        return max((about.st_mtime for about in self._known(key)), default=0.0) or self.time()

    def _known(self, key: str) -> Iterator[os.stat_result]:
        """Yields the lstat of a file or a folder, then of everything in the folder. Paths removed meanwhile are left out."""
        with contextlib.suppress(FileNotFoundError):
            yield (self.root / key).lstat()
        yield from (about for _, about in entries(self.root / key))

    def remove(self, key: str) -> None:
        """Remove an object or a folder; an interrupted removal leaves nothing that looks like a damaged output."""
        path = self.root / key
        if path.is_dir():
            # models/ and serving/ may be disks of their own
            inside = path.parent.parent in (self.root / "models", self.root / "serving")
            try:
                path = path.rename(path.parent / temporary_name(".removed") if inside else self._aside(".removed"))
            except OSError:  # another disk after all
                (path / manifests.NAME).unlink(missing_ok=True)
        remove(path)

    def publish(self, folder: Path, key: str, good: Callable[[str], bool]) -> None:
        """Rename a finished temporary folder to `key`, so that it becomes visible at once and complete.

        Args:
            good: returns whether a key holds a valid output. If `key` holds one already, it stays; a damaged one is replaced.
        """
        target = self.root / key
        for path in [folder, *folder.rglob("*")]:
            sync_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(3):
            try:
                folder.rename(target)
                break
            except OSError:
                if not target.exists():
                    raise
            if good(key):
                break
            self._put_aside(target, good)
        else:
            raise StoreError("cannot be put in place: another process keeps replacing it", where=str(target))
        sync_path(target.parent)

    def _put_aside(self, target: Path, good: Callable[[str], bool]) -> None:
        """Move a damaged output away and delete it. If it turns out valid, since another process replaced it, move it back."""
        damaged = self._aside(f"damaged-{target.name}")
        with contextlib.suppress(FileNotFoundError):
            target.rename(damaged)
        if good(damaged.relative_to(self.root).as_posix()):
            # another process replaced the damaged one between our look and our move: what we moved is good
            with contextlib.suppress(OSError):
                damaged.rename(target)
        remove(damaged)

    def _aside(self, label: str) -> Path:
        return self.root / "stages" / ".staging" / temporary_name(label)

    def is_published(self, key: str) -> bool:
        """Returns whether a serving copy was published: on a disk, its folder exists; in a bucket, its last file."""
        return (self.root / key).is_dir()

    def time(self) -> float:
        """Returns the present time in seconds since 1970 by the disk's clock, which all machines share."""
        return disk_time(self.root / "locks")

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """Hold the store's file lock (flock) in the block, so that one process at a time compares tags and writes."""
        guard = self.root / "locks" / ".guard"
        with writing(self.root):
            guard.parent.mkdir(parents=True, exist_ok=True)
            # never removed: two processes could hold an flock of two files of one name
            handle = os.open(guard, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                    raise
                problem = "this file system has no locks"
                raise StoreError(problem, where=str(guard), fix="put the store on a local disk") from None
            yield
        finally:
            os.close(handle)


def _tag(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def in_parallel(action: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Returns the results of `action` for each item, in order, from `PARALLEL` threads. A failure cancels calls not yet begun."""
    with ThreadPoolExecutor(PARALLEL, thread_name_prefix="bucket") as pool:
        futures = [pool.submit(action, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


FRESH_SECONDS = 300.0
SAME_SECONDS = 2.0
"""The seconds by which two clocks may differ and still count as equal: buckets count in whole seconds, and a request takes
time."""
_PROBE = ".time"


def disk_time(folder: Path) -> float:
    """Touch a small file in a folder, and return its time in seconds since 1970: the present time by the disk's clock. If the
    folder cannot be written, return the time by this machine's clock."""
    with contextlib.suppress(OSError):
        probe = os.open(folder / _PROBE, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            os.utime(probe)  # without a time: who keeps the disk sets its own
            return os.fstat(probe).st_mtime
        finally:
            os.close(probe)
    return time.time()


class CorrectedClock:
    """Tells the time of another clock: this machine's time plus a difference, which is measured again every few minutes.

    Args:
        measure: returns the other clock's time in seconds. If it raises OSError or StoreError, the last difference stays.
    """

    def __init__(self, measure: Callable[[], float]):
        self._measure = measure
        self.offset = 0.0
        """The seconds by which the other clock is ahead of this machine's."""
        self._wall, self._steady = 0.0, -FRESH_SECONDS

    def time(self) -> float:
        """Returns the present time by the other clock, in seconds since 1970."""
        wall, steady = time.time(), time.monotonic()
        passed = steady - self._steady
        # a clock that was set, or a machine that slept: only one of the two has gone on
        if passed >= FRESH_SECONDS or abs(wall - self._wall - passed) > SAME_SECONDS:
            with contextlib.suppress(OSError, StoreError):
                there = self._measure()
                least, most = there - time.time(), there - wall  # a slow answer does not count as a difference
                if abs(most - least - (time.monotonic() - steady)) <= SAME_SECONDS:
                    self.offset = least if least > SAME_SECONDS else most if most < -SAME_SECONDS else 0.0
            self._wall, self._steady = time.time(), time.monotonic()
        return time.time() + self.offset
