"""Ingests one range of a span's files: reads raw rows, writes records, statistics and rejected rows. Imports no Beam.

    facts = ingest_range(request, piece, folder, tick=lambda rows: None)
    facts                    # rows read, filtered, quarantined; rows per record of each split, run-length encoded

Rows are filtered, coerced, labelled and split, then go into the statistics and the records of their split. Batches of
some ten thousand rows are processed as arrays, not row by row. The output depends on the range and the request alone.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_jobs.ingest.request import NOTES, IngestRequest
from beam_jobs.runners.spans import Tick
from headway.errors import DataError
from headway.leakage.key_index import KeyIndex
from headway.leakage.keys import unit_codes
from headway.records.tfrecord import Shard, one_batch
from headway.schema.columns import LABEL, UNIT, Column
from headway.sources.base import Chunk, Range, read_unchanged
from headway.sources.config import FORMATS
from headway.sources.formats.parquet import WIDE
from headway.statistics.split_statistics import SplitStatistics
from headway.tabular import quarantine
from headway.tabular.coerce import coerce, raw_types
from headway.tabular.expressions import Overflow, parse
from headway.tabular.list_arrays import is_text, value_type
from headway.tabular.splits import RowSplit, SplitCodes, place_hash

SHARD, STATISTICS = "shard.tfrecord", "statistics"
"""The names of each split's shard and statistics, in `<folder>/<split>/`."""
_LEAST_ROWS = 512
"""The number of rows of a wide table to collect before processing, since calls for each column cost the same for fewer rows."""
Mask = NDArray[np.bool_]
Places = NDArray[np.int64]
"""For each row of a batch, its number within the range, from 0."""


def ingest_range(request: IngestRequest, piece: Range, folder: Path, tick: Tick) -> dict[str, Any]:
    """Write a range's output into `folder`. Returns its numbers of rows: all, filtered, quarantined, and those of each record.

    Rejected rows are numbered from 0 within the range. `tick` is called after each batch with the number of rows read so far.

    Raises:
        DataError, ConfigError: the range cannot be read, its file has changed, or the request does not fit it.
        OSError, StoreError: `folder` cannot be written.
    """
    work = RangeWork(request, folder, piece)
    types = work.column_types(piece)
    names = work.column_names(types)
    try:
        for chunk in read_unchanged(request.open(), request.files, piece, names, types):
            work.add(chunk)
            del chunk  # or it would be there while the next one is read
            tick(work.rows)
        return work.finish()
    except Overflow as error:
        raise _placed(error, request, piece) from None
    finally:
        work.close()


class RangeRows:
    """Counts the rows of a range, and collects the rejected rows. Rows are numbered within the range, from 0."""

    def __init__(self) -> None:
        self.rows = 0
        self._rejected: list[pa.Table] = []

    def take_chunk(self, chunk: Chunk) -> tuple[pa.RecordBatch, Places]:
        """Count a chunk's rows and reject its malformed lines. Returns the other rows and their numbers in the range."""
        self.rows += chunk.batch.num_rows + len(chunk.malformed)
        for line in chunk.malformed:
            self._rejected.append(quarantine.rejected([line.row], line.column, [line.text], line.reason))
        return chunk.batch, chunk.positions()

    def reject(self, table: pa.Table, at: Places) -> None:
        """Add `table`, the rejected rows of a batch. `at` has the number in the range of every row of that batch."""
        if table.num_rows:
            rows = pa.array(at[table.column("row").to_numpy()])
            self._rejected.append(table.set_column(table.schema.get_field_index("row"), "row", rows))

    def rejected(self) -> pa.Table:
        """Returns all rejected rows, sorted by their number in the range."""
        return pa.concat_tables([quarantine.SCHEMA.empty_table(), *self._rejected]).sort_by("row")

    def write_rejected(self, folder: Path) -> int:
        """Write the rejected rows, if there are any, as the quarantine file of `folder`. Returns the number of rejected rows."""
        return quarantine.write(folder / quarantine.FILE_NAME, [self.rejected()])


