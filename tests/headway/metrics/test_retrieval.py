"""Metrics of ranks among all items of an index."""

import numpy as np
import pyarrow as pa
import pytest

from headway.evaluation.intervals import intervals
from headway.evaluation.predictions import measured, metrics_of, rows_of
from headway.metrics.retrieval import RETRIEVAL, RETRIEVAL_COLUMNS, retrieval_metrics


def table(rank, best, label=None, weight=None, items=10):
    count = len(rank)
    return pa.table(
        {
            "label": pa.array([1] * count if label is None else label),
            "prediction": pa.array([0.5] * count),
            "weight": pa.array([1.0] * count if weight is None else weight),
            "user": pa.array([number // 2 for number in range(count)]),
            "retrieval_rank": pa.array(rank, pa.float64()),
            "retrieval_best": pa.array(best, pa.string()),
            "retrieval_items": pa.array([items] * count),
        }
    )


def values(made, k=3):
    return measured(retrieval_metrics(k), rows_of(made, "binary", "user", columns=RETRIEVAL_COLUMNS))


def test_each_wanted_row_is_a_question_and_one_that_is_not_in_the_index_a_miss():
    best = ["0 1 2", "0 1 3", "7 8 9", "0 4 5"]
    found = values(table([1, 3, 7, 0], best, label=[1, 1, 1, 1]))
    assert found["retrieval_recall"] == 0.5 and found["retrieval_coverage"] == 0.9
    assert found["retrieval_ndcg"] == pytest.approx((1 + 0.5) / 4)
    assert found["retrieval_mrr"] == pytest.approx((1 + 1 / 3 + 1 / 7) / 4)
    some = values(table([1, 3, 7, 0], best, label=[1, 0, 1, 0], weight=[3.0, 1, 1, 1]))
    assert some["retrieval_recall"] == 0.75 and some["retrieval_coverage"] == 0.6
    assert some["retrieval_mrr"] == pytest.approx((3 + 1 / 7) / 4)


def test_without_ranks_or_wanted_rows_there_is_no_value():
    assert set(values(table([1, 2], ["0 1", "1 2"], label=[0, 0])).values()) == {None}
    assert set(values(table([None, None], [None, None])).values()) == {None}
    rows = rows_of(table([1, 2], ["0 1", "1 2"]), "binary", "user", columns=RETRIEVAL_COLUMNS)
    assert set(measured(retrieval_metrics(3), rows.predicted(rows.prediction)).values()) == {None}  # another model's
    bare = rows_of(table([1], ["0"]).drop_columns(list(RETRIEVAL_COLUMNS)), "binary", "user", columns=["user"])
    assert set(measured(retrieval_metrics(3), bare).values()) == {None}


def test_intervals_hold_the_values_and_draw_a_users_rows_together():
    rng = np.random.default_rng(0)
    rank = np.repeat(rng.integers(0, 8, 300), 2).astype(float)
    made = table(rank, [f"{one} {one + 1}" for one in rng.integers(0, 2000, 600)], items=2001)
    rows = rows_of(made, "binary", "user", columns=RETRIEVAL_COLUMNS)
    metrics = metrics_of("binary", 3, item=None, retrieval=True)[-4:]
    assert tuple(metric.name for metric in metrics) == RETRIEVAL
    found, spans = measured(metrics, rows), intervals(rows, metrics, confidence=0.95, seed=0)
    low, high = spans["retrieval_recall"]
    assert low < found["retrieval_recall"] < high
    # two rows of a user are one draw: the deviation is that of 300 users
    deviation = np.sqrt(found["retrieval_recall"] * (1 - found["retrieval_recall"]) / 300)
    assert high - low == pytest.approx(2 * 1.96 * deviation, rel=0.2)
    assert all(spans[name] is not None for name in RETRIEVAL[:3])
    low, high = spans["retrieval_coverage"]
    assert 0 <= low < high
