"""The stage that proves the splits of a window free of leakage, with rows looked up in the raw files.

    result = prove(SplitsRequest(...), out, Monitor(), runner=RunnerConfig())
    result["says"], result["anomalies"]

The raw files are read again only when something looks wrong, to name the rows, by the Beam pipeline of ingest; what was
filtered or rejected at ingest is so again.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from beam_jobs.ingest.merge import file_names, rows_before
from beam_jobs.ingest.range_worker import Mask, Places, RangeWork
from beam_jobs.ingest.request import IngestRequest
from beam_jobs.runners.config import RunnerConfig
from beam_jobs.runners.driver import run_spans
from beam_jobs.runners.place import open_place
from beam_jobs.runners.spans import RangeResult, SpanJob, SpanMerger, Tick
from beam_jobs.splits_request import SplitsRequest
from headway.errors import DataError
from headway.leakage.examples import PLACES, KeyOccurrence
from headway.leakage.hash_sets import Hashes
from headway.leakage.keys import canonical, key_hashes, key_text
from headway.leakage.proof import prove as prove_splits
from headway.leakage.window_proof import IndexedSpan
from headway.messages import counted
from headway.monitor import Monitor
from headway.sources.base import Chunk, Range, read_unchanged
from headway.storage.manifest import FileEntry, entries
from headway.validation.anomaly import SplitProof

FILE = "splits.json"


def prove(
    request: SplitsRequest,
    out: Path,
    monitor: Monitor,
    *,
    runner: RunnerConfig | None = None,
    places: Sequence[str] = (),
) -> dict[str, Any]:
    """Run the stage: write out/splits.json; return it, a `SplitProof` as JSON, and with `places` the entries of "files".

    An anomaly never fails the stage; `validate` gives it the gravity that the config wants.

    Args:
        runner: reads rows again.
        places: a folder of a bucket that gets the file, and in which the workers leave what they find, in place of `out`.

    Raises:
        DataError: notes are damaged.
        HeadwayError: the runner failed.
    """
    spans = {output.request.span: output.request for output in request.spans}
    window = [IndexedSpan.load(output.request.span, output.notes.file) for output in request.spans]

    splits: dict[str, dict[str, str]] = {}
    for split, of in request.parts.items():
        for span, part in of:
            splits.setdefault(span, {})[part] = split

    where = [*places, str(out)][0]

    def read_again(columns: tuple[str, ...], keys: tuple[int, ...], names: Sequence[str]) -> list[Any]:
        """Read the raw files of the spans again; returns the rows that the job of each span found."""
        jobs = [LookJob(spans[name], f"{where}/look-{number}", columns, keys) for number, name in enumerate(names)]
        try:
            return [(end.result or {})["found"] for end in run_spans(jobs, monitor, runner or RunnerConfig())]
        except DataError as error:  # whether its rows can be shown or not, what was found is found
            if len(names) == 1:
                monitor.log(f"the rows cannot be read again: {error}")
                return [[]]
        finally:
            for job in jobs:
                shutil.rmtree(job.where, ignore_errors=True)
        return [found for name in names for found in read_again(columns, keys, [name])]

    def look(columns: Sequence[str], hashes: Hashes, names: Sequence[str]) -> list[KeyOccurrence]:
        monitor.log(f"reading the rows of {counted(len(names), 'span')} again")
        found = read_again(tuple(columns), tuple(np.sort(hashes).tolist()), names)
        return [
            KeyOccurrence(hashed, (value,), written, name, splits[name][part], file, row)
            for name, rows in zip(names, found, strict=True)
            for hashed, value, written, part, file, row in rows
            if part in splits[name]
        ]

    proof = prove_splits(request.split, window, request.parts, look)
    found = SplitProof(says=tuple(proof.says), anomalies=tuple(proof.anomalies), splits=proof.splits)
    result = found.model_dump(mode="json")
    (out / FILE).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for place in places:
        made = entries(out)
        open_place(place).put(out, made)
        result["files"] = [entry.model_dump(mode="json") for entry in made]
    return result


@dataclass(frozen=True)
class LookJob(SpanJob):
    """Finds a few rows of a span for each of some hashes of keys."""

    request: IngestRequest
    columns: tuple[str, ...]
    hashes: tuple[int, ...]
    """The wanted hashes, rising."""

    def cut(self) -> list[Range]:
        return self.request.ranges()

    def process(self, piece: Range, folder: Path, tick: Tick) -> dict[str, Any]:
        finder = _Finder(self, piece)
        types = finder.types(piece)
        for chunk in read_unchanged(self.request.open(), self.request.files, piece, finder.names(types), types):
            finder.add(chunk)
            tick(finder.rows)
        return {"rows": finder.rows, "found": finder.occurrences}

    def names(self, piece: Range, total: int, facts: Mapping[str, Any]) -> dict[str, str]:
        return {}

    def finish(self, done: Sequence[RangeResult], merging: SpanMerger) -> tuple[dict[str, Any], list[FileEntry]]:
        """Returns the rows: hash, key, key as it is written, split, file, and row counted from 1 in the file."""
        names, found, seen = file_names(self.request.files), list[list[Any]](), Counter[tuple[int, str, str]]()
        befores = rows_before([each.piece for each in done], [each.facts["rows"] for each in done])
        for each, before in zip(done, befores, strict=True):
            piece = each.piece
            for hashed, value, written, part, at in each.facts["found"]:
                seen[hashed, value, part] += 1
                if seen[hashed, value, part] <= PLACES:
                    place = (names[piece.file + at], 1) if piece.row_per_file else (names[piece.file], before + at + 1)
                    found.append([hashed, value, written, part, *place])
        return {"found": found}, []


class _Finder(RangeWork):
    """Collects the first rows of a range that have a wanted key, a few of each key in each split."""

    def __init__(self, job: LookJob, piece: Range):
        super().__init__(job.request, Path(), piece)
        self.occurrences: list[tuple[int, str, str, str, int]] = []
        """The rows that were found: hash, key, key as it is written, split, number in the range."""
        self._seen = Counter[tuple[int, str, str]]()
        self._key, self._hashes = job.columns, np.array(job.hashes, np.uint64)
        self._parts = job.request.split.names()

    def _take(self, batch: pa.RecordBatch, label: pa.Array, at: Places, unlabelled: Mask | None, chunk: Chunk) -> None:
        hashes, missing = key_hashes(batch, self._key)
        places = np.searchsorted(self._hashes, hashes)
        matches = self._hashes[np.minimum(places, len(self._hashes) - 1)] == hashes
        if missing is not None:
            matches &= ~missing
        if unlabelled is not None:
            matches &= ~unlabelled
        rows = np.flatnonzero(matches)
        if not len(rows):
            return
        codes = self._assigned(batch, at, chunk).codes
        wanted = pa.array(rows)
        plain = [canonical(batch.column(name)).take(wanted).to_pylist() for name in self._key]
        for row, *values in zip(rows.tolist(), *plain, strict=True):
            key = int(hashes[row]), repr(values), self._parts[codes[row]]
            self._seen[key] += 1
            if self._seen[key] > PLACES:
                continue
            hashed, value, part = key
            text = ", ".join(f"{name} {key_text(batch.column(name)[row].as_py())}" for name in self._key)
            self.occurrences.append((hashed, value, text, part, int(at[row])))
