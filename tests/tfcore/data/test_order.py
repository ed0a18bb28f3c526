"""The order of rows is arithmetic: no TensorFlow but for the walk of interleave."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfcore.data.order import Plan, interleave

SHARDS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=6).filter(
    lambda shards: sum(map(sum, shards)) > 0
)


@given(st.lists(st.integers(0, 7), max_size=8), st.integers(1, 4))
def test_interleave_visits_every_element_once_and_in_order(lengths, cycle):
    seen = {i: [] for i in range(len(lengths))}
    for shard, first, count in interleave(lengths, cycle):
        seen[shard] += range(first, first + count)
    assert all(seen[i] == list(range(n)) for i, n in enumerate(lengths))


def test_interleave_walks_as_tf_data_does():
    tf = pytest.importorskip("tensorflow")
    r = np.random.default_rng(0)
    for _ in range(30):
        lengths = r.integers(0, 6, r.integers(1, 7)).tolist()
        cycle = int(r.integers(1, 5))
        sizes = tf.constant(lengths, tf.int64)

        def elements(shard, sizes=sizes):
            count = tf.range(sizes[shard])
            return tf.data.Dataset.from_tensor_slices((tf.fill(tf.shape(count), shard), count))

        dataset = tf.data.Dataset.range(len(lengths)).interleave(elements, cycle_length=cycle)
        got = [(int(pair[0]), int(pair[1])) for pair in dataset]
        assert got == [(s, f + k) for s, f, n in interleave(lengths, cycle) for k in range(n)]


@given(SHARDS, st.integers(0, 5), st.integers(1, 12), st.integers(1, 3), st.integers(0, 200))
def test_a_start_passes_over_exactly_the_rows_before_it(shards, seed, window, cycle, first_row):
    plan = Plan(shards, seed, window=window, cycle=cycle)
    start = plan.start(first_row)
    rows = plan.rows_per_record(start.epoch)
    before = int(rows[: start.skip_records].sum()) + start.drop_rows
    assert before == start.window * window
    assert start.epoch * plan.rows + before + start.drop_in_window == first_row
    assert start.drop_rows == 0 or start.drop_rows < rows[start.skip_records]


def test_epochs_have_orders_of_their_own_and_the_same_seed_repeats_them():
    plan, again = Plan([[1]] * 20, 3), Plan([[1]] * 20, 3)
    assert (plan.shard_order(0) == again.shard_order(0)).all()
    assert (plan.shard_order(0) != plan.shard_order(1)).any()
    assert sorted(plan.shard_order(5).tolist()) == list(range(20))
    # golden: an order that changes would change every resumed training
    assert plan.shard_order(0)[:6].tolist() == [3, 19, 16, 4, 11, 14]
