"""Items in an evaluation: two baselines of a ranking, and the rank of each row's item among all items.

    counts = ItemCounts.of(shards, labeler, "movie_id")
    counts.predictions(items)                    # {"popularity": [rows], "item_mean": [rows]}, float64
    index = ItemRanker(vectors, places, known, k=10)
    index.columns(users, items, groups)          # {"retrieval_rank": Arrow [rows], "retrieval_best": ..., "retrieval_items": ...}

The baselines look only at a row's item. `popularity` is the item's number of train rows, divided by the number of the most
frequent item. `item_mean` is the item's mean label, drawn towards the mean of all rows as if each item had `SMOOTHING` more
rows with that mean. Row weights do not count. For an item without train rows the baselines are 0 and the mean of all rows.

A row's rank leaves out the items that the row's group has in train rows, except the row's own item. The index is read block by
block, so that memory grows with the sizes of a batch and a block, and not with the index. Of the items with the same score as
the row's item, half count as better. `headway.metrics.retrieval` computes metrics from the ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import tensorflow as tf
from numpy.typing import NDArray

from headway.metrics.ranking import ITEM_BASELINES
from headway.metrics.retrieval import BEST, ITEMS, RANK
from headway.tabular.list_arrays import escaped
from tfcore.data.reader import Labeler, Shards, map_records
from tfcore.transform.raw_column import RawColumn


def to_arrow_column(values: NDArray[Any], present: NDArray[np.bool_]) -> pa.Array:
    """Returns raw values as predictions store them: bytes as UTF-8 text (invalid bytes escaped), null where not `present`."""
    if values.dtype != object:
        return pa.array(values, mask=~present)
    return escaped(pa.array(values, pa.binary(), mask=~present))


def _raw(column: RawColumn) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the value of each row, and whether the row has a value, bool [rows]."""
    values = column.plain()
    return values, values == values if column.present is None else column.present


def map_distinct(values: pa.Array, known: Callable[[Any], int]) -> NDArray[np.int64]:
    """Returns the number that `known` gives for each value, int64. It calls `known` once for each distinct value."""
    encoded = values.dictionary_encode(null_encoding="encode")
    numbers = np.asarray([known(value) for value in encoded.dictionary.to_pylist()], np.int64)
    return numbers[encoded.indices.to_numpy()]


SMOOTHING = 10.0


class ItemCounts(NamedTuple):
    """For each item, the number of its train rows and the sum of their labels."""

    items: dict[str | int | float | None, int]
    """{item: its index in `rows` and `labels`}"""
    rows: NDArray[np.float64]
    labels: NDArray[np.float64]

    @staticmethod
    def of(shards: Shards, labeler: Labeler, item: str) -> ItemCounts:
        """Returns the counts over the rows of all shards. Only the column `item` and the label are parsed."""

        def look(columns: dict[str, Any]) -> tuple[Any, ...]:
            return (*_raw(columns[item]), labeler(columns)[0])

        items: dict[str | int | float | None, int] = {}
        places, labels = [], []
        for values, present, label in map_records(shards, list(dict.fromkeys([item, *labeler.input_columns])), look):
            kept = to_arrow_column(values.numpy(), present.numpy())
            places.append(map_distinct(kept, lambda name: items.setdefault(name, len(items))))
            labels.append(label.numpy().astype(np.float64))
        at = np.concatenate(places) if places else np.zeros(0, np.int64)
        weights = np.concatenate(labels) if labels else np.zeros(0)
        labels_by_item = np.bincount(at, weights, len(items)).astype(np.float64)
        return ItemCounts(items, np.bincount(at, minlength=len(items)).astype(np.float64), labels_by_item)

    def predictions(self, items: pa.Array) -> dict[str, NDArray[np.float64]]:
        """Returns {baseline: its predictions for rows with these items, float64 [rows]}."""
        place = map_distinct(items, lambda name: self.items.get(name, -1))
        mean = self.labels.sum() / max(self.rows.sum(), 1.0)
        rows = np.where(place >= 0, np.append(self.rows, 0.0)[place], 0.0)
        labels = np.where(place >= 0, np.append(self.labels, 0.0)[place], 0.0)
        popularity = rows / max(self.rows.max(initial=0.0), 1.0)
        return dict(zip(ITEM_BASELINES, (popularity, (labels + SMOOTHING * mean) / (rows + SMOOTHING)), strict=True))


BLOCK = 1 << 21
"""The number of scores (products of vectors) that are computed at once: 16 MiB."""
_TIE = 1e-12
Ints = NDArray[np.int64]
Places = Callable[[pa.Array], Ints]
"""A function that returns the position of each item in the index; -1 for an item that is not in the index."""


