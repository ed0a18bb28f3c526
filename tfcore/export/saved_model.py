"""Exports a trained model and its transform as one SavedModel that needs no Headway code.

    signatures = save(Path("saved_model"), transform=transform, predict=predictor(model, "binary"), ...)

Its signatures are described by `tfcore.export.signatures`. The graph holds the transform's tables and the model's variables, and
nothing that lives in a Python process. A PyFunc node calls a Python function by number: in another process it would call whatever
has that number there. So a graph with such a node is refused, and the error names the function."""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from headway.errors import HeadwayError
from headway.messages import counted
from headway.monitor import Monitor
from headway.schema.columns import Column
from headway.tasks.base import Task
from tfcore.export.metadata import ModelMetadata, describe_model, write_description
from tfcore.export.model_card import FILE as CARD
from tfcore.export.model_card import model_card
from tfcore.export.request import ExportRequest
from tfcore.export.request_columns import list_of, of_examples, of_tensors, rows_of, with_blanks
from tfcore.export.signatures import (
    EXCLUDE,
    Signature,
    Tensor,
    describe_towers,
    nullable_inputs,
    output_names,
    signatures_of,
    tensor_names,
)
from tfcore.graph.python_op import python_functions
from tfcore.graph.retrace import RetraceGuard
from tfcore.heads.head import Head, head_of, label_head
from tfcore.models.build import WEIGHTS, load_trained
from tfcore.models.towers.item_index import ItemIndex
from tfcore.transform.layer import transform_of
from tfcore.transform.parameters import TransformParameters
from tfcore.transform.raw_column import RawColumn

Tensors = dict[str, tf.Tensor]
Predict = Callable[[Tensors], Tensors]
"""A function from the model's inputs {"numeric", "categorical"} to the named outputs of `headway.tasks.base.Task.outputs`."""


class Served(tf.Module):
    """The tf.Module that is saved. Its attributes hold what the functions of the signatures use.

    Args:
        transform: {column: RawColumn} -> model inputs; its method `named` gives the outputs of the signature `transform`.
        predict: model inputs -> named predictions, in inference mode.
        columns: the raw columns.
        variables: the variables that `predict` reads; tf.Module does not find a Keras model's through attributes.
        task: the task whose outputs `predict` gives; if it defines `classify`, there is a signature of that name, too.
        index: the item index of a two-tower model, for the signatures `embed` and `top_k`; None: neither is saved.
    """

    def __init__(
        self,
        *,
        transform: tf.Module,
        predict: Predict,
        columns: Sequence[Column],
        variables: Sequence[tf.Variable],
        task: Head | Task | str = "regression",
        index: ItemIndex | None = None,
    ):
        super().__init__(name="served")
        self.transform = transform
        self.model_variables = list(variables)
        predicted = tf.function(lambda columns: predict(transform(columns)), autograph=False)
        # in a lambda: an attribute that is a tf.function would be saved as one that can be called
        self.predict: Callable[[Mapping[str, RawColumn]], Tensors] = lambda columns: predicted(columns)
        self._columns = tuple(columns)
        self._head = head_of(task)
        self._index = index

    def functions(self, signatures: Mapping[str, Signature]) -> dict[str, Any]:
        """Returns {signature: tf.function} for all signatures but `transform`. All but `embed` and `top_k` share one trace of the
        transform and the model."""
        answers: dict[str, Callable[[Tensors, dict[str, RawColumn]], Tensors]] = {
            "classify": lambda tensors, columns: self._classified(tensors, self.predict(columns)),
        }
        users = self._columns
        if (index := self._index) is not None:
            users = tuple(column for column in self._columns if column.name not in index.item)
            answers["embed"] = lambda _, columns: index.embed(self.transform(columns))
            answers["top_k"] = lambda tensors, columns: self._best(index, tensors, columns)

        def function(name: str) -> Any:
            inputs = signatures[name].inputs
            asked = users if name == "top_k" else self._columns
            answer = answers.get(name, lambda _, columns: self.predict(columns))
            if name == "serve_examples":
                return _named_function(lambda t: self.predict(of_examples(t["examples"], self._columns)), inputs)
            return _named_function(lambda tensors: answer(tensors, of_tensors(tensors, asked, inputs)), inputs)

        return {name: function(name) for name in signatures if name != "transform"}

    def transform_function(self) -> Any:
        """Returns the tf.function of the signature `transform`."""
        inputs = nullable_inputs(self._columns)

        def transformed(tensors: Tensors) -> Tensors:
            outputs = self.transform.named(of_tensors(tensors, self._columns, inputs))
            names = output_names(list(outputs))  # those that a tensor can have
            return {names[name]: value for name, value in outputs.items()}

        return _named_function(transformed, inputs)

    def _best(self, index: ItemIndex, tensors: Tensors, columns: dict[str, RawColumn]) -> Tensors:
        excluded = list_of(EXCLUDE, tensors, rows_of(columns))
        return index.top_k(self.transform(with_blanks(columns, self._columns)), tensors["k"], *excluded)

    def _classified(self, tensors: Tensors, predicted: Tensors) -> Tensors:
        classify = self._head.task.classify(self._head.classes)
        assert classify is not None
        return self._head.classify_outputs(predicted, tensors[classify.argument.name])


