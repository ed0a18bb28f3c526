"""Objects in a bucket: put, get, list, delete; in parallel, and with errors that name the object.

    bucket = Bucket("s3://team/headway")
    bucket.put_all([("stages/x/a", Path("a"), "1c291ca3")])    # (key, file, its crc32c)
    bucket.listing("stages/")                                       # {"stages/x/a": ObjectInfo(bytes=..., changed=...)}
    bucket.get("stages/x/a", Path("b"), 17, "1c291ca3")             # checked against bytes and crc32c

An object appears when its put ends, whole or not at all. A bucket has no rename. pyarrow uploads files part by part, and copies
objects within the bucket. obstore does everything else. Both retry requests that failed for a passing reason
(`headway.storage.filesystem`).
"""

from __future__ import annotations

import errno
import functools
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import pyarrow as pa

from headway.errors import StoreError
from headway.storage import manifest
from headway.storage.filesystem import client_of, refusal_or_fault, resolve
from headway.storage.objects import CorrectedClock, ObjectData, ObjectInfo, in_parallel

ORPHAN_SECONDS = 24 * 3600.0
"""The age in seconds at which an uncommitted upload is deleted: objects in a folder that no manifest names."""
LAST = ("saved_model.pb", "checkpoint.json")
"""The files that are uploaded last, to mark a folder as complete: the first marks a serving copy, the second a checkpoint."""
_LISTING_SECONDS = 2.0
_PART_BYTES = 4 << 20
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)

Result = TypeVar("Result")
Item = TypeVar("Item")


