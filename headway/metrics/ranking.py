"""How well scores order the rows of each group: NDCG@k, MRR, recall@k, and how many items they show; in NumPy.

    groups = rank_metrics(label, score, weight, codes, k=10)
    groups.mean()                       # {"ndcg": 0.83, "mrr": 0.71, "recall_at_k": 0.64}
    codes_of(table.column("query"))     # int64 [rows], NO_GROUP where there is none

NDCG@k is the sum of (2^label - 1) / log2(1 + rank) over the first k ranks by score, divided by the same sum for the
best order (Jarvelin and Kekalainen, "Cumulated gain-based evaluation of IR techniques", 2002, with the gains of Burges,
2010). MRR is 1 / the rank of the first row with a label above 0. recall@k is the share of the rows with a label above 0
that are within the first k ranks. With equal scores, NDCG and recall are the mean over all orders (McSherry and Najork,
"Computing information retrieval performance measures efficiently in the presence of tied scores", 2008), and MRR takes
the mean rank, whatever the input's order. Groups without a label above 0 are left out; a group of one row counts,
though it has no order. A group's weight is the mean weight of its rows; rows of weight 0 are ignored.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.metrics.base import Floats, Metric, Rows
from headway.tabular.list_arrays import combine_chunks, run_starts

RANKED: tuple[str, ...] = ("ndcg", "mrr", "recall_at_k")
COVERAGE = "item_coverage"
ITEM_BASELINES = ("popularity", "item_mean")
"""Baselines that order by the item alone, which a ranking model has to beat (`tfcore.evaluation.items`)."""
NDCG_AT = 10
"""The default number of first ranks that count."""
NO_GROUP = int(np.iinfo(np.int64).max)
"""The code of a row whose group is null."""


@dataclass(frozen=True, eq=False)
class RankMetrics:
    """The rank metrics of each group that has a row with a label above 0; arrays are [groups]."""

    values: dict[str, Floats]
    """By metric. NaN where a score of the group is not finite; ndcg is NaN too if a label is below 0 or its gain infinite."""
    weight: Floats
    row: NDArray[np.int64]
    """The index of one row of the group."""

    def mean(self) -> dict[str, float | None]:
        """Returns the weighted mean of each metric over the groups; None where there is no group or a value is NaN."""
        total = float(self.weight.sum())
        means = {
            name: float(values @ self.weight / total) if total > 0 else np.nan for name, values in self.values.items()
        }
        return {name: mean if np.isfinite(mean) else None for name, mean in means.items()}


class GroupMetric(Metric):
    """`ndcg`, `mrr` or `recall_at_k`: the mean over the groups of rows, judged by their first `k` ranks."""

    higher_is_better, unit, within = True, "groups", (0.0, 1.0)

    def __init__(self, name: str, k: int):
        self.name, self.k = name, k

    def _ranked(self, rows: Rows) -> RankMetrics:
        if rows.groups is None:
            raise ValueError(f"{self.name} needs groups, and the rows have none")
        groups = rows.groups
        return rows.cached(self.k, lambda: rank_metrics(rows.label, rows.prediction, rows.weight, groups, k=self.k))

    def value(self, rows: Rows) -> float | None:
        return self._ranked(rows).mean()[self.name]

    def influence(self, rows: Rows) -> Floats | None:
        """Returns the influence, [rows]: each group's at one of its rows, 0 at the other rows. None without a value."""
        if (value := self.cached_value(rows)) is None:
            return None
        groups, found = self._ranked(rows), np.zeros(len(rows))
        share = groups.weight / groups.weight.sum()
        found[groups.row] = share * (groups.values[self.name] - value) / rows.weight[groups.row]
        return found


