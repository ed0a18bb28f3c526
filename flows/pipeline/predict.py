"""Predicts with a registered model: files, rows in memory, or each new span once.

    result = predict(loaded, model="champion", input="data/2013-05.parquet", output=Path("scored"), monitor=Monitor())
    table = predict_rows(loaded, {"dep_delay": [5.0], "carrier": ["UA"]}, model="champion", monitor=Monitor())
    predict_spans(loaded, report).spans[0].rows           # 2000, in <predictions.output>/span=2013-05/

All three run the Beam job of `beam_jobs.predict`. A model has its own list of input columns (`tfcore.export.metadata`),
so that a version predicts as it was trained, even if the pipeline has changed since.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from beam_jobs.predict.model import model_digest
from beam_jobs.predict.request import CopiedColumn, PredictRequest
from beam_jobs.predict.stage import MANIFEST
from beam_jobs.predict.stage import predict as run
from flows.config.pipeline import LoadedPipeline
from flows.pipeline.listeners import Reporter
from flows.pipeline.spans import prediction_spans
from headway.config import Frozen
from headway.errors import ConfigError, DataError, HeadwayError
from headway.messages import agree, counted
from headway.monitor import Monitor
from headway.process import Scratch
from headway.registry.leases import leased_version
from headway.registry.pointers import CHAMPION, PREVIOUS
from headway.registry.registry import Registry
from headway.schema.pbtxt import from_text
from headway.sources.base import InputFile
from headway.sources.config import SourceConfig
from headway.sources.spans import ONE_SPAN, files, patterns
from headway.storage import filesystem
from headway.storage.atomic_io import sync_path, writing
from headway.storage.bucket import Bucket
from headway.tabular import quarantine
from tfcore.export.metadata import ModelMetadata, describe_model

_TYPED = ("parquet", "arrow")
"""Formats whose columns have types; a column that is copied to the output keeps its type."""


def predict(
    loaded: LoadedPipeline,
    *,
    model: str,
    input: str,
    output: Path | str,
    monitor: Monitor,
    format: str | None = None,
    columns: Sequence[str] | None = None,
    write: Literal["parquet", "jsonl"] = "parquet",
    max_quarantined: float | None = None,
) -> dict[str, Any]:
    """Predicts the raw files `input` with a model into the folder `output`. Returns row counts and which model predicted.

    Args:
        model: a version's number, champion, previous, an alias, or the folder of a SavedModel.
        output: a local folder, or s3://bucket/path or gs://bucket/path.
        format: the format of the input; default: the pipeline's.
        columns: input columns that are copied to the output; default: the pipeline's keys.
        max_quarantined: the share of rows that may be rejected; default: the pipeline's.

    Returns:
        The result of `beam_jobs.predict.stage.predict`, and saved_model, version (None for a folder), task and output.

    Raises:
        ConfigError, DataError, StoreError: as `beam_jobs.predict.stage.predict`, or the model does not exist.
    """
    with find_model(loaded, model, monitor.log) as (folder, version):
        described = describe_model(folder)
        pipeline = loaded.pipeline
        changes = {"path": input, "where": None} | ({"format": format} if format else {})
        source = SourceConfig.model_validate(pipeline.source.model_dump() | changes)
        request = PredictRequest(
            files=_files(source),
            source=source,
            columns=described.columns,
            model=str(folder),
            model_url=None if version is None else loaded.open_store().url(folder),
            digest=model_digest(folder),
            loader="tfcore.export.predictor:load",
            passthrough=tuple(_copied_columns(loaded, described, source, columns)),
            write=write,
        )
        bound = pipeline.validation.max_quarantined if max_quarantined is None else max_quarantined
        result = run(request, output, monitor, runner=pipeline.runner, max_quarantined=bound)
        about = {"saved_model": str(folder), "version": version, "task": described.task}
        return result | about | {"output": str(output)}


def _files(source: SourceConfig) -> tuple[InputFile, ...]:
    """Returns the input files; a ConfigError names --input, not source.path."""
    try:
        return files(source, ONE_SPAN)
    except ConfigError as error:
        where = (error.where or "").replace("source.path", "--input")
        raise ConfigError(error.problem, where=where, fix=error.fix) from None


@contextlib.contextmanager
def find_model(
    loaded: LoadedPipeline, model: str, note: Callable[[str], None] = lambda text: None
) -> Iterator[tuple[Path, int | None]]:
    """Yields a SavedModel's folder and version number (None: not in the registry). Leases a version, or else calls `note`.

    Raises:
        StoreError: the model has no champion, or the version does not exist or is damaged.
        ConfigError: `model` names neither a version nor a folder.
    """
    registry = Registry(loaded.open_store(), loaded.pipeline.name)
    # a version's name comes before a folder's
    if model.isdecimal() or model in (CHAMPION, PREVIOUS) or registry.alias(model) is not None:
        with leased_version(registry, model, "predict", note=note) as version:
            registry.store.localize([version.saved_model])
            yield version.saved_model, version.number
    elif Path(model).is_dir():
        yield Path(model).resolve(), None
    else:
        problem = f"{model!r} is neither 'champion', nor a version's number, nor an alias, nor a folder"
        fix = "headway models lists the versions and the aliases; or name the folder of a SavedModel"
        raise ConfigError(problem, where="--model", fix=fix)


def _copied_columns(
    loaded: LoadedPipeline, described: ModelMetadata, source: SourceConfig, columns: Sequence[str] | None
) -> list[CopiedColumn]:
    """Returns the columns that are copied to the output; default: the columns of role key, then the split's keys. From
    a text format, a column gets its type in the model, else in the pipeline's schema, if one of them has it."""
    path = loaded.schema_file
    schema = from_text(path.read_text(encoding="utf-8"), where=str(path)).columns if path.is_file() else ()
    columns_by_name = {column.name: column for column in (*schema, *described.columns)}
    inputs = {column.name for column in described.columns}
    passed = []
    for name in dict.fromkeys(itertools.chain(*loaded.pipeline.keys) if columns is None else columns):
        column = columns_by_name.get(name) if source.format not in _TYPED else None
        if column is not None and name not in inputs:
            column = column.model_copy(update={"nullable": True})  # a key that is missing costs no prediction
        passed.append(CopiedColumn(name=name, column=column))
    return passed


