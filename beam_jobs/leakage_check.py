"""The stage that proves the splits of a window free of leakage, with rows looked up in the raw files.

    result = prove(SplitsRequest(...), out, Monitor())
    result["says"], result["anomalies"]

The raw files are read again only when something looks wrong, to name the rows; what was filtered or rejected at ingest is
so again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from beam_jobs.ingest.merge import file_names
from beam_jobs.ingest.range_worker import Places, RangeWork
from beam_jobs.ingest.request import IngestRequest
from headway.config import Frozen
from headway.errors import DataError
from headway.leakage.copies import File, copies
from headway.leakage.examples import PLACES, KeyOccurrence
from headway.leakage.hash_sets import Hashes
from headway.leakage.keys import canonical, key_hashes, key_text
from headway.leakage.proof import prove as prove_splits
from headway.leakage.window_proof import IndexedSpan
from headway.monitor import Monitor
from headway.sources.base import Chunk, Range
from headway.stages.ingested import Ingested
from headway.stages.refs import Ref
from headway.stages.stage_class import Key, Stage
from headway.tabular.splits import SPLITS, Part, SplitConfig
from headway.tabular.stacked import Mask
from headway.validation.anomaly import SplitProof

VERSION = 3
FILE = "splits.json"


class SpanOutput(Frozen):
    """A span of the window, and the key index in its ingest output."""

    request: IngestRequest
    notes: Ref[Ingested]

    def as_key(self) -> object:
        return [self.request.span, self.notes]


class SplitsRequest(Stage[SplitProof]):
    name, version, runs = "splits", VERSION, "beam_jobs.leakage_check:prove"
    split: Annotated[SplitConfig, Key("config")]
    parts: Annotated[dict[str, tuple[Part, ...]], Key("inputs", "parts")]
    """By split of the window: which part of which span."""
    spans: Annotated[tuple[SpanOutput, ...], Key("inputs", "spans")]
    """In the window's order."""


def prove(request: SplitsRequest, out: Path, monitor: Monitor) -> dict[str, Any]:
    """Run the stage: write out/splits.json; return it, a `SplitProof` as JSON.

    An anomaly never fails the stage; `validate` gives it the gravity that the config wants.

    Raises:
        DataError: notes are damaged.
    """
    spans = {output.request.span: output.request for output in request.spans}
    window = [IndexedSpan.load(output.request.span, output.notes.file) for output in request.spans]

    splits: dict[str, dict[str, str]] = {}
    for split, of in request.parts.items():
        for span, part in of:
            splits.setdefault(span, {})[part] = split

    def look(columns: Sequence[str], hashes: Hashes, names: Sequence[str]) -> list[KeyOccurrence]:
        occurrences: list[KeyOccurrence] = []
        for name in names:
            monitor.check()
            monitor.log(f"reading the rows of span {name} again")
            try:
                occurrences += list(_look(spans[name], columns, hashes, splits[name]))
            except (DataError, OSError) as error:  # what was found is found, whether its rows can be shown or not
                monitor.log(f"the rows of span {name} cannot be read again: {error}")
        return occurrences

    proof = prove_splits(request.split, window, request.parts, look)
    proof.anomalies += copies(list(_files(request, splits)))
    found = SplitProof(says=tuple(proof.says), anomalies=tuple(proof.anomalies), splits=proof.splits)
    result = found.model_dump(mode="json")
    (out / FILE).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def _files(request: SplitsRequest, splits: dict[str, dict[str, str]]) -> Iterator[File]:
    """The raw files of the window, each with the split of all its rows, if they are in one."""
    for part in request.spans:
        names = splits.get(part.request.span, {})
        whole = next(iter(names.values())) if len({*names.values()}) == 1 else None
        of = [names.get(SPLITS[code]) for code in part.request.file_splits(part.request.files)] or [whole] * len(
            part.request.files
        )
        for name, file, split in zip(file_names(part.request.files), part.request.files, of, strict=True):
            yield File(part.request.span, name, file.bytes, file.crc32c, split)


def _look(
    request: IngestRequest, columns: Sequence[str], hashes: Hashes, splits: dict[str, str]
) -> Iterator[KeyOccurrence]:
    """The rows of a span whose key has one of these hashes; a few rows per key."""
    names, parts = file_names(request.files), request.split.names()
    sorted_hashes, source = np.sort(hashes), request.open()
    occurrences: dict[tuple[int, Any, str], int] = {}
    file, before = -1, 0
    for piece in request.ranges():
        if piece.file != file:
            file, before = piece.file, 0
        reader = _Finder(request, piece, columns, sorted_hashes)
        types = reader.types(piece)
        for chunk in source.read(piece, reader.names(types), types):
            reader.add(chunk)
        for value, hashed, written, code, at in reader.occurrences:
            part = parts[code]
            key = hashed, value, part
            occurrences[key] = occurrences.get(key, 0) + 1
            if occurrences[key] <= PLACES and part in splits:
                name = names[piece.file + at] if piece.row_per_file else names[piece.file]
                row = 1 if piece.row_per_file else before + at + 1
                yield KeyOccurrence(hashed, value, written, request.span, splits[part], name, row)
        before += reader.rows


class _Finder(RangeWork):
    """Collects the rows of a range that have a wanted key."""

    def __init__(self, request: IngestRequest, piece: Range, columns: Sequence[str], hashes: Hashes):
        super().__init__(request, Path(), piece)
        self.occurrences: list[tuple[tuple[Any, ...], int, str, int, int]] = []
        self._key, self._hashes = columns, hashes

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
        written = [batch.column(name).take(wanted).to_pylist() for name in self._key]
        for i, row in enumerate(rows.tolist()):
            value = tuple(tuple(column[i]) if isinstance(column[i], list) else column[i] for column in plain)
            text = ", ".join(f"{n} {key_text(column[i])}" for n, column in zip(self._key, written, strict=True))
            self.occurrences.append((value, int(hashes[row]), text, int(codes[row]), int(at[row])))