class KnownItems:
    """The items that each group has in the train rows, as positions in the index."""

    def __init__(self, groups: Ints, places: Ints, names: dict[Any, int]):
        order = np.argsort(groups, kind="stable")
        self._places, self._names = places[order], names
        self._starts = np.append(0, np.cumsum(np.bincount(groups, minlength=len(names))))

    @staticmethod
    def of(shards: Shards, item: str, group: str, places: Places) -> KnownItems:
        """Returns the items of each group over the rows of all shards. Only the columns `item` and `group` are parsed."""
        names: dict[Any, int] = {}
        found: list[tuple[Ints, Ints]] = []

        def look(columns: dict[str, Any]) -> tuple[Any, ...]:
            return (*_raw(columns[item]), *_raw(columns[group]))

        for parts in map_records(shards, list(dict.fromkeys([item, group])), look):
            items, there, owners, owned = (part.numpy() for part in parts)
            owner = map_distinct(to_arrow_column(owners, owned), lambda name: names.setdefault(name, len(names)))
            at = places(to_arrow_column(items, there))
            kept = (at >= 0) & owned
            found.append((owner[kept], at[kept]))
        owned_by, of_place = (np.concatenate([part[side] for part in found]) for side in (0, 1))
        return KnownItems(owned_by, of_place, names)

    def __call__(self, groups: pa.Array) -> tuple[Ints, Ints]:
        """Returns two arrays of pairs: a row of `groups`, and the position of an item that the row's group has in train rows."""
        number = map_distinct(groups, lambda name: -1 if name is None else self._names.get(name, -1))
        begin = self._starts[np.maximum(number, 0)]
        count = np.where(number >= 0, self._starts[number + 1] - begin, 0)
        rows = np.repeat(np.arange(len(number)), count)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        return rows, self._places[begin[rows] + within]


class ItemRanker:
    """Ranks the item of each row among all items of the index; see the module.

    Args:
        vectors: the vectors of the index's items, float [items, n].
        places: returns the positions in the index of items, given as predictions store them.
        k: how many of the best items are kept for each row; `known` items of the row's group are left out.
    """

    def __init__(self, vectors: NDArray[Any], places: Places, known: KnownItems, k: int):
        self._vectors, self._places, self._known = vectors.astype(np.float64), places, known
        self.k = min(k, len(vectors))

    def columns(self, users: NDArray[Any], items: pa.Array, groups: pa.Array) -> dict[str, pa.Array]:
        """Returns {column: values}: ranks, best items, number of items. `users` are the users' vectors, float [rows, n]."""
        own, (row, place) = self._places(items), self._known(groups)
        kept = place != own[row]
        ranks, best = ranks_and_best(users, self._vectors, own, row[kept], place[kept], self.k)
        texts = [" ".join(str(at) for at in one if at >= 0) for one in best.tolist()]
        count = np.full(len(ranks), len(self._vectors), np.int64)
        return {RANK: pa.array(ranks), BEST: pa.array(texts, pa.string()), ITEMS: pa.array(count)}


def ranks_and_best(
    users: NDArray[Any], vectors: NDArray[np.float64], own: Ints, row: Ints, place: Ints, k: int
) -> tuple[NDArray[np.float64], Ints]:
    """Returns the rank of each row's own item among all items, from 1, and the positions of the k best items for the row's user,
    [rows, k], filled up with -1. `own` has the position of each row's own item; where that is -1, the rank is 0.

    Args:
        row, place: pairs, as two arrays: a row, and the position of an item that is left out for that row.
    """
    users, rows = users.astype(np.float64), np.arange(len(users))
    mine = np.einsum("ij,ij->i", users, vectors[np.maximum(own, 0)])
    above = np.zeros(len(users))
    scores, best = np.full((len(users), k), -np.inf), np.full((len(users), k), -1, np.int64)
    step = max(1, BLOCK // max(len(users), 1))
    for begin in range(0, len(vectors), step):
        products = users @ vectors[begin : begin + step].T
        here = (place >= begin) & (place < begin + step)
        products[row[here], place[here] - begin] = -np.inf
        others = products - mine[:, None]
        ours = (own >= begin) & (own < begin + step)
        others[rows[ours], own[ours] - begin] = -np.inf
        above += (others > _TIE).sum(1) + 0.5 * (np.abs(others) <= _TIE).sum(1)
        places = np.broadcast_to(np.arange(begin, begin + products.shape[1]), products.shape)
        if products.shape[1] > k:
            first = np.sort(np.argpartition(-products, k - 1, axis=1)[:, :k], axis=1)
            products, places = np.take_along_axis(products, first, 1), np.take_along_axis(places, first, 1)
        scores, best = np.hstack([scores, products]), np.hstack([best, places])
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores, best = np.take_along_axis(scores, order, 1), np.take_along_axis(best, order, 1)
    best[np.isneginf(scores)] = -1
    return np.where(own >= 0, 1.0 + above, 0.0), best
