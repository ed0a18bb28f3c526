"""Whether XLA makes a model's steps slower, known from the ops that it calls.

    slow_under_xla(model, specs)             # "Conv2D", or None

XLA's CPU compiler has no fast kernel for the gradients of convolutions and pooling: a step of a small convolutional model took
nine times as long compiled as plain, and pooling's gradient is refused where ops are deterministic. That is known here and
not measured, since a compiled step and a plain one round differently: a timing would decide over a training's bits.
"""

from __future__ import annotations

from collections.abc import Mapping

import keras
import tensorflow as tf

from tfcore.graph.python_errors import all_nodes

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


def slow_under_xla(model: keras.Model, specs: Mapping[str, tf.TensorSpec]) -> str | None:
    """The first such op, by name, that `model` calls in training; None when it calls none, or cannot be traced."""
    inputs = {name: tf.TensorSpec([None, *spec.shape[2:]], spec.dtype) for name, spec in specs.items()}
    try:
        forward = tf.function(lambda batch: model(batch, training=True), autograph=False)
        graph = forward.get_concrete_function(inputs).graph.as_graph_def()
    except Exception:  # the trace of the step says what is wrong, in words
        return None
    return min({node.op for node in all_nodes(graph)} & SLOW, default=None)
