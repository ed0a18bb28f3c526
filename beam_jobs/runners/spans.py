"""The work on spans, free of Beam: what a runner's workers do with a span, with each of its ranges, and at its end.

    job = IngestJob(request, place)
    for piece in job.cut():
        done = run_range(job, piece, total, tick)          # a RangeResult, or a Failure: the user's mistake
    finish(job, total, [done, ...])                         # puts the span's outcome into its place
    Outcome.read(job.place)                                 # in the driver

What a worker makes depends on the request and the range alone. Elements are small: files stay in the place.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from beam_jobs.runners.place import BucketMerging, BucketPlace, FolderMerging, FolderPlace, open_place, writable
from headway.errors import KINDS, HeadwayError
from headway.sources.base import Range
from headway.storage.manifest import FileEntry, checksum

Tick = Callable[[int], None]
"""Called after each batch with how many rows of the range have been read; may raise `Stopped`."""
Merging = FolderMerging | BucketMerging


class Stopped(Exception):
    """Raised inside a range that no longer needs to go on."""


@dataclass(frozen=True)
class Failure:
    """A user's mistake, as an element: raised through Beam it would reach the caller as the text of a traceback."""

    index: int
    """The range; -1: the span as a whole."""
    error: Mapping[str, str | None]
    """`HeadwayError.facts`."""

    def exception(self) -> HeadwayError:
        """The error as an exception of its original class."""
        kind = KINDS.get(self.error["kind"] or "", HeadwayError)
        return kind(self.error["problem"] or "", where=self.error["where"], fix=self.error["fix"])


@dataclass(frozen=True)
class RangeResult:
    """A range whose files are in the place."""

    piece: Range
    facts: Mapping[str, Any]
    """JSON values; `rows` are those that were read."""
    files: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Bytes and crc32c of each of its files that gets a name in the output, by its name in the folder of the range."""
    ran: Mapping[str, Any] = field(default_factory=dict)
    """The process, and when the range began and ended in it."""
    kept: bool = False
    """Whether an earlier job had finished it."""


@dataclass(frozen=True)
class SpanJob:
    """The work on one span; picklable. A subclass says what is done."""

    request: Any
    where: str
    """The place of the output."""

    fresh = True
    """Whether the place holds no older output, so that files get their names in it at once."""

    @property
    def span(self) -> str:
        return str(self.request.span)

    @property
    def place(self) -> FolderPlace | BucketPlace:
        return open_place(self.where)

    def cut(self) -> list[Range]:
        """The ranges of the span, in their order."""
        raise NotImplementedError

    def key(self, piece: Range) -> str | None:
        """What the output of a range depends on; None: a range of an earlier job is not kept."""
        return None

    def process(self, piece: Range, folder: Path, tick: Tick) -> dict[str, Any]:
        """Write a range's files into a folder; returns its facts."""
        raise NotImplementedError

    def names(self, piece: Range, total: int, facts: Mapping[str, Any]) -> dict[str, str]:
        """By file of the range's folder its name in the output."""
        raise NotImplementedError

    def finish(self, done: Sequence[RangeResult], merging: Merging) -> tuple[dict[str, Any], list[FileEntry]]:
        """Merge the ranges, in their order; returns the answer, and entries of the output's files."""
        raise NotImplementedError


@dataclass(frozen=True)
class Outcome:
    """How a span ended."""

    result: dict[str, Any] | None = None
    files: Sequence[Mapping[str, Any]] = ()
    """Entries of the output's files; none: its answer has them."""
    ranges: Sequence[Mapping[str, Any]] = ()
    """Of each range its index, rows, and where and when it ran; none of a kept one."""
    kept: int = 0
    """How many ranges an earlier job had finished."""
    failure: Failure | None = None

    def put(self, place: FolderPlace | BucketPlace) -> Outcome:
        with writable(place.url):
            place.end(json.dumps(asdict(self)).encode())
        return self

    @classmethod
    def read(cls, place: FolderPlace | BucketPlace) -> Outcome | None:
        """The outcome of a span that has ended; None while there is none."""
        data = place.outcome()
        if data is None:
            return None
        values = json.loads(data)
        return cls(**values | {"failure": Failure(**values["failure"]) if values["failure"] else None})


def run_range(job: SpanJob, piece: Range, total: int, tick: Tick) -> RangeResult | Failure:
    """Make a range's files and deliver them to the place, unless they are there already.

    Raises:
        Stopped: the tick asked for it.
    """
    place, began = job.place, time.time()
    try:
        if (kept := _kept(job, place, piece, total)) is not None:
            return kept
        with writable(place.url), place.attempt() as folder:
            facts = job.process(piece, folder, tick)
            names = job.names(piece, total, facts)
            files = {name: checksum(folder / name) for name in names}
            saved = {"key": job.key(piece), "facts": facts, "files": files}
            place.deliver(folder, piece.index, json.dumps(saved).encode(), names if job.fresh else {})
    except HeadwayError as error:
        return Failure(piece.index, error.facts)
    ran = {"process": f"{socket.gethostname()}:{os.getpid()}", "began": began, "ended": time.time()}
    return RangeResult(piece, facts, files, ran)


def _kept(job: SpanJob, place: FolderPlace | BucketPlace, piece: Range, total: int) -> RangeResult | None:
    """A range that an earlier job finished from the same input; None when it has to be run."""
    key = job.key(piece)
    data = None if key is None else place.facts(piece.index)
    if data is None:
        return None
    try:
        saved = json.loads(data)
        files = {name: tuple(entry) for name, entry in saved["files"].items()}
        whole = saved["key"] == key and place.whole(piece.index, files)
        return RangeResult(piece, saved["facts"], files, kept=True) if whole else None
    except (ValueError, LookupError, TypeError, AttributeError):  # a power cut may have left a file without its bytes
        return None


def finish(job: SpanJob, total: int | None, done: Sequence[RangeResult | Failure]) -> Outcome:
    """Merge a span's ranges, put its outcome and return it.

    Args:
        total: how many ranges the span was cut into; None: nobody said, and an end without ranges is none.
    """
    place = job.place
    failures = [each for each in done if isinstance(each, Failure)]
    # a runner may process an element twice
    results = {each.piece.index: each for each in done if isinstance(each, RangeResult)}
    if failures:
        return Outcome(failure=min(failures, key=lambda failure: failure.index)).put(place)
    try:
        lost = [index for index in range(total or 0) if index not in results]
        if total is None or lost or len(results) > total:
            raise lost_ranges(job, len(lost), total, lost[0] if lost else 0)
        whole = [results[index] for index in range(total)]
        with writable(place.url), place.merging(lasting=not job.fresh) as merging:
            result, files = job.finish(whole, merging)
    except HeadwayError as error:
        return Outcome(failure=Failure(-1, error.facts)).put(place)
    ranges = [{"index": r.piece.index, "rows": r.facts["rows"], **r.ran} for r in whole if not r.kept]
    entries = [entry.model_dump(mode="json") for entry in files]
    return Outcome(result, entries, ranges, kept=sum(r.kept for r in whole)).put(place)


def lost_ranges(job: SpanJob, lost: int, total: int | None, first: int) -> HeadwayError:
    """The error of a runner that did not process every element."""
    of = "all of its ranges" if total is None else f"{lost} of {total} ranges"
    return HeadwayError(
        f"the runner lost {of}: it ended without an error and did not process them",
        where=f"span {job.span}, range {first}",
        fix="run again, or use runner: direct",
    )
