"""The importance of columns, from a small sample of the rows that an evaluation scores anyway.

    study = ImportanceStudy.of(parameters, task, rows=shards.total)  # None where it would take long
    study.add(batch, table, first)                                   # of each batch
    study.result(scorer, size=4096, group=None, seed=0)              # {"importance": ...}

Each column in turn is permuted (Breiman, "Random forests", 2001; Fisher, Rudin and Dominici, "All models are wrong, but many are
useful", 2019). The result is how much worse the task's primary metric becomes, with an interval. The model is not trained anew:
if two columns have the same content, both look unimportant.

A built-in transform looks at one row and one column at a time. So it is enough to permute the model inputs that are made of a
column. Neither the transform nor the model is built again, and the study takes a tenth of a second. With a user's `preprocess`,
the columns that it returns are permuted. Images would take long, so a pipeline with images has no study.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
import tensorflow as tf
from numpy.typing import NDArray

from headway.evaluation.intervals import quantile, spread_of_influence
from headway.evaluation.predictions import rows_of
from headway.metrics.base import Floats, Metric, Rows
from headway.tasks.base import Task
from tfcore.evaluation.scorers import TrainedScorer
from tfcore.transform.parameters import TransformParameters

ROWS, LEAST_ROWS = 1000, 100
MOST_CELLS = 10_000_000
"""The most input values that a study may feed to the model, over all permutations."""
REPEATS = 3
"""The number of permutations of each column; the mean over them is reported."""
CONFIDENCE = 0.95
Inputs = dict[str, NDArray[Any]]
"""The model's inputs by name, [rows, width] each."""
Places = dict[str, list[int]]
"""{model input: the indices of columns within it}, such as the ones made of one raw column."""


