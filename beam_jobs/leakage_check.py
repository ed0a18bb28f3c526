"""The stage that proves the splits of a window free of leakage, with rows looked up in the raw files.

    result = prove(SplitsRequest(...), out, Monitor())
    result["says"], result["anomalies"]

The raw files are read again only if a key is in two splits, and only until each of these splits has shown a row with the key.
Rows that ingest filtered or rejected are left out here, too.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from beam_jobs.ingest.merge import file_names
from beam_jobs.ingest.range_worker import Mask, Places, RangeWork
from beam_jobs.ingest.request import IngestRequest
from beam_jobs.splits_request import SplitsRequest
from headway.errors import DataError
from headway.leakage.hash_sets import Hashes
from headway.leakage.keys import key_hashes, key_text
from headway.leakage.proof import KeyOccurrence
from headway.leakage.proof import prove as prove_splits
from headway.leakage.window_proof import IndexedSpan
from headway.messages import counted
from headway.monitor import Monitor
from headway.sources.base import Chunk, Range, read_unchanged
from headway.validation.anomaly import SplitProof

FILE = "splits.json"


def prove(request: SplitsRequest, out: Path, monitor: Monitor) -> dict[str, Any]:
    """Run the stage: write a `SplitProof` to out/splits.json, and return it as JSON values.

    Leakage is reported as an anomaly and never fails the stage. The stage `validate` gives the anomaly its configured severity.

    Raises:
        DataError: the key index of a span is damaged. StoreError: it has another format.
    """
    spans = {output.request.span: output.request for output in request.spans}
    window = [IndexedSpan.load(output.request.span, output.notes.file) for output in request.spans]
    split_of = {part: split for split, parts in request.parts.items() for part in parts}

    def look(
        columns: Sequence[str], hashes: Hashes, names: Sequence[str], splits: Sequence[str]
    ) -> list[KeyOccurrence]:
        monitor.log(f"reading the rows of {counted(len(names), 'span')} again")
        found: dict[tuple[int, str], KeyOccurrence] = {}
        for name in names:
            try:
                for hashed, part, written, file, row in _rows(spans[name], columns, hashes, monitor):
                    if (split := split_of.get((name, part), "")) in splits:
                        found.setdefault((hashed, split), KeyOccurrence(hashed, written, name, split, file, row))
                    if len(found) == len(hashes) * len(splits):
                        return [*found.values()]
            except DataError as error:  # whether its rows can be shown or not, what was found is found
                monitor.log(f"the rows cannot be read again: {error}")
        return [*found.values()]

    proof = prove_splits(request.split, window, request.parts, look)
    found = SplitProof(says=tuple(proof.says), anomalies=tuple(proof.anomalies), splits=proof.splits)
    result = found.model_dump(mode="json")
    (out / FILE).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def _rows(
    request: IngestRequest, columns: Sequence[str], hashes: Hashes, monitor: Monitor
) -> Iterator[tuple[int, str, str, str, int]]:
    """Yields a tuple for each row of a span whose key has one of the hashes: the hash, the split, the key as text, the file's
    name, and the row's number in the file, from 1. In each batch only the first row of a key and split is yielded."""
    names, before = file_names(request.files), Counter[int]()
    for piece in request.ranges():
        finder = _Finder(request, piece, columns, hashes)
        types = finder.column_types(piece)
        for chunk in read_unchanged(request.open(), request.files, piece, finder.column_names(types), types):
            monitor.check()
            finder.add(chunk)
            for hashed, part, written, at in finder.found:
                file, row = (piece.file + at, 1) if piece.row_per_file else (piece.file, before[piece.file] + at + 1)
                yield hashed, part, written, names[file], row
        before[piece.file] += finder.rows


class _Finder(RangeWork):
    """Finds rows of a range whose key has a given hash, the first of each key and split in a chunk. Writes nothing."""

    def __init__(self, request: IngestRequest, piece: Range, columns: Sequence[str], hashes: Hashes):
        super().__init__(request, Path(), piece)
        self.found: list[tuple[int, str, str, int]] = []
        """A tuple for each row found in the last chunk: key hash, split, key as text, row number in the range."""
        self._key, self._hashes, self._parts = columns, hashes, request.split.names()

    def add(self, chunk: Chunk) -> None:
        self.found = []
        super().add(chunk)

    def _take(self, batch: pa.RecordBatch, label: pa.Array, at: Places, unlabelled: Mask | None, chunk: Chunk) -> None:
        hashes, missing = key_hashes(batch, self._key)
        for gone in (missing, unlabelled):
            hashes = hashes if gone is None else np.where(gone, np.uint64(0), hashes)
        rows = np.flatnonzero(np.isin(hashes, self._hashes, kind="sort"))
        if not len(rows):
            return
        codes = self._assigned(batch, at, chunk).codes[rows]
        _, first = np.unique(np.stack([hashes[rows], codes.astype(np.uint64)]), axis=1, return_index=True)
        for row, code in zip(rows[np.sort(first)].tolist(), codes[np.sort(first)].tolist(), strict=True):
            text = ", ".join(f"{name} {key_text(batch.column(name)[row].as_py())}" for name in self._key)
            self.found.append((int(hashes[row]), self._parts[code], text, int(at[row])))