class RangeWork(RangeRows):
    """Filters, converts, labels and splits the rows of a range, chunk by chunk, and writes the output into `folder`."""

    def __init__(self, request: IngestRequest, folder: Path, piece: Range):
        super().__init__()
        self._filtered = 0
        self._request, self._folder = request, folder
        self._where = parse(request.source.where) if request.source.where is not None else None
        self._columns, self._record_columns = request.columns(), request.record_columns()
        self._splits: dict[str, _Split] = {}
        self._rows = RowSplit(request.split, request.read, request.row_columns())
        files = request.files[piece.file :] if piece.row_per_file else request.files[piece.file : piece.file + 1]
        self._of_files = np.array(request.file_splits(files), np.int8)
        """For each file of the range, the index of its split if paths name the splits (split.mode: path); else empty."""
        self._notes = KeyIndex(request.split, request.read, request.row_columns(), by_place=request.by_place)
        self._file = (piece.file, piece.row_per_file) if request.by_place else None

    def column_types(self, piece: Range) -> dict[str, pa.DataType]:
        """Returns the Arrow type in which to read each column. Omits columns that only the split needs if the file lacks them."""
        names = None
        if self._rows.extra and FORMATS[self._request.source.format].named:  # the others give nulls
            names = self._request.open().names(self._request.files[piece.file])
        return self._rows.types(names, raw_types(self._request.read))

    def column_names(self, types: Mapping[str, pa.DataType]) -> list[str]:
        """Returns the names of all columns to read from a range, including columns without an entry in `types`."""
        return list(dict.fromkeys([*(column.name for column in self._request.read), *types]))

    def add(self, chunk: Chunk) -> None:
        batch, at = self._filter(*self.take_chunk(chunk))
        batch, at = self._coerce(batch, at)
        batch, label, at, missing = self._label(batch, at)
        if batch.num_rows:
            self._take(batch, label, at, missing, chunk)

    def _assigned(self, batch: pa.RecordBatch, at: Places, chunk: Chunk) -> SplitCodes:
        """Returns the splits of `batch`, the rows of `chunk` that were not filtered out or rejected, with the numbers `at`."""
        if len(self._of_files):
            return SplitCodes(self._of_files[at] if len(self._of_files) > 1 else np.repeat(self._of_files, len(at)))
        rows = None
        if self._rows.looks_at_raw and batch.num_rows != chunk.batch.num_rows:
            rows = np.searchsorted(chunk.positions(), at)
        places = None
        if self._file is not None:
            file, row_per_file = self._file
            places = place_hash(file + at, 0 * at) if row_per_file else place_hash(np.full_like(at, file), at)
        return self._rows.assign_splits(batch, chunk.batch, rows, places)

    def _take(self, batch: pa.RecordBatch, label: pa.Array, at: Places, unlabelled: Mask | None, chunk: Chunk) -> None:
        """Write the rows of `batch` and add them to the key index, except the rows that the mask `unlabelled` marks."""
        split = self._assigned(batch, at, chunk)
        if unlabelled is not None:
            split = replace(split, codes=np.where(unlabelled, np.int8(-1), split.codes))
        self._notes.add(batch, chunk.batch.schema, split)
        with _numbered_in_range(at):
            unit = unit_codes(batch, self._request.split.key, split.columns) if self._request.unit else None
        self._write(batch, unit, label, split.codes)

    def _filter(self, batch: pa.RecordBatch, at: Places) -> tuple[pa.RecordBatch, Places]:
        """Returns the rows for which `source.where` holds, and their numbers in the range. The filter sees the file's types, but
        text is first converted to its column's type. A value that cannot be converted rejects only its own row."""
        if self._where is None or not batch.num_rows:
            return batch, at
        columns = self._request.filter_columns()
        view = batch.select([column.name for column in columns])
        texts = {field.name for field in view.schema if is_text(value_type(field.type))}
        typed = FORMATS[self._request.source.format].typed
        # typed files give numbers, unless one holds text in a column that is to be numbers
        unsure = [column for column in columns if not typed or (column.type != "bytes" and column.name in texts)]
        if unsure:
            coerced = coerce(batch, unsure)
            self.reject(coerced.rejected, at)
            if coerced.fitting_rows is not None:
                fitting = pa.array(coerced.fitting_rows)
                batch, view, at = batch.take(fitting), view.take(fitting), at[coerced.fitting_rows]
            for column in unsure:
                place = view.schema.get_field_index(column.name)
                view = view.set_column(place, column.name, coerced.batch.column(column.name))
        with _numbered_in_range(at):
            keep = self._where.row_mask(view)
        if keep.true_count == len(keep):
            return batch, at
        self._filtered += len(keep) - keep.true_count
        return batch.filter(keep), at[keep.to_numpy(zero_copy_only=False)]

    def _coerce(self, batch: pa.RecordBatch, at: Places) -> tuple[pa.RecordBatch, Places]:
        coerced = coerce(batch, self._request.read, self._request.keys())
        self.reject(coerced.rejected, at)
        return coerced.batch, at if coerced.fitting_rows is None else at[coerced.fitting_rows]

    def _label(self, batch: pa.RecordBatch, at: Places) -> tuple[pa.RecordBatch, pa.Array, Places, Mask | None]:
        """Returns the rows, their labels, their numbers in the range, and a mask of rows without a label (None: no such rows).

        Rows without a label are usually dropped later, when each split's rows are gathered. They are dropped here if the table is
        wide. They are also dropped here if a column names the split, since its value may be wrong in them.
        """
        config = self._request.label
        with _numbered_in_range(at):
            label = config.compute(batch)
        missing: Mask | None = None
        if label.null_count:
            missing = label.is_null().to_numpy(zero_copy_only=False)
            if config.missing == "filter":
                self._filtered += int(missing.sum())
            else:
                gone = at[missing].tolist()
                name = config.column or LABEL
                self._rejected.append(quarantine.rejected(gone, name, [None] * len(gone), "the label is missing"))
            if self._request.split.mode == "column" or len(self._columns) >= WIDE:
                keep = pa.array(~missing)
                batch, label, at, missing = batch.filter(keep), label.filter(keep), at[~missing], None
        label = label.dictionary_encode() if self._columns[-1].encoding == "dictionary" else label
        return batch, label, at, missing

    def _write(self, batch: pa.RecordBatch, unit: pa.Array | None, label: pa.Array, codes: NDArray[np.int8]) -> None:
        names = self._request.split.names()
        rows = [(name, np.flatnonzero(codes == code)) for code, name in enumerate(names)]
        rows = [(name, places) for name, places in rows if len(places)]
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))  # looking up each name would be quadratic
        arrays[LABEL] = label
        if unit is not None:
            arrays[UNIT] = unit
        stored_names = [column.name for column in self._record_columns]
        stored = pa.RecordBatch.from_arrays([arrays[name] for name in stored_names], names=stored_names)
        for name, places in rows:
            self._split(name).add(stored if len(places) == stored.num_rows else stored.take(pa.array(places)))

    def _split(self, name: str) -> _Split:
        if name not in self._splits:
            self._splits[name] = _Split(
                self._folder / name, self._columns, self._record_columns, self._request.rows_per_record
            )
        return self._splits[name]

    def finish(self) -> dict[str, Any]:
        quarantined = self.write_rejected(self._folder)
        # each goes before the next one's: of a wide table its statistics take a hundred megabytes
        records = {name: self._splits.pop(name).finish() for name in list(self._splits)}
        self._notes.save(self._folder / NOTES)
        return {"rows": self.rows, "filtered": self._filtered, "quarantined": quarantined, "records": records}

    def close(self) -> None:
        for split in self._splits.values():
            split.close()


