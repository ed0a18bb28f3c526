"""The importance stage: how much worse a trained model predicts without what one raw column says.

    importance(ImportanceRequest(model=..., transform=..., examples=[...]), Path("out"), monitor)
    # {"metric": "auc", "columns": [{"column": "delay", "permuted": 0.21, "interval": [0.19, 0.23], "missing": 0.18}, ...]}

On a sample of the rows each column in turn is permuted (Breiman, "Random forests", 2001; Fisher, Rudin and Dominici, "All models
are wrong, but many are useful", 2019), and made missing where it may be null; the rows pass through the transform and the model
again. The model is not trained anew: a column whose content another one repeats looks unimportant, and so does the other.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import DataError
from headway.evaluation.metrics import drawn_by
from headway.metrics.base import Floats, Rows
from headway.monitor import Monitor
from headway.schema.columns import UNIT, Column
from headway.storage.prefetch import RemoteFiles
from headway.tasks.base import Task
from tfcore.data.dataset import evaluation_dataset
from tfcore.data.reader import labeler, safe
from tfcore.data.shards import Shards, shards_of
from tfcore.evaluation.kept_column import kept_column
from tfcore.evaluation.permutation import REPEATS, Worsening, spread, within
from tfcore.evaluation.request import ImportanceRequest
from tfcore.evaluation.scorers import TrainedScorer
from tfcore.heads.table import label_task
from tfcore.runtime.devices import prepare
from tfcore.runtime.remote_shards import staged
from tfcore.transform.preprocess import transform_of
from tfcore.transform.raw_column import PackedColumns, RawColumn

BATCH = 1000
Values = dict[str, NDArray[Any]]
"""Of one raw column, [rows, ...] each: values, present, and of a list length."""


def importance(
    request: ImportanceRequest, out: Path, monitor: Monitor, *, remote: RemoteFiles | None = None
) -> dict[str, Any]:
    """Measure the importance of each raw column that the model reads, and write out/importance.json.

    Returns:
        rows, metric (the task's primary one), value (of the model as it is), columns: the most important first, each with
        permuted (how much worse the metric is), interval ([low, high] of it, or None) and missing (None for a column that
        is never null).

    Raises:
        DataError: there are no rows, or a shard is damaged.
        StoreError: the model's files are missing or of another model.
    """
    with staged(remote, monitor) as stager:
        prepare()
        shards = shards_of(request.examples, stager)
        shards.ahead()
        if not shards.total:
            raise DataError("the eval split has no rows", where="split", fix="hold out more, or widen the window")
        result = _Study(request, shards, monitor).result()
    (out / "importance.json").write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return result


class _Study:
    """A sample of the rows, and the model's predictions of it with one column changed."""

    def __init__(self, request: ImportanceRequest, shards: Shards, monitor: Monitor):
        self._request, self._monitor = request, monitor
        self._task: Task = label_task(request.transform.label)
        self._columns: tuple[Column, ...] = request.transform.raw
        sample = _sample(request, shards, [c.name for c in self._columns], monitor)
        self._raw, self._label, self._weight, self._drawn = sample
        self._scorer = TrainedScorer(request.model, request.transform)
        transform = transform_of(request.transform, request.model.preprocess)

        def transformed(raw: Mapping[str, Mapping[str, tf.Tensor]]) -> dict[str, tf.Tensor]:
            return dict(transform({name: _raw_column(values) for name, values in raw.items()}))

        self._transform = tf.function(transformed, autograph=False)

    def result(self) -> dict[str, Any]:
        plain = self._rows(self._raw)
        worsening = Worsening(self._task.metric(self._task.primary), plain)
        random = np.random.default_rng(self._request.seed)
        found: list[dict[str, Any]] = []
        for done, column in enumerate(self._columns):
            values = self._raw[column.name]
            permuted = [self._without(column, _at(values, random.permutation(len(plain)))) for _ in range(REPEATS)]
            missing = worsening.by(self._without(column, _missing(values))) if column.nullable else None
            found.append({"column": column.name, **worsening.of(permuted), "missing": missing})
            self._monitor.progress(done + 1, len(self._columns), "columns")
        return worsening.result(found)

    def _without(self, column: Column, values: Values) -> Rows:
        return self._rows({**self._raw, column.name: values})

    def _rows(self, raw: Mapping[str, Values]) -> Rows:
        predictions = np.concatenate(list(self._predictions(raw)))
        return self._task.rows(self._label, predictions, self._weight, units=self._drawn)

    def _predictions(self, raw: Mapping[str, Values]) -> Iterator[Floats]:
        count = len(self._label)
        size = min(BATCH, count)
        for start in range(0, count, size):
            self._monitor.check()
            # the last batch begins earlier, so that all are of one size
            begin = min(start, count - size)
            batch = self._transform({name: _at(values, slice(begin, begin + size)) for name, values in raw.items()})
            yield self._scorer(batch).exact[start - begin :]


def _sample(
    request: ImportanceRequest, shards: Shards, names: list[str], monitor: Monitor
) -> tuple[dict[str, Values], Floats, Floats, NDArray[np.int64] | None]:
    """(raw values by column, labels, weights, what is drawn together) of rows that are evenly spread."""
    sample = spread(shards.total, request.rows)
    together = [*([UNIT] if shards.unit else []), *([request.group] if request.group else [])]
    packed = PackedColumns(shards.record_columns, tuple(dict.fromkeys([*names, *together])))
    dataset = evaluation_dataset(
        shards, None, labeler(shards, request.transform), batch=min(4096, shards.total), raw=packed
    )
    parts: dict[str, dict[str, list[NDArray[Any]]]] = {name: {} for name in names}
    kept: dict[str, list[pa.Array]] = {name: [] for name in together}
    labels, weights, first = [], [], 0
    for batch in map(packed.unpack, safe(dataset, shards)):
        monitor.check()
        valid = int(np.count_nonzero(batch["valid"]))
        at = within(sample, first, valid)
        first += valid
        labels.append(batch["label"].numpy()[at])
        weights.append(batch["weight"].numpy()[at])
        for name in names:
            for part, key in (("values", ""), ("present", "/present"), ("length", "/length")):
                if (tensor := batch.get(f"raw/{name}{key}")) is not None:
                    parts[name].setdefault(part, []).append(tensor.numpy()[at])
        for name in together:
            kept[name].append(kept_column(batch[f"raw/{name}"].numpy()[at], batch[f"raw/{name}/present"].numpy()[at]))
    raw = {name: {part: np.concatenate(arrays) for part, arrays in of.items()} for name, of in parts.items()}
    label, weight = (np.concatenate(each).astype(np.float64) for each in (labels, weights))
    return (
        raw,
        label,
        weight,
        drawn_by(pa.table({name: pa.chunked_array(of) for name, of in kept.items()}), request.group),
    )


def _at(values: Values, rows: Any) -> Values:
    return {part: array[rows] for part, array in values.items()}


def _missing(values: Values) -> Values:
    """The column as it is where every row is null."""
    empty = {part: np.zeros_like(array) for part, array in values.items()}
    if values["values"].dtype == object:
        empty["values"] = np.full(values["values"].shape, b"", object)
    return empty


def _raw_column(values: Mapping[str, tf.Tensor]) -> RawColumn:
    if "length" not in values:
        return RawColumn(values["values"], values["present"])
    lists = tf.RaggedTensor.from_tensor(values["values"], lengths=values["length"])
    return RawColumn(lists.flat_values, values["present"], None, values["length"])