class ImportanceStudy:
    """Measures the importance of columns by permuting the model's inputs, on an evenly spread sample of rows."""

    def __init__(self, parameters: TransformParameters, task: Task, sample: NDArray[np.int64]):
        self._parameters, self._task, self._sample = parameters, task, sample
        self._batches: list[Inputs] = []
        self._tables: list[pa.Table] = []

    @classmethod
    def of(cls, parameters: TransformParameters, task: Task, *, rows: int) -> Self | None:
        """Returns a study of at most `ROWS` of the `rows` rows. None for a user's own task, and if the study would take long:
        with images or very many model inputs."""
        if any(fitted.pixels is not None for fitted in parameters.fitted) or ":" in task.name:
            return None
        width = sum(shape[0] for shape, _ in parameters.inputs().values())
        most = min(ROWS, MOST_CELLS // max(1, len(parameters.fitted) * REPEATS * width))
        return cls(parameters, task, spread(rows, most)) if most >= LEAST_ROWS else None

    def add(self, batch: Mapping[str, tf.Tensor], table: pa.Table, first: int) -> None:
        """Keep the rows of a batch that are in the sample.

        Args:
            batch: the model's inputs of the batch's rows.
            table: the rows' labels, weights and predictions.
            first: the index of the batch's first row among all rows.
        """
        start, end = np.searchsorted(self._sample, [first, first + len(table)])
        at = self._sample[start:end] - first
        if len(at):
            self._batches.append({name: batch[name].numpy()[at] for name in self._parameters.inputs()})
            self._tables.append(table.take(at))

    def result(self, scorer: TrainedScorer, *, size: int, group: str | None, seed: int) -> dict[str, Any]:
        """Returns {"importance": {"rows", "metric", "value": the metric without permutation, "columns"}}. "columns" is a list of
        {"column", "permuted": how much worse the metric is, or None, "interval": [low, high] or None}, most important first.

        Args:
            size: the number of rows of a batch, with which the scorer was traced.
            group: the column of the tables whose equal values are resampled together, for the intervals.
            seed: the seed of the permutations.
        """
        inputs = {name: np.concatenate([each[name] for each in self._batches]) for name in self._batches[0]}
        plain = rows_of(pa.concat_tables(self._tables), self._task, group)
        places, random = self._places(), np.random.default_rng(seed)
        orders = [[random.permutation(len(plain)) for _ in range(REPEATS)] for _ in places]
        changed = [_permuted(inputs, at, order) for at, of in zip(places.values(), orders, strict=True) for order in of]
        predictions = _predicted(scorer, changed, size).reshape(-1, len(plain), *plain.prediction.shape[1:])
        metric = self._task.metric(self._task.primary)
        found = []
        for number, column in enumerate(places):
            permuted = [plain.predicted(each) for each in predictions[REPEATS * number : REPEATS * (number + 1)]]
            found.append({"column": column, **_worsening(metric, plain, permuted)})
        order = sorted(found, key=lambda each: -np.inf if each["permuted"] is None else each["permuted"], reverse=True)
        return {
            "importance": {
                "rows": len(plain),
                "metric": metric.name,
                "value": metric.cached_value(plain),
                "columns": order,
            }
        }

    def _places(self) -> dict[str, Places]:
        """Returns {column: the model inputs made of it}. A column is a raw one, or one that a user's preprocess returns."""
        sources = {part.name: part.source.name for part in self._parameters.parts}
        ends = dict.fromkeys(self._parameters.inputs(), 0)
        found: dict[str, Places] = {}
        for fitted in self._parameters.fitted:
            name = "numeric" if fitted.size is None else "categorical" if fitted.width is None else "lists"
            width = len(fitted.numeric_names()) if fitted.size is None else fitted.width or 1
            column = found.setdefault(sources.get(fitted.column.name, fitted.column.name), {})
            column.setdefault(name, []).extend(range(ends[name], ends[name] + width))
            ends[name] += width
        return found


def spread(rows: int, most: int) -> NDArray[np.int64]:
    """Returns the indices of at most `most` of `rows` rows, evenly spread, ascending."""
    count = min(rows, most)
    return np.arange(count) * rows // max(count, 1)


def _permuted(inputs: Inputs, places: Places, order: NDArray[np.int64]) -> Inputs:
    """Returns the inputs with the values at `places` taken from other rows: row i gets those of row order[i]."""
    found = dict(inputs)
    for name, at in places.items():
        found[name] = inputs[name].copy()
        found[name][:, at] = inputs[name][order[:, None], at]
    return found


def _predicted(scorer: TrainedScorer, changed: Sequence[Inputs], size: int) -> Floats:
    """Returns the predictions for the rows of all `changed` inputs, [rows] or [rows, width], made in batches of `size` rows."""
    inputs = {name: np.concatenate([each[name] for each in changed]) for name in changed[0]}
    rows = len(inputs["numeric"])
    parts = []
    for start in range(0, rows, size):
        at = np.arange(start, start + size) % rows  # the last batch is filled up
        batch = {name: tf.constant(values[at]) for name, values in inputs.items()}
        parts.append(scorer(batch).float64_predictions[: rows - start])
    return np.concatenate(parts)


def _worsening(metric: Metric, plain: Rows, permuted: Sequence[Rows]) -> dict[str, Any]:
    """Returns {"permuted": how much worse the metric is on average over the permutations, "interval": [low, high]}. The interval
    tells what other rows would give, with the same permutations. Either is None if it cannot be computed."""
    before, after = metric.cached_value(plain), [metric.cached_value(rows) for rows in permuted]
    known = [each for each in after if each is not None]
    if before is None or len(known) < len(after):
        return {"permuted": None, "interval": None}
    mean = float(np.mean(known) - before) * (-1 if metric.higher_is_better else 1)
    influences = [each for each in map(metric.influence, permuted) if each is not None]
    if (own := metric.influence(plain)) is None or len(influences) < len(permuted):
        return {"permuted": mean, "interval": None}
    if (error := spread_of_influence(plain, np.mean(influences, axis=0) - own)) is None:
        return {"permuted": mean, "interval": [mean, mean]}
    reach = quantile(0.5 + CONFIDENCE / 2, error.freedom) * error.error
    return {"permuted": mean, "interval": [mean - reach, mean + reach]}
