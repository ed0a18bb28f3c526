"""The evaluation stage: one streamed pass over the eval rows; their predictions are written in order as they are made.

    predict(EvaluateRequest(...), Path("out"), monitor)       # {"metrics": {"auc": 0.71, ...}, "rows": 65432, ...}

`out/predictions.parquet` has one row for each row of the shards: row, label (the number, or the class index), weight,
prediction (a probability, probabilities, or the number; float64), and the columns that are asked for: numbers as they are
stored, texts as UTF-8. Beside a training's model `out/predictions-linear.parquet` has those of the linear baseline that it left,
the same columns; with `item`, `-popularity` and `-item_mean` are those of `tfcore.evaluation.item_baselines`.
`out/expected.npy` has the first predictions as the model gave them. Everything else that is said of a model is computed from
these files (`headway.evaluation.results.stage`), so that another metric needs no other pass. Memory holds a few batches, and at
the end label, weight and prediction.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import ConfigError, DataError
from headway.evaluation import metrics
from headway.messages import counted
from headway.metrics.ranking import ITEM_BASELINES
from headway.monitor import Monitor
from headway.schema.columns import suggest
from headway.storage.prefetch import RemoteFiles, Stager
from headway.tasks.base import Task
from tfcore.data.pipeline import Shards, evaluation_dataset, safe
from tfcore.data.source import Feed
from tfcore.evaluation.item_baselines import ItemCounts
from tfcore.evaluation.kept_column import kept_column
from tfcore.evaluation.request import VERSION, EvaluateRequest, TrainedModel
from tfcore.evaluation.scorers import Incompatible, SavedModelScorer, Scores, TrainedScorer
from tfcore.graph.retrace import RetraceGuard
from tfcore.heads.table import label_task
from tfcore.models.linear import FILE, NAME, LinearModel
from tfcore.runtime.devices import prepare
from tfcore.runtime.remote_shards import staged
from tfcore.train.training_data import labeler, shards_of
from tfcore.transform.images import Tolerant
from tfcore.transform.preprocess import transform_of

__all__ = ["VERSION", "predict"]

PREDICTIONS, EXPECTED = "predictions.parquet", "expected.npy"
PREDICTION = "prediction"
BASELINES = (NAME, *ITEM_BASELINES)
EXPECTED_ROWS = 2000
PARQUET_ROWS = 131_072
MOST_REFUSED = 100
"""Images that TensorFlow refuses, of all rows evaluated; they count for nothing."""


def predict(
    request: EvaluateRequest,
    out: Path,
    monitor: Monitor,
    *,
    remote: RemoteFiles | None = None,
    feed: Feed | None = None,
) -> dict[str, Any]:
    """Score the rows and measure; see the module. With a `feed`, its rows instead of the request's examples.

    Args:
        remote: how shards that are in a bucket yet come here while others are scored.

    Returns:
        predictions (the file's name), baselines (their files by name; none of a SavedModel), rows, metrics (the task's own),
        seconds, rows_per_second, traces; or {"incompatible": why} for a SavedModel that cannot score these rows.

    Raises:
        ConfigError: a column is not a stored one.
        DataError: there are no rows, or a shard is damaged.
        StoreError: the model's files are missing or of another model.
    """
    with staged(remote, monitor) as stager:
        return _predict(request, out, monitor, stager, feed)


def _predict(
    request: EvaluateRequest, out: Path, monitor: Monitor, stager: Stager | None, feed: Feed | None
) -> dict[str, Any]:
    began = time.monotonic()
    prepare(None)
    if feed is None and not request.examples:
        raise ConfigError("there is nothing to evaluate on: neither examples nor a feed", where="evaluation")
    shards = feed.collected() if feed is not None else shards_of(request.examples, stager)
    shards.ahead()
    _check(request, shards)
    out.mkdir(parents=True, exist_ok=True)
    task = label_task(request.transform.label)
    try:
        scorer = _scorer(request, shards)
        with RetraceGuard(scorer, action="warn", log=monitor.log):
            rows, expected = _write(request, scorer, shards, out, monitor)
    except Incompatible as error:
        monitor.log(f"the model cannot score these rows: {error}")
        for name in (PREDICTIONS, *map(_file, BASELINES)):
            (out / name).unlink(missing_ok=True)
        return {"incompatible": str(error)}
    np.save(out / EXPECTED, expected, allow_pickle=False)
    seconds = time.monotonic() - began
    return {
        "predictions": PREDICTIONS,
        "baselines": {name: _file(name) for name in BASELINES if (out / _file(name)).exists()},
        "rows": rows,
        "metrics": _metrics(task, out / PREDICTIONS),
        "seconds": round(seconds, 3),
        "rows_per_second": round(rows / max(seconds, 1e-9)),
        "traces": scorer.traces,
    }


def _check(request: EvaluateRequest, shards: Shards) -> None:
    if not shards.total:
        raise DataError("the eval split has no rows", where="split", fix="hold out more, or widen the window")
    names = [column.name for column in shards.columns]
    for name in request.columns:
        if name not in names:
            raise ConfigError(f"{name!r} is not a stored column", where="evaluation.slices", fix=suggest(name, names))
        if name in metrics.OWN:
            problem = f"{name!r} cannot be sliced by: predictions have a column of that name"
            raise ConfigError(problem, where="evaluation.slices")


def _metrics(task: Task, predictions: Path) -> dict[str, float | None]:
    read = metrics.OWN
    if any(metric.reads_columns for metric in task.metrics):  # a task of the user's own may read any
        read = tuple(pq.read_schema(predictions).names)
    table = pq.read_table(predictions, columns=list(read))
    return metrics.measured(task.metrics, metrics.rows_of(table, task, columns=len(read) > len(metrics.OWN)))


def _scorer(request: EvaluateRequest, shards: Shards) -> TrainedScorer | SavedModelScorer:
    if isinstance(request.model, TrainedModel):
        return TrainedScorer(request.model, request.transform)
    return SavedModelScorer(request.model.path, request.transform.label, shards.columns)


def _linear(request: EvaluateRequest) -> LinearModel | None:
    """The linear baseline that a training left beside its model."""
    if not isinstance(request.model, TrainedModel) or not (request.model.path / FILE).exists():
        return None
    return LinearModel.load(request.model.path / FILE)


def _file(baseline: str) -> str:
    return f"predictions-{baseline}.parquet"


def _items(request: EvaluateRequest, stager: Stager | None) -> ItemCounts | None:
    """The items of the train rows, for baselines beside a training's model."""
    if request.item is None or not request.train or not isinstance(request.model, TrainedModel):
        return None
    shards = shards_of(request.train, stager)
    return ItemCounts.of(shards, labeler(shards, request.transform), request.item)


