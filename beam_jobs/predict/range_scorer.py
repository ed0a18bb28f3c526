"""Predicts one range of the input: raw rows in, rows with predictions out. Free of Beam.

    facts = predict_range(request, piece, folder, tick=lambda rows: None)
    facts                # rows read, predicted, quarantined; the key of what this output depends on

A row is coerced as it was for training, goes through the model and comes out with its source; one that does not fit goes
to the quarantine. No label is read. `source_row` counts the file's data rows from 1, which a range of a text file cannot
know: it counts from its own beginning then, says so in its facts ("first_row": null), and is put right at the end.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_jobs.predict.part_writer import Format, PartWriter
from beam_jobs.predict.request import FILE, ROW, PredictRequest
from beam_jobs.runners.range_job import Tick
from headway.errors import DataError, StoreError
from headway.messages import counted
from headway.sources.base import Chunk, Range
from headway.sources.discovery.formats_table import open_source
from headway.tabular import quarantine
from headway.tabular.coerce import coerce, raw_types

PART = "part"
Model = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Coerced raw columns to predictions, a row for each row."""


def predict_range(request: PredictRequest, piece: Range, folder: Path, tick: Tick) -> dict[str, Any]:
    """Write a range's predictions and quarantine into `folder`; return its facts as JSON values.

    Raises:
        DataError: the range cannot be read, or a column that goes through cannot be written.
        StoreError: the model cannot be loaded, or `folder` written.
    """
    work = _Work(request, piece)
    types = raw_types(request.coerced())
    try:
        with _Part(folder, aside_format(request, work.first_row), piece.path) as part:
            for chunk in open_source(request.source).read(piece, request.read(), types):
                part.write(work.table(chunk))
                tick(work.rows)
    except OSError as error:
        if error.filename == piece.path:
            raise DataError(f"cannot be read: {error.strerror}", where=piece.path) from None
        raise
    rejected = pa.concat_tables([quarantine.SCHEMA.empty_table(), *work.rejected]).sort_by("row")
    return {
        "key": request.key(piece),
        "rows": work.rows,
        "predicted": work.predicted,
        "quarantined": quarantine.write(folder / quarantine.FILE_NAME, [rejected]),
        "first_row": work.first_row,
        "part": part.name,
    }


def aside_format(request: PredictRequest, first_row: int | None) -> Format:
    """JSON lines are not written before the rows' numbers are known: they could not be put right."""
    return request.write if first_row is not None else "parquet"


def load_model(request: PredictRequest) -> Model:
    """What the request's loader gives; the loader keeps it, so that a process loads it once."""
    module, _, function = request.loader.partition(":")
    return cast(Model, getattr(importlib.import_module(module), function)(request.model, request.digest))


class _Work:
    def __init__(self, request: PredictRequest, piece: Range):
        self.rows = self.predicted = 0
        self.rejected: list[pa.Table] = []
        known = 0 if piece.row_per_file or not piece.start else None
        self.first_row: int | None = piece.facts.get("first_row", known)
        self._request, self._piece = request, piece
        self._columns = request.coerced()
        self._names = request.names
        self._model = load_model(request)

    def table(self, chunk: Chunk) -> pa.RecordBatch:
        """The chunk's rows that fit, with their predictions."""
        batch, at = chunk.batch, chunk.positions()
        self.rows += batch.num_rows + len(chunk.malformed)
        for line in chunk.malformed:
            self.rejected.append(quarantine.rejected([line.row], line.column, [line.text], line.reason))
        try:
            coerced = coerce(batch, self._columns)
        except DataError as error:
            raise DataError(error.problem, where=error.where or self._piece.path, fix=error.fix) from None
        if coerced.rejected.num_rows:
            rows = pa.array(at[coerced.rejected.column("row").to_numpy()])
            place = coerced.rejected.schema.get_field_index("row")
            self.rejected.append(coerced.rejected.set_column(place, "row", rows))
        if coerced.kept is not None:
            batch, at = batch.take(pa.array(coerced.kept)), at[coerced.kept]
        predictions = self._model(coerced.batch.select([column.name for column in self._request.columns]))
        if predictions.num_rows != batch.num_rows:
            raise StoreError(
                f"the model gave {counted(predictions.num_rows, 'prediction')} for {counted(batch.num_rows, 'row')}",
                where=self._request.model,
                fix="a SavedModel must answer row by row",
            )
        self.predicted += batch.num_rows
        columns = dict(self._source(at))
        for passed in self._request.passthrough:
            held = coerced.batch if passed.column is not None else batch
            columns[passed.name] = _readable(held.column(passed.name), passed.name, self._piece.path)
        columns |= dict(zip(predictions.schema.names, predictions.columns, strict=True))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _source(self, at: NDArray[np.int64]) -> Iterator[tuple[str, pa.Array]]:
        """Where each row comes from; a range of whole files counts files, not rows."""
        piece = self._piece
        if piece.row_per_file:
            yield FILE, pa.array(self._names, pa.string()).take(pa.array(at + piece.file))
            yield ROW, pa.array(np.ones(len(at), np.int64))
            return
        yield FILE, pa.repeat(self._names[piece.file], len(at))
        yield ROW, pa.array(at + 1 + (self.first_row or 0))


def _readable(array: pa.Array, name: str, path: str) -> pa.Array:
    """A column as others read it: no dictionaries, and bytes as the text that they are."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        try:
            return array.cast(pa.string())
        except pa.ArrowInvalid:
            problem = f"column {name!r} holds bytes that are no UTF-8 text"
            raise DataError(problem, where=path, fix="leave it out of --columns") from None
    return array.cast(pa.string()) if pa.types.is_large_string(array.type) else array


class _Part:
    """The part file of a range; made with the first table, whose types it has."""

    def __init__(self, folder: Path, format: Format, path: str):
        self.name: str | None = None
        self._folder, self._format, self._path = folder, format, path
        self._writer: PartWriter | None = None
        self._schema: pa.Schema | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None or self._schema is None:
            self.name, self._schema = f"{PART}.{self._format}", batch.schema
            self._writer = PartWriter(self._folder / self.name, self._format, batch.schema)
        elif batch.schema != self._schema:
            other = next(field for field in batch.schema if field not in self._schema)
            problem = f"column {other.name!r} changes its type within the file, to {other.type}"
            raise DataError(problem, where=self._path, fix="leave it out of --columns")
        self._writer.write(batch)

    def __enter__(self) -> _Part:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.__exit__(kind, error, trace)