@contextlib.contextmanager
def _numbered_in_range(at: Places) -> Iterator[None]:
    """If the block raises an Overflow, replace its row number in the batch, i, by the row's number in the range, at[i]."""
    try:
        yield
    except Overflow as error:
        error.row = None if error.row is None else int(at[error.row])
        raise


def _placed(error: Overflow, request: IngestRequest, piece: Range) -> DataError:
    """Returns the error as a DataError, with file and row number if known. Reads earlier ranges of the file to count rows."""
    if error.row is None:
        return DataError(error.problem, where=error.where, fix=error.fix)
    file, row = (request.files[piece.file + error.row].path, 1) if piece.row_per_file else (piece.path, error.row + 1)
    if not piece.row_per_file:
        source = request.open()
        names, types = [column.name for column in request.read[:1]], raw_types(request.read[:1])
        for other in source.ranges(request.files):
            if other.file == piece.file and other.index < piece.index:
                row += sum(c.batch.num_rows + len(c.malformed) for c in source.read(other, names, types))
    return DataError(error.problem, where=f"{file} row {row:,}: {error.where}", fix=error.fix)


class _Split:
    """Writes the shard and the statistics of one split of a range."""

    def __init__(
        self, folder: Path, columns: tuple[Column, ...], record_columns: tuple[Column, ...], rows_per_record: int
    ):
        folder.mkdir()
        self._folder = folder
        self._spill = folder / "spill"
        self._statistics = SplitStatistics.create(columns, spill=self._spill)
        self._shard = Shard(folder / SHARD, record_columns, rows_per_record)
        self._least = _LEAST_ROWS if len(columns) >= WIDE else 0
        self._waiting: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        if sum(each.num_rows for each in self._waiting) >= self._least:
            self._take_waiting()

    def _take_waiting(self) -> None:
        if not self._waiting:
            return
        batch, self._waiting = one_batch(self._waiting), []
        self._statistics.update(batch)
        self._shard.add(batch)

    def finish(self) -> list[list[int]]:
        """Write the collected rows and the statistics. Returns the rows per record, as pairs [rows, number of such records]."""
        self._take_waiting()
        records = self._shard.finish()
        self._statistics.save(self._folder / STATISTICS)
        shutil.rmtree(self._spill, ignore_errors=True)
        return records

    def close(self) -> None:
        self._shard.close()