class _Files(contextlib.ExitStack):
    """Parquet files that are written batch by batch, in row groups of PARQUET_ROWS rows."""

    def __init__(self, folder: Path):
        super().__init__()
        self._folder = folder
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._waiting: dict[str, list[pa.Table]] = {}

    def write(self, name: str, table: pa.Table) -> None:
        if name not in self._writers:
            self._writers[name] = self.enter_context(pq.ParquetWriter(self._folder / name, table.schema))
        waiting = self._waiting.setdefault(name, [])
        waiting.append(table)
        if sum(map(len, waiting)) >= PARQUET_ROWS:
            self._flush(name)

    def flush(self) -> None:
        for name in self._waiting:
            self._flush(name)

    def _flush(self, name: str) -> None:
        if self._waiting[name]:
            self._writers[name].write_table(pa.concat_tables(self._waiting[name]))
        self._waiting[name] = []


def _write(
    request: EvaluateRequest, scorer: TrainedScorer | SavedModelScorer, shards: Shards, out: Path, monitor: Monitor
) -> tuple[int, NDArray[np.float32]]:
    """Write the predictions; (rows, the first predictions as the model gave them)"""
    transform = None  # a published version has its own inside
    if isinstance(request.model, TrainedModel):
        transform = transform_of(request.transform, request.model.preprocess, tolerant=Tolerant(MOST_REFUSED))
    dataset = evaluation_dataset(
        shards,
        transform,
        labeler(shards, request.transform),
        batch=min(request.batch_size, shards.total),
        raw=tuple(dict.fromkeys([*scorer.raw, *request.columns])),
    )
    first: list[NDArray[np.float32]] = []
    rows = kept = 0
    linear, items = _linear(request), _items(request, shards.stager)
    with _Files(out) as files:
        for batch in safe(dataset, shards):
            monitor.check()
            scores = scorer(batch)
            # only the last batch is padded, and only at its end
            valid = int(np.count_nonzero(batch["valid"]))
            table = _table(label_task(request.transform.label), batch, scores, request.columns, rows, valid)
            files.write(PREDICTIONS, table)
            others = {} if items is None else items.predictions(table.column(request.item).combine_chunks())
            if linear is not None:
                others[NAME] = linear.predict(batch["numeric"].numpy()[:valid], batch["categorical"].numpy()[:valid])
            place = table.schema.get_field_index(PREDICTION)
            for name, predicted in others.items():
                files.write(_file(name), table.set_column(place, PREDICTION, _predictions(predicted)))
            if kept < EXPECTED_ROWS:
                first.append(scores.predictions[: min(valid, EXPECTED_ROWS - kept)])
                kept += len(first[-1])
            rows += valid
            monitor.progress(rows, shards.total, "rows")
        files.flush()
    if rows != shards.total:
        raise DataError(
            f"the shards hold {counted(rows, 'row')}, and their manifests say {shards.total:,}", where=shards.paths[0]
        )
    return rows, np.concatenate(first)


def _table(
    task: Task, batch: dict[str, tf.Tensor], scores: Scores, kept: Sequence[str], start: int, count: int
) -> pa.Table:
    """The first `count` rows of a batch as they are written; `start` is the number of the first."""
    label = batch["label"].numpy()[:count]
    columns: dict[str, Any] = {
        "row": pa.array(np.arange(start, start + count)),
        "label": pa.array(label.astype(np.int64 if task.has_classes else np.float64)),
        "weight": pa.array(batch["weight"].numpy()[:count].astype(np.float64)),
        PREDICTION: _predictions(scores.exact[:count]),
    }
    for name in kept:
        present = batch[f"raw/{name}/present"].numpy()[:count]
        columns[name] = kept_column(batch[f"raw/{name}"].numpy()[:count], present)
    return pa.table(columns)


def _predictions(values: NDArray[np.float64]) -> pa.Array:
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
