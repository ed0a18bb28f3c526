"""Models that a function in the user's module makes. A model is refused if Headway would not train and save all of it.

    model = user_model(config, layout, Path("my_models.py"))

Headway calls the model. The loss is that of the task, plus what the model added with `add_loss`. The arguments of `compile`,
and a `train_step` or `compute_loss` of the model's class, belong to Keras' own training loop, which never runs here. Keras
knows only weights made by `add_weight` and by layers. A tf.Variable that a layer holds as an attribute is not among the model's
variables: no optimizer trains it, and no checkpoint and no export has it."""

import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from headway.errors import ConfigError
from headway.user_code.loading import line_of, load_function
from tfcore.graph.python_op import PythonOpError
from tfcore.graph.scheduled import making_a_model
from tfcore.heads.head import Head
from tfcore.models.config import ModelConfig
from tfcore.private_api import flat_layers

METHODS = {
    "train_step": "the training step",
    "test_step": "the evaluation step",
    "predict_step": "the prediction step",
    "compute_loss": "the loss",
    "compute_metrics": "the metrics",
    "make_train_function": "the training loop",
}
"""The methods of keras.Model that a subclass may override, and the part of Keras' own training that each defines."""
_TABLES = (tf.lookup.experimental.MutableHashTable, tf.lookup.experimental.DenseHashTable)
_ROWS = 2
"""The number of rows of the batch with which a model is tried."""
_SEQUENCES = (list, tuple, set, frozenset)
_SELF = "_self_"
"""The prefix of the attributes in which TensorFlow lists what an object holds."""
_KNOWN = ("keras", "tfcore")
"""The packages whose layers register all of their variables with Keras."""


def user_model(config: ModelConfig, layout: Any, module: Path | None, head: Head) -> keras.Model:
    """Returns the model that a function in the user's file makes. Its output has `head.outputs` numbers per row.

    Raises:
        ConfigError: the function is missing or fails, or Headway could not train, save or export what it returns.
    """
    name = config.name
    if module is None:
        raise ConfigError(f"{name} needs the file its module lies in", where="model.name")
    function = load_function(module, name.partition(":")[2])
    try:
        with making_a_model():
            model = function(layout, dict(config.options))
    except ConfigError:
        raise
    except Exception as error:
        place = f"{name} ({line_of(error, module)})"
        raise ConfigError(f"the function failed: {type(error).__name__}: {error}", where=place) from error
    if not isinstance(model, keras.Model):
        raise ConfigError(f"returned a {type(model).__name__}, not a keras.Model", where=name)
    return _check(model, name, layout, head)


def _check(model: keras.Model, name: str, layout: Any, head: Head) -> keras.Model:
    """Returns `model` unchanged; ConfigError if its inputs, output, variables or own training do not suit Headway."""
    _check_own_training(model, name)
    example = {name: tf.zeros([_ROWS, *row], dtype) for name, (row, dtype) in layout.inputs().items()}
    inputs = model.input if getattr(model, "inputs", None) else None
    if inputs is not None and (not isinstance(inputs, dict) or set(inputs) != set(example)):
        keys = sorted(inputs) if isinstance(inputs, dict) else type(inputs).__name__
        raise ConfigError(
            f"the model's inputs are {keys}",
            where=name,
            fix=f"keras.Model(inputs={{{', '.join(f'{key!r}: ...' for key in example)}}}, outputs=...); some may stay unused",
        )
    try:
        result = model(example, training=False)
    except PythonOpError:  # it says what failed in which function, and where
        raise
    except Exception as error:
        shapes = ", ".join(f"{key} {value.dtype.name} {['rows', *value.shape[1:]]}" for key, value in example.items())
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"the model does not take {shapes}: {first}", where=name) from error
    _check_raw_variables(model, name)
    if not model.trainable_variables:
        raise ConfigError("the model has nothing to train", where=name)
    _check_output(result, head, name)
    return model


def _check_output(result: Any, head: Head, where: str) -> None:
    shape = list(getattr(result, "shape", [])) if tf.is_tensor(result) else None
    if shape != [_ROWS, head.outputs] or not result.dtype.is_floating:
        what = f"{result.dtype.name} of shape {['rows', *shape[1:]]}" if shape else f"a {type(result).__name__}"
        fix = f"give float32 of shape ['rows', {head.outputs}]: {head.meaning} for each row"
        raise ConfigError(f"the model's output is {what}", where=where, fix=fix)


