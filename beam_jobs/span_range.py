"""One range of a span, from raw bytes to shards: what the one fused Beam step does. No Beam in here.

    ingest_range(request, piece, aside)

Read Arrow batches, coerce, filter, compute the label, split, count, group rows, encode, write. Everything lands in
aside/range-00003/, which appears by a rename once it is whole; facts.json in it says what happened to each row.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.request import IngestRequest
from headway import quarantine
from headway.coerce import coerce
from headway.expressions import parse
from headway.records.encode import RowGrouper, encode, encode_classic
from headway.records.tfrecord import ShardWriter
from headway.schema import LABEL, Column
from headway.sources.base import Chunk, Range, open_source
from headway.splits import assign
from headway.statistics.split import SplitStatistics

FACTS = "facts.json"
OnRows = Callable[[int], None]


def folder_of(aside: Path, index: int) -> Path:
    return aside / f"range-{index:05d}"


def ingest_range(request: IngestRequest, piece: Range, aside: Path, on_rows: OnRows = lambda rows: None) -> None:
    """Write aside/range-<index>/; a range that is already there is left alone, so a retry costs nothing.

    Args:
        on_rows: told the rows of each chunk as it is done; may raise to stop.
    """
    final = folder_of(aside, piece.index)
    if final.exists():
        return
    working = aside / f".{final.name}-{uuid.uuid4().hex[:8]}"
    working.mkdir(parents=True)
    try:
        with _RangeWriter(request, piece, working) as writer:
            types = {column.name: _raw_type(column) for column in request.read}
            for chunk in open_source(request.source).read(piece, [c.name for c in request.read], types):
                writer.add(chunk)
                on_rows(chunk.batch.num_rows + len(chunk.malformed))
        try:
            working.rename(final)
        except OSError:
            if not final.exists():
                raise
    finally:
        shutil.rmtree(working, ignore_errors=True)


def _raw_type(column: Column) -> pa.DataType:
    """What a reader should aim for: text as a dictionary, because it recurs."""
    return pa.dictionary(pa.int32(), pa.string()) if column.encoding == "dictionary" else column.arrow


class _Split:
    """One split of the range: its shard, its statistics, its unfinished row group."""

    def __init__(self, name: str, folder: Path, columns: tuple[Column, ...], rows_per_record: int):
        self.name = name
        self._folder, self._columns, self._per_record = folder, columns, rows_per_record
        self.statistics = SplitStatistics.create(columns)
        self._grouper = RowGrouper(rows_per_record)
        self._shard: ShardWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self.statistics.update(batch)
        if self._shard is None:
            self._shard = ShardWriter(self._folder / f"{self.name}.tfrecord")
        if self._per_record == 1:
            self._shard.write_many(encode_classic(batch, self._columns))
            return
        for group in self._grouper.add(batch):
            self._shard.write(encode(group, self._columns), group.num_rows)

    def finish(self) -> list[int] | None:
        """Rows of each record; None when no row came."""
        if self._shard is None:
            return None
        for group in self._grouper.rest():
            self._shard.write(encode(group, self._columns), group.num_rows)
        self._shard.close()
        self.statistics.save(self._folder / "statistics" / self.name)
        return self._shard.rows

    def close(self) -> None:
        if self._shard is not None:
            self._shard.close()


class _RangeWriter:
    def __init__(self, request: IngestRequest, piece: Range, folder: Path):
        self._request, self._piece, self._folder = request, piece, folder
        self._columns = request.columns()
        self._stored = [column.name for column in self._columns[:-1]]
        self._where = parse(request.source.where) if request.source.where else None
        self._splits = [
            _Split(name, folder, self._columns, request.records.rows) for name in request.split.names()
        ]
        self._quarantine: list[pa.Table] = []
        self._counts = {"read": 0, "written": 0, "quarantined": 0, "filtered": 0}

    def __enter__(self) -> _RangeWriter:
        return self

    def __exit__(self, kind: Any, *rest: object) -> None:
        if kind is not None:
            for split in self._splits:
                split.close()
            return
        records = {split.name: rows for split in self._splits if (rows := split.finish()) is not None}
        self._counts["quarantined"] = quarantine.write(self._folder / quarantine.FILE_NAME, self._quarantine)
        facts = {"index": self._piece.index, "file": self._piece.file, "counts": self._counts, "records": records}
        (self._folder / FACTS).write_text(json.dumps(facts), encoding="utf-8")

    def add(self, chunk: Chunk) -> None:
        self._counts["read"] += chunk.batch.num_rows + len(chunk.malformed)
        for line in chunk.malformed:
            self._quarantine.append(quarantine.rejected([line.row], None, [line.text], line.reason))
        coerced = coerce(chunk.batch, self._request.read)
        batch = coerced.batch
        if coerced.rejected.num_rows:
            self._reject(coerced.rejected, chunk, None)
        kept = coerced.kept
        if self._where is not None:
            batch, kept = self._filter(batch, kept, self._where.keep(batch))
        label = self._request.label.compute(batch)
        if label.null_count:
            present = label.is_valid()
            if self._request.label.missing == "quarantine":
                missing = np.flatnonzero(~present.to_numpy(zero_copy_only=False))
                name = self._request.label.column
                table = quarantine.rejected(missing.tolist(), name, [None] * len(missing), "the label is missing")
                self._reject(table, chunk, kept)
                batch, kept = _masked(batch, kept, present)
            else:
                batch, kept = self._filter(batch, kept, present)
            label = label.filter(present)
        if not batch.num_rows:
            return
        if self._columns[-1].encoding == "dictionary":
            label = label.dictionary_encode()
        codes = assign(self._request.split, batch)
        stored = pa.RecordBatch.from_arrays(
            [*(batch.column(name) for name in self._stored), label], names=[*self._stored, LABEL]
        )
        self._counts["written"] += stored.num_rows
        if len(self._splits) == 1:
            self._splits[0].add(stored)
            return
        for code, split in enumerate(self._splits):
            mask = codes == code
            if mask.any():
                split.add(stored if mask.all() else stored.filter(pa.array(mask)))

    def _filter(self, batch: pa.RecordBatch, kept: Any, mask: pa.Array) -> tuple[pa.RecordBatch, Any]:
        before = batch.num_rows
        batch, kept = _masked(batch, kept, mask)
        self._counts["filtered"] += before - batch.num_rows
        return batch, kept

    def _reject(self, table: pa.Table, chunk: Chunk, kept: Any) -> None:
        """Rows counted within a batch become data rows of the range."""
        rows = table.column("row").to_numpy()
        if kept is not None:
            rows = kept[rows]
        rows = chunk.rows[rows] if chunk.rows is not None else rows + chunk.first_row
        self._quarantine.append(table.set_column(1, "row", pa.array(rows, pa.int64())))


def _masked(batch: pa.RecordBatch, kept: Any, mask: pa.Array) -> tuple[pa.RecordBatch, Any]:
    if pc.all(mask).as_py() is not False:
        return batch, kept
    wanted = mask.to_numpy(zero_copy_only=False)
    places = np.arange(batch.num_rows) if kept is None else kept
    return batch.filter(mask), places[wanted]