# --- rows in memory

_WHERE = "rows"


def predict_rows(loaded: LoadedPipeline, rows: Any, *, model: str, monitor: Monitor) -> pa.Table:
    """Predicts rows in memory.

    Args:
        rows: as `as_table` takes them. Columns that the model does not take are ignored.
        model: as `predict` takes it.

    Returns:
        A table of the rows in their order: `prediction` (float32), and with several classes `probabilities` (a list).

    Raises:
        DataError: a column is missing, or a row cannot be predicted; the message has the reason of the first such row.
        StoreError: the version does not exist.
    """
    table = as_table(rows)
    with Scratch("predict") as folder:
        source, out = Path(folder) / "rows.parquet", Path(folder) / "out"
        pq.write_table(table, source)
        result = predict(
            loaded,
            model=model,
            input=str(source),
            output=out,
            monitor=monitor,
            format="parquet",
            columns=(),
            max_quarantined=1.0,  # reported below, with the row
        )
        if rejected := result["counts"]["quarantined"]:
            first = quarantine.read(out).slice(0, 1).to_pylist()[0]
            column = f", column {first['column']!r}" if first.get("column") else ""
            raise DataError(
                f"{rejected:,} of {len(table):,} rows cannot be predicted; the first{column}: {first['reason']}",
                where=_WHERE,
                fix="leave such rows out; headway predict sets them aside in a quarantine file",
            )
        predictions = pa.concat_tables(pq.read_table(out / part["file"]) for part in result["parts"])
    return predictions.drop_columns(["source_file", "source_row"])


