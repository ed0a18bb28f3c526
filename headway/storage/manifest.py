"""The manifest of an output: its files, its inputs, the code version, the time it took.

A folder without a valid manifest does not exist, for anyone; so the manifest is written last. It is JSON for people:

    {"format": 1, "stage": "ingest", "fingerprint": "...", "key": {...}, "files": [{"path", "bytes", "crc32c"}, ...]}
"""

from __future__ import annotations

import json
import platform
import stat
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import google_crc32c
from pydantic import model_validator

from headway.config import Frozen
from headway.errors import DataError, StoreError
from headway.storage.atomic_io import sync_path, write_synced

NAME = "manifest.json"
FORMAT = 1
"""Raised when the meaning of a field changes. Older formats stay readable: a new field has a default."""
TOOLS = ("headway", "apache-beam", "keras", "numpy", "pyarrow", "tensorflow")
_BLOCK = 4 << 20


class FileEntry(Frozen):
    path: str
    """Relative to the manifest, with forward slashes."""
    bytes: int
    crc32c: str


class Counts(Frozen):
    """Rows of an ingest. What was read is written, quarantined or filtered; nothing else may happen to a row."""

    read: int
    written: int
    quarantined: int
    filtered: int

    @model_validator(mode="after")
    def _add_up(self) -> Counts:
        total = self.written + self.quarantined + self.filtered
        if total != self.read:
            raise DataError(
                f"{self.read} rows were read, but {self.written} written + {self.quarantined} quarantined + "
                f"{self.filtered} filtered make {total}",
                where="row counts",
            )
        return self


class Manifest(Frozen):
    format: int = FORMAT
    stage: str
    fingerprint: str
    key: dict[str, Any]
    files: tuple[FileEntry, ...]
    created: str
    """ISO 8601, UTC."""
    seconds: float
    tools: dict[str, str]
    counts: Counts | None = None
    result: dict[str, Any]
    """What the stage says of its output to the stages after it."""


def tools() -> dict[str, str]:
    """Versions of what the output was made with; for people, never part of a fingerprint."""
    found = {"python": platform.python_version()}
    for name in TOOLS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def read(folder: Path) -> Manifest | None:
    """The manifest in `folder`; None when there is none or it is not a whole one.

    Raises:
        StoreError: it cannot be read, or a newer Headway wrote it: what this one cannot judge it must not replace.
    """
    path = folder / NAME
    try:
        return parse(path.read_bytes(), str(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror}", where=str(path)) from None


def parse(data: bytes, where: str) -> Manifest | None:
    """The manifest that a file's bytes are; None when they are not a whole one.

    Raises:
        StoreError: a newer Headway wrote it.
    """
    try:
        value = json.loads(data)
        if isinstance(value, dict) and isinstance(value.get("format"), int) and value["format"] > FORMAT:
            raise StoreError(
                f"has format {value['format']}, and this Headway knows up to {FORMAT}",
                where=where,
                fix="update Headway, or use another store",
            )
        return Manifest.model_validate(value)
    except (ValueError, DataError):  # pydantic's and JSON's are ValueErrors
        return None


def write(folder: Path, manifest: Manifest) -> None:
    """Write and sync; the caller makes the folder visible afterwards."""
    write_synced(folder / NAME, json.dumps(manifest.model_dump(mode="json"), indent=1) + "\n")


def checksum(path: Path) -> tuple[int, str]:
    """(bytes, crc32c as eight hex digits) of a file."""
    with path.open("rb", buffering=0) as file:
        return crc32c(blocks(file))


def blocks(file: Any, write: Callable[[bytes], object] = lambda block: None) -> Iterator[bytes]:
    """The rest of an open file, block by block; each is written on first."""
    while block := file.read(_BLOCK):
        write(block)
        yield block


def crc32c(blocks: Iterable[Any]) -> tuple[int, str]:
    """(bytes, crc32c as eight hex digits) of blocks of bytes."""
    value = size = 0
    for block in blocks:
        value, size = google_crc32c.extend(value, block), size + len(block)
    return size, f"{value:08x}"


def entries(folder: Path, *, sync: bool) -> tuple[FileEntry, ...]:
    """An entry for every file under `folder` but the manifest, sorted by path; synced to disk when asked."""
    found = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p != folder / NAME):
        size, crc = checksum(path)
        if sync:
            sync_path(path)
        found.append(FileEntry(path=path.relative_to(folder).as_posix(), bytes=size, crc32c=crc))
    return tuple(found)


def sizes_problem(folder: Path, manifest: Manifest) -> str | None:
    """The first file that is not there with its size; None when all are."""
    for entry in manifest.files:
        try:
            found = (folder / entry.path).stat()
        except OSError as error:
            return f"{entry.path} {_why(error)}"
        if not stat.S_ISREG(found.st_mode):
            return f"{entry.path} is not a file"
        if found.st_size != entry.bytes:
            return f"{entry.path} has {found.st_size} bytes instead of {entry.bytes}"
    return None


def _why(error: OSError) -> str:
    gone = isinstance(error, FileNotFoundError | NotADirectoryError)
    return "is gone" if gone else f"cannot be read: {error.strerror}"


def checksum_problems(folder: Path, manifest: Manifest) -> list[tuple[str, str]]:
    """(file, problem) for each file whose size or checksum is not what the manifest says. Reads everything."""
    problems = []
    for entry in manifest.files:
        try:
            size, crc = checksum(folder / entry.path)
        except OSError as error:
            problems.append((entry.path, _why(error)))
            continue
        if size != entry.bytes:
            problems.append((entry.path, f"has {size} bytes instead of {entry.bytes}"))
        elif crc != entry.crc32c:
            problems.append((entry.path, f"has crc32c {crc} instead of {entry.crc32c}: its bytes changed"))
    return problems
