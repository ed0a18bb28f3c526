"""The place of a span's output: a folder on a disk or in a bucket, which the workers and the driver all reach.

    place = open_place("s3://team/store/stages/ingest/3f2a/attempt")       # or the path of a folder
    with place.attempt() as folder:                        # of this machine's disk
        ...write into it...
        place.deliver(folder, "00003-1f", fact_bytes, files, names={})    # .ranges/00003-1f/, whole or not at all
    with place.attempt() as folder:
        place.fetch("00003-1f", ["part.parquet"], folder)  # the folder of that range on this machine's disk
        place.copy_to_output("00003-1f", "part.parquet", "part-00003.parquet")
        place.move_to_output(folder, entries(folder))      # files keep their names

A range that runs twice, even at the same time, delivers the same bytes twice. The facts of a range are written last, and say
that it is finished. A place belongs to the job that prepared it last. Workers of an earlier job may outlive their driver: they
check whether the place is still theirs, and if not, they write nothing.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from headway.errors import StoreError
from headway.process import Scratch
from headway.storage.atomic_io import link_or_copy, sync_path, writing
from headway.storage.bucket import Bucket
from headway.storage.filesystem import is_remote, reason_of
from headway.storage.manifest import FileEntry, checksum, value_or_reason
from headway.storage.objects import Folder
from headway.storage.store import RANGES

FACTS = "facts.json"
_JOB = f"{RANGES}/job"
_BEGUN = f"{RANGES}/begun.json"
_RANGE = re.compile(r"\d{5,}-[0-9a-f]{12}")
Files = Mapping[str, tuple[int, str]]
"""The size in bytes and the crc32c of each file of a range, by the file's name in the range's folder."""


def open_place(where: str | Path) -> FolderPlace | BucketPlace:
    """Returns the place at a path of a folder, or at a URL s3://bucket/path or gs://bucket/path."""
    return BucketPlace(str(where)) if is_remote(str(where)) else FolderPlace(Path(where))


def range_name(index: int, key: str) -> str:
    """Returns the name of a range's folder: the range's index, and the first 12 characters of its key."""
    return f"{index:05d}-{key[:12]}"


def _at(name: str) -> str:
    return f"{RANGES}/{name}"


def _outcome(job: str) -> str:
    return f"{RANGES}/outcome-{job}.json"


class _Place:
    objects: Folder | Bucket

    @property
    def url(self) -> str:
        return self.objects.url

    def write(self, key: str, data: bytes) -> None:
        self.objects.write(key, data)

    def mark_started(self) -> None:
        """Record that a worker has started to work on the span."""
        self.write(_BEGUN, b"{}")

    def is_started(self) -> bool:
        return self.objects.read(_BEGUN) is not None

    def belongs(self, job: str) -> bool:
        """Returns whether the place still belongs to this job: no other job has prepared the place since, and the job's driver
        has not cleared it."""
        return self.objects.read(_JOB) == job.encode()

    def facts(self, name: str) -> bytes | None:
        """Returns the facts of the range in the folder `name`, as JSON; None if that range is not finished."""
        return self.objects.read(f"{_at(name)}/{FACTS}")

    def write_outcome(self, job: str, outcome: bytes) -> None:
        """Write the outcome of a job's span, as JSON, for the job's driver to read."""
        self.write(_outcome(job), outcome)

    def read_outcome(self, job: str) -> bytes | None:
        return self.objects.read(_outcome(job))


