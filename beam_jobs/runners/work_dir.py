"""The folder of a span's ranges until the span is whole: `<out>/.ranges/00003/`, one per range.

    with work_dir.attempt(3) as folder:          # .ranges/00003.<attempt>
        ...write into folder...               # on leaving it becomes .ranges/00003 in one rename
    work_dir.finished()                       # {3}

A runner may run a range twice, at the same time even: each attempt writes a folder of its own, and the first one to be
whole stays; both hold the same bytes. A user's mistake is kept as a file, so that it crosses process boundaries whole
and no runner tries it again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import KINDS, HeadwayError, StoreError
from headway.storage.atomic_io import writing

FOLDER = ".ranges"
_STOP = "stop"
_ERROR = ".error.json"
FACTS = "facts.json"
WORKER = "worker"
"""Of the facts: the process that ran the range, and when: {process, began, ended}."""
ROWS = ".rows"
"""How many rows an attempt has read so far, in its folder."""


@dataclass(frozen=True)
class WorkDir:
    """The work folder of one span, through which its ranges and the driver communicate; picklable."""

    folder: Path

    @classmethod
    def of(cls, out: Path) -> WorkDir:
        return cls(out / FOLDER)

    def begin(self) -> None:
        """Empty the folder of an earlier process's files."""
        self.remove()
        self.folder.mkdir(parents=True)

    def resume(self, keys: Mapping[int, str]) -> set[int]:
        """Keep the whole ranges of an earlier process whose facts hold their `key`; remove the rest."""
        self.folder.mkdir(parents=True, exist_ok=True)
        whole = set[int]()
        for path in self.folder.iterdir():
            index = int(path.name) if path.name.isdigit() else -1
            if index in keys and self._key(index) == keys[index]:
                whole.add(index)
            elif path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        return whole

    def _key(self, index: int) -> str | None:
        try:
            return self.facts(index).get("key")
        except (OSError, ValueError, AttributeError):  # a power cut may have left a file without its bytes
            return None

    def remove(self) -> None:
        """Remove the folder at once, so that a worker the cluster has yet to stop writes nothing more into it."""
        gone = self.folder.with_name(f"{self.folder.name}.{uuid.uuid4().hex}")
        with contextlib.suppress(OSError):  # it is not there
            self.folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    @contextlib.contextmanager
    def attempt(self, index: int) -> Iterator[Path]:
        """A new folder to write range `index` into; removed on an exception."""
        folder = self.folder / f"{index:05d}.{uuid.uuid4().hex}"
        folder.mkdir()
        try:
            yield folder
            try:
                folder.rename(self.of_range(index))
            except OSError:
                if not self.of_range(index).is_dir():  # else another attempt was first, and it wrote the same bytes
                    raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def of_range(self, index: int) -> Path:
        return self.folder / f"{index:05d}"

    def finished(self) -> set[int]:
        """The ranges whose output is whole."""
        return {int(path.name) for path in self.folder.iterdir() if path.name.isdigit()}

    def rows(self, whole: dict[int, int]) -> int:
        """The number of rows read so far; `whole` keeps those of whole ranges from one call to the next."""
        under_way = dict[int, int]()
        with contextlib.suppress(
            FileNotFoundError
        ):  # the folder went, or an attempt became whole: the next call sees it
            for path in self.folder.iterdir():
                name, _, attempt = path.name.partition(".")
                index = int(name) if name.isdigit() else -1
                if index < 0 or index in whole:
                    continue
                if not attempt:
                    whole[index] = self.facts(index)["rows"]
                else:
                    with contextlib.suppress(OSError, ValueError):
                        under_way[index] = max(under_way.get(index, 0), int((path / ROWS).read_text()))
        return sum(whole.values()) + sum(rows for index, rows in under_way.items() if index not in whole)

    def attempts(self) -> set[str]:
        """Every attempt at a range that is running or has finished."""
        return {path.name for path in self.folder.iterdir() if path.name[:5].isdigit()}

    def facts(self, index: int) -> dict[str, Any]:
        """The facts that a finished range wrote."""
        return json.loads((self.of_range(index) / FACTS).read_text())

    def fail(self, index: int, error: HeadwayError) -> None:
        """Save a range's error, and stop the other ranges."""
        facts = {"kind": type(error).__name__, "problem": error.problem, "where": error.where, "fix": error.fix}
        part = self.folder / f"{index:05d}.{uuid.uuid4().hex}.part"
        with contextlib.suppress(FileNotFoundError):  # the driver gave up and took the folder along: nobody listens
            part.write_text(json.dumps(facts))
            part.replace(self.folder / f"{index:05d}{_ERROR}")
            self.stop()

    def error(self) -> HeadwayError | None:
        """The error of the first range that has one, as an exception of its original class."""
        for path in sorted(self.folder.glob(f"*{_ERROR}")):
            facts = json.loads(path.read_text())
            kind = KINDS.get(facts["kind"], HeadwayError)
            return kind(facts["problem"], where=facts["where"], fix=facts["fix"])
        return None

    def stop(self) -> None:
        """Ask every range of this span to stop, in whatever process it runs."""
        with contextlib.suppress(OSError):  # it is gone, or cannot be written, and why is reported already
            (self.folder / _STOP).touch()

    def stopped(self) -> bool:
        """Whether to stop: a stop was requested, or the driver has left."""
        # os.path: asked for every batch
        return os.path.exists(self.folder / _STOP) or not os.path.exists(self.folder)  # noqa: PTH110


@contextlib.contextmanager
def writable(root: Path) -> Iterator[None]:
    """Raise any failure to write below `root` as a StoreError."""
    try:
        with writing(root):
            yield
    except OSError as error:
        raise StoreError(f"cannot be written: {error.strerror or error}", where=str(root)) from None
