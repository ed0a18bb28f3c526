"""The work on a span, without Beam: how workers process the ranges of the span, and how the ranges are merged at the end.

    job = IngestJob(request, place)
    for piece in job.cut():
        done = run_range(job, piece, total, tick)          # a RangeResult
    finish_span(job, total, [done, ...])                         # writes the span's outcome into its place
    Outcome.read(job)                                       # in the driver

A worker's output depends on the request and the range alone. Files stay in the place: Beam passes on only small facts.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beam_jobs.runners.place import BucketPlace, Files, FolderPlace, as_store_errors, open_place, range_name
from headway.errors import KINDS, HeadwayError, StoreError
from headway.sources.base import Range
from headway.storage.fingerprint import fingerprint
from headway.storage.manifest import FileEntry, entries, tools

Tick = Callable[[int], None]
"""A function that is called after each batch with the number of the range's rows read so far. It may raise `Stopped`."""


class Stopped(Exception):
    """Raised to end the work on a range: the job was stopped, or another job has taken over its output `Place`."""


@dataclass(frozen=True)
class Failure:
    """A HeadwayError as an element of the pipeline. Raised in Beam, an error would only leave the text of a traceback."""

    index: int
    """The number of the range that failed; -1: the span as a whole."""
    error: Mapping[str, str | None]
    """The error as `HeadwayError.facts`."""

    def exception(self) -> HeadwayError:
        """Returns the error as an exception of its original class."""
        kind = KINDS.get(self.error["kind"] or "", HeadwayError)
        return kind(self.error["problem"] or "", where=self.error["where"], fix=self.error["fix"])


@dataclass(frozen=True)
class RangeResult:
    """The result of processing a range. The range's files are in the span's place."""

    piece: Range
    facts: Mapping[str, Any]
    """The facts of the range as JSON values; `rows` is the number of rows that were read."""
    folder: str
    """The name of the range's folder in the place."""
    files: Files = field(default_factory=dict)
    kept: bool = False
    """Whether an earlier job had finished the range."""


class SpanMerger:
    """Helps a merge on this machine: fetches the files of ranges, and delivers merged files from the folder `out`.

    Args:
        fresh: `SpanJob.fresh`. If true, files in a bucket have their final names already, and files on a disk are synced later.
    """

    def __init__(self, place: FolderPlace | BucketPlace, scratch: Path, *, fresh: bool):
        self._place, self._scratch, self._fresh = place, scratch, fresh
        self.out, self.spill = scratch / "out", scratch / "spill"
        self.out.mkdir()

    def fetch(self, done: RangeResult, part: str) -> Path:
        """Returns the path on this machine of `part`, a file or folder of a range. Downloads it if the place is a bucket."""
        files = [file for file in done.files if f"{file}/".startswith(f"{part}/")]
        return self._place.fetch(done.folder, files, self._scratch) / part

    def drop(self, path: Path) -> None:
        """Delete a fetched file if it is a downloaded copy. The range's own file is never deleted."""
        if path.is_relative_to(self._scratch):
            path.unlink()

    def copy_to_output(self, done: RangeResult, file: str, target: str) -> None:
        """Copy a range's file into the output under the name `target`, unless workers have uploaded it under that name."""
        if not (self._fresh and isinstance(self._place, BucketPlace)):
            self._place.copy_to_output(done.folder, file, target, lasting=not self._fresh)

    def deliver(self) -> tuple[FileEntry, ...]:
        """Move the files of `out` into the output. Returns an entry for each: path, size, crc32c."""
        made = entries(self.out)
        self._place.move_to_output(self.out, made, lasting=not self._fresh)
        return made


@dataclass(frozen=True)
class SpanJob:
    """The work on one span; can be pickled. A subclass defines how the span is cut, processed and merged."""

    request: Any
    where: str
    """The place of the output: a folder, or the URL of one in a bucket."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex, kw_only=True)
    """A random name, different for each job in the same place."""

    fresh = True
    """Whether the place holds no older output, so that files may get their final names before the span is finished."""

    @property
    def span(self) -> str:
        return str(self.request.span)

    @property
    def place(self) -> FolderPlace | BucketPlace:
        return open_place(self.where)

    def cut(self) -> list[Range]:
        """Returns the ranges into which the span is cut, in the order of its rows."""
        raise NotImplementedError

    def key(self, piece: Range) -> str | None:
        """Returns a text of all that a range's output depends on. Finished ranges with this text are reused; None: never."""
        return None

    def published(self) -> dict[str, Any] | None:
        """Returns the span's result if its output is complete, else None. A runner may finish the same span twice."""
        return None

    def process(self, piece: Range, folder: Path, tick: Tick) -> dict[str, Any]:
        """Write a range's files into a folder, calling `tick` after each batch. Returns the range's facts as JSON values."""
        raise NotImplementedError

    def output_names(self, piece: Range, total: int, facts: Mapping[str, Any]) -> dict[str, str]:
        """Returns {file in the range's folder: its name in the output}. `total` is the number of the span's ranges."""
        raise NotImplementedError

    def finish(self, done: Sequence[RangeResult], merging: SpanMerger) -> tuple[dict[str, Any], list[FileEntry]]:
        """Merge the ranges, which come in order. Returns the span's result, and the manifest entries of its files."""
        raise NotImplementedError


