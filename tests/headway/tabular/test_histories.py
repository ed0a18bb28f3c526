"""Histories: what a key did before, and nothing of what came later."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.tabular.histories import histories

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 9), st.booleans()), max_size=30)


def lists(rows, last=3):
    keys, times, items, counted = (np.array([row[at] for row in rows], int) for at in range(4))
    return histories(keys, times, items, last=last, counted=counted.astype(bool)).to_pylist()


@given(ROWS, st.integers(1, 5))
def test_a_history_is_the_last_items_of_the_same_key_at_an_earlier_time(rows, last):
    for (key, time, *_), found in zip(rows, lists(rows, last), strict=True):
        before = [(t, item) for k, t, item, counts in rows if k == key and t < time and counts]
        assert found == [item for _, item in sorted(before, key=lambda row: row[0])][-last:]


@given(ROWS, st.integers(0, 6))
def test_rows_after_a_time_change_no_history_up_to_it(rows, cut):
    earlier = [row for row in rows if row[1] <= cut]
    whole = [found for row, found in zip(rows, lists(rows), strict=True) if row[1] <= cut]
    assert lists(earlier) == whole


def test_what_cannot_be_a_history_is_said():
    with pytest.raises(ValueError, match="last is 0"):
        lists([], last=0)
    with pytest.raises(ValueError, match="differ in length"):
        histories(np.zeros(2), np.zeros(2), np.zeros(1), last=1)
    texts = histories(np.array(["a", "a"]), np.array([1, 2]), np.array(["x", "y"]), last=1)
    assert texts.to_pylist() == [[], ["x"]]
