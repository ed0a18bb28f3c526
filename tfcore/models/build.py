"""Keras models from a config: one of `tfcore.models.config.BUILT_IN`, or a function of the user's module.

    model = build(ModelConfig(name="mlp"), layout, seed=0)
    model({"numeric": float32 [rows, n], "categorical": int32 [rows, m]})    # float32 [rows, outputs]
    layout.inputs()                           # all inputs: also "lists", int32 [rows, slots], for lists of categories

The outputs are one logit for a binary label, one logit for each class of a multiclass label, and the predicted number in
the label's own units for regression. The initial weights depend on the seed alone. `layout` is the fitted
TransformParameters: it says which inputs the model has, and what the label is.
"""

import contextlib
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from headway.errors import StoreError
from headway.process import is_own_process
from tfcore.heads.head import label_head
from tfcore.models.config import DECAYS, MEMBERS, ModelConfig
from tfcore.models.inputs import EMBEDDINGS, Layout, features, inputs_of, is_ensemble, l2
from tfcore.models.layers import HashDropout, Shift
from tfcore.models.linear_part import linear_terms
from tfcore.models.members import Members, member_dense
from tfcore.models.precision import computing_in
from tfcore.models.towers.two_towers import two_towers
from tfcore.models.user_model import user_model
from tfcore.private_api import seeds_kept

WEIGHTS = "weights"
"""The prefix of the weights' checkpoint in a training's output."""
VARIABLE = "model/{}/.ATTRIBUTES/VARIABLE_VALUE"
Inputs = Mapping[str, tf.Tensor]


