"""A trained model and its transform as one SavedModel that any TensorFlow can load and no Headway code is needed for.

    signatures = save(Path("saved_model"), transform=transform, predict=predictor(model, "binary"), ...)

What goes in is described by `tfcore.signatures`. The graph holds the transform's tables, the model's variables and
nothing that lives in a Python process: a PyFunc node would load elsewhere and call whatever function has its number
there, so it is refused here, by name.
"""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from headway.config import Frozen
from headway.errors import HeadwayError
from headway.monitor import Monitor
from headway.schema import Column
from headway.tasks import Task
from headway.words import counted
from tfcore.described import Described, write_description
from tfcore.models import build, load_weights, to_predictions
from tfcore.models_config import ModelConfig
from tfcore.python_failure import python_functions
from tfcore.retrace import RetraceGuard
from tfcore.signatures import (
    LENGTH,
    PRESENT,
    Signature,
    Tensor,
    classify_argument,
    describe,
    output_names,
    raw_inputs,
    tensor_names,
)
from tfcore.transform.derived import transform_of
from tfcore.transform.graph import RawColumn
from tfcore.transform.parameters import TransformParameters

VERSION = 4
WEIGHTS = "weights"
"""The prefix of the checkpoint in a training's output."""

DTYPES = {
    "int64": tf.int64,
    "float32": tf.float32,
    "string": tf.string,
    "bytes": tf.string,
    "bool": tf.bool,
    "int32": tf.int32,
    "uint8": tf.uint8,
}

Tensors = dict[str, tf.Tensor]
Predict = Callable[[Tensors], Tensors]
"""Model inputs {"numeric", "categorical"} -> the named outputs of `tfcore.signatures.prediction_outputs`."""


class Served(tf.Module):
    """The functions behind the signatures. Everything they capture is an attribute, so that it is saved with them.

    Args:
        transform: {column: RawColumn} -> model inputs; its `named` gives the outputs of the `transform` signature.
        predict: model inputs -> named predictions, in inference mode.
        columns: the raw columns.
        variables: those that `predict` reads; a Keras model's are not found through its attributes.
        task: what `predict` predicts; a label with classes has a `classify` as well.
    """

    def __init__(
        self,
        *,
        transform: tf.Module,
        predict: Predict,
        columns: Sequence[Column],
        variables: Sequence[tf.Variable],
        task: Task = "regression",
        classes: Sequence[str | int] | None = None,
    ):
        super().__init__(name="served")
        self.transform = transform
        self.model_variables = list(variables)
        self._predict = predict
        self._columns = tuple(columns)
        self._names = tensor_names(columns)
        inputs = raw_inputs(columns)
        self.serving_default = _named_function(lambda tensors: self.predict(self.raw(tensors)), inputs)
        self.named_transform = _named_function(lambda tensors: self.transformed(self.raw(tensors)), inputs)
        if (argument := classify_argument(task)) is not None:
            name = argument.name
            self.classify = _named_function(
                lambda tensors: classified(task, self.predict(self.raw(tensors)), tensors[name], classes or ()),
                (*inputs, argument),
            )
        examples = Tensor(name="examples", dtype="string")
        self.serve_examples = _named_function(lambda t: self.predict(self.parse(t["examples"])), (examples,))

    def predict(self, columns: Mapping[str, RawColumn]) -> Tensors:
        return self._predict(self.transform(columns))

    def transformed(self, columns: Mapping[str, RawColumn]) -> Tensors:
        """The transform's outputs, each under a name a tensor can have."""
        outputs = self.transform.named(columns)
        names = output_names(list(outputs))
        return {names[name]: value for name, value in outputs.items()}

    def raw(self, tensors: Tensors) -> dict[str, RawColumn]:
        """The named tensors of a request as raw columns of one length, companions of one value spread over the rows."""
        lengths = tf.stack([tf.shape(tensors[name])[0] for name in self._names.values()])
        rows = lengths[0]
        agree = tf.debugging.Assert(
            tf.reduce_all(lengths == rows), [f"columns of different lengths ({', '.join(self._names)}):", lengths]
        )
        with tf.control_dependencies([agree]):
            rows = tf.identity(rows)
        columns = {}
        for column in self._columns:
            name = self._names[column.name]
            present = None
            if column.nullable:
                present = tf.logical_and(tensors[name + PRESENT], tf.ones([rows], tf.bool))
                present = tf.ensure_shape(present, [None])
            if column.is_list:
                columns[column.name] = _list_column(tensors[name], tensors[name + LENGTH], present, rows)
                continue
            # the reshape ties each column to the assertion: a single value would spread silently
            shape = [rows] if column.length is None else [rows, column.length]
            columns[column.name] = RawColumn(tf.reshape(tensors[name], shape), present, None)
        return columns

    def parse(self, examples: tf.Tensor) -> dict[str, RawColumn]:
        """Serialized tf.Examples as raw columns: a feature that is absent or empty is a null."""
        spec: dict[str, Any] = {}
        for column in self._columns:
            dtype = DTYPES[column.type]
            if column.nullable or column.is_list:
                spec[column.name] = tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
            else:
                spec[column.name] = tf.io.FixedLenFeature(list(column.shape), dtype)
            if column.nullable and column.is_list:
                spec[f"{column.name}/present"] = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
        parsed = tf.io.parse_example(examples, spec)
        columns = {}
        for column in self._columns:
            value = parsed[column.name]
            if column.is_list:
                lengths = value.row_lengths()
                said = parsed[f"{column.name}/present"] if column.nullable else None
                present = None if said is None else (lengths > 0) | (tf.reduce_sum(said, 1) > 0)
                columns[column.name] = RawColumn(value.flat_values, present, None, lengths)
            elif column.nullable:
                columns[column.name] = _parsed_column(column, value)
            else:
                columns[column.name] = RawColumn(value, None, None)
        return columns


