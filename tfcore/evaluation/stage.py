"""The evaluation stage: one streamed pass over the eval rows; their predictions are written in order as they are made.

    predict(EvaluateRequest(...), Path("out"), monitor)       # {"metrics": {"auc": 0.71, ...}, "rows": 65432, ...}

`out/predictions.parquet` has one row for each row of the shards: row, label (the number, or the class index), weight,
prediction (a probability, probabilities, or the number; float64), row_loss (for a user's own task), the requested columns
(numbers as they are stored, texts as UTF-8), and /unit if the records have it: int64, equal for rows that the split keeps
together, null for a row without a key. For a trained model, `out/predictions-linear.parquet` has the same columns with the
predictions of the linear baseline that the training wrote. With `item` in the request, `-popularity` and `-item_mean` are such
files of the item baselines. With `ranks`, a two-tower model's predictions also have columns of ranks (`tfcore.evaluation.items`).
`out/expected.npy` has the first predictions as the model gave them. All other figures of a model are computed from these files
(`headway.evaluation.measure`), so that a new metric needs no new pass. Memory holds a few batches, and at the end the label,
weight and prediction of the rows, or of a sample of them if there are many."""

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import ConfigError, DataError
from headway.evaluation.predictions import OWN, ROW_LOSS, measured, read_predictions, rows_of
from headway.messages import counted
from headway.metrics.ranking import ITEM_BASELINES
from headway.monitor import Monitor
from headway.schema.columns import UNIT, suggest
from headway.storage.prefetch import RemoteFiles, Stager
from headway.tasks.base import Task
from tfcore.data.dataset import evaluation_dataset
from tfcore.data.reader import Shards, labeler, shards_of, staged, with_data_errors
from tfcore.evaluation.importance import ImportanceStudy
from tfcore.evaluation.items import ItemCounts, ItemRanker, KnownItems, to_arrow_column
from tfcore.evaluation.request import VERSION, EvaluateRequest, TrainedModel
from tfcore.evaluation.scorers import Incompatible, SavedModelScorer, Scores, TrainedScorer
from tfcore.graph.retrace import RetraceGuard
from tfcore.heads.head import label_task
from tfcore.heads.label_parameters import LabelParameters
from tfcore.models.linear import FILE, INPUTS, NAME, LinearModel
from tfcore.runtime.devices import prepare
from tfcore.transform.images import ImageDecoder
from tfcore.transform.layer import transform_of
from tfcore.transform.raw_column import PackedColumns

__all__ = ["VERSION", "predict"]

PREDICTIONS, EXPECTED = "predictions.parquet", "expected.npy"
PREDICTION = "prediction"
BASELINES = (NAME, *ITEM_BASELINES)
EXPECTED_ROWS = 2000
PARQUET_ROWS = 131_072


def predict(
    request: EvaluateRequest,
    out: Path,
    monitor: Monitor,
    *,
    remote: RemoteFiles | None = None,
    shards: Shards | None = None,
) -> dict[str, Any]:
    """Score the rows, write the predictions and measure; see the module. `shards` replace the request's examples.

    Args:
        remote: fetches shards that are still in a bucket while other shards are scored; None: all shards are local.

    Returns:
        {"predictions": a file's name, "baselines": {baseline: its file's name}, "rows", "metrics" (the task's own), "seconds",
        "rows_per_second", "traces", "importance" (if studied)}; or {"incompatible": why} if a SavedModel cannot score the rows.

    Raises:
        ConfigError: there are no examples, or a column is not stored or is named like one that predictions have.
        DataError: there are no rows, or a shard is damaged.
        StoreError: the model's files are missing or of another model.
    """
    with staged(remote, monitor) as stager:
        return _predict(request, out, monitor, stager, shards)


