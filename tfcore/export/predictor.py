"""A SavedModel as a function of Arrow batches, loaded once per process and shared by the process's threads.

    predict = load("store/models/flights/3/saved_model", digest)
    predict(batch).column("prediction")          # batch: the model's raw columns, coerced

Several worker threads predict in parallel, so TensorFlow computes each call on one thread. A row's prediction then has the same
bits whatever the number of workers. Each call of the model has BATCH rows; a batch's last call is padded.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.errors import StoreError
from headway.process import is_own_process
from headway.schema.columns import Column
from headway.schema.tensor_name import LENGTH, PRESENT
from headway.tabular.list_arrays import flatten
from headway.tasks.table import task_of
from headway.tasks.user_task import OWN_OUTPUT
from headway.user_code.quiet_stderr import startup
from tfcore.export.metadata import ModelMetadata, describe_model
from tfcore.export.signatures import NULLABLE, tensor_names

with startup():
    import tensorflow as tf

    from tfcore.transform.raw_column import DTYPES

BATCH = 8192
_EMPTY: dict[str, Any] = {"int64": 0, "float32": 0.0, "bytes": b""}
_LOADED: dict[tuple[str, str], Predictor] = {}
_LOCK = threading.Lock()


def load(path: str, digest: str) -> Predictor:
    """Returns the model in the folder `path`, loaded once. A new `digest` of the files tells that the model is another one."""
    with _LOCK:
        if (path, digest) not in _LOADED:
            _LOADED.clear()  # one model at a time stays in memory
            _LOADED[path, digest] = Predictor(Path(path))
        return _LOADED[path, digest]


class Predictor:
    """Predicts the rows of Arrow batches by the signature `serving_nullable`. Safe to call from several threads.

    Raises:
        StoreError: the folder holds no SavedModel that can be loaded, or no description of the model's columns.
    """

    def __init__(self, path: Path):
        self._described: ModelMetadata = describe_model(path)
        if is_own_process():
            with contextlib.suppress(RuntimeError):  # it computed something before: its threads stay as they are
                tf.config.set_visible_devices([], "GPU")  # which is the training's
                tf.config.threading.set_intra_op_parallelism_threads(1)
        try:
            self._model = tf.saved_model.load(str(path))
            self._signature = self._model.signatures[NULLABLE]
        except (OSError, ValueError, KeyError, tf.errors.OpError) as error:
            raise StoreError(f"cannot be loaded: {str(error).splitlines()[0]}", where=str(path)) from None
        self._names = tensor_names(self._described.columns)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the predictions, a row for each row of `batch`.

        The column `prediction` is a probability (binary, float32), a class (multiclass, string or int64) or a number (float32).
        A second column is `probabilities` (multiclass, float32 [classes]) or `quantiles` (float32 [levels])."""
        inputs = [_Input(batch.column(c.name), c, self._names[c.name]) for c in self._described.columns]
        parts = []
        for start in range(0, batch.num_rows, BATCH):
            rows = min(BATCH, batch.num_rows - start)
            tensors = {name: tensor for i in inputs for name, tensor in i.tensors(start, rows)}
            outputs = self._signature(**tensors)
            parts.append({name: value.numpy()[:rows] for name, value in outputs.items()})
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}
        return self._as_arrow(joined)

    def _as_arrow(self, outputs: dict[str, NDArray[Any]]) -> pa.RecordBatch:
        shapes = {name: tensor.shape.as_list()[1:] for name, tensor in self._signature.structured_outputs.items()}
        empty = {name: np.zeros((0, *shape), np.float32) for name, shape in shapes.items() if None not in shape}
        values, described = empty | outputs, self._described
        return pa.RecordBatch.from_pydict(_columns(values, described.task, described.classes))