def _named_function(body: Callable[[Tensors], Tensors], inputs: Sequence[Tensor]) -> Any:
    """Returns a tf.function of `body`. It takes a dict: the tensors of a signature's `inputs` by name."""
    specs = {t.name: tf.TensorSpec(t.shape, tf.as_dtype(t.dtype), name=t.name) for t in inputs}
    return tf.function(lambda tensors: body(tensors), input_signature=[specs], autograph=False)


def save(
    path: Path,
    *,
    transform: tf.Module,
    predict: Predict,
    variables: Sequence[tf.Variable],
    columns: Sequence[Column],
    task: Head | Task | str,
    index: ItemIndex | None = None,
    threshold: float | None = None,
) -> dict[str, Signature]:
    """Write the SavedModel, with descriptions of its columns and signatures, to `path`; returns the signatures.

    Args:
        index: the item index of a two-tower model, for the signatures `embed` and `top_k`.
        threshold: the default of `classify`'s input `threshold`, for a binary model; None: 0.5.

    Raises:
        HeadwayError: the graph calls Python functions, or its outputs are not the task's outputs.
    """
    head = head_of(task)
    served = Served(transform=transform, predict=predict, columns=columns, variables=variables, task=head, index=index)
    transform_function = served.transform_function()
    transformed = [
        Tensor(name=name, dtype=tensor.dtype.name, shape=tuple(tensor.shape.as_list()))
        for name, tensor in sorted(transform_function.get_concrete_function().structured_outputs.items())
    ]
    signatures = signatures_of(columns, head.task, head.classes, transformed, threshold, served=head.described())
    if index is not None:
        signatures |= describe_towers(columns, index.item, index.width, index.texts)
    functions, concrete = served.functions(signatures) | {"transform": transform_function}, {}
    for name, function in functions.items():
        concrete[name] = function.get_concrete_function()
        refuse_python_nodes(concrete[name], where=name)
    # a layer may read a variable that no attribute of the model leads to
    served.captured = _in_order(concrete.values(), served.model_variables)
    for name in functions.keys() - {"transform"}:
        _check_outputs(concrete[name].structured_outputs, signatures[name].outputs)
    # any other trace is of something that was not looked through
    with RetraceGuard(*functions.values(), allowed=1):
        tf.saved_model.save(served, str(path), signatures=concrete)
    saved = _checked(path)
    _add_defaults(saved, signatures)
    # the same bytes from run to run: a fingerprint has a random number
    (path / "saved_model.pb").write_bytes(saved.SerializeToString(deterministic=True))
    (path / "fingerprint.pb").unlink(missing_ok=True)
    extra = path / "assets.extra"  # servers leave this folder alone
    extra.mkdir(exist_ok=True)
    text = json.dumps({name: signature.model_dump(mode="json") for name, signature in signatures.items()}, indent=1)
    (extra / "signatures.json").write_text(text + "\n", encoding="utf-8")
    renamed = {column: name for column, name in tensor_names(columns).items() if name != column}
    described = ModelMetadata(
        columns=tuple(columns),
        task=head.task.name,
        inputs=renamed,
        classes=head.classes,
    )
    write_description(path, described)
    return signatures


