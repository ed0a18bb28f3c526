"""Keras models from a config: the built-in `mlp` and `wide_deep`, or a function of the user's module.

    model = build(ModelConfig(name="mlp"), layout, seed=0)
    model({"numeric": float32 [rows, n], "categorical": int32 [rows, m]})    # float32 [rows, outputs]
    layout.inputs()                           # all that it takes: "lists" too, int32 [rows, slots], for lists of categories

What comes out are logits for a binary (one column) or multiclass label (one for each class) and the predicted number,
in the label's own units, for regression. The initial weights are a pure function of the seed. `layout` is the fitted
TransformParameters: which numeric and categorical inputs there are, and what the label is.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from headway.errors import ConfigError, StoreError
from tfcore.graph.knobs import KnobVariables, knob
from tfcore.heads.table import label_head
from tfcore.models.config import ModelConfig
from tfcore.models.convolutions import image_features
from tfcore.models.layers import Cross, HashDropout, ListEmbedding, OffsetEmbedding, SoftClip
from tfcore.models.precision import computing_in
from tfcore.models.user_model import user_model

WEIGHTS = "weights"
"""The prefix of the weights' checkpoint in a training's output."""
_VARIABLE = "model/{}/.ATTRIBUTES/VARIABLE_VALUE"
LINEAR_SPEED = 10.0
"""How much faster the linear path of a model learns than its hidden layers, up to 32 inputs."""
Layout = Any
"""tfcore.transform's TransformParameters."""


def build(
    config: ModelConfig,
    layout: Layout,
    *,
    seed: int,
    step: tf.Variable | None = None,
    module: Path | None = None,
    knobs: KnobVariables | None = None,
    precision: str = "float32",
) -> keras.Model:
    """The untrained model of `config`.

    Args:
        layout: `numeric` names, `categorical` entries (name, size) and `label` (task, classes, base rate, mean, std).
        seed: decides the initial weights, and the dropout masks.
        step: int64 variable the training loop counts up; without one the model can only predict.
        module: the Python file that `module:function` lies in.
        knobs: of a training; a user's function gets them by `tfcore.graph.knobs.knob`, a built-in model reads "dropout".
        precision: what the layers compute in while training; the variables are float32, and a model that is evaluated
            or exported computes in it too. What a built-in model gives out is float32 always.

    Raises:
        ConfigError: a user's function fails, or what it returns is not a model of the right shape.
    """
    knobs = knobs or KnobVariables()
    with seeded(seed), knobs.offered(), computing_in(precision):
        if config.user_defined:
            return user_model(config, layout, module, label_head(layout.label))
        return _built_in(config, layout, seed, step)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Keras, NumPy and Python draw from `seed` inside; a user's model is then a pure function of it too."""
    states = random.getstate(), np.random.get_state()
    keras.utils.set_random_seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def _inputs(layout: Layout) -> dict[str, keras.KerasTensor]:
    return {name: keras.Input(row, dtype=dtype, name=name) for name, (row, dtype) in layout.inputs().items()}


def _built_in(config: ModelConfig, layout: Layout, seed: int, step: tf.Variable | None) -> keras.Model:
    """Hidden layers, with `linear` or as wide_deep added to a linear model over every input (and crosses of categories)."""
    inputs = _inputs(layout)
    parts = [_deep(inputs, config, layout, seed, step)]
    if config.linear or config.name == "wide_deep":
        parts += _wide(inputs, config, layout, seed)
    total = parts[0] if len(parts) == 1 else keras.layers.Add(dtype="float32", name="wide_and_deep")(parts)
    return keras.Model(inputs, _output(total, layout), name=config.name)


def _wide(inputs: dict[str, Any], config: ModelConfig, layout: Layout, seed: int) -> list[keras.KerasTensor]:
    """The parts of a linear model over every input.

    With `linear` each is multiplied by `LINEAR_SPEED`, less where inputs are many: an optimizer like Adam moves every weight
    by about the learning rate, so that the linear model is there first and the hidden layers learn what it leaves.
    """
    count = label_head(layout.label).outputs
    speed = LINEAR_SPEED / max(1.0, (len(layout.numeric) + len(layout.categorical)) / 32) if config.linear else 1.0
    # the penalty is that of the weight as it counts
    penalty = _l2(config.linear_l2 * speed**2)
    parts = []
    if layout.numeric:
        parts.append(
            keras.layers.Dense(
                count, use_bias=False, kernel_initializer="zeros", kernel_regularizer=penalty, name="wide_numeric"
            )(inputs["numeric"])
        )
    sizes = [entry.size for entry in layout.categorical]
    if sizes:
        ids = inputs["categorical"]
        if config.crosses:
            cross = Cross(_cross_indices(config, layout), sizes, config.cross_buckets, name="crosses")
            ids, sizes = keras.layers.Concatenate(name="wide_ids")([ids, cross(ids)]), [*sizes, *cross.sizes]
        weights = OffsetEmbedding(
            sizes, count, seed=seed, initial="zeros", regularizer=penalty, name="wide_categorical"
        )(ids)
        parts.append(keras.ops.sum(weights, axis=1))
    elif config.crosses:
        _cross_indices(config, layout)
    if layout.lists:
        weights = _list_embedding(layout, count, seed, name="wide_lists", initial="zeros", regularizer=penalty)(
            inputs["lists"]
        )
        parts.append(keras.ops.sum(weights, axis=1))
    if speed == 1.0:
        return parts
    return [keras.layers.Rescaling(speed, name=f"wide_speed_{number}")(part) for number, part in enumerate(parts)]


