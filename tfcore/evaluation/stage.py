"""The evaluation stage: one pass over the eval rows, their predictions written in order, metrics from those.

    predict(EvaluateRequest(...), Path("out"), monitor)       # {"metrics": {"auc": 0.71, ...}, "rows": 65432, ...}

`out/predictions.parquet` has one row for each row of the shards: row, label (the number, or the class index), weight,
prediction (a probability, probabilities, or the number; float64), the columns of slices, clusters and the group as text.
Beside a training's model `out/predictions-linear.parquet` has those of the linear baseline that it left, the same columns.
`out/metrics.json` is `headway.evaluation.metrics.summary` of it, `out/expected.npy` the first predictions as the model gave them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import ConfigError, DataError
from headway.evaluation import metrics
from headway.evaluation.slices import slice_columns
from headway.messages import counted
from headway.monitor import Monitor
from headway.schema.columns import column_yaml, suggest
from headway.storage.prefetch import RemoteFiles, Stager
from headway.tasks.base import Task
from tfcore.data.pipeline import Shards, evaluation_dataset, safe
from tfcore.data.source import Feed
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

PREDICTIONS, METRICS, EXPECTED = "predictions.parquet", "metrics.json", "expected.npy"
PREDICTION = "prediction"
LINEAR = f"predictions-{NAME}.parquet"
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
        predictions (the file's name), baselines (their files by name; none of a SavedModel), rows, metrics (overall),
        by_slice, calibration_bins, seconds, rows_per_second, traces; or {"incompatible": why} for a SavedModel that cannot
        score these rows.

    Raises:
        ConfigError: a slice is not a stored column.
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
            tables, expected = _tables(request, scorer, shards, monitor)
    except Incompatible as error:
        monitor.log(f"the model cannot score these rows: {error}")
        return {"incompatible": str(error)}
    for name, table in tables.items():
        pq.write_table(table, out / name, row_group_size=PARQUET_ROWS)
    np.save(out / EXPECTED, expected, allow_pickle=False)
    seconds, table = time.monotonic() - began, tables[PREDICTIONS]
    summary = metrics.summary(
        table,
        task,
        slices=request.slices,
        min_rows=request.slice_min_rows,
        group=request.group,
        ndcg_at=request.ndcg_at,
        own=request.metrics,
    )
    (out / METRICS).write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return {
        "predictions": PREDICTIONS,
        "baselines": {NAME: LINEAR} if LINEAR in tables else {},
        "rows": table.num_rows,
        "weight": summary["weight"],
        "metrics": summary["overall"],
        "by_slice": summary["slices"],
        "calibration_bins": summary["calibration_bins"],
        "seconds": round(seconds, 3),
        "rows_per_second": round(table.num_rows / max(seconds, 1e-9)),
        "traces": scorer.traces,
    }


def _check(request: EvaluateRequest, shards: Shards) -> None:
    if not shards.total:
        raise DataError("the eval split has no rows", where="split", fix="hold out more, or widen the window")
    if request.ndcg_at is not None and request.group is None:
        raise ConfigError(
            "there are no groups to rank in", where="evaluation.ndcg_at", fix=column_yaml("NAME", "group")
        )
    if request.ndcg_at is not None and label_task(request.transform.label).wide:
        raise ConfigError("several numbers per row have no order", where="evaluation.ndcg_at", fix="leave it out")
    names = [column.name for column in shards.columns]
    reserved = {"row", "label", "weight", PREDICTION}
    for what, columns in (
        ("evaluation.slices", slice_columns(request.slices)),
        ("group", (request.group,) if request.group else ()),
    ):
        for name in columns:
            if name not in names:
                raise ConfigError(f"{name!r} is not a stored column", where=what, fix=suggest(name, names))
            if name in reserved:
                raise ConfigError(f"{name!r} cannot be sliced by: predictions have a column of that name", where=what)


def _scorer(request: EvaluateRequest, shards: Shards) -> TrainedScorer | SavedModelScorer:
    if isinstance(request.model, TrainedModel):
        return TrainedScorer(request.model, request.transform)
    return SavedModelScorer(request.model.path, request.transform.label, shards.columns)


def _linear(request: EvaluateRequest) -> LinearModel | None:
    """The linear baseline that a training left beside its model."""
    if not isinstance(request.model, TrainedModel) or not (request.model.path / FILE).exists():
        return None
    return LinearModel.load(request.model.path / FILE)


def _tables(
    request: EvaluateRequest, scorer: TrainedScorer | SavedModelScorer, shards: Shards, monitor: Monitor
) -> tuple[dict[str, pa.Table], NDArray[np.float32]]:
    """(the predictions by the file that they go to, the first of them as the model gave them)"""
    texts = tuple(
        dict.fromkeys([*slice_columns(request.slices), *request.columns, *([request.group] if request.group else [])])
    )
    transform = None  # a published version has its own inside
    if isinstance(request.model, TrainedModel):
        transform = transform_of(request.transform, request.model.preprocess, tolerant=Tolerant(MOST_REFUSED))
    dataset = evaluation_dataset(
        shards,
        transform,
        labeler(shards, request.transform),
        batch=min(request.batch_size, shards.total),
        raw=tuple(dict.fromkeys([*scorer.raw, *texts])),
    )
    first: list[NDArray[np.float32]] = []
    rows = kept = 0
    linear, tables = _linear(request), dict[str, list[pa.Table]]()
    for batch in safe(dataset, shards):
        monitor.check()
        scores = scorer(batch)
        # only the last batch is padded, and only at its end
        valid = int(np.count_nonzero(batch["valid"]))
        table = _table(label_task(request.transform.label), batch, scores, texts, rows, valid)
        tables.setdefault(PREDICTIONS, []).append(table)
        if linear is not None:
            predicted = linear.predict(batch["numeric"].numpy()[:valid], batch["categorical"].numpy()[:valid])
            place = table.schema.get_field_index(PREDICTION)
            tables.setdefault(LINEAR, []).append(table.set_column(place, PREDICTION, _predictions(predicted)))
        if kept < EXPECTED_ROWS:
            first.append(scores.predictions[: min(valid, EXPECTED_ROWS - kept)])
            kept += len(first[-1])
        rows += valid
        monitor.progress(rows, shards.total, "rows")
    if rows != shards.total:
        raise DataError(
            f"the shards hold {counted(rows, 'row')}, and their manifests say {shards.total:,}", where=shards.paths[0]
        )
    return {name: pa.concat_tables(parts) for name, parts in tables.items()}, np.concatenate(first)


def _table(
    task: Task, batch: dict[str, tf.Tensor], scores: Scores, texts: Sequence[str], start: int, count: int
) -> pa.Table:
    """The first `count` rows of a batch as they are written; `start` is the number of the first."""
    label = batch["label"].numpy()[:count]
    columns: dict[str, Any] = {
        "row": pa.array(np.arange(start, start + count)),
        "label": pa.array(label.astype(np.int64 if task.has_classes else np.float64)),
        "weight": pa.array(batch["weight"].numpy()[:count].astype(np.float64)),
        PREDICTION: _predictions(scores.exact[:count]),
    }
    for name in texts:
        present = batch[f"raw/{name}/present"].numpy()[:count]
        columns[name] = text_column(batch[f"raw/{name}"].numpy()[:count], present)
    return pa.table(columns)


def _predictions(values: NDArray[np.float64]) -> pa.Array:
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def text_column(values: NDArray[Any], present: NDArray[np.bool_]) -> pa.Array:
    """Convert raw values to text: bytes as UTF-8 (invalid bytes escaped), numbers as written; null stays null."""
    if values.dtype != object:
        # a float32 as itself: 0.1, not 0.10000000149011612
        return pa.array(values, mask=~present).cast(pa.string())
    encoded = pa.array(values, pa.binary(), mask=~present).dictionary_encode()
    words = [value.decode("utf-8", "backslashreplace") for value in encoded.dictionary.to_pylist()]
    return pc.take(pa.array(words, pa.string()), encoded.indices)