def _list_column(values: tf.Tensor, lengths: tf.Tensor, present: tf.Tensor | None, rows: tf.Tensor) -> RawColumn:
    """A list column from its values [rows, longest] and lengths [rows] or [1], of which -1 means all."""
    longest = tf.shape(values, tf.int64)[1]
    lengths = tf.where((lengths < 0) | (lengths > longest), longest, lengths) + tf.zeros([rows], tf.int64)
    lengths = tf.ensure_shape(lengths, [None])
    if present is not None:
        lengths = tf.where(present, lengths, tf.zeros_like(lengths))
    flat = tf.boolean_mask(values, tf.sequence_mask(lengths, longest))
    return RawColumn(flat, present, None, lengths)


def _parsed_column(column: Column, value: tf.RaggedTensor) -> RawColumn:
    """A nullable column of one value or n of them from what the Examples hold: none of them is a null."""
    lengths = value.row_lengths()
    wanted = column.length or 1
    fits = tf.reduce_all((lengths == 0) | (lengths == wanted))
    what = "several values" if column.length is None else f"other than {wanted} values"
    check = tf.debugging.Assert(fits, [f"an example holds {what} of column {column.name}"])
    present = lengths > 0
    with tf.control_dependencies([check]):
        # place each value at its row; tf.scatter_nd leaves 0 or "" elsewhere
        places = tf.where(present)
        held = value.flat_values if column.length is None else tf.reshape(value.flat_values, [-1, wanted])
        shape = tf.concat([tf.shape(lengths, tf.int64), tf.constant(list(column.shape), tf.int64)], 0)
        return RawColumn(tf.scatter_nd(places, held, shape), present, None)


def _named_function(body: Callable[[Tensors], Tensors], inputs: Sequence[Tensor]) -> Any:
    """A tf.function whose arguments are `inputs`, by name, with their defaults.

    The names come from the schema, so they are given as a signature object rather than in source. A default becomes a
    default of the SavedModel's signature only as a tensor, on trailing arguments.
    """
    names = [tensor.name for tensor in inputs]

    def function(*values: tf.Tensor, **named: tf.Tensor) -> Tensors:
        return body({**dict(zip(names, values, strict=False)), **named})

    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                tensor.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty
                if tensor.default is None
                else tf.constant(tensor.default if tensor.shape == () else [tensor.default], DTYPES[tensor.dtype]),
            )
            for tensor in inputs
        ]
    )
    specs = [tf.TensorSpec(tensor.shape, DTYPES[tensor.dtype], name=tensor.name) for tensor in inputs]
    return tf.function(function, input_signature=specs, autograph=False)


def save(
    path: Path,
    *,
    transform: tf.Module,
    predict: Predict,
    variables: Sequence[tf.Variable],
    columns: Sequence[Column],
    task: Task,
    classes: Sequence[str | int] | None = None,
) -> dict[str, Signature]:
    """Write the SavedModel to `path` and describe its signatures.

    Raises:
        HeadwayError: the graph calls Python functions, or gives other outputs than the task has.
    """
    served = Served(
        transform=transform, predict=predict, columns=columns, variables=variables, task=task, classes=classes
    )
    functions = {
        "serving_default": served.serving_default,
        "serve_examples": served.serve_examples,
        "transform": served.named_transform,
    }
    if classify_argument(task) is not None:
        functions["classify"] = served.classify
    concrete = {name: function.get_concrete_function() for name, function in functions.items()}
    for name, function in concrete.items():
        refuse_python_nodes(function, where=name)
    # a layer may read a variable that no attribute of the model leads to
    served.captured = [variable for function in concrete.values() for variable in function.variables]
    transformed = [
        _described(name, tensor) for name, tensor in sorted(concrete["transform"].structured_outputs.items())
    ]
    signatures = describe(columns, task, classes, transformed)
    for name in functions.keys() - {"transform"}:
        _check_outputs(concrete[name].structured_outputs, signatures[name].outputs)
    # saving traces each once more, in a context of its own; any other trace is of something that was not looked through
    with RetraceGuard(*functions.values(), allowed=2):
        tf.saved_model.save(served, str(path), signatures=functions)
    _refuse_saved(path)
    extra = path / "assets.extra"  # servers leave this folder alone
    extra.mkdir(exist_ok=True)
    text = json.dumps({name: signature.model_dump(mode="json") for name, signature in signatures.items()}, indent=1)
    (extra / "signatures.json").write_text(text + "\n", encoding="utf-8")
    renamed = {column: name for column, name in tensor_names(columns).items() if name != column}
    described = Described(columns=tuple(columns), task=task, inputs=renamed, classes=tuple(classes or ()))
    write_description(path, described)
    return signatures


