"""What stands beside every output: which files, made from what, by what, in how long.

A folder without a valid manifest does not exist, for anyone; so the manifest is written last. It is JSON for people:

    {"format": 1, "stage": "ingest", "fingerprint": "...", "key": {...}, "files": [{"path", "bytes", "crc32c"}, ...]}
"""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import google_crc32c
from pydantic import ValidationError, model_validator

from headway.config import Frozen
from headway.errors import DataError, StoreError

NAME = "manifest.json"
FORMAT = 1
"""Raised when the meaning of a field changes; older formats stay readable."""
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
    """The manifest in `folder`; None when there is none or it is not a whole one."""
    try:
        return Manifest.model_validate_json((folder / NAME).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror}", where=str(folder / NAME)) from None


def write(folder: Path, manifest: Manifest) -> None:
    """Write and sync; the caller makes the folder visible afterwards."""
    write_synced(folder / NAME, json.dumps(manifest.model_dump(mode="json"), indent=1) + "\n")


def write_synced(path: Path, text: str) -> None:
    """Write `text` and have it on the disk before returning."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def checksum(path: Path) -> tuple[int, str]:
    """(bytes, crc32c as eight hex digits) of a file."""
    value, size = 0, 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            value = google_crc32c.extend(value, block)
            size += len(block)
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


def sync_path(path: Path) -> None:
    """fsync a file or a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sizes_problem(folder: Path, manifest: Manifest) -> str | None:
    """The first file that is not there with its size; None when all are."""
    for entry in manifest.files:
        try:
            size = (folder / entry.path).stat().st_size
        except FileNotFoundError:
            return f"{entry.path} is gone"
        if size != entry.bytes:
            return f"{entry.path} has {size} bytes instead of {entry.bytes}"
    return None


def checksum_problems(folder: Path, manifest: Manifest) -> list[tuple[str, str]]:
    """(file, problem) for each file whose size or checksum is not what the manifest says. Reads everything."""
    problems = []
    for entry in manifest.files:
        try:
            size, crc = checksum(folder / entry.path)
        except OSError as error:
            problems.append((entry.path, "is gone" if isinstance(error, FileNotFoundError) else str(error.strerror)))
            continue
        if size != entry.bytes:
            problems.append((entry.path, f"has {size} bytes instead of {entry.bytes}"))
        elif crc != entry.crc32c:
            problems.append((entry.path, f"has crc32c {crc} instead of {entry.crc32c}: its bytes changed"))
    return problems
