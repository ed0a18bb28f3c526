"""Decides whether XLA compiles the training steps: by their number, and by the ops that the model calls.

    repays_compiling(steps=2_000, batch=128) # False
    slow_under_xla(model, specs)             # "Conv2D", or None

XLA takes seconds to compile the steps (4 to 5 s for a built-in model on two cores) and then spares each of them 0.8 to 1.2 ms
at 128 rows and 2.3 ms at 512 to 2,048; on a GPU, where each op of a plain step is started by itself, 4 ms (docs/training.md).
These figures depend on the machine; what is decided depends on the settings and the kind of device alone.

XLA's CPU compiler has no fast kernel for the gradients of convolutions and pooling: a step of a small convolutional model took
nine times as long compiled as plain, and pooling's gradient is refused where ops are deterministic. That is known here and
not measured, since a compiled step and a plain one round differently: a timing would decide over a training's bits.

On a GPU deterministic XLA scatters one row after the other: a step that adds up the gradients of 4,096 ids took fifteen times
as long compiled as plain. Headway's own embeddings do without (`tfcore.models.layers.looked_up`), others are found here.
"""

from collections.abc import Mapping

import keras
import tensorflow as tf

from tfcore.graph.python_errors import all_nodes
from tfcore.graph.xla import intended

SLOW = frozenset(
    {
        "AvgPool",
        "AvgPool3D",
        "Conv2D",
        "Conv2DBackpropInput",
        "Conv3D",
        "Conv3DBackpropInputV2",
        "DepthwiseConv2dNative",
        "Dilation2D",
        "MaxPool",
        "MaxPool3D",
        "MaxPoolV2",
        "MaxPoolWithArgmax",
    }
)
"""Ops, by TensorFlow's names, whose gradients are slow when XLA compiles them for a CPU."""


LEAST_STEPS = 2_500
LEAST_ROWS = 2_500_000
"""The steps, or the rows of all steps together, from which the compiled steps repay their compilation."""


LEAST_STEPS_ON_GPU = 700
SCATTERS = frozenset({"ScatterNd", "SegmentSumV2", "TensorScatterAdd", "UnsortedSegmentSum"})
"""What adds up the gradients of `tf.gather` and its like, by TensorFlow's names."""


def repays_compiling(steps: int, batch: int, *, gpu: bool = False) -> bool:
    """Whether a training of `steps` batches of `batch` rows ends sooner with its compilation counted in."""
    return steps >= (LEAST_STEPS_ON_GPU if gpu else LEAST_STEPS) or steps * batch >= LEAST_ROWS


def slow_under_xla(model: keras.Model, specs: Mapping[str, tf.TensorSpec]) -> str | None:
    """The first such op, by name, that `model` calls in training; None when it calls none, or cannot be traced."""
    inputs = {name: tf.TensorSpec([None, *spec.shape[2:]], spec.dtype) for name, spec in specs.items()}
    try:
        forward = tf.function(lambda batch: model(batch, training=True), autograph=False)
        graph = forward.get_concrete_function(inputs).graph.as_graph_def()
    except Exception:  # the trace of the step says what is wrong, in words
        return None
    return min({node.op for node in all_nodes(graph)} & SLOW, default=None)


def scatters_under_xla(model: keras.Model, specs: Mapping[str, tf.TensorSpec]) -> str | None:
    """The first scatter, by name, in `model`, its own losses and their gradients as they are compiled for a GPU; None when
    there is none, or they cannot be traced."""
    inputs = {name: tf.TensorSpec(spec.shape[1:], spec.dtype) for name, spec in specs.items()}

    def gradients(batch: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            targets = [model(batch, training=True), *model.losses]
        found = tape.gradient(targets, model.trainable_variables)
        return [tf.convert_to_tensor(gradient) for gradient in found if gradient is not None]

    try:
        with intended():
            graph = tf.function(gradients, autograph=False).get_concrete_function(inputs).graph.as_graph_def()
    except Exception:  # as above
        return None
    return min({node.op for node in all_nodes(graph)} & SCATTERS, default=None)
