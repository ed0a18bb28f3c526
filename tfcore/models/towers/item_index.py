"""An index of the items in the train rows: it finds the items whose vectors have the largest products with a user's.

    rows = collect_items(batches, config, layout)        # {"ids": int64 [items], "numeric": [items, n], ...}; None: no index
    index = ItemIndex(model, config, layout, rows)
    index.embed(inputs), index.top_k(inputs, k, excluded, there)    # the outputs of the signatures `embed` and `top_k`

An item is a value of the first column of `model.item`. That column must have a vocabulary; a value that is not in it is not
in the index. An item's other columns are those of the first train row with the item.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfcore.models.config import ModelConfig
from tfcore.models.inputs import Layout
from tfcore.models.towers.two_towers import as_vectors

FILE = "items.npz"
"""The name of the file in a training's output that holds the items' inputs."""
Arrays = dict[str, NDArray[Any]]


def _values(config: ModelConfig, layout: Layout) -> tuple[bytes | int, ...]:
    """Returns the vocabulary of the first column of `model.item`, by id; empty if the column has none."""
    for fitted in layout.fitted:
        if fitted.column.name == config.item[0] and not fitted.column.shape and fitted.ops[-1].op == "vocabulary":
            return fitted.ops[-1].values
    return ()


def collect_items(batches: Iterable[Mapping[str, NDArray[Any]]], config: ModelConfig, layout: Layout) -> Arrays | None:
    """Returns "ids", the id of each item, and the model's inputs by name; None if no item of a vocabulary has a row."""
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
    """An index with the vectors and the values of items, and the model that computes vectors of users.

    Args:
        model: a trained two-tower model.
        rows: the model's inputs for each item, from `collect_items`.
    """

    def __init__(self, model: keras.Model, config: ModelConfig, layout: Layout, rows: Arrays):
        self._model, self.item, self.width = model, config.item, config.embedding + 1
        inputs = {name: tf.constant(rows[name]) for name in layout.inputs()}
        self.vectors = tf.Variable(as_vectors(model, "item", inputs), trainable=False, name="item_vectors")
        values = np.asarray(_values(config, layout), object)[rows["ids"]].tolist()
        self.texts = isinstance(values[0], bytes)
        self._values = tf.constant(values, tf.string if self.texts else tf.int64)
        keys = self._keys(self._values).numpy()
        self._order = np.argsort(keys)
        self._sorted = keys[self._order]

    @classmethod
    def load(cls, trained: Path, model: keras.Model, config: ModelConfig, layout: Layout) -> Self | None:
        """Load the index from the folder of a training's output; None if the training wrote no items."""
        if not (trained / FILE).exists():
            return None
        with np.load(trained / FILE, allow_pickle=False) as rows:
            return cls(model, config, layout, dict(rows))

    def embed(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the vectors of both sides of each row: {"user", "item"}, float32 [rows, embedding + 1]."""
        return {side: as_vectors(self._model, side, inputs) for side in ("user", "item")}

    def top_k(
        self, inputs: dict[str, tf.Tensor], k: tf.Tensor, excluded: tf.Tensor, there: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Returns the k items with the largest products with each row's user, best first: {"items", "scores"}, [rows, k].

        Args:
            excluded: items that a row leaves out, [rows, n]; items that are not in the index are ignored.
            there: bool [rows, n], False where `excluded` is only filled up.
        """
        out = self._mask(self.places(excluded), there)
        left = self.vectors.shape[0] - tf.reduce_max(tf.reduce_sum(tf.cast(out, tf.int32), 1))
        message = tf.strings.join(
            ["k must be from 1 to ", tf.strings.as_string(left), ", not ", tf.strings.as_string(k)]
        )
        with tf.control_dependencies([tf.debugging.Assert((k >= 1) & (k <= left), [message])]):
            products = tf.matmul(as_vectors(self._model, "user", inputs), self.vectors, transpose_b=True)
        scores, places = tf.math.top_k(tf.where(out, products.dtype.min, products), tf.identity(k))
        return {"items": tf.gather(self._values, places), "scores": scores}

    def places(self, items: tf.Tensor) -> tf.Tensor:
        """Returns the position of each item in the index, int32 in the shape of `items`; -1 if it is not in the index."""
        keys = self._keys(items)
        found = tf.minimum(tf.searchsorted(self._sorted, tf.reshape(keys, [-1])), len(self._sorted) - 1)
        known = tf.gather(self._sorted, found) == tf.reshape(keys, [-1])
        places = tf.where(known, tf.gather(tf.constant(self._order, tf.int32), found), -1)
        return tf.reshape(places, tf.shape(keys))

    def _keys(self, items: tf.Tensor) -> tf.Tensor:
        """Returns an int64 key for each item: the hash of a text, or the integer itself."""
        return tf.strings.to_hash_bucket_fast(items, tf.int64.max) if self.texts else tf.cast(items, tf.int64)

    def _mask(self, places: tf.Tensor, there: tf.Tensor) -> tf.Tensor:
        """Returns for each row which items of the index are in `places` where `there` is true, bool [rows, items]."""
        rows = tf.shape(places)[0]
        at = tf.where(there & (places >= 0))
        indices = tf.stack([at[:, 0], tf.cast(tf.gather_nd(places, at), tf.int64)], 1)
        counts = tf.scatter_nd(indices, tf.ones([tf.shape(at)[0]], tf.int32), [rows, self.vectors.shape[0]])
        return counts > 0