def _columns(values: dict[str, NDArray[Any]], task: str, classes: Sequence[str | int]) -> dict[str, pa.Array]:
    output = OWN_OUTPUT if ":" in task else task_of(task).output
    column = _column(values[output])
    if output == "probabilities":
        kind = pa.string() if isinstance(classes[0], str) else pa.int64()
        # the class is looked up here: as text out of TensorFlow it would be a Python object per row
        best = pa.array(classes, kind).take(pa.array(values[output].argmax(1)))
        return {"prediction": best, output: column}
    if output == "quantiles":
        return {"prediction": _column(values["prediction"]), output: column}
    return {"prediction": column}


def _column(values: NDArray[Any]) -> pa.Array:
    """Returns values of shape [rows] as a plain Arrow array, and of shape [rows, width] as fixed-size lists."""
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])


class _Input:
    """One raw column of a batch, cut into the tensors of `serving_nullable`."""

    def __init__(self, array: pa.Array, column: Column, name: str):
        self._array, self._column, self._name = array, column, name
        self._present = array.is_valid().to_numpy(zero_copy_only=False) if column.nullable else None
        self._values: NDArray[Any] | None = None
        self._texts: Any = None
        if column.shape:
            return
        if column.type != "bytes":
            filled = array.fill_null(_EMPTY[column.type]) if array.null_count else array
            self._values = filled.to_numpy(zero_copy_only=False).astype(DTYPES[column.type].as_numpy_dtype, copy=False)
            return
        # text goes in once for each distinct value; the rows are gathered from them by TensorFlow
        coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        texts = coded.dictionary.to_pylist()
        self._texts = tf.constant([*texts, b""], tf.string)  # the last stands for a null and for filled up rows
        self._values = pc.fill_null(coded.indices.cast(pa.int64()), len(texts)).to_numpy(zero_copy_only=False)

    def tensors(self, start: int, rows: int) -> Iterator[tuple[str, tf.Tensor]]:
        """Yields the name and the tensor of each model input made of this column. A tensor has BATCH rows: first `rows` rows of
        the column from `start` on, then padding, which is 0, an empty text or list, or "not present"."""
        if self._values is not None:
            yield self._name, self._scalars(self._values[start : start + rows])
        else:
            piece = self._array.slice(start, rows)
            if self._column.is_list:
                values, lengths = _lists(piece, self._column)
                yield self._name + LENGTH, tf.constant(_filled(lengths, 0))
            else:
                values = _vectors(piece, self._column)
            yield self._name, tf.constant(_filled(values, _EMPTY[self._column.type]), DTYPES[self._column.type])
        if self._present is not None:
            yield self._name + PRESENT, tf.constant(_filled(self._present[start : start + rows], False))

    def _scalars(self, values: NDArray[Any]) -> tf.Tensor:
        if self._texts is not None:
            return tf.gather(self._texts, _filled(values, len(self._texts) - 1))
        return tf.constant(_filled(values, 0), DTYPES[self._column.type])


def _filled(values: NDArray[Any], empty: Any) -> NDArray[Any]:
    """Returns the values, padded with `empty` to BATCH rows."""
    if len(values) == BATCH:
        return values
    whole = np.full((BATCH, *values.shape[1:]), empty, values.dtype)
    whole[: len(values)] = values
    return whole


def _vectors(array: pa.Array, column: Column) -> NDArray[Any]:
    """Returns a column of vectors as [rows, n], with 0 or empty texts in null rows."""
    values = np.full((len(array), *column.shape), _EMPTY[column.type], DTYPES[column.type].as_numpy_dtype)
    held = array.drop_null().flatten().to_numpy(zero_copy_only=False)
    values[array.is_valid().to_numpy(zero_copy_only=False)] = held.reshape(-1, *column.shape)
    return values


def _lists(array: pa.Array, column: Column) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Returns a list column's values, padded to [rows, longest], and the lengths of the lists, int64 [rows]."""
    flat = flatten(array)
    lengths = flat.lengths
    longest = max(1, int(lengths.max(initial=0)))
    values = np.full((len(array), longest), _EMPTY[column.type], DTYPES[column.type].as_numpy_dtype)
    values[np.arange(longest) < lengths[:, None]] = flat.values.to_numpy(zero_copy_only=False)
    return values, lengths
