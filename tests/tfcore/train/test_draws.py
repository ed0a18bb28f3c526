"""Draws are a function of (seed, epoch, index, draw) and nothing else, and they are spread as they should be."""

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.tabular.hashing import mix64 as numpy_mix64
from tfcore.data.reader import hash64
from tfcore.train.augment import Draws, beta_quantiles

WORDS = st.integers(0, 2**64 - 1)


@settings(max_examples=30, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=9), st.integers(0, 2**31))
def test_the_hash_is_the_one_that_splits_use(words, seed):
    x = np.asarray(words, np.uint64)
    np.testing.assert_array_equal(hash64(tf.constant(x), seed), numpy_mix64(x, seed))
    seeds = tf.constant([seed] * len(x), tf.uint64)
    np.testing.assert_array_equal(hash64(tf.constant(x), seeds), numpy_mix64(x, seed))


def test_the_first_numbers_are_what_they_were():
    """Golden: a training that is resumed with a newer Headway sees the pixels that it would have seen."""
    draws = Draws(seed=7, epoch=tf.constant([0, 0, 1], tf.int64), index=tf.constant([0, 1, 0], tf.int64))
    key = numpy_mix64(numpy_mix64(np.array([0, 0, 1], np.uint64), 7) ^ np.array([0, 1, 0], np.uint64))
    np.testing.assert_array_equal(draws.bits(3), numpy_mix64(key, 3 << 20))
    assert [hex(b) for b in draws.bits(0).numpy().tolist()] == GOLDEN


GOLDEN = ["0x96f5cfe75811b43", "0x13ca068e1d8c80f0", "0xb95de140abef842a"]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=20), st.integers(0, 10), st.data())
def test_a_row_s_numbers_do_not_depend_on_its_batch(indices, epoch, data):
    def numbers(index, epochs):
        draws = Draws(seed=5, epoch=epochs, index=tf.constant(index, tf.int64))
        return np.concatenate([draws.uniform(2)[:, None], draws.uniform(4, columns=3), draws.below(1, 9)[:, None]], 1)

    whole = numbers(indices, tf.constant([epoch] * len(indices), tf.int64))
    at = data.draw(st.integers(0, len(indices) - 1))
    np.testing.assert_array_equal(numbers(indices[at:], tf.constant(epoch, tf.int64)), whole[at:])


def test_numbers_are_spread_evenly_and_draws_are_apart():
    index = tf.range(200_000, dtype=tf.int64)
    draws = Draws(seed=1, epoch=tf.constant(0, tf.int64), index=index)
    first, second = draws.uniform(0).numpy(), draws.uniform(1).numpy()
    later = Draws(seed=1, epoch=tf.constant(1, tf.int64), index=index).uniform(0).numpy()
    shifted = first[1:], first[:-1]
    assert first.min() >= 0 and first.max() < 1
    assert abs(np.histogram(first, 20, (0, 1))[0] - 10_000).max() < 500
    for a, b in ((first, second), (first, later), shifted):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.01
    wide = draws.uniform(0, columns=4).numpy()
    assert abs(np.corrcoef(wide.T) - np.eye(4)).max() < 0.01
    np.testing.assert_array_equal(wide[:, 0], first)
    assert np.bincount(draws.below(3, 7).numpy(), minlength=7).min() > 27_000


def test_the_shares_of_mixup_have_the_quantiles_of_their_distribution():
    rng = np.random.default_rng(0)
    for alpha in (0.1, 0.2, 1.0, 4.0):
        x = rng.beta(alpha, alpha, 400_000)
        share = beta_quantiles(alpha)
        assert share.min() >= 0.5 and share.max() <= 1.0
        wanted = np.quantile(np.maximum(x, 1 - x), [0.1, 0.5, 0.9])
        np.testing.assert_allclose(np.quantile(share, [0.1, 0.5, 0.9]), wanted, atol=0.004)
