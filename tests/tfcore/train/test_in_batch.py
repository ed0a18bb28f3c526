"""The in-batch softmax: what it is in NumPy, what is no negative, and that the correction takes the sample's bias back."""

import numpy as np
import pytest
import tensorflow as tf

from tfcore.data.groups import NO_GROUP
from tfcore.train.retrieval import in_batch_softmax, log_shares


def reference(user, item, items, log_share, there, groups, liked):
    losses = []
    for i in range(len(items)):
        own, total = None, 0.0
        for j in range(len(items)):
            logit = float(user[i] @ item[j]) - (0.0 if log_share is None else log_share[j])
            if j == i:
                own = logit
            elif (
                items[j] == items[i]
                or not there[j]
                or (groups is not None and groups[i] == groups[j] != NO_GROUP and liked[j])
            ):
                continue
            total += np.exp(logit)
        losses.append(np.log(total) - own)
    return np.array(losses)


def batch(seed=0, rows=12):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(2, rows, 3)).astype(np.float32)
    items, groups = rng.integers(0, 7, rows), rng.integers(0, 4, rows)
    share = np.log(np.bincount(items, minlength=7) / rows, where=np.bincount(items, minlength=7) > 0, out=np.zeros(7))
    groups[0] = groups[1] = NO_GROUP
    return vectors, items, share[items].astype(np.float32), rng.random(rows) < 0.8, groups, rng.random(rows) < 0.5


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("jit", [False, True])
def test_it_is_what_two_loops_give(seed, corrected, grouped, jit):
    (user, item), items, share, there, groups, liked = batch(seed)
    given = {"there": there, "log_share": share if corrected else None}
    given |= {"groups": groups, "liked": liked} if grouped else {}
    expected = reference(
        user, item, items, share if corrected else None, there, groups if grouped else None, liked if grouped else None
    )
    found = tf.function(lambda: in_batch_softmax(user, item, items, **given), jit_compile=jit, autograph=False)()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_same_item_and_what_is_not_there_get_no_gradient():
    user, item = tf.ones([4, 2]), tf.Variable(tf.ones([4, 2]))
    with tf.GradientTape() as tape:
        loss = in_batch_softmax(user, item, np.array([5, 5, 6, 7]), there=tf.constant([True, True, True, False]))[0]
    slope = tape.gradient(loss, item).numpy()
    assert float(loss) == pytest.approx(np.log(2), rel=1e-6)
    assert (slope[0] < 0).all() and (slope[1] == 0).all() and (slope[2] > 0).all() and (slope[3] == 0).all()
    alone = in_batch_softmax(user, item, np.ones(4, int))
    np.testing.assert_allclose(alone, np.zeros(4), atol=1e-6)  # nothing to choose from


def test_only_the_correction_lets_frequent_items_score_higher():
    """All users choose by one law, so that an item's score should be the logarithm of its share but for a constant."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, 201)
    log_share = np.log(share / share.sum()).astype(np.float32)
    slopes = {}
    for corrected in (False, True):
        bias, optimizer = tf.Variable(np.zeros(200, np.float32)), tf.keras.optimizers.Adam(0.03)

        @tf.function
        def step(items, bias=bias, optimizer=optimizer, corrected=corrected):
            with tf.GradientTape() as tape:
                item = tf.gather(bias, items)[:, None]
                given = tf.gather(log_share, items) if corrected else None
                loss = tf.reduce_mean(in_batch_softmax(tf.ones_like(item), item, items, log_share=given))
            optimizer.apply([tf.convert_to_tensor(tape.gradient(loss, bias))], [bias])

        for _ in range(400):
            step(tf.constant(rng.choice(200, 128, p=share / share.sum())))
        slopes[corrected] = np.polyfit(log_share[:50], bias.numpy()[:50], 1)[0]
    assert slopes[True] > 0.8 and slopes[False] < 0.3, slopes


def test_shares_of_ids_beyond_the_vocabulary_are_alike():
    np.testing.assert_allclose(np.exp(log_shares((6, 3, 1), 3)), [0.6, 0.3, 0.1], rtol=1e-6)
    np.testing.assert_allclose(np.exp(log_shares((6, 2, 4), 4)), [0.5, 1 / 6, 1 / 6, 1 / 6], rtol=1e-6)
    assert np.isfinite(log_shares((6, 2, 0), 4)).all()
