"""What `tfcore.fit` gives back: a trained Keras model with the transform of raw rows before it.

trained.predict(rows)                  # float64 [rows], or [rows, classes]
trained.evaluate(rows)                 # {"auc": 0.83, ...}: the task's metrics, of rows with their labels
trained.inputs(rows)                   # what the model sees: {"numeric": float32 [rows, n], ...}
trained.export("exported")             # a SavedModel that takes raw columns and needs no Headway code
trained.model, trained.transform       # to go on with in Keras and TensorFlow
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import ConfigError
from headway.evaluation.metrics import measure
from headway.schema.columns import Column
from tfcore.data.decode import Decoder, Labeler
from tfcore.data.in_memory import ROWS_PER_RECORD, hold
from tfcore.evaluation.scorers import Scores
from tfcore.export.saved_model import save_model
from tfcore.graph.function import GraphFunction
from tfcore.heads.table import label_head, label_task
from tfcore.library.raw_rows import RawRows, Rows
from tfcore.library.stored_rows import Stored, coerced
from tfcore.models.towers.item_index import ItemIndex
from tfcore.transform.layer import Transform
from tfcore.transform.parameters import TransformParameters


class Trained:
    """A trained model, and what is known of it; see the module.

    Attributes:
        model: the Keras model, from the transform's outputs to logits, or what else the task's head reads.
        parameters: the fitted transform, and what the label is: `parameters.label.task`, `.classes`.
        transform: the transform as a tf.Module: {column: RawColumn} to the model's inputs.
        metrics: the task's, on the rows that were kept out; empty where none were.
        result: facts of the training: steps, final_loss, stopped, parameters and others.
        history: the losses that were recorded, by step.
        settings: of the training and the model, in a line; those that were left out were chosen by the number of rows.
        notes: sentences about columns and rows that were left out, or that stand out.
        rejected: the rows that do not fit their columns: file, row, column, value and reason.
    """

    def __init__(
        self,
        model: keras.Model,
        parameters: TransformParameters,
        stored: Stored,
        *,
        result: dict[str, Any],
        history: list[dict[str, Any]],
        settings: str,
        notes: Sequence[str],
        rejected: pa.Table,
        index: ItemIndex | None,
    ):
        self.model, self.parameters, self.transform = model, parameters, Transform(parameters)
        self.result, self.history, self.settings = result, history, settings
        self.notes, self.rejected = tuple(notes), rejected
        self.metrics: dict[str, float | None] = {}
        self._stored, self._index = stored, index
        self._head = label_head(parameters.label)
        self._labeler = Labeler(parameters.label, weight=stored.weight)
        # no column is a group here: predictions come in the order of the rows
        self._raw = tuple(column.model_copy(update={"role": "feature"}) for column in parameters.raw)
        record = {"record": tf.TensorSpec([], tf.string)}
        self._raw_decoder, self._decoder = _decoder(self._raw), _decoder(stored.columns)
        self._inputs = GraphFunction(self._inputs_of, record)
        self._predictions = GraphFunction(self._predictions_of, record)
        self._labelled = GraphFunction(self._labelled_of, record)

    def __repr__(self) -> str:
        label = self.parameters.label
        first = next((f", {name} {value:.4g}" for name, value in self.metrics.items() if value is not None), "")
        return f"<Trained {label.task} model of {len(self._raw)} columns{first}: {self.settings}>"

    def inputs(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """The model's inputs by name, of rows in any form that `tfcore.fit` takes; the label is not needed.

        Raises:
            DataError: a column is missing, or a row does not fit.
        """
        parts = [self._inputs(record=record) for record in self._records(rows)]
        return {name: np.concatenate([part[name].numpy() for part in parts]) for name in parts[0]}

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """A prediction for each row, in their order.

        Returns:
            float64: [rows], the probability of class 1 or the number; [rows, width], the probability of each class of
            `parameters.label.classes`, or quantiles.

        Raises:
            DataError: a column is missing, or a row does not fit.
        """
        return np.concatenate([self._exact(*self._predictions(record=record)) for record in self._records(rows)])

    def evaluate(self, rows: Rows) -> dict[str, float | None]:
        """Every metric of the task on rows with their labels, weighted as in the training; rows without one are left out.

        Raises:
            DataError: a column is missing, a row does not fit, or none has a label.
        """
        return self.measured(self._stored.table(RawRows.of(rows), {column.name for column in self._raw}))

    def measured(self, table: pa.Table) -> dict[str, float | None]:
        """`evaluate`, of stored columns."""
        parts = [self._labelled(record=record) for record in _encoded(table, self._stored.columns)]
        label, weight = (np.concatenate([part[place].numpy() for part in parts]) for place in (2, 3))
        predicted = np.concatenate([self._exact(output, given) for output, given, _, _ in parts])
        return measure(label_task(self.parameters.label), label, predicted, weight)

    def export(self, path: str | Path) -> Path:
        """Write a SavedModel with the transform in it, as a pipeline does: docs/serving.md has its signatures.

        Raises:
            ConfigError: there is something at `path` already.
            HeadwayError: the model calls Python functions, which no other process has.
        """
        path = Path(path)
        if path.exists() and (path.is_file() or any(path.iterdir())):
            raise ConfigError("there is something already", where=str(path), fix="give a new or an empty folder")
        save_model(path, self.model, self.transform, self.parameters, index=self._index)
        return path

    def _records(self, rows: Rows) -> Iterator[tf.Tensor]:
        for batch in coerced(RawRows.of(rows), self._raw):
            yield from _encoded(pa.Table.from_batches([batch]), self._raw)

    def _exact(self, output: tf.Tensor, predictions: tf.Tensor) -> NDArray[np.float64]:
        return Scores(self._head, predictions, output).exact

    def _inputs_of(self, record: tf.Tensor) -> dict[str, tf.Tensor]:
        return dict(self.transform(self._raw_decoder(record)))

    def _predictions_of(self, record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self._scored(self._inputs_of(record))

    def _labelled_of(self, record: tf.Tensor) -> tuple[tf.Tensor, ...]:
        columns = self._decoder(record)
        return *self._scored(dict(self.transform(columns))), *self._labeler(columns)

    def _scored(self, inputs: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        output = tf.cast(self.model(inputs, training=False), tf.float32)
        return output, self._head.predictions(output)


def _decoder(columns: Sequence[Column]) -> Decoder:
    return Decoder(columns, ROWS_PER_RECORD, [column.name for column in columns])


def _encoded(table: pa.Table, columns: Sequence[Column]) -> Iterator[tf.Tensor]:
    """The rows in records, in their order; string scalars."""
    plain = [column.model_copy(update={"role": "feature"}) if column.role == "group" else column for column in columns]
    for shard in hold(table.select([column.name for column in columns]), plain).records:
        yield from map(tf.constant, shard)