def _predict(
    request: EvaluateRequest, out: Path, monitor: Monitor, stager: Stager | None, given: Shards | None
) -> dict[str, Any]:
    began = time.monotonic()
    prepare()
    shards = given or shards_of(request.examples, stager)
    shards.announce_order()
    _check(request, shards)
    out.mkdir(parents=True, exist_ok=True)
    task = label_task(request.transform.label)
    try:
        scorer = _scorer(request, shards)
        with RetraceGuard(scorer, action="warn", log=monitor.warn):
            rows, expected, told = _write(request, scorer, shards, out, monitor, with_importance=given is None)
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
        "metrics": _metrics(task, out / PREDICTIONS, request.group),
        "seconds": round(seconds, 3),
        "rows_per_second": round(rows / max(seconds, 1e-9)),
        "traces": scorer.traces,
        **told,
    }


def _check(request: EvaluateRequest, shards: Shards) -> None:
    if not shards.total:
        raise DataError("the eval split has no rows", where="split", fix="hold out more, or widen the window")
    names = [column.name for column in shards.columns]
    where = "evaluation.slices, evaluation.row_values, gate.thresholds"
    for name in request.columns:
        if name not in names:
            raise ConfigError(f"{name!r} is not a stored column", where=where, fix=suggest(name, names))
        if name in OWN:
            problem = f"{name!r} cannot be kept: predictions have a column of that name"
            raise ConfigError(problem, where=where)


def _metrics(task: Task, predictions: Path, group: str | None) -> dict[str, float | None]:
    reads_columns = any(metric.reads_columns for metric in task.metrics)  # a task of the user's own may read any
    table = read_predictions(predictions, None if reads_columns else {group} if group else (), group=group)
    return measured(task.metrics, rows_of(table, task, columns=reads_columns))


def _scorer(request: EvaluateRequest, shards: Shards) -> TrainedScorer | SavedModelScorer:
    if isinstance(request.model, TrainedModel):
        return TrainedScorer(request.model, request.transform)
    return SavedModelScorer(request.model.path.file, request.transform.label, shards.columns)


def _linear(request: EvaluateRequest) -> LinearModel | None:
    """Returns the linear baseline that the training wrote beside its model; None if it wrote none, and for a SavedModel."""
    if not isinstance(request.model, TrainedModel) or not (request.model.path.file / FILE).exists():
        return None
    return LinearModel.load(request.model.path.file / FILE)


def _file(baseline: str) -> str:
    return f"predictions-{baseline}.parquet"


def _items(request: EvaluateRequest, stager: Stager | None) -> ItemCounts | None:
    """Returns how often each item, such as a film, is in the train rows; None for a SavedModel, or without an item column."""
    if request.item is None or not request.train or not isinstance(request.model, TrainedModel):
        return None
    shards = shards_of(request.train, stager)
    return ItemCounts.of(shards, labeler(shards, request.transform), request.item)


class _Files(contextlib.ExitStack):
    """Parquet files of a folder, each written table by table, in row groups of about PARQUET_ROWS rows."""

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


def _index(
    request: EvaluateRequest, scorer: TrainedScorer | SavedModelScorer, stager: Stager | None
) -> Callable[[dict[str, tf.Tensor], pa.Table], dict[str, pa.Array]] | None:
    """Returns a function from a batch and its table to the columns of ranks; None if no ranks are requested, or without index."""
    item, group = request.item, request.group
    if request.ranks is None or item is None or group is None or not isinstance(scorer, TrainedScorer):
        return None
    if (items := scorer.items()) is None:
        return None

    def places(values: pa.Array) -> NDArray[np.int64]:
        there = np.asarray(values.is_valid())
        filled = values.fill_null("" if items.texts else 0)
        found = items.places(tf.constant(filled.to_pylist(), tf.string if items.texts else tf.int64)).numpy()
        return np.where(there, found, -1)

    known = KnownItems.of(shards_of(request.train, stager), item, group, places)
    index = ItemRanker(items.vectors.numpy(), places, known, request.ranks)

    def columns(batch: dict[str, tf.Tensor], table: pa.Table) -> dict[str, pa.Array]:
        users = scorer.users(batch)[: len(table)]
        return index.columns(users, *(table.column(name).combine_chunks() for name in (item, group)))

    return columns


def _with(table: pa.Table, columns: dict[str, pa.Array]) -> pa.Table:
    for name, values in columns.items():
        table = table.append_column(name, values)
    return table


