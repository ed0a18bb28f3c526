"""The linear part of `ensemble`: a linear model of all inputs, whose output is added to that of every member."""

from typing import Any

import keras

from tfcore.heads.head import label_head
from tfcore.models.inputs import Layout, embedded_lists, l2
from tfcore.models.layers import OffsetEmbedding

SPEED = 10.0
"""The factor by which the linear part learns faster than hidden layers, up to 32 inputs."""
PENALTY, LIST_PENALTY = 1.0, 0.1
"""The L2 penalties of the weights, and of the weights of lists' ids: C = 1 / penalty in a logistic regression."""


def linear_terms(inputs: dict[str, Any], layout: Layout, seed: int) -> list[keras.KerasTensor]:
    """Returns the terms of the linear part, [rows, outputs] each; their sum is its output.

    Each term is multiplied by `linear_speed`, since an optimizer like Adam moves every weight by about the learning
    rate. So the linear part learns faster than the hidden layers, and these learn what it leaves over."""
    count, speed = label_head(layout.label).outputs, linear_speed(layout)
    # the penalty is that of the weight as it counts
    scale = speed**2 / max(1, layout.rows)
    penalty, parts = l2(PENALTY * scale), []
    if layout.numeric:
        parts.append(
            keras.layers.Dense(
                count, use_bias=False, kernel_initializer="zeros", kernel_regularizer=penalty, name="linear_numeric"
            )(inputs["numeric"])
        )
    if layout.categorical:
        sizes = [entry.size for entry in layout.categorical]
        table = OffsetEmbedding(
            sizes, count, seed=seed, initial="zeros", regularizer=penalty, name="linear_categorical"
        )
        parts.append(keras.ops.sum(table(inputs["categorical"]), axis=1))
    if layout.lists:
        # over the square root of their number: a long text says more than a short one, and not as much more as it is longer
        embedded = embedded_lists(
            inputs,
            layout,
            range(len(layout.lists)),
            count,
            seed=seed,
            name="linear_lists",
            initial="zeros",
            power=0.5,
            regularizer=l2(LIST_PENALTY * scale),
        )
        parts.append(keras.ops.sum(embedded, axis=1))
    return [keras.layers.Rescaling(speed, name=f"linear_speed_{number}")(part) for number, part in enumerate(parts)]


def linear_speed(layout: Layout) -> float:
    """Returns the factor of the linear part's output: `SPEED`, or less if there are more than 32 inputs."""
    return SPEED / max(1.0, (len(layout.numeric) + len(layout.categorical)) / 32)
