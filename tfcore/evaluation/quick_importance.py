"""The importance of columns, from a small sample of the rows that an evaluation scores anyway.

    study = QuickStudy.of(parameters, task, rows=shards.total)       # None where it would not be quick, or not be true
    study.add(batch, table, first)                                   # of each batch
    study.result(scorer, size=4096, group=None, seed=0)              # {"importance": ...}

A built-in transform looks at one row and one column at a time. So to permute the model's inputs that are made of a column is to
permute the column, and neither the transform nor the model has to be built again: it takes a tenth of a second. A user's
`preprocess` may mix columns, images take long, and of many columns only the stage `importance` tells.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
import tensorflow as tf
from numpy.typing import NDArray

from headway.evaluation.metrics import rows_of
from headway.metrics.base import Floats
from headway.tasks.base import Task
from tfcore.evaluation.permutation import REPEATS, Worsening, spread, within
from tfcore.evaluation.scorers import TrainedScorer
from tfcore.transform.fitted import Fitted
from tfcore.transform.parameters import TransformParameters

ROWS, LEAST_ROWS = 1000, 100
MOST_CELLS = 10_000_000
"""Inputs of all rows that are predicted."""
Inputs = dict[str, NDArray[Any]]
"""By name, [rows, width] each."""
Places = dict[str, list[int]]
"""{input: which of its columns}"""


class QuickStudy:
    """A sample of rows, evenly spread, as the model sees them."""

    def __init__(self, parameters: TransformParameters, task: Task, sample: NDArray[np.int64]):
        self._parameters, self._task, self._sample = parameters, task, sample
        self._batches: list[Inputs] = []
        self._tables: list[pa.Table] = []

    @classmethod
    def of(cls, parameters: TransformParameters, task: Task, *, rows: int) -> Self | None:
        """A study of a thousand of the rows; None where it would not be quick."""
        images = any(fitted.pixels is not None for fitted in parameters.fitted)
        if parameters.derived is not None or images or ":" in task.name:
            return None
        width = sum(shape[0] for shape, _ in parameters.inputs().values())
        most = min(ROWS, MOST_CELLS // max(1, len(parameters.raw) * REPEATS * width))
        return cls(parameters, task, spread(rows, most)) if most >= LEAST_ROWS else None

    def add(self, batch: Mapping[str, tf.Tensor], table: pa.Table, first: int) -> None:
        """Take what is of the sample.

        Args:
            batch: of rows, with the model's inputs.
            table: their labels, weights and predictions.
            first: the number of the first row.
        """
        at = within(self._sample, first, len(table))
        if len(at):
            self._batches.append({name: batch[name].numpy()[at] for name in self._parameters.inputs()})
            self._tables.append(table.take(at))

    def result(self, scorer: TrainedScorer, *, size: int, group: str | None, seed: int) -> dict[str, Any]:
        """The importance, as of the stage `importance`.

        Args:
            size: rows of a batch, as the scorer knows them.
            group: the column of the tables whose equal values are drawn together.
            seed: of the permutations.
        """
        inputs = {name: np.concatenate([each[name] for each in self._batches]) for name in self._batches[0]}
        plain = rows_of(pa.concat_tables(self._tables), self._task, group)
        places, rows = self._places(), len(plain)
        random = np.random.default_rng(seed)
        orders = [[random.permutation(rows) for _ in range(REPEATS)] for _ in places]
        changed = [
            _mixed(inputs, at, inputs, order) for at, of in zip(places.values(), orders, strict=True) for order in of
        ]
        predictions = _predicted(scorer, changed, size).reshape(-1, rows, *plain.prediction.shape[1:])
        worsening = Worsening(self._task.metric(self._task.primary), plain)
        found = []
        for number, column in enumerate(places):
            permuted = predictions[REPEATS * number : REPEATS * (number + 1)]
            worse = worsening.of([plain.predicted(each) for each in permuted])
            found.append({"column": column, **worse, "missing": None})
        return {"importance": worsening.result(found)}

    def _places(self) -> dict[str, Places]:
        """Return, by raw column, which inputs are made of it."""
        sources = {part.name: part.source.name for part in self._parameters.parts}
        found: dict[str, Places] = {column.name: {} for column in self._parameters.raw}
        for fitted, name, at in self._placed():
            found[sources.get(fitted.column.name, fitted.column.name)].setdefault(name, []).extend(at)
        return found

    def _placed(self) -> Iterator[tuple[Fitted, str, range]]:
        """Each fitted column, the input that it is in, and which of its columns it has."""
        ends = dict.fromkeys(self._parameters.inputs(), 0)
        for fitted in self._parameters.fitted:
            name = "numeric" if fitted.size is None else "categorical" if fitted.width is None else "lists"
            width = len(fitted.numeric_names()) if fitted.size is None else fitted.width or 1
            yield fitted, name, range(ends[name], ends[name] + width)
            ends[name] += width


def _mixed(inputs: Inputs, places: Places, source: Inputs, rows: NDArray[np.int64]) -> Inputs:
    """The inputs with those of one column taken from other rows of `source`."""
    found = dict(inputs)
    for name, at in places.items():
        found[name] = inputs[name].copy()
        found[name][:, at] = source[name][rows[:, None], at]
    return found


def _predicted(scorer: TrainedScorer, changed: Sequence[Inputs], size: int) -> Floats:
    """The predictions of all rows, [rows] or [rows, width], in batches of one size."""
    inputs = {name: np.concatenate([each[name] for each in changed]) for name in changed[0]}
    rows = len(inputs["numeric"])
    parts = []
    for start in range(0, rows, size):
        at = np.arange(start, start + size) % rows  # the last batch is filled up
        batch = {name: tf.constant(values[at]) for name, values in inputs.items()}
        parts.append(scorer(batch).exact[: rows - start])
    return np.concatenate(parts)