class ItemCoverage(Metric):
    """`item_coverage`: of all items among the rows, the share that some group has within its first `k` ranks.

    A model that shows everyone the same few items has a low coverage. There is no influence: the interval comes from
    leaving out groups (`headway.evaluation.intervals`). Rows of equal scores are put in a random order that is always
    the same.

    Args:
        item: the column that names the item of a row.
    """

    name, unit, reads_columns = COVERAGE, "groups", True
    higher_is_better: bool | None = True

    def __init__(self, item: str, k: int):
        self.item, self.k = item, k

    def _shown(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Returns the indices of the rows within the first ranks, the codes of these rows' items, and the number of all items."""
        if rows.groups is None or rows.columns is None:
            raise ValueError(f"{self.name} needs groups and the column {self.item!r}")
        at = np.flatnonzero((rows.groups != NO_GROUP) & (rows.weight > 0) & np.isfinite(rows.prediction))
        _, items = np.unique(rows.columns[self.item][at].astype(str), return_inverse=True)
        mixed = np.random.Philox(key=0).random_raw(len(rows))[at]
        order = np.lexsort((mixed, -rows.prediction[at], rows.groups[at]))
        starts = np.flatnonzero(run_starts(rows.groups[at][order]))
        place = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
        first = order[place < self.k]
        return at[first], items.reshape(-1)[first], int(items.max(initial=-1)) + 1

    def value(self, rows: Rows) -> float | None:
        _, items, count = self._shown(rows)
        return len(np.unique(items)) / count if count else None


def codes_of(column: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
    """Returns a code from 0 up for each row of a column, equal for equal values; NO_GROUP for null. [rows]"""
    array = combine_chunks(column) if isinstance(column, pa.ChunkedArray) else column
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    return encoded.indices.cast(pa.int64()).fill_null(NO_GROUP).to_numpy(zero_copy_only=False)


def rank_metrics(label: Floats, score: Floats, weight: Floats, codes: NDArray[Any], *, k: int = NDCG_AT) -> RankMetrics:
    """Returns the rank metrics of each group, as the module's docstring defines them.

    Args:
        label, score, weight: float64 [rows].
        codes: [rows], equal for the rows of a group.
    """
    rows = np.flatnonzero((codes != NO_GROUP) & (weight > 0))
    _, at, group = np.unique(codes[rows], return_index=True, return_inverse=True)
    group, groups = group.reshape(-1), len(at)
    label, score = label[rows], score[rows]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        gain = np.where(label < 0, np.nan, np.expm1(label * np.log(2.0)))
        order, place = _ordered(group, score)
        discounts = _discounts(place, k)
        # rows of one group and score share what they have
        first = np.flatnonzero(run_starts(group[order]) | run_starts(score[order]))
        of_run = np.repeat(np.arange(len(first)), np.diff(first, append=len(order)))
        size = np.bincount(of_run, minlength=len(first))
        shared = (np.bincount(of_run, discounts, len(first)) / size)[of_run]
        rank = 1.0 + (np.bincount(of_run, place, len(first)) / size)[of_run]
        dcg = np.bincount(group[order], gain[order] * shared, groups)
        ideal, ideal_place = _ordered(group, label)
        best = np.bincount(group[ideal], gain[ideal] * _discounts(ideal_place, k), groups)
        ndcg = dcg / best
        relevant = label[order] > 0
        within = (np.bincount(of_run, place < k, len(first)) / size)[of_run]
        recall = np.bincount(group[order], relevant * within, groups) / np.bincount(group[order], relevant, groups)
        nearest = np.full(groups, np.inf)
        np.minimum.at(nearest, group[order][relevant], rank[relevant])
    sound = np.bincount(group, ~np.isfinite(score), groups) == 0
    judged = np.isfinite(nearest)
    mean_weight = np.bincount(group, weight[rows], groups) / np.maximum(np.bincount(group, minlength=groups), 1)
    each = zip(RANKED, (ndcg, 1.0 / nearest, recall), strict=True)
    values = {name: np.where(sound, value, np.nan) for name, value in each}
    return RankMetrics({name: value[judged] for name, value in values.items()}, mean_weight[judged], rows[at[judged]])


def _ordered(group: NDArray[np.int64], by: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the indices of the rows sorted by group, then by falling `by`, and each sorted row's rank in its group, from 0."""
    order = np.lexsort((-by, group))
    first = np.flatnonzero(run_starts(group[order]))
    return order, np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))


def _discounts(place: NDArray[np.int64], k: int) -> Floats:
    return np.where(place < k, 1.0 / np.log2(2.0 + place), 0.0)
