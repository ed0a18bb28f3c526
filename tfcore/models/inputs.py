"""The inputs of a built-in model, and the features that its hidden layers compute with."""

import math
from collections.abc import Sequence
from typing import Any

import keras

from headway.errors import ConfigError
from tfcore.models.config import ModelConfig
from tfcore.models.convolutions import image_features
from tfcore.models.layers import ListEmbedding, OffsetEmbedding
from tfcore.models.numeric import PiecewiseLinear

Layout = Any
"""The layout of a model's inputs: the TransformParameters of tfcore.transform."""
EMBEDDINGS = ("numeric_embeddings", "embeddings", "list_embeddings")
"""The names of the layers that embed numbers, categories and lists for the hidden layers."""
WIDEST = 512
"""The largest width of all embeddings of numbers together; with many numbers each is narrower than `embedding`."""
LIMIT = 4.0
"""The number of standard deviations within which members see a number, however far it is from all others."""
ROWS_PER_ID, LEAST_IDS = 20, 50
"""The members see only columns with so many train rows per id, or with at most so many ids."""


def inputs_of(layout: Layout) -> dict[str, keras.KerasTensor]:
    """Returns the Keras inputs of a model for `layout`, by name."""
    return {name: keras.Input(row, dtype=dtype, name=name) for name, (row, dtype) in layout.inputs().items()}


def is_ensemble(config: ModelConfig, layout: Layout) -> bool:
    """Returns whether the model is an ensemble of a linear part and members. With image inputs it is not: each member
    would cost as much as the net for images."""
    return config.name == "ensemble" and not any(dtype == "uint8" for _, dtype in layout.inputs().values())


def has_members(config: ModelConfig, layout: Layout) -> bool:
    """Returns whether the model is an ensemble whose members see at least one column."""
    seen = [
        column for entries in (layout.categorical, layout.lists) for column in seen_columns(entries, config, layout)
    ]
    return is_ensemble(config, layout) and bool(layout.numeric or seen)


def features(inputs: dict[str, Any], config: ModelConfig, layout: Layout, seed: int) -> keras.KerasTensor | None:
    """Returns the features for the hidden layers, [rows, width]: embeddings of categories and lists, numbers or their
    embeddings, and features of images. None where the members of `ensemble` see no column.

    Raises:
        ConfigError: the layout has no inputs.
    """
    parts, penalty = [], l2(config.l2)
    if seen := seen_columns(layout.categorical, config, layout):
        sizes, ids = [layout.categorical[column].size for column in seen], inputs["categorical"]
        if len(sizes) < len(layout.categorical):
            ids = keras.ops.take(ids, seen, axis=1)
        embedded = OffsetEmbedding(sizes, config.embedding, seed=seed, regularizer=penalty, name="embeddings")(ids)
        parts.append(keras.layers.Flatten(name="embedded")(embedded))
    if seen := seen_columns(layout.lists, config, layout):
        embedded = embedded_lists(
            inputs, layout, seen, config.embedding, seed=seed, regularizer=penalty, name="list_embeddings"
        )
        parts.append(keras.layers.Flatten(name="embedded_lists")(embedded))
    if layout.numeric:
        numbers = inputs["numeric"]
        if is_ensemble(config, layout):
            width = max(1, min(config.embedding, WIDEST // len(layout.numeric)))
            embedding = PiecewiseLinear(layout.edges, width, limit=LIMIT, seed=seed, name="numeric_embeddings")
            numbers = keras.layers.Flatten(name="embedded_numbers")(embedding(numbers))
        parts.append(numbers)
    parts += [
        image_features(inputs[name], name, kind=config.images, seed=seed)
        for name, (row, dtype) in layout.inputs().items()
        if dtype == "uint8"
    ]
    if not inputs:
        raise ConfigError("no column is left to learn from", where="columns", fix="name feature columns, or use 'auto'")
    if len(parts) > 1:
        return keras.layers.Concatenate(name="features")(parts)
    return parts[0] if parts else None


def seen_columns(entries: Sequence[Any], config: ModelConfig, layout: Layout) -> list[int]:
    """Returns the indices of those `entries`, categorical or list columns, that the hidden layers see.

    The hidden layers of `ensemble` do not see columns with few rows per id, which they would memorize. The linear part
    sees all columns: its penalty shrinks the weights of rare ids."""
    most = max(LEAST_IDS, layout.rows // ROWS_PER_ID) if is_ensemble(config, layout) else math.inf
    return [column for column, entry in enumerate(entries) if entry.size <= most]


def l2(penalty: float) -> keras.regularizers.Regularizer | None:
    """Returns the regularizer penalty / 2 * the sum of squared weights; None if the penalty is 0."""
    return keras.regularizers.L2(penalty / 2) if penalty else None


def embedded_lists(
    inputs: dict[str, Any], layout: Layout, columns: Sequence[int], width: int, *, seed: int, **keywords: Any
) -> keras.KerasTensor:
    """Returns embeddings by one table, [rows, columns, width], of the list columns with the indices `columns`."""
    entries, lists = [layout.lists[column] for column in columns], inputs["lists"]
    if len(entries) < len(layout.lists):
        starts = [sum(entry.width for entry in layout.lists[:column]) for column in columns]
        slots = [start + slot for start, entry in zip(starts, entries, strict=True) for slot in range(entry.width)]
        lists = keras.ops.take(lists, slots, axis=1)
    sizes, widths = [entry.size for entry in entries], [entry.width for entry in entries]
    return ListEmbedding(sizes, widths, width, seed=seed + 7919, **keywords)(lists)