def build(
    config: ModelConfig,
    layout: Layout,
    *,
    seed: int,
    step: tf.Variable | None = None,
    module: Path | None = None,
    precision: str = "float32",
) -> keras.Model:
    """Returns the untrained model that `config` describes.

    Args:
        layout: `numeric` names, `categorical` entries (name, size) and `label` (task, classes, base rate, mean, std).
        seed: decides the initial weights, and the dropout masks.
        step: int64 variable that the training loop counts up; without one the model can only predict.
        module: the user's Python file with the function of `module:function`.
        precision: the precision in which layers compute while training. Variables and the output of a built-in model
            are always float32. A model that is evaluated or exported computes in float32, too.

    Raises:
        ConfigError: a user's function fails, or what it returns is not a model of the right shape.
    """
    with seeded(seed), computing_in(precision):
        if config.user_defined:
            return user_model(config, layout, module, label_head(layout.label))
        return _built_in(config, layout, seed, step)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within the block Keras, NumPy and Python draw from `seed`, so that a user's model depends on the seed alone."""
    states = random.getstate(), np.random.get_state()
    with contextlib.nullcontext() if is_own_process() else seeds_kept():
        keras.utils.set_random_seed(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


def _built_in(config: ModelConfig, layout: Layout, seed: int, step: tf.Variable | None) -> keras.Model:
    """Returns the built-in model of the name in `config`. An `ensemble` with image inputs is built like an mlp."""
    inputs = inputs_of(layout)
    if config.name == "two_towers":
        total = Shift(initializer=_bias(layout), dtype="float32", name="output")(
            two_towers(inputs, config, layout, seed)
        )
    elif is_ensemble(config, layout):
        total = _ensemble(inputs, config, layout, seed, step)
    else:
        total = _mlp(features(inputs, config, layout, seed), config, layout, seed, step)
    model = keras.Model(inputs, _output(total, layout), name=config.name)
    _decay_embeddings(model)
    return model


def _mlp(
    x: keras.KerasTensor, config: ModelConfig, layout: Layout, seed: int, step: tf.Variable | None
) -> keras.KerasTensor:
    """Returns the output of a multilayer perceptron, [rows, outputs], from the features `x`."""
    penalty = l2(config.l2)
    for number, units in enumerate(config.hidden):
        x = keras.layers.Dense(
            units,
            activation="relu",
            kernel_initializer=keras.initializers.GlorotUniform(seed=seed + 1 + number),
            kernel_regularizer=penalty,
            name=f"hidden_{number}",
        )(x)
        x = _dropped(x, config, seed, number, step)
    return keras.layers.Dense(
        label_head(layout.label).outputs,
        kernel_initializer=keras.initializers.GlorotUniform(seed=seed),
        kernel_regularizer=penalty,
        bias_initializer=_bias(layout),
        dtype="float32",
        name="output",
    )(x)


def _ensemble(
    inputs: dict[str, Any], config: ModelConfig, layout: Layout, seed: int, step: tf.Variable | None
) -> keras.KerasTensor:
    """Returns the members' mean output, [rows, outputs]; in training each member's. Each member adds its own hidden layers
    to a linear part shared by all.

    The weights of the output layer begin at zero, so that the hidden layers learn what the linear part leaves over. If they
    see no column, the model is the linear part alone."""
    seen, linear = features(inputs, config, layout, seed), linear_terms(inputs, layout, seed)
    if seen is None:
        total = linear[0] if len(linear) == 1 else keras.layers.Add(name="linear_part")(linear)
        return Shift(initializer=_bias(layout), dtype="float32", name="output")(total)
    choice = Members(DECAYS, dtype="float32", name="members")
    x = keras.layers.RepeatVector(MEMBERS, name="repeated")(seen)
    for number, units in enumerate(config.hidden):
        x = _of_members(x, units, choice, seed=seed + 1 + number, activation="relu", name=f"hidden_{number}")
        x = _dropped(x, config, seed, number, step)
    last: dict[str, Any] = {"kernel_initializer": "zeros", "bias_initializer": _bias(layout)}
    x = _of_members(x, label_head(layout.label).outputs, choice, seed=seed, dtype="float32", name="output", **last)
    parts = [keras.layers.Reshape((1, part.shape[-1]))(part) for part in linear]
    total = keras.layers.Add(dtype="float32", name="with_linear_part")([x, *parts])
    return choice([total, *(inputs[name] for name in ("numeric", "categorical", "lists") if name in inputs)])


def _decay_embeddings(model: keras.Model) -> None:
    """Set the weight decay of the embeddings that all members of `ensemble` share, except for the biases of these layers.

    Without decay, other members would fit the embeddings to rows that a member with a strong decay leaves out."""
    for choice in (layer for layer in model.layers if isinstance(layer, Members)):
        for layer in (layer for layer in model.layers if layer.name in EMBEDDINGS):
            for variable in layer.trainable_variables:
                if variable.name != "bias":
                    variable.decay = choice.shared_decay


def _of_members(x: Any, units: int, choice: Members, **keywords: Any) -> keras.KerasTensor:
    """Returns the output of a dense layer with weights for each member; their weight decay is that of `choice`."""
    layer = member_dense(x.shape, units, **keywords)
    y = layer(x)
    layer.kernel.decay = lambda: choice.decay()[:, None, None]
    return y


def _dropped(x: Any, config: ModelConfig, seed: int, number: int, step: tf.Variable | None) -> Any:
    if not config.dropout:
        return x
    return HashDropout(config.dropout, seed=seed, salt=number, step=step, name=f"dropout_{number}")(x)


def _bias(layout: Layout) -> Any:
    """Returns the initializer of the output's bias: at first the model predicts the distribution of the train labels."""
    start = label_head(layout.label).initial_bias(layout.label)
    return "zeros" if start is None else keras.initializers.Constant(start[0] if len(start) == 1 else start)


def _output(x: keras.KerasTensor, layout: Layout) -> keras.KerasTensor:
    scale, centre = label_head(layout.label).scale_and_centre(layout.label)
    if np.all(scale == 1.0) and np.all(centre == 0.0):
        return x
    return keras.layers.Rescaling(scale, offset=centre, dtype="float32", name="label_units")(x)


class LoadedModel:
    """A trained model in inference mode. A built-in model is traced once, for evaluation and for an export's signatures.

    Args:
        weights: the prefix of the checkpoint by `save_weights`, from which `load_trained` loads them.

    Attributes:
        model: the Keras model.
    """

    def __init__(self, config: ModelConfig, layout: Layout, *, seed: int, module: Path | None, weights: Path):
        self.made_of = config, seed, weights, layout
        self.model = build(config, layout, seed=seed, module=module)
        self.variables = self.model.variables
        self._call = self._outputs
        if not config.user_defined:
            specs = {name: tf.TensorSpec([None, *row], dtype) for name, (row, dtype) in layout.inputs().items()}
            traced = tf.function(self._outputs, input_signature=[specs], autograph=False)
            self._call = lambda inputs: traced({name: inputs[name] for name in specs})

    def __call__(self, inputs: Inputs, training: bool = False) -> tf.Tensor:
        """Returns the model's outputs, float32 [rows, outputs]. `training` is ignored."""
        return self._call(inputs)

    def _outputs(self, inputs: Inputs) -> tf.Tensor:
        return tf.cast(self.model(inputs, training=False), tf.float32)


_LAST: list[LoadedModel] = []
"""The built-in model that was asked for last, kept since the stages of a run want the same one."""


def load_trained(config: ModelConfig, layout: Layout, *, seed: int, module: Path | None, weights: Path) -> LoadedModel:
    """Returns the model of `config` with its weights loaded. A built-in model of the last call is used again if it is the same.

    Raises:
        StoreError: the weights are missing, damaged or of another model.
    """
    found = next((last for last in _LAST if last.made_of == (config, seed, weights, layout)), None)
    if found is None:
        found = LoadedModel(config, layout, seed=seed, module=module, weights=weights)
    _LAST[:] = [] if config.user_defined else [found]  # code of the user's may keep more than variables
    load_weights(found.model, weights)
    return found


def save_weights(model: keras.Model, prefix: Path) -> None:
    """Write every variable of `model` to a TensorFlow checkpoint at `prefix` (prefix.index, prefix.data-...)."""
    tf.train.Checkpoint(model=[variable.value for variable in model.variables]).write(str(prefix))


def load_weights(model: keras.Model, prefix: Path) -> None:
    """Load the weights that `save_weights` wrote into `model`. StoreError if they are missing, damaged or of another model."""
    try:
        stored = tf.train.load_checkpoint(str(prefix)).get_variable_to_shape_map()
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise StoreError(f"cannot be read: {str(error).splitlines()[0]}", where=str(prefix)) from None
    for number, variable in enumerate(model.variables):
        shape = stored.get(VARIABLE.format(number))
        if shape != list(variable.shape):
            raise StoreError(
                f"holds {shape} for variable {number}, where the model has {variable.path} {list(variable.shape)}",
                where=str(prefix),
                fix="the weights belong to another model or another transform",
            )
    tf.train.Checkpoint(model=[variable.value for variable in model.variables]).read(str(prefix)).assert_consumed()