def export(request: ExportRequest, out: Path, monitor: Monitor) -> dict[str, Any]:
    """Run the export stage: write out/saved_model and return {"saved_model": the folder's name, "bytes", "signatures"}."""
    weights = request.trained.file / WEIGHTS
    model = load_trained(request.model, request.transform, seed=request.seed, module=request.module, weights=weights)
    monitor.check()
    path = out / "saved_model"
    index = ItemIndex.load(request.trained.file, model.model, request.model, request.transform)
    transform = transform_of(request.transform, request.preprocess)
    threshold = ((request.card and request.card.threshold) or {}).get("value")
    signatures = save_model(
        path,
        model,
        transform,
        request.transform,
        index=index,
        threshold=threshold,
    )
    if request.card is not None:
        text = model_card(describe_model(path), signatures, request.card)
        (path / CARD).write_text(text, encoding="utf-8")
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    inputs = len(signatures["serving_default"].inputs)
    monitor.log(f"exported a SavedModel of {counted(size, 'byte')} with {counted(inputs, 'input')}")
    return {
        "saved_model": path.name,
        "bytes": size,
        "signatures": {name: signature.model_dump(mode="json") for name, signature in signatures.items()},
    }


def save_model(
    path: Path,
    model: Any,
    transform: tf.Module,
    parameters: TransformParameters,
    *,
    index: ItemIndex | None = None,
    threshold: float | None = None,
) -> dict[str, Signature]:
    """Write a transform and the Keras model or `LoadedModel` after it as one SavedModel; see `save`.

    Args:
        transform: the transform layer that was made of `parameters`.
    """
    head = label_head(parameters.label)
    return save(
        path,
        transform=transform,
        predict=predictor(model, head),
        variables=[variable.value for variable in model.variables],
        columns=parameters.raw,
        task=head,
        index=index,
        threshold=threshold,
    )


def predictor(model: Any, head: Head | str) -> Predict:
    """Returns a function from model inputs to the named outputs of a model's head, in inference mode and float32."""
    known_head = head_of(head)
    return lambda inputs: known_head.served(tf.cast(model(inputs, training=False), tf.float32))


def _in_order(functions: Iterable[Any], first: Sequence[tf.Variable]) -> list[tf.Variable]:
    """Returns the variables that `functions` read, each once: those in `first`, then the others by name. This order is always
    the same; TensorFlow's own order is that of addresses in memory.

    Args:
        first: the variables that come first, in their order.
    """
    places = {id(variable): place for place, variable in enumerate(first)}
    read = {id(variable): variable for function in functions for variable in function.variables}
    return sorted(read.values(), key=lambda variable: (places.get(id(variable), len(places)), variable.name))


def _check_outputs(outputs: Mapping[str, Any], task_outputs: Sequence[Tensor]) -> None:
    actual = {name: (tensor.dtype.name, tuple(tensor.shape.as_list())) for name, tensor in outputs.items()}
    expected = {tensor.name: (tensor.dtype, tensor.shape) for tensor in task_outputs}
    if actual != expected:
        raise HeadwayError(f"the model's outputs are {actual}, but its task has {expected}")


def refuse_python_nodes(function: Any, *, where: str) -> None:
    """Raise HeadwayError if the graph of a concrete function calls Python functions; the error names the functions."""
    _refuse(python_functions(function.graph.as_graph_def()), where)


def _checked(path: Path) -> SavedModel:
    """Returns the SavedModel, read from its file. If any saved function calls Python, deletes the folder and raises
    HeadwayError."""
    saved = SavedModel.FromString((path / "saved_model.pb").read_bytes())
    try:
        for graph in saved.meta_graphs:
            _refuse(python_functions(graph.graph_def), "a function kept with the model")
    except HeadwayError:
        shutil.rmtree(path)
        raise
    return saved


def _add_defaults(saved: SavedModel, signatures: Mapping[str, Signature]) -> None:
    """Write the default values of inputs into the SavedModel, where TensorFlow Serving looks for them.

    TensorFlow itself saves defaults only for functions that it traces while it saves, and these were traced before."""
    for graph in saved.meta_graphs:
        for name, signature in signatures.items():
            for tensor in signature.inputs:
                if tensor.default is not None:
                    value = np.asarray(tensor.default if tensor.shape == () else [tensor.default])
                    proto = tf.make_tensor_proto(value, tf.as_dtype(tensor.dtype))
                    graph.signature_def[name].defaults[tensor.name].CopyFrom(proto)


def _refuse(called: Sequence[str], where: str) -> None:
    if called:
        raise HeadwayError(
            f"the graph calls Python functions, which no other process has: {', '.join(called)}",
            where=where,
            fix="write it in TensorFlow ops; or look its results up in a table (tf.lookup.StaticHashTable); or compute "
            "it before ingest, as a column of the files; or use it in training only, outside preprocess and the model",
        )
