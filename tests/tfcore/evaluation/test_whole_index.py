"""The rank of a row's item among all items of an index."""

import numpy as np
import pyarrow as pa
import pytest

from tfcore.evaluation import items
from tfcore.evaluation.items import ItemRanker, KnownItems, ranks_and_best


@pytest.mark.parametrize("block", [1, 40, 1 << 20])
def test_ranks_and_best_items_are_those_of_a_sort_of_all(monkeypatch, block):
    monkeypatch.setattr(items, "BLOCK", block)
    rng = np.random.default_rng(0)
    users, vectors = rng.normal(size=(9, 4)).astype(np.float32), rng.normal(size=(23, 4))
    own, out = rng.integers(-1, 23, 9), rng.random((9, 23)) < 0.3
    out[np.arange(9), np.maximum(own, 0)] = False
    out[3] = True
    own[3] = -1
    ranks, best = ranks_and_best(users, vectors, own, *np.nonzero(out), 5)
    for i in range(9):
        products = np.where(out[i], -np.inf, users[i].astype(float) @ vectors.T)
        order = [at for at in np.argsort(-products) if not out[i, at]]
        assert best[i].tolist() == (order[:5] + [-1] * 5)[:5]
        assert ranks[i] == (0 if own[i] < 0 else 1 + order.index(own[i]))


def test_of_equal_products_half_count_as_larger():
    ranks, _ = ranks_and_best(
        np.ones((2, 1)), np.array([[2.0], [1.0], [1.0], [1.0], [0.0]]), np.array([1, 4]), *[np.zeros(0, int)] * 2, 2
    )
    assert ranks.tolist() == [3.0, 5.0]


def test_what_a_group_has_in_train_rows_is_left_out_but_the_rows_own_item():
    names = {"a": 0, "b": 1, None: 2}
    known = KnownItems(np.array([1, 0, 1, 0]), np.array([3, 0, 2, 1]), names)
    rows, places = known(pa.array(["b", "new", None, "a", "b"]))
    assert rows.tolist() == [0, 0, 3, 3, 4, 4] and places.tolist() == [3, 2, 0, 1, 3, 2]
    index = ItemRanker(np.array([[4.0], [3.0], [2.0], [1.0]]), lambda items: items.to_numpy(), known, k=3)
    found = index.columns(np.ones((3, 1)), pa.array([3, 1, 1]), pa.array(["a", "a", "new"]))
    assert found["retrieval_rank"].to_pylist() == [2.0, 1.0, 2.0]
    assert found["retrieval_best"].to_pylist() == ["2 3", "1 2 3", "0 1 2"]
    assert found["retrieval_items"].to_pylist() == [4, 4, 4]
    with_none = KnownItems(np.zeros(0, int), np.zeros(0, int), {})
    assert [len(one) for one in with_none(pa.array(["a", None]))] == [0, 0]
