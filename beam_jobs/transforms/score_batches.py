"""Predictions of Arrow batches or of raw files: `batches | Predict("store/models/flights/3")`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import apache_beam as beam
import pyarrow as pa

from beam_jobs.ingest.merge import rows_in_files
from beam_jobs.predict.model import fetch_model, model_digest
from beam_jobs.predict.range_scorer import RangeScorer, Scorer
from beam_jobs.predict.request import FILE, ROW, CopiedColumn, PredictRequest
from beam_jobs.predict.stage import with_first_rows
from beam_jobs.transforms.stored_batches import full_name, of_manifest, unwrapped_errors
from headway.errors import StoreError
from headway.process import Scratch
from headway.schema.columns import Column
from headway.sources.base import Range, whole_files
from headway.sources.config import SourceConfig
from headway.sources.spans import ONE_SPAN, files, open_source
from headway.storage import manifest as manifests
from headway.storage.filesystem import is_remote, kind
from headway.tabular.list_arrays import as_batch

_LOADER, _DESCRIBE = "tfcore.export.predictor:load", "tfcore.export.metadata:describe_model"
_SAVED_MODEL = "saved_model"
REJECTED = "rejected"


class Predict(beam.PTransform):
    """Predicts rows with a SavedModel, as `headway predict` does.

        predictions, rejected = batches | Predict("store/models/flights/3", passthrough=["flight"])
        predictions, rejected = pipeline | Predict("s3://team/model", source=SourceConfig(format="csv", path="s3://team/new"))

    Input: a PCollection of `pyarrow.RecordBatch` with at least the model's raw columns; with `source` the pipeline.
    Output: two PCollections of `pyarrow.RecordBatch`, in no promised order. `predictions` has the passthrough columns,
    `prediction` and, with several classes, `probabilities`. `rejected` has each row that does not fit the model's
    columns: the passthrough columns, then column, value and reason. With `source` both begin with `source_file` and
    `source_row`, and `rejected` has no passthrough columns.

    Args:
        model: the folder of a SavedModel that Headway exported, or of a version in a store (models/NAME/NUMBER); a local
            path, which every worker must see, or s3:// or gs://, from where each worker gets it once.
        passthrough: the names of the input's columns that are copied to the output.
        source: raw files (`headway.sources.config.SourceConfig`); their ranges are read by the workers.

    Raises:
        StoreError: there is no SavedModel, or it does not say its columns. Raised as the pipeline is built.
        ConfigError, DataError: the files lack a column, or there are none. Raised as the pipeline is built.
        DataError: a batch lacks a column, or a file is damaged. Raised as the pipeline runs.
    """

    def __init__(self, model: str | Path, *, passthrough: Sequence[str] = (), source: SourceConfig | None = None):
        super().__init__()
        folder, columns, digest = _described(full_name(model))
        self._request = PredictRequest(
            files=() if source is None else files(source, ONE_SPAN),
            source=source or SourceConfig(format="arrow", path="batches"),
            columns=columns,
            model=folder,
            model_url=folder if is_remote(folder) else None,
            digest=digest,
            loader=_LOADER,
            passthrough=tuple(CopiedColumn(name=name) for name in passthrough),
        )
        self._ranges: list[Range] | None = None
        if source is not None:
            self._request.check()
            ranges = with_first_rows(open_source(source).ranges(self._request.files))
            # of a range within a text file nobody knows the number of its first row
            known = all("first_row" in piece.facts or piece.row_per_file for piece in ranges)
            self._ranges = ranges if known else whole_files(ranges)

    def expand(self, input: Any) -> Any:
        if self._ranges is None:
            scored = input | "score" >> beam.ParDo(_ScoreBatch(self._request)).with_outputs(
                REJECTED, main="predictions"
            )
        else:
            ranges = input | "ranges" >> beam.Create(self._ranges)
            scored = ranges | "score" >> beam.ParDo(_ScoreRange(self._request)).with_outputs(
                REJECTED, main="predictions"
            )
        return scored


class _Score(beam.DoFn):
    def __init__(self, request: PredictRequest):
        self._request = request


class _ScoreBatch(_Score):
    def setup(self) -> None:
        with unwrapped_errors():
            self._scorer = Scorer(self._request)

    def process(self, batch: pa.RecordBatch) -> Iterator[Any]:
        with unwrapped_errors():
            scored = self._scorer.score(batch, "batch")
            if scored.batch.num_rows:
                yield scored.batch
            if scored.rejected.num_rows:
                rows = batch.select([passed.name for passed in self._request.passthrough])
                yield _rejected(rows.take(scored.rejected.column("row").combine_chunks()), scored.rejected)


class _ScoreRange(_Score):
    def process(self, piece: Range) -> Iterator[Any]:
        with unwrapped_errors():
            work = RangeScorer(self._request, piece)
            yield from (batch for batch in work.batches() if batch.num_rows)
            if (rejected := work.rejected()).num_rows:
                rejected = rows_in_files(rejected, piece, self._request.file_names, work.first_row or 0)
                yield _rejected(rejected.select(["file", "row"]).rename_columns([FILE, ROW]), rejected)


def _rejected(rows: pa.RecordBatch | pa.Table, reasons: pa.Table) -> Any:
    """Returns the rejected rows, with the column, value and reason of each, as a batch of the output `rejected`."""
    why = reasons.select(["column", "value", "reason"])
    columns = [*rows.columns, *why.columns]
    whole = pa.Table.from_arrays(columns, names=[*rows.schema.names, *why.column_names])
    return beam.pvalue.TaggedOutput(REJECTED, as_batch(whole))


def _described(folder: str) -> tuple[str, tuple[Column, ...], str]:
    """Returns the folder, raw columns and digest of the SavedModel in `folder`; downloads a model in a bucket."""
    describe = resolve_name(_DESCRIBE)
    if kind(f"{folder}/{manifests.NAME}") == "file":
        folder = f"{of_manifest(folder)[1]}/{_SAVED_MODEL}"
    if not is_remote(folder):
        return folder, describe(Path(folder)).columns, model_digest(Path(folder))
    with Scratch("model") as scratch:
        copy = Path(scratch)
        fetch_model(folder, copy)
        if not (copy / "saved_model.pb").is_file():
            raise StoreError("is not a SavedModel", where=folder, fix="name the folder that holds saved_model.pb")
        return folder, describe(copy).columns, model_digest(copy)
