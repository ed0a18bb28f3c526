"""The linear part of a built-in model: of `wide_deep`, and of others with `linear: true`."""

from typing import Any

import keras

from tfcore.heads.table import label_head
from tfcore.models.config import VALUE_L1, ModelConfig
from tfcore.models.inputs import Layout, l2, list_embedding
from tfcore.models.layers import ColumnLasso, OffsetEmbedding

LINEAR_SPEED = 10.0
"""The factor by which the linear part of a model learns faster than its hidden layers, up to 32 inputs."""
NOISE = {False: 1 / VALUE_L1[False], True: 2 / VALUE_L1[True]}
"""The length of the weights of a category of pure noise, without classes and with them, from which its penalty
follows."""


def linear_terms(inputs: dict[str, Any], config: ModelConfig, layout: Layout, seed: int) -> list[keras.KerasTensor]:
    """Returns the terms of the linear part, over every input.

    With `linear` each is multiplied by `LINEAR_SPEED`, less where inputs are many: an optimizer like Adam moves every weight
    by about the learning rate, so that the linear part is there first and the hidden layers learn what it leaves.
    """
    count = label_head(layout.label).outputs
    speed = linear_speed(config, layout)
    # the penalty is that of the weight as it counts
    penalty = l2(config.linear_l2 * speed**2)
    sparse = penalty
    if config.linear_l1:
        sparse = keras.regularizers.L1L2(config.linear_l1 * speed, config.linear_l2 * speed**2 / 2)
    parts = []
    if layout.numeric:
        parts.append(
            keras.layers.Dense(
                count, use_bias=False, kernel_initializer="zeros", kernel_regularizer=sparse, name="wide_numeric"
            )(inputs["numeric"])
        )
    sizes = [entry.size for entry in layout.categorical]
    if sizes:
        of_columns = penalty
        values = layout.value_categories if config.value_l1 else ()
        if config.linear_l1 or values:
            noise = config.value_l1 * NOISE[label_head(layout.label).task.has_classes] / speed
            bends = [
                noise * size * (entry.name in values) for entry, size in zip(layout.categorical, sizes, strict=True)
            ]
            of_columns = ColumnLasso(
                sizes, config.value_l1 * speed, config.linear_l2 * speed**2 / 2, bends, config.linear_l1 * speed
            )
        weights = OffsetEmbedding(
            sizes, count, seed=seed, initial="zeros", regularizer=of_columns, name="wide_categorical"
        )(inputs["categorical"])
        parts.append(keras.ops.sum(weights, axis=1))
    if layout.lists:
        weights = list_embedding(layout, count, seed, name="wide_lists", initial="zeros", regularizer=penalty)(
            inputs["lists"]
        )
        parts.append(keras.ops.sum(weights, axis=1))
    if speed == 1.0:
        return parts
    return [keras.layers.Rescaling(speed, name=f"wide_speed_{number}")(part) for number, part in enumerate(parts)]


def linear_speed(config: ModelConfig, layout: Layout) -> float:
    """Returns the number by which the linear part is multiplied."""
    if not config.linear:
        return 1.0
    return LINEAR_SPEED / max(1.0, (len(layout.numeric) + len(layout.categorical)) / 32)
