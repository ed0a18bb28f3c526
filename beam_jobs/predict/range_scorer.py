"""Predicts one range, a piece of the input files: reads raw rows, writes them with predictions. Imports no Beam.

    facts = predict_range(request, piece, folder, tick=lambda rows: None)
    facts                # rows read, predicted, quarantined; the part's name

A row is converted to the types that the model was trained on. It is written with its prediction, its file and `source_row`,
its number in the file from 1. Rows that cannot be converted go to the quarantine. No label is read. A range that begins within
a text file cannot know how many rows precede it. Such a range counts from 1 and returns "first_row": null; a merge corrects it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_jobs.ingest.range_worker import RangeRows
from beam_jobs.predict.model import local_model
from beam_jobs.predict.part_writer import PartWriter
from beam_jobs.predict.request import FILE, ROW, PredictRequest
from beam_jobs.runners.spans import Tick
from headway.errors import DataError, StoreError
from headway.messages import counted
from headway.sources.base import Chunk, Range, read_unchanged
from headway.sources.spans import open_source
from headway.tabular.coerce import coerce, converted, raw_types
from headway.tabular.list_arrays import decoded

Model = Callable[[pa.RecordBatch], pa.RecordBatch]
"""A model as a function: takes a batch of raw columns, and returns a batch with one prediction for each row."""


def predict_range(request: PredictRequest, piece: Range, folder: Path, tick: Tick) -> dict[str, Any]:
    """Write a range's predictions and rejected rows into `folder`. Returns row counts and the part's name, as JSON values.

    Raises:
        DataError: the range cannot be read, its file has changed, a column is missing or never fits, or cannot be written.
        StoreError: the model cannot be loaded, or does not return a prediction for each row.
    """
    work = RangeScorer(request, piece)
    # JSON lines are not written before the rows' numbers are known: they could not be put right
    format = request.write if work.first_row is not None else "parquet"
    with PartWriter(folder / f"part.{format}", format, piece.path) as part:
        for batch in work.batches(tick):
            part.write(batch)
    return {
        "rows": work.rows,
        "predicted": work.predicted,
        "quarantined": work.write_rejected(folder),
        "first_row": work.first_row,
        "part": part.path.name if part.schema is not None else None,
    }


@dataclass(frozen=True)
class ScoredRows:
    batch: pa.RecordBatch
    """The copied columns and the predictions of the rows that fit the model's columns."""
    fitting_rows: NDArray[np.int64] | None
    """The positions of the rows that fit, in the batch that was scored; None: all rows fit."""
    rejected: pa.Table
    """The rows that do not fit, as a table of `headway.tabular.quarantine`; `row` is the position in the batch."""


class Scorer:
    """Predicts batches of raw rows with the request's model. A process loads the model only once.

    Raises:
        StoreError: the model cannot be loaded.
    """

    def __init__(self, request: PredictRequest):
        self._request, self._columns = request, request.columns_to_coerce()
        # the loader keeps it
        folder = local_model(request.model, request.model_url, request.digest)
        self._model: Model = resolve_name(request.loader)(folder, request.digest)

    def score(self, batch: pa.RecordBatch, where: str) -> ScoredRows:
        """Predict the rows of a batch that fit the model's columns.

        Args:
            where: the origin of the batch that errors name, such as a file.

        Raises:
            DataError: a column is missing or can never have its type, or a passthrough column cannot be written.
            StoreError: the model does not return a prediction for each row.
        """
        try:
            coerced = coerce(batch, self._columns)
        except DataError as error:
            raise DataError(error.problem, where=error.where or where, fix=error.fix) from None
        if coerced.fitting_rows is not None:
            batch = batch.take(pa.array(coerced.fitting_rows))
        predictions = self._model(coerced.batch.select([column.name for column in self._request.columns]))
        if predictions.num_rows != batch.num_rows:
            raise StoreError(
                f"the model gave {counted(predictions.num_rows, 'prediction')} for {counted(batch.num_rows, 'row')}",
                where=self._request.model,
                fix="a SavedModel must answer row by row",
            )
        columns = {}
        for passed in self._request.passthrough:
            array = batch.column(passed.name)
            if passed.column is not None:  # not as the model has it: what is copied is not rounded
                array = converted(array, passed.column.in_float64)
            columns[passed.name] = _readable(array, passed.name, where)
        columns |= dict(zip(predictions.schema.names, predictions.columns, strict=True))
        whole = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        return ScoredRows(whole, coerced.fitting_rows, coerced.rejected)


class RangeScorer(RangeRows):
    """Predicts the rows of one range, and adds the name of each row's file and the row's number in that file."""

    def __init__(self, request: PredictRequest, piece: Range):
        super().__init__()
        self.predicted = 0
        first_row = 0 if piece.row_per_file or not piece.start else None
        self.first_row: int | None = piece.facts.get("first_row", first_row)
        self._request, self._piece, self._names, self._scorer = request, piece, request.file_names, Scorer(request)

    def batches(self, tick: Tick = lambda rows: None) -> Iterator[pa.RecordBatch]:
        """Reads the range. Yields for each chunk the rows that fit the model, with their predictions, then calls `tick`.

        Raises:
            DataError: the range cannot be read, its file has changed, or a passthrough column cannot be written.
        """
        request, types = self._request, raw_types(self._request.columns_to_coerce())
        source = open_source(request.source, columns=request.columns_to_coerce())
        for chunk in read_unchanged(source, request.files, self._piece, request.columns_to_read(), types):
            yield self._table(chunk)
            tick(self.rows)

    def _table(self, chunk: Chunk) -> pa.RecordBatch:
        """Returns the chunk's rows that fit the model, with their file, row number and predictions."""
        batch, at = self.take_chunk(chunk)
        scored = self._scorer.score(batch, self._piece.path)
        self.reject(scored.rejected, at)
        at = at if scored.fitting_rows is None else at[scored.fitting_rows]
        self.predicted += len(at)
        columns = dict(self._source(at)) | dict(zip(scored.batch.schema.names, scored.batch.columns, strict=True))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _source(self, at: NDArray[np.int64]) -> Iterator[tuple[str, pa.Array]]:
        """Yields `source_file` and `source_row` as (name, values). If each row is a file of its own, its number is 1."""
        piece = self._piece
        if piece.row_per_file:
            yield FILE, pa.array(self._names, pa.string()).take(pa.array(at + piece.file))
            yield ROW, pa.array(np.ones(len(at), np.int64))
            return
        yield FILE, pa.repeat(self._names[piece.file], len(at))
        yield ROW, pa.array(at + 1 + (self.first_row or 0))


def _readable(array: pa.Array, name: str, path: str) -> pa.Array:
    """Returns a column in types that any reader takes: no dictionaries, text in place of bytes (UTF-8, else a DataError)."""
    array = decoded(array)
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        try:
            return array.cast(pa.string())
        except pa.ArrowInvalid:
            problem = f"column {name!r} holds bytes that are not UTF-8 text"
            raise DataError(problem, where=path, fix="leave it out of --columns") from None
    return array.cast(pa.string()) if pa.types.is_large_string(array.type) else array
