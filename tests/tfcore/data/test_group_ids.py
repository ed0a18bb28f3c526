"""Row splits of runs of ids, also where every shape must be known."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tfcore.data.groups import group_splits, row_groups

compiled = tf.function(group_splits, jit_compile=True, reduce_retracing=True)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 3), max_size=12))
def test_a_group_is_a_run_of_one_id(ids):
    lengths = [1] * bool(ids)
    for before, one in itertools.pairwise(ids):
        if one == before:
            lengths[-1] += 1
        else:
            lengths.append(1)
    expected = np.cumsum([0, *lengths, *[0] * (len(ids) - len(lengths))])
    for given_ids in (np.array(ids, np.int64), np.array([str(one) for one in ids], object)):
        splits = group_splits(tf.constant(given_ids, tf.int64 if given_ids.dtype == np.int64 else tf.string))
        np.testing.assert_array_equal(splits, expected)
    np.testing.assert_array_equal(row_groups(splits, len(ids)), np.repeat(np.arange(len(lengths)), lengths))


def test_the_shape_is_known_under_xla():
    splits = compiled(tf.constant([5, 5, 1, 5]))
    np.testing.assert_array_equal(splits, [0, 2, 3, 4, 4])
    traced = tf.function(group_splits).get_concrete_function(tf.TensorSpec([7], tf.int64))
    assert traced.outputs[0].shape == [8]


def test_ids_that_are_no_vector_are_refused():
    with pytest.raises(ValueError, match=r"ids is a vector, not of shape \(1, 2\)"):
        group_splits([[1, 2]])
