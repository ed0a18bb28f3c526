"""What evaluation knows of items: two baselines of a ranking, and where the item of each row stands among all of them.

    counts = ItemCounts.of(shards, labeler, "movie_id")
    counts.predictions(texts)                    # {"popularity": [rows], "item_mean": [rows]}, float64
    index = WholeIndex(vectors, places, known, k=10)
    index.columns(users, items, groups)          # {"retrieval_rank": Arrow [rows], "retrieval_best": ..., "retrieval_items": ...}

The baselines look at nothing but the item, as predictions keep it: `popularity` is its share of the train rows of the most
frequent one; `item_mean` its mean label, drawn towards that of all rows as if each item had `SMOOTHING` more rows of that
mean. Weights are not looked at. An item that no train row has gets 0 and the mean of all.

Items that a row's group has in train rows are left out of the ranks, but for the row's own. They are looked at block by
block, so that memory goes with the rows of a batch and a block, and not with the index. Of equal products half count as
larger. `headway.metrics.retrieval` makes metrics of the ranks.
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
from tfcore.data.reader import Labeler, Shards, look_through
from tfcore.transform.raw_column import RawColumn


def kept_column(values: NDArray[Any], present: NDArray[np.bool_]) -> pa.Array:
    """Convert raw values to what predictions keep: numbers as they are, bytes as UTF-8 (invalid ones escaped), null as null."""
    if values.dtype != object:
        return pa.array(values, mask=~present)
    return escaped(pa.array(values, pa.binary(), mask=~present))


def _raw(column: RawColumn) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (the value of each row, whether it has one)."""
    values = column.plain()
    return values, values == values if column.present is None else column.present


def numbered(values: pa.Array, known: Callable[[Any], int]) -> NDArray[np.int64]:
    """Returns the number of each value, asked for once for each distinct one."""
    encoded = values.dictionary_encode(null_encoding="encode")
    numbers = np.asarray([known(value) for value in encoded.dictionary.to_pylist()], np.int64)
    return numbers[encoded.indices.to_numpy()]


SMOOTHING = 10.0


class ItemCounts(NamedTuple):
    """Rows and summed labels of each item of the train rows."""

    items: dict[str | int | float | None, int]
    """The place of each item in the arrays."""
    rows: NDArray[np.float64]
    labels: NDArray[np.float64]

    @staticmethod
    def of(shards: Shards, labeler: Labeler, item: str) -> ItemCounts:
        """Count the rows of all shards; only the item and the label are parsed."""

        def look(columns: dict[str, Any]) -> tuple[Any, ...]:
            return (*_raw(columns[item]), labeler(columns)[0])

        items: dict[str | int | float | None, int] = {}
        places, labels = [], []
        for values, present, label in look_through(shards, list(dict.fromkeys([item, *labeler.needs])), look):
            kept = kept_column(values.numpy(), present.numpy())
            places.append(numbered(kept, lambda name: items.setdefault(name, len(items))))
            labels.append(label.numpy().astype(np.float64))
        at = np.concatenate(places) if places else np.zeros(0, np.int64)
        weights = np.concatenate(labels) if labels else np.zeros(0)
        labels_by_item = np.bincount(at, weights, len(items)).astype(np.float64)
        return ItemCounts(items, np.bincount(at, minlength=len(items)).astype(np.float64), labels_by_item)

    def predictions(self, texts: pa.Array) -> dict[str, NDArray[np.float64]]:
        """Returns each baseline's prediction of rows with these items."""
        place = numbered(texts, lambda name: self.items.get(name, -1))
        mean = self.labels.sum() / max(self.rows.sum(), 1.0)
        rows = np.where(place >= 0, np.append(self.rows, 0.0)[place], 0.0)
        labels = np.where(place >= 0, np.append(self.labels, 0.0)[place], 0.0)
        popularity = rows / max(self.rows.max(initial=0.0), 1.0)
        return dict(zip(ITEM_BASELINES, (popularity, (labels + SMOOTHING * mean) / (rows + SMOOTHING)), strict=True))


BLOCK = 1 << 21
"""Products at once: 16 MiB."""
_TIE = 1e-12
Ints = NDArray[np.int64]
Places = Callable[[pa.Array], Ints]
"""The place of each item in the index, -1 for one that is not in it."""


class KnownItems:
    """The items of each group in the train rows, as places in the index."""

    def __init__(self, groups: Ints, places: Ints, names: dict[Any, int]):
        order = np.argsort(groups, kind="stable")
        self._places, self._names = places[order], names
        self._starts = np.append(0, np.cumsum(np.bincount(groups, minlength=len(names))))

    @staticmethod
    def of(shards: Shards, item: str, group: str, places: Places) -> KnownItems:
        """Look through the rows of all shards; only the two columns are parsed."""
        names: dict[Any, int] = {}
        found: list[tuple[Ints, Ints]] = []

        def look(columns: dict[str, Any]) -> tuple[Any, ...]:
            return (*_raw(columns[item]), *_raw(columns[group]))

        for parts in look_through(shards, list(dict.fromkeys([item, group])), look):
            items, there, owners, owned = (part.numpy() for part in parts)
            owner = numbered(kept_column(owners, owned), lambda name: names.setdefault(name, len(names)))
            at = places(kept_column(items, there))
            kept = (at >= 0) & owned
            found.append((owner[kept], at[kept]))
        owned_by, of_place = (np.concatenate([part[side] for part in found]) for side in (0, 1))
        return KnownItems(owned_by, of_place, names)

    def __call__(self, groups: pa.Array) -> tuple[Ints, Ints]:
        """Returns (row, place) of what each row's group knows."""
        number = numbered(groups, lambda name: -1 if name is None else self._names.get(name, -1))
        begin = self._starts[np.maximum(number, 0)]
        count = np.where(number >= 0, self._starts[number + 1] - begin, 0)
        rows = np.repeat(np.arange(len(number)), count)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        return rows, self._places[begin[rows] + within]


class WholeIndex:
    """See the module.

    Args:
        vectors: of the items, float [items, n].
        places: of items as predictions keep them.
        k: how many of the best are kept.
    """

    def __init__(self, vectors: NDArray[Any], places: Places, known: KnownItems, k: int):
        self._vectors, self._places, self._known = vectors.astype(np.float64), places, known
        self.k = min(k, len(vectors))

    def columns(self, users: NDArray[Any], items: pa.Array, groups: pa.Array) -> dict[str, pa.Array]:
        """Returns the columns for rows with these users' vectors, float [rows, n], items and groups."""
        own, (row, place) = self._places(items), self._known(groups)
        kept = place != own[row]
        ranks, best = ranked(users, self._vectors, own, row[kept], place[kept], self.k)
        texts = [" ".join(str(at) for at in one if at >= 0) for one in best.tolist()]
        count = np.full(len(ranks), len(self._vectors), np.int64)
        return {RANK: pa.array(ranks), BEST: pa.array(texts, pa.string()), ITEMS: pa.array(count)}


def ranked(
    users: NDArray[Any], vectors: NDArray[np.float64], own: Ints, row: Ints, place: Ints, k: int
) -> tuple[NDArray[np.float64], Ints]:
    """Returns (the rank of item own[i] among all for users[i], from 1; 0 where own is -1; the places of the best k, -1
    past the end).

    Args:
        row, place: what is left out, pair by pair.
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
