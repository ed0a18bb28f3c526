"""The place of a span's output, a folder or the folder of a bucket, which its workers and the driver both reach.

    place = open_place("s3://team/store/stages/ingest/3f2a/attempt")       # or the path of a folder
    with place.attempt() as folder:                        # of this machine's disk
        ...write into it...
        place.deliver(folder, 3, fact_bytes, names={})    # .ranges/00003/, whole or not at all
    with place.merging() as merging:
        merging.folder(3)                                  # the files of that range, on this machine's disk
        merging.take(3, "part.parquet", "part-00003.parquet")
        merging.deliver()                                  # the files in merging.out

A range that runs twice, at the same time even, delivers the same bytes twice. Its facts make it whole and come last.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from headway.errors import StoreError
from headway.process import Scratch
from headway.storage.atomic_io import link_or_copy, sync_path, writing
from headway.storage.bucket import Bucket
from headway.storage.filesystem import is_remote
from headway.storage.manifest import NAME, FileEntry, checksum, on_disk
from headway.storage.objects import Folder
from headway.storage.store import RANGES

FACTS = "facts.json"
_OUTCOME = f"{RANGES}/outcome.json"
_BEGUN = f"{RANGES}/begun.json"


def open_place(where: str | Path) -> FolderPlace | BucketPlace:
    """The place at a folder, or at s3://bucket/path, gs://bucket/path."""
    return BucketPlace(str(where)) if is_remote(str(where)) else FolderPlace(Path(where))


def of_range(index: int) -> str:
    """The key of a range's folder."""
    return f"{RANGES}/{index:05d}"


class _Place:
    objects: Folder | Bucket

    @property
    def url(self) -> str:
        return self.objects.url

    def write(self, key: str, data: bytes) -> None:
        self.objects.write(key, data)

    def begin(self) -> None:
        """Say that a worker works on the span."""
        self.write(_BEGUN, b"{}")

    def begun(self) -> bool:
        return self.objects.read(_BEGUN) is not None

    def facts(self, index: int) -> bytes | None:
        """The facts of a range that is whole; None when there is none."""
        return self.objects.read(f"{of_range(index)}/{FACTS}")

    def end(self, outcome: bytes) -> None:
        """Put the span's outcome, which the driver reads."""
        self.write(_OUTCOME, outcome)

    def outcome(self) -> bytes | None:
        return self.objects.read(_OUTCOME)


class FolderPlace(_Place):
    def __init__(self, root: Path):
        self.root = root
        self.objects: Folder = Folder(root)

    def prepare(self) -> None:
        """Make the place, and forget how an earlier job in it ended; its whole ranges stay."""
        with writable(self.url):
            (self.root / RANGES).mkdir(parents=True, exist_ok=True)
            for path in (*self.root.glob(f"{RANGES}.*"), *(self.root / RANGES).iterdir()):
                if not path.name.isdigit():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    def write(self, key: str, data: bytes) -> None:
        """Put a small file by a rename, unless the driver has left and taken the folder along."""
        part = self.root / f"{key}.{uuid.uuid4().hex}"
        part.write_bytes(data)
        part.replace(self.root / key)

    def clear(self) -> None:
        """Remove the ranges at once, so that a worker that the cluster has yet to stop writes nothing more."""
        gone = self.root / f"{RANGES}.{uuid.uuid4().hex}"
        with contextlib.suppress(OSError):  # it is not there
            (self.root / RANGES).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    @contextlib.contextmanager
    def attempt(self) -> Iterator[Path]:
        """A new folder on the same disk; removed at the end."""
        folder = Path(tempfile.mkdtemp(prefix="attempt-", dir=self.root / RANGES))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def deliver(self, folder: Path, index: int, facts: bytes, names: Mapping[str, str]) -> None:
        """Make what an attempt wrote the folder of the range, in one rename.

        Args:
            names: by file the name in the output, which it gets when the span is whole.
        """
        (folder / FACTS).write_bytes(facts)
        target = self.root / of_range(index)
        try:
            folder.rename(target)
        except OSError:
            if self.facts(index) == facts:  # another attempt was first
                return
            shutil.rmtree(target)  # of another request, or torn
            folder.rename(target)

    def whole(self, index: int, files: Mapping[str, tuple[int, str]]) -> bool:
        """Whether the files of a range have their bytes and crc32c."""
        folder = self.root / of_range(index)
        return all(on_disk(folder / name, checksum) == entry for name, entry in files.items())

    @contextlib.contextmanager
    def merging(self, *, lasting: bool = False) -> Iterator[FolderMerging]:
        """The ranges, to be merged.

        Args:
            lasting: what is delivered is synced; else a commit does so.
        """
        yield FolderMerging(self.root, lasting)