def as_table(rows: Any) -> pa.Table:
    """Returns an Arrow table of rows: a table or batch, a frame (pandas, polars), {name: column}, or a list of dicts.

    Raises:
        DataError: `rows` is of another kind, or a column mixes types.
    """
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, Sequence) and rows and all(isinstance(row, Mapping) for row in rows):
        names = dict.fromkeys(name for row in rows for name in row)
        rows = {name: [row.get(name) for row in rows] for name in names}
    try:
        if isinstance(rows, Mapping) and rows:
            return pa.table({str(name): _array(str(name), values) for name, values in rows.items()})
        if type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns"):
            return pa.Table.from_pandas(rows, preserve_index=False)
        if hasattr(rows, "__arrow_c_stream__") or isinstance(rows, pa.RecordBatch):  # polars, DuckDB and others
            return pa.table(rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        reason = "; ".join(str(part) for part in error.args)
        fix = "give columns of one length, and each values of one type: text, numbers, dates, or lists of them"
        raise DataError(f"cannot be read: {reason}", where=_WHERE, fix=fix) from None
    raise DataError(
        f"expected a table with columns, given {type(rows).__name__}",
        where=_WHERE,
        fix="give an Arrow table, a pandas frame, a dict of arrays by column, or a list of dicts",
    )


def _array(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    """Returns a column as an Arrow array. NaN in a NumPy array is a missing value, a second axis a vector per row."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, str | bytes) or (not isinstance(values, list | tuple) and np.ndim(values) == 0):
        raise DataError(f"column {name!r}: expected an array, given {type(values).__name__}", where=_WHERE)
    if isinstance(values, np.ndarray) and values.ndim > 2:
        fix = "flatten each row: values.reshape(len(values), -1)"
        raise DataError(f"column {name!r} has the shape {list(values.shape)}", where=_WHERE, fix=fix)
    try:
        if isinstance(values, np.ndarray) and values.ndim == 2:
            flat = pa.array(np.ascontiguousarray(values).reshape(-1))
            return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        problem = f"column {name!r} cannot be read: {str(error).splitlines()[0]}"
        raise DataError(problem, where=_WHERE, fix="give it values of one type") from None


# --- new spans


class SpanPrediction(Frozen):
    """The result of predicting one span."""

    span: str
    state: Literal["predicted"] = "predicted"
    rows: int
    quarantined: int
    version: int | None
    output: str

    @property
    def sentence(self) -> str:
        rejected = f"; {self.quarantined:,} rejected, see its quarantine.parquet" if self.quarantined else ""
        return f"{self.span}: {self.rows:,} rows by version {self.version}, in {self.output}{rejected}"


class SpanPredictions(Frozen):
    """The result of `predict_spans`."""

    pipeline: str
    spans: tuple[SpanPrediction, ...]
    there: int
    """The number of complete spans that had predictions already."""
    waiting: dict[str, str]
    """{span that is not complete: what it waits for}"""
    output: str

    @property
    def lines(self) -> list[str]:
        nothing = f"nothing to predict: {counted(self.there, 'span')} {agree(self.there, 'has', 'have')} predictions"
        lines = [each.sentence for each in self.spans] or [f"{nothing} in {self.output}"]
        return [*lines, *(f"  {span} waits: {why}" for span, why in self.waiting.items())]


def predict_spans(
    loaded: LoadedPipeline, report: Reporter, *, model: str = "champion", since: str = ""
) -> SpanPredictions:
    """Predicts each complete span without predictions, the oldest first, into <predictions.output>/span=<span>/.

    A span with a complete folder is left alone, even if another model made it; remove the folder to predict it again.

    Args:
        model: as `predict` takes it.
        since: spans before this one are left alone.

    Raises:
        Locked: another process predicts this pipeline's spans.
        HeadwayError: a span cannot be predicted; the predictions of the spans before it are kept.
    """
    pipeline, store = loaded.pipeline, loaded.open_store()
    store.create()
    found = prediction_spans(loaded, now=store.clock())
    output = pipeline.predictions.output
    output = output if filesystem.is_remote(output) else str(loaded.folder / output)
    rows: list[SpanPrediction] = []
    there = 0
    with store.lock(f"predict-{pipeline.name}", {"command": "predict"}).held():
        for span in found.complete:
            if span < since:
                continue
            folder = f"{output.rstrip('/')}/span={span}"
            if _has_predictions(folder):
                there += 1
                continue
            report.check()
            report.note(f"predict {span}")
            rows.append(_predict_span(loaded, found.source, span, folder, model, report))
    return SpanPredictions(pipeline=pipeline.name, spans=tuple(rows), there=there, waiting=found.waiting, output=output)


def _has_predictions(folder: str) -> bool:
    if filesystem.is_remote(folder):
        return MANIFEST in Bucket(folder).listing()
    return (Path(folder) / MANIFEST).is_file()


def _predict_span(
    loaded: LoadedPipeline, source: SourceConfig, span: str, folder: str, model: str, report: Reporter
) -> SpanPrediction:
    """Predicts a span into `folder`. On a disk, a hidden folder is renamed at the end; in a bucket, the manifest comes last."""
    # of the ways to write a month, the one that is there
    glob = next(pattern for pattern in patterns(source, span) if span == ONE_SPAN or filesystem.matches(pattern))
    remote = filesystem.is_remote(folder)
    # a name that readers of a folder of partitions pass over; a call after a crash goes on in it
    aside = folder if remote else str(Path(folder).with_name(f".{Path(folder).name}"))
    columns = loaded.pipeline.predictions.columns
    try:
        with report.step(f"predict {span}") as monitor:
            result = predict(loaded, model=model, input=glob, output=aside, monitor=monitor, columns=columns)
    except HeadwayError:
        report.note(f"span {span} was not predicted")
        raise
    if not remote:
        with writing(Path(folder).parent):
            Path(aside).rename(folder)
            sync_path(Path(folder).parent)
    counts = result["counts"]
    return SpanPrediction(
        span=span,
        rows=counts["predicted"],
        quarantined=counts["quarantined"],
        version=result["version"],
        output=folder,
    )
