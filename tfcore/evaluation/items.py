"""Items in an evaluation: two baselines of a ranking, and the rank of each row's item among all items.

    counts = ItemCounts.of(shards, labeler, "movie_id")
    counts.predictions(texts)                    # {"popularity": [rows], "item_mean": [rows]}, float64
    index = WholeIndex(vectors, places, known, k=10)
    index.columns(users, items, groups)          # {"retrieval_rank": Arrow [rows], "retrieval_best": ..., "retrieval_items": ...}

The baselines look at nothing but the item, as predictions keep it. `popularity` is the item's number of train rows,
divided by the most frequent item's. `item_mean` is its mean label, drawn towards the mean of all rows as if each item
had `SMOOTHING` more rows of that mean. Weights do not count. An item without train rows has 0 and the mean of all.

The ranks leave out items that a row's group has in train rows, except the row's own. The index is read block by block,
so that memory grows with the rows of a batch and a block, and not with the index. Half of the items with an equal
product count as better. `headway.metrics.retrieval` makes metrics of the ranks.
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


def kept_column(values: NDArray[Any], present: NDArray[np.bool_]) -> pa.Array:
    """Returns raw values as predictions keep them: bytes as UTF-8 (invalid ones escaped), numbers and nulls as such."""
    if values.dtype != object:
        return pa.array(values, mask=~present)
    return escaped(pa.array(values, pa.binary(), mask=~present))


def _raw(column: RawColumn) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the value of each row, and whether it has one, bool [rows]."""
    values = column.plain()
    return values, values == values if column.present is None else column.present


def map_distinct(values: pa.Array, known: Callable[[Any], int]) -> NDArray[np.int64]:
    """Returns the number that `known` gives for each value, int64. It calls `known` once for each distinct value."""
    encoded = values.dictionary_encode(null_encoding="encode")
    numbers = np.asarray([known(value) for value in encoded.dictionary.to_pylist()], np.int64)
    return numbers[encoded.indices.to_numpy()]


SMOOTHING = 10.0


class ItemCounts(NamedTuple):
    """The number and the summed labels of the train rows of each item."""

    items: dict[str | int | float | None, int]
    """The index of each item in the arrays."""
    rows: NDArray[np.float64]
    labels: NDArray[np.float64]

    @staticmethod
    def of(shards: Shards, labeler: Labeler, item: str) -> ItemCounts:
        """Count the rows of all shards; only the item and the label are parsed."""

        def look(columns: dict[str, Any]) -> tuple[Any, ...]:
            return (*_raw(columns[item]), labeler(columns)[0])

        items: dict[str | int | float | None, int] = {}
        places, labels = [], []
        for values, present, label in map_records(shards, list(dict.fromkeys([item, *labeler.input_columns])), look):
            kept = kept_column(values.numpy(), present.numpy())
            places.append(map_distinct(kept, lambda name: items.setdefault(name, len(items))))
            labels.append(label.numpy().astype(np.float64))
        at = np.concatenate(places) if places else np.zeros(0, np.int64)
        weights = np.concatenate(labels) if labels else np.zeros(0)
        labels_by_item = np.bincount(at, weights, len(items)).astype(np.float64)
        return ItemCounts(items, np.bincount(at, minlength=len(items)).astype(np.float64), labels_by_item)

    def predictions(self, texts: pa.Array) -> dict[str, NDArray[np.float64]]:
        """Returns the predictions of each baseline, by its name, for rows with these items; float64 [rows]."""
        place = map_distinct(texts, lambda name: self.items.get(name, -1))
        mean = self.labels.sum() / max(self.rows.sum(), 1.0)
        rows = np.where(place >= 0, np.append(self.rows, 0.0)[place], 0.0)
        labels = np.where(place >= 0, np.append(self.labels, 0.0)[place], 0.0)
        popularity = rows / max(self.rows.max(initial=0.0), 1.0)
        return dict(zip(ITEM_BASELINES, (popularity, (labels + SMOOTHING * mean) / (rows + SMOOTHING)), strict=True))


BLOCK = 1 << 21
"""The number of products computed at once: 16 MiB."""
_TIE = 1e-12
Ints = NDArray[np.int64]
Places = Callable[[pa.Array], Ints]
"""A function that gives the position of each item in the index, -1 for one that is not in it."""


class KnownItems:
    """The items that each group has in the train rows, as positions in the index."""

    def __init__(self, groups: Ints, places: Ints, names: dict[Any, int]):
        order = np.argsort(groups, kind="stable")
        self._places, self._names = places[order], names
        self._starts = np.append(0, np.cumsum(np.bincount(groups, minlength=len(names))))

    @staticmethod
    def of(shards: Shards, item: str, group: str, places: Places) -> KnownItems:
        """Read the items of each group from the rows of all shards; only the two columns are parsed."""
        names: dict[Any, int] = {}
        found: list[tuple[Ints, Ints]] = []

        def look(columns: dict[str, Any]) -> tuple[Any, ...]:
            return (*_raw(columns[item]), *_raw(columns[group]))

        for parts in map_records(shards, list(dict.fromkeys([item, group])), look):
            items, there, owners, owned = (part.numpy() for part in parts)
            owner = map_distinct(kept_column(owners, owned), lambda name: names.setdefault(name, len(names)))
            at = places(kept_column(items, there))
            kept = (at >= 0) & owned
            found.append((owner[kept], at[kept]))
        owned_by, of_place = (np.concatenate([part[side] for part in found]) for side in (0, 1))
        return KnownItems(owned_by, of_place, names)

    def __call__(self, groups: pa.Array) -> tuple[Ints, Ints]:
        """Returns the row and the index position of each item that the row's group has in train rows, pair by pair."""
        number = map_distinct(groups, lambda name: -1 if name is None else self._names.get(name, -1))
        begin = self._starts[np.maximum(number, 0)]
        count = np.where(number >= 0, self._starts[number + 1] - begin, 0)
        rows = np.repeat(np.arange(len(number)), count)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        return rows, self._places[begin[rows] + within]


class WholeIndex:
    """Ranks the item of each row among all items of the index; see the module.

    Args:
        vectors: the vectors of the items, float [items, n].
        places: gives the positions of items, which are as predictions keep them.
        k: how many of the best items are kept for each row.
    """

    def __init__(self, vectors: NDArray[Any], places: Places, known: KnownItems, k: int):
        self._vectors, self._places, self._known = vectors.astype(np.float64), places, known
        self.k = min(k, len(vectors))

    def columns(self, users: NDArray[Any], items: pa.Array, groups: pa.Array) -> dict[str, pa.Array]:
        """Returns the columns of ranks for rows with these users' vectors, float [rows, n], items and groups."""
        own, (row, place) = self._places(items), self._known(groups)
        kept = place != own[row]
        ranks, best = ranks_and_best(users, self._vectors, own, row[kept], place[kept], self.k)
        texts = [" ".join(str(at) for at in one if at >= 0) for one in best.tolist()]
        count = np.full(len(ranks), len(self._vectors), np.int64)
        return {RANK: pa.array(ranks), BEST: pa.array(texts, pa.string()), ITEMS: pa.array(count)}


def ranks_and_best(
    users: NDArray[Any], vectors: NDArray[np.float64], own: Ints, row: Ints, place: Ints, k: int
) -> tuple[NDArray[np.float64], Ints]:
    """Returns the rank of each row's item among all items, from 1, and the positions of its best k items, [rows, k].
    `own` is the position of the row's item; where it is -1 the rank is 0. Missing best items are -1.

    Args:
        row, place: the row and the position of each item that is left out, pair by pair.
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
