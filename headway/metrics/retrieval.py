"""How well a model finds what users want among all items of its index: recall@k, NDCG@k, MRR and coverage; in NumPy.

    retrieval_metrics(k=10)        # retrieval_recall, retrieval_ndcg, retrieval_mrr, retrieval_coverage

For each row with a label above 0, the row's item is ranked among all items, except those that its group has in train rows.
The predictions have columns with the results (`tfcore.evaluation.items`): `retrieval_rank`, from 1 on, 0 for an item not in
the index; `retrieval_best`, index positions of the best k items as text; `retrieval_items`, the number of items. Rows count
by weight. Other models' predictions lack these columns, so models are not compared by the metrics. Thresholds may use them.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from headway.metrics.base import OF_THE_MODEL, Floats, Metric, MomentMetric, Rows
from headway.metrics.ranking import ItemCoverage

RANK, BEST, ITEMS = RETRIEVAL_COLUMNS = OF_THE_MODEL
RETRIEVAL: tuple[str, ...] = ("retrieval_recall", "retrieval_ndcg", "retrieval_mrr", "retrieval_coverage")


def retrieval_metrics(k: int) -> tuple[Metric, ...]:
    """Returns recall, NDCG and coverage of the first `k` ranks, and the MRR, which looks at all ranks."""

    def first(of_rank: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
        return lambda rank: np.where((rank > 0) & (rank <= k), of_rank(rank), 0.0)

    recall, ndcg, mrr, coverage = RETRIEVAL
    return (
        _OfRank(recall, first(np.ones_like)),
        _OfRank(ndcg, first(lambda rank: 1.0 / np.log2(1.0 + np.maximum(rank, 1.0)))),
        _OfRank(mrr, lambda rank: np.where(rank > 0, 1.0 / np.maximum(rank, 1.0), 0.0)),
        _IndexCoverage(coverage),
    )


def _wanted(rows: Rows) -> NDArray[np.bool_]:
    return rows.label > 0


class _OfRank(MomentMetric):
    """The mean of a function of the rank, over the rows whose label is above 0."""

    reads_columns = True

    def __init__(self, name: str, of_rank: Callable[[Floats], Floats]):
        def moments(rows: Rows) -> Floats:
            wanted = _wanted(rows)
            if rows.columns is None or RANK not in rows.columns:
                return np.full((len(rows), 2), np.nan)
            rank = rows.columns[RANK].astype(np.float64)
            value = np.where(np.isnan(rank), np.nan, of_rank(rank))
            return np.stack([np.where(wanted, value, 0.0), wanted], 1)

        super().__init__(
            name, moments, lambda means: means[..., 0] / means[..., 1], higher_is_better=None, within=(0.0, 1.0)
        )


class _IndexCoverage(ItemCoverage):
    """The share of the index's items that are among the best k items of some row whose label is above 0."""

    def __init__(self, name: str):
        self.name, self.higher_is_better = name, None

    def _shown(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        nothing = np.zeros(0, np.int64)
        if rows.columns is None or BEST not in rows.columns:
            return nothing, nothing, 0
        best = rows.columns[BEST]
        known = np.array([text is not None for text in best], bool)
        at = np.flatnonzero(_wanted(rows) & (rows.weight > 0) & known)
        if not len(at):
            return nothing, nothing, 0
        shown = [np.array(text.split(), np.int64) for text in best[at]]
        return np.repeat(at, [len(one) for one in shown]), np.concatenate(shown), int(rows.columns[ITEMS][at[0]])
