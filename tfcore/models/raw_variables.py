"""Refuses a user's Keras model with state that Keras does not know of: a tf.Variable or a mutable table beside its weights.

    check_no_raw_variables(model, "my_models:two_towers")

Keras counts what `add_weight` makes, and layers. A tf.Variable that a layer holds as an attribute is not among the model's
variables: no optimizer trains it, no checkpoint and no export has it.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from headway.errors import ConfigError
from tfcore.graph.knobs import is_knob
from tfcore.private_api import flat_layers

_TABLES = (tf.lookup.experimental.MutableHashTable, tf.lookup.experimental.DenseHashTable)
_SEQUENCES = (list, tuple, set, frozenset)
_SELF = "_self_"
"""How TensorFlow's own lists of what an object holds begin."""
_KNOWN = ("keras", "tfcore")
"""Layers of these packages know what they hold."""


def check_no_raw_variables(model: keras.Model, where: str) -> None:
    """ConfigError when a layer of `model`, which has been called once, holds state that Keras does not count."""
    counted = {id(variable.value) for variable in model.variables}
    for layer in flat_layers(model):
        for attribute, found in _state(layer):
            if isinstance(found, _TABLES):
                raise ConfigError(
                    f"layer {layer.name!r} ({type(layer).__name__}) holds a {type(found).__name__} as {attribute}, which is "
                    "not a weight of the model: checkpoints and the exported model would not have its entries",
                    where=where,
                    fix="use a tf.lookup.StaticHashTable for entries that do not change, or self.add_weight for numbers that do",
                )
            if id(found) not in counted and not is_knob(found):
                raise ConfigError(
                    f"layer {layer.name!r} ({type(layer).__name__}) holds a tf.Variable as {attribute}, which Keras does not "
                    "count among the model's variables: it would not be trained, and checkpoints and the exported model "
                    "would not have it",
                    where=where,
                    fix="make it in the layer's __init__ or build with self.add_weight(shape=..., initializer=..., "
                    "trainable=...), or use tf.constant for a value that does not change",
                )


def _state(layer: Any) -> Iterator[tuple[str, Any]]:
    """(where it is held, variable or table) of what a layer holds itself, not by other layers."""
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
