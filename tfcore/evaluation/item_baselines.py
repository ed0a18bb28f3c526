"""Two baselines of a ranking that look at nothing but the item: how often, and how well liked it was in the train rows.

    counts = ItemCounts.of(shards, labeler, "movie_id")
    counts.predictions(texts)           # {"popularity": [rows], "item_mean": [rows]}, float64, of items as predictions keep them

`popularity` is an item's share of the rows of the most frequent one; `item_mean` its mean label, drawn towards that of all
rows as if each item had `SMOOTHING` more rows of that mean. Weights are not looked at. An item that no train row has gets 0
and the mean of all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.metrics.ranking import ITEM_BASELINES
from tfcore.data.reader import Labeler, Shards, look_through
from tfcore.evaluation.kept_column import kept_column, numbered

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
            column = columns[item]
            present = column.present
            values = column.plain()
            return (values, values == values if present is None else present, labeler(columns)[0])

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
        """Each baseline's prediction of rows with these items."""
        encoded = texts.dictionary_encode(null_encoding="encode")
        place = np.asarray([self.items.get(name, -1) for name in encoded.dictionary.to_pylist()], np.int64)
        place = place[encoded.indices.to_numpy()]
        mean = self.labels.sum() / max(self.rows.sum(), 1.0)
        rows = np.where(place >= 0, np.append(self.rows, 0.0)[place], 0.0)
        labels = np.where(place >= 0, np.append(self.labels, 0.0)[place], 0.0)
        popularity = rows / max(self.rows.max(initial=0.0), 1.0)
        return dict(zip(ITEM_BASELINES, (popularity, (labels + SMOOTHING * mean) / (rows + SMOOTHING)), strict=True))