class FolderPlace(_Place):
    def __init__(self, root: Path):
        self.root = root
        self.objects: Folder = Folder(root)

    def prepare(self, job: str) -> None:
        """Make a job the owner of the place. Deletes what earlier jobs left of ranges, except finished ones."""
        with as_store_errors(self.url):
            (self.root / RANGES).mkdir(parents=True, exist_ok=True)
            for path in (*self.root.glob(f"{RANGES}.*"), *(self.root / RANGES).iterdir()):
                if not _RANGE.fullmatch(path.name):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            self.write(_JOB, job.encode())

    def write(self, key: str, data: bytes) -> None:
        """Write a small file by a rename. Raises an OSError if the driver has ended and removed the folder."""
        part = self.root / f"{key}.{uuid.uuid4().hex}"
        part.write_bytes(data)
        part.replace(self.root / key)

    def clear_ranges(self) -> None:
        """Delete the folder of the ranges. It is renamed first, so that workers that still run cannot write into it."""
        gone = self.root / f"{RANGES}.{uuid.uuid4().hex}"
        with contextlib.suppress(OSError):  # it is not there
            (self.root / RANGES).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    @contextlib.contextmanager
    def attempt(self) -> Iterator[Path]:
        """Yields a new folder on the place's disk, for one attempt at a range. Removes it at the end of the block."""
        scratch = tempfile.TemporaryDirectory(prefix="attempt-", dir=self.root / RANGES, ignore_cleanup_errors=True)
        with scratch as folder:
            yield Path(folder)

    def deliver(self, folder: Path, name: str, facts: bytes, files: Files, names: Mapping[str, str]) -> None:
        """Write `facts` into an attempt's folder and rename it to `name`. Replaces a folder of that name unless it is equal.

        Args:
            files: all files that the attempt wrote.
            names: {file: its name in the output}; not used here: `copy_to_output` names files when the span is finished.
        """
        (folder / FACTS).write_bytes(facts)
        target = self.root / _at(name)
        try:
            folder.rename(target)
        except OSError:
            if self.facts(name) == facts and self.whole(name, files):  # another attempt was first
                return
            shutil.rmtree(target)  # torn by a power cut
            folder.rename(target)

    def whole(self, name: str, files: Files) -> bool:
        """Returns whether all files of the range in the folder `name` are there, with the right size and crc32c."""
        folder = self.root / _at(name)
        return all(value_or_reason(folder / file, checksum) == entry for file, entry in files.items())

    def fetch(self, name: str, files: Iterable[str], scratch: Path) -> Path:
        """Returns the folder of a range on this machine's disk. `name` is the folder's name in the place.

        Args:
            files: the names of the needed files in the folder.
            scratch: the folder into which files are downloaded if the place is in a bucket; not used here.
        """
        return self.root / _at(name)

    def copy_to_output(self, name: str, file: str, target: str, *, lasting: bool = True) -> None:
        """Link or copy a range's file into the output, under the name `target`. The range keeps its file, too.

        Args:
            lasting: whether to sync the file to the disk now; False: a later commit does so.
        """
        (self.root / target).unlink(missing_ok=True)
        link_or_copy(self.root / _at(name) / file, self.root / target)
        if lasting:
            sync_path(self.root / target)

    def move_to_output(self, folder: Path, files: Sequence[FileEntry], *, lasting: bool = True) -> None:
        """Move files of a folder on this machine into the output, under the same names."""
        for path in (each.path for each in files):
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).replace(self.root / path)
            if lasting:
                sync_path(self.root / path)


class BucketPlace(_Place):
    def __init__(self, url: str):
        self.objects: Bucket = Bucket(url)

    def prepare(self, job: str) -> None:
        """Make a job the owner of the place. Finished ranges stay."""
        self.objects.delete([_BEGUN])
        self.write(_JOB, job.encode())

    def clear_ranges(self) -> None:
        self.objects.delete_folder(RANGES)

    @contextlib.contextmanager
    def attempt(self) -> Iterator[Path]:
        with Scratch("range") as scratch:
            yield Path(scratch)

    def deliver(self, folder: Path, name: str, facts: bytes, files: Files, names: Mapping[str, str]) -> None:
        """Upload an attempt's files and its facts. A file in `names` goes into the output, others into the range's folder."""
        base = _at(name)
        self.objects.put_all((names.get(n, f"{base}/{n}"), folder / n, crc32c) for n, (_, crc32c) in files.items())
        self.objects.write(f"{base}/{FACTS}", facts)

    def whole(self, name: str, files: Files) -> bool:
        """Returns whether all files of a range are there with the right size. That is enough: no object is half written."""
        base = _at(name)
        listed = self.objects.listing(base)
        return all((found := listed.get(f"{base}/{file}")) and found.bytes == size for file, (size, _) in files.items())

    def fetch(self, name: str, files: Iterable[str], scratch: Path) -> Path:
        for key in (f"{_at(name)}/{file}" for file in files):
            self.objects.copy(key, scratch / key)
        return scratch / _at(name)

    def copy_to_output(self, name: str, file: str, target: str, *, lasting: bool = True) -> None:
        self.objects.duplicate(f"{_at(name)}/{file}", target)

    def move_to_output(self, folder: Path, files: Sequence[FileEntry], *, lasting: bool = True) -> None:
        self.objects.put_all((each.path, folder / each.path, each.crc32c) for each in files)
        for each in files:
            (folder / each.path).unlink()


@contextlib.contextmanager
def as_store_errors(url: str) -> Iterator[None]:
    """Turn an OSError of the block, which writes to a place, into a StoreError. If a disk is full, the message names the place's
    folder; for a bucket it names this machine's temporary folder, from which files are uploaded."""
    try:
        with writing(Path(tempfile.gettempdir() if is_remote(url) else url)):
            yield
    except OSError as error:
        fix = "check the name, the rights and the space; in a bucket the credentials and the network"
        raise StoreError(f"cannot be written: {reason_of(error)}", where=url, fix=fix) from None