class Bucket:
    """The objects below one prefix of a bucket. Keys are relative to the prefix. It has all methods of `objects.Folder`.

    Args:
        url: s3://bucket/path or gs://bucket/path.
    """

    remote = True
    orphan_seconds = ORPHAN_SECONDS

    def __init__(self, url: str):
        self.url = url.rstrip("/")
        self._listings: dict[str, tuple[float, dict[str, ObjectInfo]]] = {}
        self._clock = CorrectedClock(self._ask_time)

    def address(self, key: str) -> str:
        """Returns the URL of an object."""
        return f"{self.url}/{key}"

    def check(self) -> None:
        """Raise StoreError unless the bucket exists, can be written, and honors If-None-Match and If-Match of a put.

        Writes and deletes a small object. A server that ignores these conditions would let two machines hold the same lock.
        """
        key = f".probe-{uuid.uuid4().hex[:12]}"
        first_tag = self._put(key, b"1", mode="create")
        try:
            ignored = [
                what
                for what, tag in (
                    ("If-None-Match", self._put(key, b"2", mode="create")),
                    ("If-Match", self._put(key, b"3", mode={"e_tag": '"0"', "version": "1"})),
                )
                if tag is not None
            ]
        finally:
            self.delete([key])
        if first_tag is None or ignored:
            problem = f"its server ignores conditions of a put ({', '.join(ignored) or 'it refuses a first one'})"
            fix = "use one that has conditional writes: Amazon S3, Cloud Storage, or a present release of MinIO or Ceph"
            raise StoreError(problem, where=self.url, fix=fix)

    def time(self) -> float:
        """Returns the present time by the bucket's clock, in seconds since 1970."""
        return self._clock.time()

    def _ask_time(self) -> float:
        """Put a small object and delete it; returns the time that the bucket gave the object, in seconds since 1970."""
        key = f".clock-{uuid.uuid4().hex[:12]}"
        self.write(key, b"{}")
        try:
            return self._call(key, lambda client: client.head(key)["last_modified"].timestamp())
        finally:
            self.delete([key])

    def listing(self, prefix: str = "") -> dict[str, ObjectInfo]:
        """Returns the size and the time of change of every object below a folder, by key, from a new listing. Empty objects
        that web consoles make to show folders are left out."""
        prefix = prefix.rstrip("/")
        objects = self._ask(prefix, lambda client: client.list(prefix or None).collect()) or ()
        found = {o["path"]: ObjectInfo(o["size"], round(o["last_modified"].timestamp() * 1e6) * 1000) for o in objects}
        if empty := {key for key, about in found.items() if not about.bytes}:
            for folder in empty & {prefix, *(str(folder) for key in found for folder in PurePosixPath(key).parents)}:
                del found[folder]
        return found

    def children(self, prefix: str) -> list[str]:
        """Returns the names right below a folder, sorted. Outputs and versions without a manifest are left out."""
        if "/" in prefix:
            listed = [key[len(prefix) + 1 :] for key in self._seen(prefix) if key.startswith(prefix + "/")]
            if prefix.startswith(("stages/", "models/")) and prefix.count("/") == 1:
                whole = {name.split("/")[0] for name in listed if name.split("/")[1:] == [manifest.NAME]}
                listed = [name for name in listed if "/" not in name or name.split("/")[0] in whole]
            return sorted({name.split("/", 1)[0] for name in listed})
        found = self._ask(prefix, lambda client: client.list_with_delimiter(prefix or None))
        paths = [*found["common_prefixes"], *(o["path"] for o in found["objects"])] if found else []
        return sorted({path.rpartition("/")[2] for path in paths if path != prefix})

    def look(self, key: str) -> ObjectData | None:
        """Returns a small object's bytes, and the tag that identifies these bytes; None when there is no such object."""

        def action(client: Any) -> ObjectData:
            found = client.get(key)
            return ObjectData(found.bytes().to_bytes(), _tag(found.meta))

        return self._ask(key, action)

    # --- what was seen

    def _seen(self, key: str) -> dict[str, ObjectInfo]:
        """Returns the size and time of every object of the stage or the model that `key` belongs to, by key. The listing is
        cached for some seconds."""
        area = "/".join(key.split("/")[:2])
        listings = self._listings  # another one after a refresh: what was listed before must not outlive it
        cached = listings.get(area)
        if cached is None or time.monotonic() > cached[0]:
            began = time.monotonic()
            files = self.listing(area)
            took = time.monotonic() - began
            # a listing that takes long is asked for less often
            cached = listings[area] = (time.monotonic() + max(_LISTING_SECONDS, 10 * took), files)
        return cached[1]

    def refresh(self) -> None:
        self._listings = {}

    def seen(self, key: str) -> ObjectInfo | None:
        return self._seen(key).get(key)

    def size_or_reason(self, key: str) -> int | str:
        found = self.seen(key)
        return "is gone" if found is None else found.bytes

    def has_output(self, folder: str) -> bool:
        return self.seen(f"{folder}/{manifest.NAME}") is not None

    def is_published(self, key: str) -> bool:
        return self.seen(f"{key}/{LAST[0]}") is not None

    def freed(self, key: str) -> int:
        return sum(found.bytes for found in self._below(key).values())

    def last_write_in(self, key: str) -> float:
        return max((found.changed / 1e9 for found in self._below(key).values()), default=0.0) or self.time()

    def _below(self, key: str) -> dict[str, ObjectInfo]:
        """Returns the size and time of an object, or of all objects in a folder, by key, from a new listing."""
        listed = self.listing(key.rpartition("/")[0])
        return {name: found for name, found in listed.items() if name == key or name.startswith(key + "/")}

    # --- small objects

    def read(self, key: str) -> bytes | None:
        """Returns the bytes of a small object; None when the object does not exist."""
        return None if (stored := self.look(key)) is None else stored.data

    def write(self, key: str, data: bytes) -> None:
        """Put a small object atomically: readers see the old bytes or the new."""
        self._put(key, data, mode="overwrite")

    def create(self, key: str, data: bytes) -> str | None:
        return self._put(key, data, mode="create")

    def replace(self, key: str, data: bytes, tag: str) -> str | None:
        e_tag, _, version = tag.partition("|")
        return self._put(key, data, mode={"e_tag": e_tag} | ({"version": version} if version else {}))

    def _put(self, key: str, data: bytes, *, mode: Any) -> str | None:
        """Put an object, and return its tag. None: `mode` forbids it and the key has other data or none."""
        try:
            return self._call(key, lambda client: _tag(client.put(key, data, mode=mode, use_multipart=False)))
        except FileNotFoundError:
            if isinstance(mode, dict):
                return None
            raise self._no_bucket(key) from None
        except FileExistsError:
            # of a put whose answer was lost the second try is refused: what is there may be ours
            stored = self.look(key)
            return stored.tag if stored is not None and stored.data == data else None

    def _no_bucket(self, key: str) -> StoreError:
        fix = "create it; Headway never does"
        return StoreError(f"there is no bucket {self.url.split('/')[2]!r}", where=self.address(key), fix=fix)

    @functools.cached_property
    def _client(self) -> Any:
        return client_of(self.url)

    def put(self, key: str, path: Path, crc32c: str) -> None:
        """Upload a file, and check its crc32c (eight hex digits) on the way.

        Raises:
            StoreError: the bucket refuses the upload, or the file changed, so that its crc32c is another one.
        """

        def action(client: Any) -> None:
            with path.open("rb", buffering=0) as file, files.open_output_stream(name, compression=None) as out:
                try:
                    _, actual = manifest.crc32c(manifest.blocks(file, out.write))
                except ValueError:  # so pyarrow calls a connection to Cloud Storage that broke
                    raise OSError("the connection broke") from None
                if actual != crc32c:
                    problem = "changed on the disk before it was in the bucket"
                    raise StoreError(problem, where=str(path), fix="run again")

        files, name = resolve(self.address(key))
        try:
            self._call(key, action)
        except FileNotFoundError as error:
            if error.filename is not None:  # on the disk
                raise
            raise self._no_bucket(key) from None

    def get(self, key: str, path: Path, bytes: int, crc32c: str) -> None:
        """Download an object to a file, and make the file's folder if need be.

        Raises:
            StoreError: the object is gone, or its size in bytes or its crc32c is not the given one.
        """

        fix = "delete it: headway run makes it again"
        if (found := self.copy(key, path)) is None:
            raise StoreError("is gone", where=self.address(key), fix="headway run makes it again")
        if found[0] != bytes:
            raise StoreError(f"has {found[0]} bytes instead of {bytes}", where=self.address(key), fix=fix)
        if found[1] != crc32c:
            problem = f"has crc32c {found[1]} instead of {crc32c}: its bytes changed"
            raise StoreError(problem, where=self.address(key), fix=fix)

    def copy(self, key: str, path: Path) -> tuple[int, str] | None:
        """Download an object to a file, block by block, and return its size in bytes and its crc32c. When there is no such
        object, delete the file and return None.

        Raises:
            StoreError: the key has a part such as "..", which would lead out of a folder; or the download failed.
        """
        if not manifest.is_inside(key):
            raise StoreError("the name of this object leads out of the store", where=self.address(key), fix="delete it")

        def action(client: Any) -> tuple[int, str]:
            with path.open("wb") as out:
                return _read(client, key, out.write)

        path.parent.mkdir(parents=True, exist_ok=True)
        if (found := self._ask(key, action)) is None:
            path.unlink(missing_ok=True)
        return found

    def duplicate(self, key: str, other: str) -> None:
        """Copy the object `key` to the key `other` within the bucket, without a download.

        Raises:
            StoreError: the object `key` is gone, or the bucket refuses the copy.
        """
        files, name = resolve(self.address(key))
        try:
            self._call(key, lambda client: files.copy_file(name, resolve(self.address(other))[1]))
        except FileNotFoundError:
            raise StoreError("is gone", where=self.address(key), fix="run again") from None

    def move(self, key: str, other: str) -> None:
        """Rename the object `key` to `other`: copy it, then delete the old one."""
        self.duplicate(key, other)
        self.delete([key])

    def checksums(self, keys: Sequence[str]) -> list[tuple[int, str] | str]:
        return in_parallel(lambda key: self._ask(key, lambda client: _read(client, key)) or "is gone", keys)

    def put_all(self, files: Iterable[tuple[str, Path, str]]) -> None:
        """Upload files, several at a time. For each file, `files` holds the key, the path and the crc32c."""
        in_parallel(lambda item: self.put(*item), files)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects. Missing objects are no error."""
        in_parallel(lambda key: self._ask(key, lambda client: client.delete(key)), keys)

    def delete_folder(self, prefix: str) -> None:
        """Delete everything below a folder, in as few requests as the bucket allows."""
        if keys := list(self.listing(prefix)):
            self._ask(prefix, lambda client: client.delete(keys))

    # --- folders

    def remove(self, key: str) -> None:
        if "." in key.rpartition("/")[2]:
            self.delete([key])
        else:
            self.delete([f"{key}/{manifest.NAME}"])
            self.delete_folder(key)
        self.refresh()

    def publish(self, folder: Path, key: str, good: Callable[[str], bool]) -> None:
        """Upload a folder as the output `key`: first its files to a new folder (the attempt), then a manifest that names it."""
        made = manifest.read(folder)
        if made is None:
            self.publish_plain(folder, key)
            return
        attempt = new_attempt()
        self.put_all((f"{key}/{attempt}/{e.path}", folder / e.path, e.crc32c) for e in made.files)
        self.commit(key, attempt, made, good)

    def commit(self, key: str, attempt: str, made: manifest.Manifest, good: Callable[[str], bool]) -> None:
        """Make the uploaded files of an attempt the output `key`, by putting a manifest that names the attempt.

        Args:
            good: returns whether a key holds a valid output. If `key` holds one already, it stays, and this attempt is deleted.
        """
        base, commit = f"{key}/{attempt}", f"{key}/{manifest.NAME}"
        listing = self.listing(base)
        for entry in made.files:
            stored = listing.get(f"{base}/{entry.path}")
            if stored is None or stored.bytes != entry.bytes:
                name = self.address(f"{base}/{entry.path}")
                raise StoreError("the uploaded object is missing or has the wrong size", where=name, fix="run again")
        data = (json.dumps({"attempt": attempt, **made.model_dump(mode="json")}, indent=1) + "\n").encode()
        tag = self.create(commit, data)
        while tag is None:
            self.refresh()
            if good(key):
                self.delete_folder(base)
                break
            there = self.look(commit)
            tag = self.create(commit, data) if there is None else self.replace(commit, data, there.tag)
        self.refresh()

    def publish_plain(self, folder: Path, key: str) -> None:
        """Upload a folder without a manifest (a serving copy, a checkpoint). The file that `LAST` names is uploaded last."""
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        for last in (False, True):
            chosen = [path for path in files if (path.name in LAST) == last]
            self.put_all(
                (f"{key}/{path.relative_to(folder).as_posix()}", path, manifest.checksum(path)[1]) for path in chosen
            )
        self.refresh()

    def attempts(self) -> list[str]:
        """Returns the folders of upload attempts, committed or not, whose newest object is at least `orphan_seconds` old."""
        changed: dict[str, int] = {}
        for area in ("stages", "models"):
            for key, found in self.listing(area).items():
                if key.count("/") > 3:
                    attempt = "/".join(key.split("/")[:4])
                    changed[attempt] = max(found.changed, changed.get(attempt, 0))
        now = self.time()
        return [attempt for attempt, last in changed.items() if now - last / 1e9 >= self.orphan_seconds]

    def _ask(self, key: str, action: Callable[[Any], Result]) -> Result | None:
        """Returns the result of `_call`; None when there is no such object."""
        try:
            return self._call(key, action)
        except FileNotFoundError:
            return None

    def _call(self, key: str, action: Callable[[Any], Result]) -> Result:
        """Returns `action(client)`. A bucket's error becomes a StoreError, but FileNotFoundError or FileExistsError for a key."""
        from obstore import exceptions

        try:
            return action(self._client)
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
            raise FileExistsError(str(error)) from None
        except (FileNotFoundError, FileExistsError):
            raise
        except (exceptions.BaseError, OSError, ValueError, pa.ArrowException) as error:
            if isinstance(error, OSError) and (isinstance(error.filename, str | bytes) or error.errno in _DISK):
                raise
            if isinstance(error, exceptions.InvalidPathError) or "Could not parse path" in str(error):
                listed = isinstance(error, exceptions.InvalidPathError)
                fix = "delete this object: it is not Headway's" if listed else "name it without control characters"
                problem = repr(str(error).partition("\n\nDebug")[0])[1:-1]
            else:
                problem, fix = refusal_or_fault(self.url, error)
            raise StoreError(problem, where=self.address(key), fix=fix) from None


def _read(client: Any, key: str, write: Callable[[bytes], object] = lambda block: None) -> tuple[int, str]:
    """Read an object, and pass its bytes to `write` block by block. Returns the number of bytes and their crc32c."""

    def blocks() -> Iterator[bytes]:
        for part in client.get(key).stream(min_chunk_size=_PART_BYTES):
            write(block := bytes(part))
            yield block

    return manifest.crc32c(blocks())


def new_attempt() -> str:
    """Returns a new random name for an attempt: the folder in a bucket that one upload of an output gets."""
    return uuid.uuid4().hex[:12]


def _tag(meta: Any) -> str:
    """Returns an object's ETag, with its version or generation if it has one, from the server's answer."""
    return f"{meta['e_tag'] or ''}|{meta['version'] or ''}"