class FolderMerging:
    """The ranges of a span, merged into its folder."""

    def __init__(self, root: Path, lasting: bool):
        self.out, self._lasting = root, lasting
        self.spill = root / RANGES / "spill"
        self._taken = set[str]()

    def folder(self, index: int) -> Path:
        """The folder of a range, on this machine's disk."""
        return self.out / of_range(index)

    def take(self, index: int, name: str, target: str, *, delivered: bool = False) -> None:
        """Give a range's file its name in the output; the range keeps it, too."""
        (self.out / target).unlink(missing_ok=True)
        link_or_copy(self.folder(index) / name, self.out / target)
        self._taken.add(target)
        if self._lasting:
            sync_path(self.out / target)

    def deliver(self, name: str | None = None) -> list[FileEntry]:
        """Entries of a file that was written to `out`, or of all: they are in place already."""
        names = [each for each in _files(self.out) if each not in self._taken] if name is None else [name]
        for each in names if self._lasting else ():
            sync_path(self.out / each)
        return [_entry(self.out, each) for each in names]


class BucketPlace(_Place):
    def __init__(self, url: str):
        self.objects: Bucket = Bucket(url)

    def prepare(self) -> None:
        """As of a folder."""
        self.objects.delete([_OUTCOME, _BEGUN])

    def clear(self) -> None:
        self.objects.delete_folder(RANGES)

    @contextlib.contextmanager
    def attempt(self) -> Iterator[Path]:
        with Scratch("range") as scratch:
            yield Path(scratch)

    def deliver(self, folder: Path, index: int, facts: bytes, names: Mapping[str, str]) -> None:
        """Put what an attempt wrote; files that have a name in the output go there."""
        base = of_range(index)
        made = [_entry(folder, name) for name in _files(folder)]
        self.objects.put_all((names.get(e.path, f"{base}/{e.path}"), folder / e.path, e.crc32c) for e in made)
        self.objects.write(f"{base}/{FACTS}", facts)

    def whole(self, index: int, files: Mapping[str, tuple[int, str]]) -> bool:
        """Whether the files of a range have their bytes; an object appears whole."""
        base = of_range(index)
        listed = self.objects.listing(base)
        return all((found := listed.get(f"{base}/{name}")) and found.bytes == size for name, (size, _) in files.items())

    @contextlib.contextmanager
    def merging(self, *, lasting: bool = False) -> Iterator[BucketMerging]:
        with Scratch("span") as scratch:
            yield BucketMerging(self.objects, Path(scratch))


class BucketMerging:
    """The ranges of a span, fetched to this machine's disk, merged there and put."""

    def __init__(self, bucket: Bucket, scratch: Path):
        self._bucket, self._scratch = bucket, scratch
        self.out, self.spill = scratch / "out", scratch / "spill"
        self.out.mkdir()
        self._there: dict[str, list[str]] | None = None

    def folder(self, index: int) -> Path:
        base = of_range(index)
        if self._there is None:
            self._there = {}
            for key in self._bucket.listing(RANGES):
                self._there.setdefault("/".join(key.split("/")[:2]), []).append(key)
        for key in self._there.pop(base, ()):
            self._bucket.copy(key, self._scratch / key)
        return self._scratch / base

    def take(self, index: int, name: str, target: str, *, delivered: bool = False) -> None:
        """As of a folder.

        Args:
            delivered: `deliver` of the range put it under its name.
        """
        if not delivered:
            self._bucket.duplicate(f"{of_range(index)}/{name}", target)

    def deliver(self, name: str | None = None) -> list[FileEntry]:
        """Put a file of `out`, or all, which are removed there; return their entries."""
        made = [_entry(self.out, each) for each in (_files(self.out) if name is None else [name])]
        self._bucket.put_all((entry.path, self.out / entry.path, entry.crc32c) for entry in made)
        for entry in made:
            (self.out / entry.path).unlink()
        return made


def _files(folder: Path) -> list[str]:
    """The files below a folder but those of ranges, and the manifest of a commit that was cut off."""
    paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return [path.as_posix() for path in paths if path.parts[0] not in (RANGES, NAME)]


def _entry(folder: Path, name: str) -> FileEntry:
    size, crc32c = checksum(folder / name)
    return FileEntry(path=name, bytes=size, crc32c=crc32c)


@contextlib.contextmanager
def writable(url: str) -> Iterator[None]:
    """Raise any failure to write to a place as a StoreError."""
    try:
        with writing(Path(url)):
            yield
    except OSError as error:
        raise StoreError(f"cannot be written: {error.strerror or error}", where=url) from None
