"""The manifest of an output: its files, its inputs, the code version, the time it took.

An output without a valid manifest counts as absent, so the manifest is written last. It is JSON that people can read:

    {"format": 1, "stage": "ingest", "fingerprint": "...", "key": {...}, "files": [{"path", "bytes", "crc32c"}, ...]}
"""

from __future__ import annotations

import functools
import json
import platform
import re
import socket
import stat
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import google_crc32c
from pydantic import field_validator, model_validator

from headway.config import Frozen
from headway.errors import DataError, StoreError
from headway.storage.atomic_io import write_synced

NAME = "manifest.json"
FORMAT = 1
"""The format of a store's files: manifests, run records, lineages, statistics, key indexes, checkpoints. Files with another
number are refused."""
TOOLS = ("headway", "apache-beam", "keras", "numpy", "pyarrow", "tensorflow")
UNREADABLE = "cannot be read"
"""The first words of the problem text for a file that exists and could not be read."""
_BLOCK = 4 << 20


def is_inside(path: str) -> bool:
    """Returns whether a relative path with forward slashes stays in its folder, on every system. No part may be empty, "."
    or "..", and backslashes, NULs and drive letters are not allowed."""
    return not any(part in ("", ".", "..") for part in path.split("/")) and not re.search(r"[\\\x00]|^[A-Za-z]:", path)


class FileEntry(Frozen):
    path: str
    """The file's path relative to the manifest, with forward slashes."""
    bytes: int
    crc32c: str

    @field_validator("path")
    @classmethod
    def _stays_inside(cls, value: str) -> str:
        if not is_inside(value):
            raise ValueError(f"{value!r} leads out of the output's folder")
        return value


class Counts(Frozen):
    """The row counts of an ingest. Every row read is written, quarantined or filtered out."""

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
    """The time when the output was made, in ISO 8601 and UTC."""
    seconds: float
    tools: dict[str, str]
    counts: Counts | None = None
    result: dict[str, Any]
    """The stage's answer as JSON, which later stages read."""

    @property
    def size(self) -> int:
        """Returns the total size of the output's files in bytes."""
        return sum(file.bytes for file in self.files)


@functools.cache
def tools() -> dict[str, str]:
    """Returns the versions of Python, Headway and the main libraries, by package name. They are looked up once. Manifests
    record them for people; they are never part of a fingerprint."""
    versions = {"python": platform.python_version()}
    for name in TOOLS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def version() -> str:
    """Returns the installed version of Headway; "unknown" if it is not installed as a package."""
    return tools().get("headway", "unknown")


def read(folder: Path) -> Manifest | None:
    """Returns the manifest in `folder`; None when there is no valid manifest.

    Raises:
        StoreError: the file exists but cannot be read, or has another format; such a file must not be replaced.
    """
    path = folder / NAME
    try:
        return manifest_and_attempt(path.read_bytes(), str(path))[0]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror}", where=str(path)) from None


def manifest_and_attempt(data: bytes, where: str) -> tuple[Manifest | None, str | None]:
    """Returns the manifest in `data`, and the upload attempt that it names in a bucket (else None); (None, None) if invalid.

    Raises:
        StoreError: the manifest has another format.
    """
    try:
        value = json.loads(data)
        check_format(value, where)
        attempt = value.pop("attempt", None) if isinstance(value, dict) else None
        return Manifest.model_validate(value), attempt if isinstance(attempt, str) else None
    except (ValueError, DataError):  # pydantic's and JSON's are ValueErrors
        return None, None


def check_format(value: object, where: str) -> None:
    """Raise StoreError if the JSON of a store's file has another "format" than `FORMAT`. JSON without a format passes.

    Raises:
        StoreError: a Headway version with another format wrote the file.
    """
    if isinstance(value, dict) and (found := value.get("format", FORMAT)) != FORMAT:
        tools_then = value.get("tools")
        theirs = tools_then.get("headway") if isinstance(tools_then, dict) else None
        writer = f"Headway {theirs}" if theirs else "another Headway"
        raise StoreError(
            f"was written by {writer} in format {found}, and this Headway ({version()} on {socket.gethostname()}) reads "
            f"format {FORMAT}",
            where=where,
            fix="use a Headway that reads this format, or another store",
        )


def write(folder: Path, manifest: Manifest) -> None:
    """Write and sync the manifest; the caller makes the folder visible afterwards."""
    write_synced(folder / NAME, json.dumps(manifest.model_dump(mode="json"), indent=1) + "\n")


def checksum(path: Path) -> tuple[int, str]:
    """Returns a file's size in bytes and its crc32c as eight hex digits."""
    with path.open("rb", buffering=0) as file:
        return crc32c(blocks(file))


def blocks(file: Any, write: Callable[[bytes], object] = lambda block: None) -> Iterator[bytes]:
    """Yields the rest of an open file, block by block; each block is passed to `write` first."""
    while block := file.read(_BLOCK):
        write(block)
        yield block


def crc32c(blocks: Iterable[Any]) -> tuple[int, str]:
    """Returns the number of bytes in some blocks, and their crc32c as eight hex digits."""
    value = size = 0
    for block in blocks:
        value, size = google_crc32c.extend(value, block), size + len(block)
    return size, f"{value:08x}"


def entry(folder: Path, name: str) -> FileEntry:
    """Returns the manifest's entry of the file `name` in `folder`: its path, size and crc32c."""
    size, crc = checksum(folder / name)
    return FileEntry(path=name, bytes=size, crc32c=crc)


def entries(folder: Path) -> tuple[FileEntry, ...]:
    """Returns the entry of every file under `folder` except the manifest, sorted by path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / NAME)
    return tuple(entry(folder, path.relative_to(folder).as_posix()) for path in paths)


Figure = TypeVar("Figure")


def value_or_reason(path: Path, look: Callable[[Path], Figure]) -> Figure | str:
    """Returns `look(path)`; if the file cannot be read, returns the reason as text."""
    try:
        return look(path)
    except (FileNotFoundError, NotADirectoryError):
        return "is gone"
    except OSError as error:
        return f"{UNREADABLE}: {error.strerror}"


def size(path: Path) -> int | str:
    """Returns a file's size in bytes, or "is not a file"; for `value_or_reason`."""
    info = path.stat()
    return info.st_size if stat.S_ISREG(info.st_mode) else "is not a file"


def sizes_problem(manifest: Manifest, size_of: Callable[[str], int | str]) -> str | None:
    """Returns the problem of the first file that has a wrong size; None when all sizes are right. `size_of` takes a file's
    name, and returns its size in bytes, or as text the reason why the file has no size."""
    for entry in manifest.files:
        if (actual := size_of(entry.path)) != entry.bytes:
            return f"{entry.path} " + (
                actual if isinstance(actual, str) else f"has {actual} bytes instead of {entry.bytes}"
            )
    return None


def checksum_problems(manifest: Manifest, states: Iterable[tuple[int, str] | str]) -> list[tuple[str, str]]:
    """Returns the name and the problem of each file whose size or checksum is not what the manifest says.

    Args:
        states: for each file, in the manifest's order, its size and crc32c, or as text the reason why it cannot be read.
    """
    problems = []
    for entry, actual in zip(manifest.files, states, strict=True):
        if isinstance(actual, str):
            problems.append((entry.path, actual))
        elif actual[0] != entry.bytes:
            problems.append((entry.path, f"has {actual[0]} bytes instead of {entry.bytes}"))
        elif actual[1] != entry.crc32c:
            problems.append((entry.path, f"has crc32c {actual[1]} instead of {entry.crc32c}: its bytes changed"))
    return problems
