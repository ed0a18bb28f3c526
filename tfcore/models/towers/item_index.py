"""The items of the train rows, as the model's inputs, for a search of all items by the product of vectors.

    rows = collect(batches, config, layout)        # {"ids": int64 [items], "numeric": [items, n], ...}; None: no index
    index = ItemIndex(model, config, layout, rows)
    index.embed(inputs), index.top_k(inputs, k)    # the outputs of the signatures `embed` and `top_k`

An item is a value of the first column of `model.item`, which has to have a vocabulary; its other columns are those of the
first train row that has it. Values that are not in the vocabulary are not in the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfcore.models.config import ModelConfig
from tfcore.models.inputs import Layout
from tfcore.models.towers.two_towers import as_vectors

FILE = "items.npz"
"""In a training's output."""
Arrays = dict[str, NDArray[Any]]


def _values(config: ModelConfig, layout: Layout) -> tuple[str | int, ...]:
    """The vocabulary of the item's first column, by id; empty where it has none."""
    for fitted in layout.fitted:
        if fitted.column.name == config.item[0] and not fitted.column.shape and fitted.ops[-1].op == "vocabulary":
            return tuple(fitted.ops[-1].words or fitted.ops[-1].integers or ())
    return ()


def collect(batches: Iterable[Mapping[str, NDArray[Any]]], config: ModelConfig, layout: Layout) -> Arrays | None:
    """The inputs of each item from batches of the model's inputs; None where items have no vocabulary."""
    count = len(_values(config, layout))
    if not count:
        return None
    place = [entry.name for entry in layout.categorical].index(config.item[0])
    seen, kept = np.zeros(count, np.bool_), list[Arrays]()
    for batch in batches:
        ids, first = np.unique(batch["categorical"][:, place], return_index=True)
        new = (ids < count) & ~seen[np.minimum(ids, count - 1)]
        seen[ids[new]] = True
        kept.append({name: values[first[new]] for name, values in batch.items()} | {"ids": ids[new].astype(np.int64)})
    rows = {name: np.concatenate([part[name] for part in kept]) for name in kept[0]} if kept else {}
    return rows if rows and len(rows["ids"]) else None


class ItemIndex:
    """The items' vectors and values, and a model that makes vectors of rows.

    Args:
        model: trained; it is a `two_towers`.
        rows: from `collect`.
    """

    def __init__(self, model: keras.Model, config: ModelConfig, layout: Layout, rows: Arrays):
        self._model, self.item, self.width = model, config.item, config.embedding + 1
        inputs = {name: tf.constant(rows[name]) for name in layout.inputs()}
        self.vectors = tf.Variable(as_vectors(model, "item", inputs), trainable=False, name="item_vectors")
        values = np.asarray(_values(config, layout), object)[rows["ids"]].tolist()
        self.texts = isinstance(values[0], str)
        self._values = values

    def embed(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The vectors of both sides: {"user", "item"}, float32 [rows, embedding + 1]."""
        return {side: as_vectors(self._model, side, inputs) for side in ("user", "item")}

    def top_k(self, inputs: dict[str, tf.Tensor], k: tf.Tensor) -> dict[str, tf.Tensor]:
        """The k items of the largest products with each row's user, best first: {"items", "scores"}, [rows, k]."""
        count = self.vectors.shape[0]
        in_range = tf.debugging.Assert((k >= 1) & (k <= count), [f"k must be from 1 to {count}, not", k])
        with tf.control_dependencies([in_range]):
            products = tf.matmul(as_vectors(self._model, "user", inputs), self.vectors, transpose_b=True)
        scores, places = tf.math.top_k(products, tf.identity(k))
        values = tf.constant(self._values, tf.string if self.texts else tf.int64)
        return {"items": tf.gather(values, places), "scores": scores}
