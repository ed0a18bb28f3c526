"""A built-in model's inputs, and the features that its hidden layers see of them."""

from typing import Any

import keras

from headway.errors import ConfigError
from tfcore.models.config import ModelConfig
from tfcore.models.convolutions import image_features
from tfcore.models.layers import ListEmbedding, OffsetEmbedding, SoftClip
from tfcore.models.numeric import PiecewiseLinear

Layout = Any
"""The layout of a model's inputs: the TransformParameters of tfcore.transform."""


def inputs_of(layout: Layout) -> dict[str, keras.KerasTensor]:
    """Returns the model's inputs by name."""
    return {name: keras.Input(row, dtype=dtype, name=name) for name, (row, dtype) in layout.inputs().items()}


def features(inputs: dict[str, Any], config: ModelConfig, layout: Layout, seed: int) -> keras.KerasTensor:
    """Returns the features of the hidden layers, [rows, width]: embeddings of categories and lists, numbers or their
    embeddings, and the features of images.

    Raises:
        ConfigError: the layout has no inputs.
    """
    parts, penalty = [], l2(config.l2)
    if seen := seen_columns(config, layout):
        sizes, ids = [layout.categorical[column].size for column in seen], inputs["categorical"]
        if len(sizes) < len(layout.categorical):
            ids = keras.ops.take(ids, seen, axis=1)
        embedded = OffsetEmbedding(sizes, config.embedding, seed=seed, regularizer=penalty, name="embeddings")(ids)
        parts.append(keras.layers.Flatten(name="embedded")(embedded))
    if layout.lists:
        embedded = list_embedding(layout, config.embedding, seed, name="list_embeddings", regularizer=penalty)(
            inputs["lists"]
        )
        parts.append(keras.layers.Flatten(name="embedded_lists")(embedded))
    if layout.numeric:
        parts.append(_numbers(inputs["numeric"], config, layout, seed))
    parts += [
        image_features(inputs[name], name, kind=config.images, seed=seed)
        for name, (row, dtype) in layout.inputs().items()
        if dtype == "uint8"
    ]
    if not parts:
        raise ConfigError("no column is left to learn from", where="columns", fix="name feature columns, or use 'auto'")
    return parts[0] if len(parts) == 1 else keras.layers.Concatenate(name="features")(parts)


def seen_columns(config: ModelConfig, layout: Layout) -> list[int]:
    """Returns the categorical columns that the hidden layers see; all of them where there would be no input at all."""
    most, hidden = config.most_ids, layout.value_categories if config.value_l1 else ()
    seen = [
        column
        for column, entry in enumerate(layout.categorical)
        if (most is None or entry.size <= most) and entry.name not in hidden
    ]
    others = set(layout.inputs()) - {"numeric", "categorical"}
    return seen if seen or layout.numeric or others else [*range(len(layout.categorical))]


def l2(penalty: float) -> keras.regularizers.Regularizer | None:
    """Returns the regularizer penalty / 2 * the squared weights; None for no penalty."""
    return keras.regularizers.L2(penalty / 2) if penalty else None


def list_embedding(layout: Layout, width: int, seed: int, **keywords: Any) -> ListEmbedding:
    """Returns the layer for the embeddings of the lists' ids, in one table."""
    sizes, slots = [entry.size for entry in layout.lists], [entry.width for entry in layout.lists]
    return ListEmbedding(sizes, slots, width, seed=seed + 7919, **keywords)


def _numbers(numeric: keras.KerasTensor, config: ModelConfig, layout: Layout, seed: int) -> keras.KerasTensor:
    if config.quantile_bins:
        embedding = PiecewiseLinear(
            layout.edges,
            config.embedding,
            limit=config.soft_clip,
            seed=seed,
            regularizer=l2(config.l2),
            name="numeric_embeddings",
        )
        return keras.layers.Flatten(name="embedded_numbers")(embedding(numeric))
    return SoftClip(config.soft_clip, name="soft_clip")(numeric) if config.soft_clip else numeric