def _write(
    request: EvaluateRequest,
    scorer: TrainedScorer | SavedModelScorer,
    shards: Shards,
    out: Path,
    monitor: Monitor,
    *,
    with_importance: bool,
) -> tuple[int, NDArray[np.float32], dict[str, Any]]:
    """Write the predictions. Returns the number of rows, the first EXPECTED_ROWS predictions as the model gave them, and
    {"importance": ...}; that dict is empty without `with_importance`, or if no study was made."""
    transform = None  # a published version has its own inside
    if isinstance(request.model, TrainedModel):
        transform = transform_of(request.transform, request.model.preprocess, tolerant=ImageDecoder(shards.total))
    kept = (*request.columns, UNIT) if shards.unit else request.columns
    raw = PackedColumns(shards.record_columns, tuple(dict.fromkeys([*scorer.raw, *kept])))
    size = min(request.batch_size, shards.total)
    dataset = evaluation_dataset(shards, transform, labeler(shards, request.transform), batch=size, raw=raw)
    study = None
    if with_importance and isinstance(scorer, TrainedScorer):
        study = ImportanceStudy.of(request.transform, label_task(request.transform.label), rows=shards.total)
    first: list[NDArray[np.float32]] = []
    rows = first_rows = 0
    linear, items = _linear(request), _items(request, shards.stager)
    index = _index(request, scorer, shards.stager)
    monitor.progress(0, shards.total, "rows")
    with _Files(out) as files:
        for packed in with_data_errors(dataset, shards):
            monitor.check()
            batch = raw.unpack(packed)
            scores = scorer(batch)
            # only the last batch is padded, and only at its end
            valid = int(np.count_nonzero(batch["valid"]))
            table = _table(request.transform.label, batch, scores, kept, rows, valid)
            if study is not None:
                study.add(batch, table, rows)
            ranks = {} if index is None else index(batch, table)
            files.write(PREDICTIONS, _with(table, ranks))
            others = {} if items is None else items.predictions(table.column(request.item).combine_chunks())
            if linear is not None:
                others[NAME] = linear.predict({name: batch[name].numpy()[:valid] for name in INPUTS if name in batch})
            place = table.schema.get_field_index(PREDICTION)
            for name, predicted in others.items():
                files.write(_file(name), table.set_column(place, PREDICTION, _predictions(predicted)))
            if first_rows < EXPECTED_ROWS:
                first.append(scores.predictions[: min(valid, EXPECTED_ROWS - first_rows)])
                first_rows += len(first[-1])
            rows += valid
            monitor.progress(rows, shards.total, "rows")
        files.flush()
    if rows != shards.total:
        raise DataError(
            f"the shards hold {counted(rows, 'row')}, and their manifests say {shards.total:,}", where=shards.paths[0]
        )
    told = {}
    if study is not None and isinstance(scorer, TrainedScorer):
        told = study.result(scorer, size=size, group=request.group, seed=request.seed)
    return rows, np.concatenate(first), told


def _table(
    parameters: LabelParameters,
    batch: dict[str, tf.Tensor],
    scores: Scores,
    kept: Sequence[str],
    start: int,
    count: int,
) -> pa.Table:
    """Returns the first `count` rows of a batch as the table to write. `start` is the number of the batch's first row."""
    label, task = batch["label"].numpy()[:count], label_task(parameters)
    columns: dict[str, Any] = {
        "row": pa.array(np.arange(start, start + count)),
        "label": pa.array(label.astype(np.int64 if task.has_classes else np.float64)),
        "weight": pa.array(batch["weight"].numpy()[:count].astype(np.float64)),
        PREDICTION: _predictions(scores.float64_predictions[:count]),
    }
    if scores.losses is not None:
        columns[ROW_LOSS] = pa.array(scores.losses[:count])
    for name in kept:
        present = batch[f"raw/{name}/present"].numpy()[:count]
        columns[name] = to_arrow_column(batch[f"raw/{name}"].numpy()[:count], present)
    return pa.table(columns)


def _predictions(values: NDArray[np.float64]) -> pa.Array:
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