class ExportRequest(Frozen):
    """A trained model: where its weights are and what it was built from."""

    trained: Path
    """Output of the train stage, with the weights."""
    transform: TransformParameters
    model: ModelConfig
    module: Path | None = None
    """The user's Python file, if the model is a function of it."""
    preprocess: Path | None = None
    """The user's Python file, if there is a preprocess function."""
    seed: int = 0


def export(request: ExportRequest, out: Path, monitor: Monitor) -> dict[str, Any]:
    """The stage: out/saved_model. Returns {"saved_model": its folder's name, "bytes", "signatures"}."""
    label = request.transform.label
    model = build(request.model, request.transform, seed=request.seed, module=request.module)
    load_weights(model, request.trained / WEIGHTS)
    monitor.check()
    path = out / "saved_model"
    signatures = save(
        path,
        transform=transform_of(request.transform, request.preprocess),
        predict=predictor(model, label.task, label.classes),
        variables=[variable.value for variable in model.variables],
        columns=request.transform.raw,
        task=label.task,
        classes=label.classes,
    )
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    inputs = len(signatures["serving_default"].inputs)
    monitor.log(f"exported a SavedModel of {counted(size, 'byte')} with {counted(inputs, 'input')}")
    return {
        "saved_model": path.name,
        "bytes": size,
        "signatures": {name: signature.model_dump(mode="json") for name, signature in signatures.items()},
    }


def classified(task: Task, predictions: Tensors, argument: tf.Tensor, classes: Sequence[str | int]) -> Tensors:
    """What `tfcore.signatures.classify_outputs` names, by a threshold or the number of classes wanted; a scalar."""
    if task == "binary":
        probability = predictions["probability"]
        return {"decision": probability >= argument, "probability": probability}
    wanted = tf.debugging.Assert(
        (argument >= 1) & (argument <= len(classes)), [f"top_k must be from 1 to {len(classes)}, not", argument]
    )
    with tf.control_dependencies([wanted]):
        likely, places = tf.math.top_k(predictions["probabilities"], tf.identity(argument))
    return {"classes": tf.gather(_names(classes), places), "probabilities": likely}


def _names(classes: Sequence[str | int]) -> tf.Tensor:
    return tf.constant(list(classes), tf.string if isinstance(classes[0], str) else tf.int64)


def predictor(model: Any, task: Task, classes: Sequence[str | int] | None = None) -> Predict:
    """Model inputs -> the named outputs of a Keras model's task, in inference mode and float32."""

    def predict(inputs: Tensors) -> Tensors:
        output = tf.cast(model(inputs, training=False), tf.float32)
        prediction = to_predictions(task, output)
        if task == "binary":
            return {"probability": prediction, "logit": output[:, 0]}
        if task == "regression":
            return {"prediction": prediction}
        return {"probabilities": prediction, "class": tf.gather(_names(classes or ()), tf.argmax(prediction, axis=1))}

    return predict


def _described(name: str, tensor: Any) -> Tensor:
    return Tensor(name=name, dtype=tensor.dtype.name, shape=tuple(tensor.shape.as_list()))


def _check_outputs(found: Mapping[str, Any], expected: Sequence[Tensor]) -> None:
    shown = {name: (tensor.dtype.name, tuple(tensor.shape.as_list())) for name, tensor in found.items()}
    wanted = {tensor.name: (tensor.dtype, tensor.shape) for tensor in expected}
    if shown != wanted:
        raise HeadwayError(f"the model's outputs are {shown}, but its task has {wanted}")


def refuse_python_nodes(function: Any, *, where: str) -> None:
    """HeadwayError naming the Python functions that a concrete function's graph calls, if any."""
    _refuse(python_functions(function.graph.as_graph_def()), where)


def _refuse_saved(path: Path) -> None:
    """As `refuse_python_nodes` of everything that was saved: functions that an attribute led to are in the file too."""
    saved = SavedModel.FromString((path / "saved_model.pb").read_bytes())
    try:
        for graph in saved.meta_graphs:
            _refuse(python_functions(graph.graph_def), "a function kept with the model")
    except HeadwayError:
        shutil.rmtree(path)
        raise


def _refuse(called: Sequence[str], where: str) -> None:
    if called:
        raise HeadwayError(
            f"the graph calls Python functions, which no other process has: {', '.join(called)}",
            where=where,
            fix="write it in TensorFlow ops; or look its results up in a table (tf.lookup.StaticHashTable); or compute "
            "it before ingest, as a column of the files; or use it in training only, outside preprocess and the model",
        )