@dataclass(frozen=True)
class Outcome:
    """The outcome of a span: its result, or its failure."""

    result: dict[str, Any] | None = None
    files: Sequence[Mapping[str, Any]] = ()
    """The manifest entries of the output's files; empty if the result has these entries."""
    ranges: int = 0
    kept: int = 0
    """The number of ranges that an earlier job had finished."""
    failure: Failure | None = None

    def save(self, job: SpanJob) -> Outcome:
        """Write the outcome where the driver reads it, and return it. Writes nothing if the place is another job's now."""
        place = job.place
        with as_store_errors(place.url):
            if place.belongs(job.id):
                place.write_outcome(job.id, json.dumps(vars(self), default=vars).encode())
        return self

    @classmethod
    def read(cls, job: SpanJob) -> Outcome | None:
        """Returns the outcome that was saved for a job; None if none was saved yet."""
        data = job.place.read_outcome(job.id)
        if data is None:
            return None
        values = json.loads(data)
        return cls(**values | {"failure": Failure(**values["failure"]) if values["failure"] else None})


def run_range(job: SpanJob, piece: Range, total: int, tick: Tick) -> RangeResult:
    """Make a range's files and deliver them to the place, or reuse those of an earlier job. Returns the range's result.

    Raises:
        HeadwayError: the range cannot be processed, or its files cannot be written.
        Stopped: the tick raised it, or the place belongs to another job now.
    """
    place = job.place
    if (key := job.key(piece)) is not None:  # another version of a tool may write other bytes, and one output is of one
        key = fingerprint({"key": key, "tools": tools()})
    name = range_name(piece.index, key or job.id)
    if key is not None and (kept := _kept(place, piece, name, key)) is not None:
        return kept
    with as_store_errors(place.url), place.attempt() as folder:
        facts = job.process(piece, folder, tick)
        names = job.output_names(piece, total, facts)
        files = {entry.path: (entry.bytes, entry.crc32c) for entry in entries(folder)}
        saved = json.dumps({"key": key, "facts": facts, "files": files}).encode()
        if not place.belongs(job.id):
            raise Stopped
        place.deliver(folder, name, saved, files, names if job.fresh else {})
    return RangeResult(piece, facts, name, files)


def _kept(place: FolderPlace | BucketPlace, piece: Range, name: str, key: str) -> RangeResult | None:
    """Returns the result of a range that an earlier job finished with the same key; None if the range must be processed."""
    data = place.facts(name)
    if data is None:
        return None
    try:
        saved = json.loads(data)
        files = {file: tuple(entry) for file, entry in saved["files"].items()}
        whole = saved["key"] == key and place.whole(name, files)
        return RangeResult(piece, saved["facts"], name, files, kept=True) if whole else None
    except (ValueError, LookupError, TypeError, AttributeError):  # a power cut may have left a file without its bytes
        return None


def finish_span(job: SpanJob, total: int | None, done: Sequence[RangeResult | Failure]) -> Outcome:
    """Merges a span's ranges, saves the outcome and returns it. If the span is published already, its outcome is returned, and
    nothing else is done. A HeadwayError is returned as a failure.

    Args:
        total: the number of ranges that the span was cut into; None: the runner lost this number, and the outcome is a failure.
    """
    if (published := job.published()) is not None:
        return Outcome(published)
    place = job.place
    failures = [each for each in done if isinstance(each, Failure)]
    # a runner may process an element twice
    results = {each.piece.index: each for each in done if isinstance(each, RangeResult)}
    if failures:
        return Outcome(failure=min(failures, key=lambda failure: failure.index)).save(job)
    try:
        if not place.belongs(job.id):
            problem, fix = "another job works in this folder now", "let it end, or name another folder"
            raise StoreError(problem, where=place.url, fix=fix)
        lost = [index for index in range(total or 0) if index not in results]
        if total is None or lost or len(results) > total:
            raise lost_ranges(job, len(lost), total, lost[0] if lost else 0)
        whole = [results[index] for index in range(total)]
        with as_store_errors(place.url), place.attempt() as scratch:
            result, files = job.finish(whole, SpanMerger(place, scratch, fresh=job.fresh))
    except HeadwayError as error:
        return Outcome(failure=Failure(-1, error.facts)).save(job)
    made = [entry.model_dump(mode="json") for entry in files]
    return Outcome(result, made, total, kept=sum(r.kept for r in whole)).save(job)


def lost_ranges(job: SpanJob, lost: int, total: int | None, first: int) -> HeadwayError:
    """Returns the error for a runner that lost `lost` of `total` ranges (None: all); `first` is the first lost range's index."""
    of = "all of its ranges" if total is None else f"{lost} of {total} ranges"
    return HeadwayError(
        f"the runner lost {of}: it ended without an error and did not process them",
        where=f"span {job.span}, range {first}",
        fix="run again, or use runner: direct",
    )