def _check_own_training(model: keras.Model, where: str) -> None:
    """Raise ConfigError, with a fix, if `model` is compiled or overrides a method of Keras' training."""
    for method, what in METHODS.items():
        owner = _owner(model, method)
        if owner is not None:
            raise ConfigError(
                f"{owner} has a {method} of its own, and Headway does not call it: {what} would be Headway's",
                where=where,
                fix=f"remove {method}; a term of the loss goes into a layer's call as self.add_loss(...), which is added to "
                "the task's loss; what predictions need goes into call",
            )
    if model.compiled:
        raise ConfigError(
            f"the model is compiled ({_compiled(model)}), and Headway trains it otherwise: with training.optimizer and the "
            "loss of the pipeline's task",
            where=where,
            fix="return the model without compile(), or keras.Model(model.input, model.output) of it; set "
            "training.optimizer, training.learning_rate and training.class_weights in the pipeline, and give more terms of "
            "the loss by self.add_loss(...) in a layer's call",
        )


def _owner(model: keras.Model, method: str) -> str | None:
    """Returns, in words, the model or the user's class in which `method` is defined; None when it is Keras' own."""
    if method in vars(model):
        return f"the model {model.name!r}"
    for kind in type(model).__mro__:
        if method in vars(kind):
            return None if kind.__module__.split(".")[0] == "keras" else f"the class {kind.__name__}"
    return None


def _compiled(model: keras.Model) -> str:
    """Returns, in words, the optimizer and the loss that the model was compiled with."""
    settings = []
    if (optimizer := getattr(model, "optimizer", None)) is not None:
        settings.append(f"optimizer {type(optimizer).__name__}")
    loss = getattr(model, "loss", None)
    if loss is not None:
        named = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
        settings.append(f"loss {named}")
    return ", ".join(settings) or "without a loss"


def _check_raw_variables(model: keras.Model, where: str) -> None:
    """Raise ConfigError if a layer of `model`, called once before, holds variables or tables that Keras does not know."""
    counted = {id(variable.value) for variable in model.variables}
    for layer in flat_layers(model):
        for attribute, member in _state(layer):
            if isinstance(member, _TABLES):
                raise ConfigError(
                    f"layer {layer.name!r} ({type(layer).__name__}) holds a {type(member).__name__} as {attribute}, which is "
                    "not a weight of the model: checkpoints and the exported model would not have its entries",
                    where=where,
                    fix="use a tf.lookup.StaticHashTable for entries that do not change, or self.add_weight for numbers that do",
                )
            if id(member) not in counted:
                raise ConfigError(
                    f"layer {layer.name!r} ({type(layer).__name__}) holds a tf.Variable as {attribute}, which Keras does not "
                    "count among the model's variables: it would not be trained, and checkpoints and the exported model "
                    "would not have it",
                    where=where,
                    fix="make it in the layer's __init__ or build with self.add_weight(shape=..., initializer=..., "
                    "trainable=...), or use tf.constant for a value that does not change",
                )


def _state(layer: Any) -> Iterator[tuple[str, Any]]:
    """Yields the attribute's name and the value for each tf.Variable or mutable table that a user's layer, or the function
    of a Lambda, holds. What other layers hold is left out."""
    own = type(layer).__module__.split(".")[0] not in _KNOWN
    seen: set[int] = set()
    for name, value in list(vars(layer).items()):
        if name.startswith(_SELF):
            continue
        if own or (name == "function" and isinstance(layer, keras.layers.Lambda)):
            yield from _within(value, name, seen)


def _within(value: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (tf.Variable, *_TABLES)):
        yield repr(name), value
    if id(value) in seen or isinstance(value, keras.layers.Layer | keras.Variable | tf.Variable):
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        for key, item in list(value.items()):
            yield from _within(item, f"{name}[{key!r}]", seen)
    elif isinstance(value, _SEQUENCES):
        for number, item in enumerate(list(value)):
            yield from _within(item, f"{name}[{number}]", seen)
    elif isinstance(value, tf.Module):
        for key, item in list(vars(value).items()):
            if not key.startswith(_SELF):
                yield from _within(item, f"{name}.{key}", seen)
    elif isinstance(value, types.FunctionType):
        for key, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                yield from _within(cell.cell_contents, f"{name}: {key}", seen)
            except ValueError:  # not set yet
                continue
