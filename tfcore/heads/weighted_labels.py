"""Weighted statistics of the train labels, for data with a weight column; TensorFlow-free.

    labels = WeightedLabel(Column(name="label", type="float32", nullable=False))
    labels.add(pa.array([3.0, 1e5], pa.float32()), pa.array([2.0, 0.0]))
    labels.mean, labels.statistics.rows          # 3.0, 1: a row of weight 0 does not count at all

The stored statistics of a span, such as a day, are unweighted, since a pipeline may name the weights later. So the labels
are read again from the shards. A number takes 8 bytes of memory a row (int64: 12); of texts only distinct ones are kept."""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.records.decode import decode
from headway.records.tfrecord import read_records
from headway.schema.columns import LABEL, Column
from headway.stages.refs import Examples
from headway.statistics.column_statistics import ColumnStatistics


class WeightedLabel:
    """Accumulates weighted statistics of a label, from rows with a label and a finite weight above 0."""

    def __init__(self, column: Column):
        self.statistics = ColumnStatistics(column.name, column.type)
        """The unweighted statistics of the rows that count."""
        self._parts: list[tuple[NDArray[Any], NDArray[np.float32]]] = []
        self._texts: Counter[bytes] = Counter()

    def add(self, labels: pa.Array, weights: pa.Array) -> None:
        """Add rows: their labels as stored, and their weights, int64 or float32. A null weight counts as 0."""
        weight = pc.fill_null(weights, 0).to_numpy(zero_copy_only=False).astype(np.float32)
        counts = (weight > 0) & np.isfinite(weight) & labels.is_valid().to_numpy(zero_copy_only=False)
        labels, weight = labels.filter(pa.array(counts)), weight[counts]
        self.statistics.update(labels)
        if self.statistics.type == "bytes":
            coded = labels if pa.types.is_dictionary(labels.type) else labels.dictionary_encode()
            sums = np.bincount(coded.indices.to_numpy(), weights=weight, minlength=len(coded.dictionary))
            self._texts.update(dict(zip(coded.dictionary.to_pylist(), sums.tolist(), strict=True)))
            return
        values = labels.to_numpy()
        finite = np.isfinite(values)
        self._parts.append((values[finite], weight[finite]))

    @property
    def total(self) -> float:
        """The sum of the weights above 0 of all rows with a finite number as label; 0 if labels are text."""
        return float(sum(weight.sum(dtype=np.float64) for _, weight in self._parts))

    @property
    def mean(self) -> float:
        """The weighted mean of the finite labels."""
        return self._average(lambda values: values)

    @property
    def std(self) -> float:
        """The weighted population standard deviation of the finite labels."""
        mean = self.mean
        return float(np.sqrt(self._average(lambda values: (values - mean) ** 2)))

    def _average(self, of: Any) -> float:
        sums = (float(of(values.astype(np.float64)) @ weight.astype(np.float64)) for values, weight in self._parts)
        return sum(sums) / total if (total := self.total) else 0.0

    def quantile(self, levels: Sequence[float]) -> list[float]:
        """Returns the weighted quantile at each level: the smallest label with that share of the weight at or below it.
        The list is empty if no label is finite."""
        values, weight = (np.concatenate(side) for side in zip(*self._parts, strict=True))
        if not len(values):
            return []
        order = np.argsort(values, kind="stable")
        upto = np.cumsum(weight[order], dtype=np.float64)
        at = np.searchsorted(upto, np.asarray(levels) * upto[-1] * (1 - 1e-12))
        return [float(value) for value in values[order[np.minimum(at, len(order) - 1)]]]

    def sums(self, classes: Sequence[Any]) -> NDArray[np.float64]:
        """Returns each class's sum of weights, float64 [classes], scaled so that all add up to the number of rows."""
        if self.statistics.type == "bytes":
            sums = np.array([self._texts[value] for value in classes], np.float64)
        else:
            sums = np.zeros(len(classes))
            for values, weight in self._parts:
                sums += np.bincount(np.searchsorted(classes, values), weights=weight, minlength=len(classes))
        return sums * (self.statistics.present / sums.sum())


def read_label(parts: Sequence[Examples]) -> WeightedLabel | None:
    """Returns a label's weighted statistics, read from shards; None if `parts` is empty, or has no label or no weight column.

    Raises:
        DataError: a shard is damaged.
    """
    if not parts:
        return None
    first = parts[0].result
    columns = [Column.model_validate(column) for column in first["columns"]]
    weight = next((column for column in columns if column.role == "weight"), None)
    label = next((column for column in columns if column.name == LABEL), None)
    if weight is None or label is None:
        return None
    found = WeightedLabel(label)
    for path in itertools.chain.from_iterable(part.paths() for part in parts):
        for record in read_records(path):
            batch = decode(record, [label, weight])
            found.add(batch.column(LABEL), batch.column(weight.name))
    return found