def _l2(penalty: float) -> keras.regularizers.Regularizer | None:
    return keras.regularizers.L2(penalty / 2) if penalty else None


def _cross_indices(config: ModelConfig, layout: Layout) -> list[list[int]]:
    names = [entry.name for entry in layout.categorical]
    for cross in config.crosses:
        for name in cross:
            if name not in names:
                raise ConfigError(
                    f"crosses: {name!r} is not a categorical input",
                    where="model",
                    fix=f"use some of: {', '.join(names) or '(there are none)'}",
                )
    return [[names.index(name) for name in cross] for cross in config.crosses]


def _deep(
    inputs: dict[str, Any], config: ModelConfig, layout: Layout, seed: int, step: tf.Variable | None
) -> keras.KerasTensor:
    parts, penalty = [], _l2(config.l2)
    if layout.categorical:
        sizes = [entry.size for entry in layout.categorical]
        embedded = OffsetEmbedding(sizes, config.embedding, seed=seed, regularizer=penalty, name="embeddings")(
            inputs["categorical"]
        )
        parts.append(keras.layers.Flatten(name="embedded")(embedded))
    if layout.lists:
        embedded = _list_embedding(layout, config.embedding, seed, name="list_embeddings", regularizer=penalty)(
            inputs["lists"]
        )
        parts.append(keras.layers.Flatten(name="embedded_lists")(embedded))
    if layout.numeric:
        numeric = inputs["numeric"]
        parts.append(SoftClip(config.soft_clip, name="soft_clip")(numeric) if config.soft_clip else numeric)
    parts += [
        image_features(inputs[name], name, kind=config.images, seed=seed)
        for name, (row, dtype) in layout.inputs().items()
        if dtype == "uint8"
    ]
    if not parts:
        raise ConfigError("no column is left to learn from", where="columns", fix="name feature columns, or use 'auto'")
    x = parts[0] if len(parts) == 1 else keras.layers.Concatenate(name="features")(parts)
    for number, units in enumerate(config.hidden):
        start = keras.initializers.GlorotUniform(seed=seed + 1 + number)
        x = keras.layers.Dense(
            units, activation="relu", kernel_initializer=start, kernel_regularizer=penalty, name=f"hidden_{number}"
        )(x)
        rate = knob("dropout", config.dropout)
        rate = rate if isinstance(rate, tf.Variable) else config.dropout
        if isinstance(rate, tf.Variable) or rate:
            x = HashDropout(rate, seed=seed, salt=number, step=step, name=f"dropout_{number}")(x)
    return keras.layers.Dense(
        label_head(layout.label).outputs,
        kernel_initializer="zeros" if config.linear else keras.initializers.GlorotUniform(seed=seed),
        kernel_regularizer=penalty,
        bias_initializer=_bias(config, layout),
        dtype="float32",
        name="output",
    )(x)


def _list_embedding(layout: Layout, width: int, seed: int, **keywords: Any) -> ListEmbedding:
    sizes, slots = [entry.size for entry in layout.lists], [entry.width for entry in layout.lists]
    return ListEmbedding(sizes, slots, width, seed=seed + 7919, **keywords)


def _bias(config: ModelConfig, layout: Layout) -> Any:
    """Where the output starts: at the distribution of the train labels, so that no step is spent on that."""
    start = label_head(layout.label).start(layout.label) if config.base_rate_bias else None
    return "zeros" if start is None else keras.initializers.Constant(start[0] if len(start) == 1 else start)


def _output(x: keras.KerasTensor, layout: Layout) -> keras.KerasTensor:
    scale, centre = label_head(layout.label).units(layout.label)
    if (scale, centre) == (1.0, 0.0):
        return x
    return keras.layers.Rescaling(scale, offset=centre, dtype="float32", name="label_units")(x)


def save_weights(model: keras.Model, prefix: Path) -> None:
    """Every variable of `model` as a TensorFlow checkpoint at `prefix` (prefix.index, prefix.data-...)."""
    tf.train.Checkpoint(model=[variable.value for variable in model.variables]).write(str(prefix))


def extract_weights(checkpoint: Path, prefix: Path) -> None:
    """As `save_weights`, from a checkpoint that holds the model and more."""
    stored = tf.train.load_checkpoint(str(checkpoint))
    count = sum(1 for name in stored.get_variable_to_shape_map() if re.fullmatch(r"model/\d+/\.ATTRIBUTES/.*", name))
    values = [stored.get_tensor(_VARIABLE.format(i)) for i in range(count)]
    tf.train.Checkpoint(model=[tf.Variable(value) for value in values]).write(str(prefix))


def load_weights(model: keras.Model, prefix: Path) -> None:
    """Fill `model` from `save_weights`; StoreError when the weights are missing, torn or of another model."""
    try:
        stored = tf.train.load_checkpoint(str(prefix)).get_variable_to_shape_map()
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise StoreError(f"cannot be read: {str(error).splitlines()[0]}", where=str(prefix)) from None
    for number, variable in enumerate(model.variables):
        shape = stored.get(_VARIABLE.format(number))
        if shape != list(variable.shape):
            raise StoreError(
                f"holds {shape} for variable {number}, where the model has {variable.path} {list(variable.shape)}",
                where=str(prefix),
                fix="the weights belong to another model or another transform",
            )
    tf.train.Checkpoint(model=[variable.value for variable in model.variables]).read(str(prefix)).assert_consumed()
