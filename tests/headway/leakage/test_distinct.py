"""The sample of distinct hashes: exact while they are few, close when they are many, however they came."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.leakage.key_index import SAMPLE_SIZE, DistinctSample
from headway.tabular.hashing import mix64
from tests.properties import examples


def seen(values, size):
    made = DistinctSample()
    for start in range(0, len(values), size):
        made.add(mix64(np.asarray(values[start : start + size], np.uint64)))
    return made


@examples(30)
@given(st.lists(st.integers(0, 60), max_size=300), st.integers(1, 90))
def test_few_distinct_values_are_counted_exactly(values, size):
    made = seen(values, size)
    assert made.whole
    assert (made.values, made.rows, made.estimate(len(values))) == (len({*values}), len(values), len({*values}))


@pytest.mark.parametrize("times", [1, 3])
def test_many_are_estimated_and_pieces_say_the_same_as_the_whole(times):
    values = np.random.default_rng(0).permutation(np.repeat(np.arange(60_000), times))
    whole = seen(values, len(values))
    assert not whole.whole and whole.values == SAMPLE_SIZE and whole.estimate(len(values)) == pytest.approx(6e4, 1e-9)
    pieces = seen(values[:1000], 100)
    pieces.merge(DistinctSample.from_text(seen(values[1000:], 7000).to_text()))
    assert pieces.to_text() == whole.to_text() == seen(values, 911).to_text()


def test_few_values_in_a_large_batch():
    made = seen(np.arange(200_000) % 37, 131_072)
    assert made.whole and made.values == 37 and made.rows == 200_000


def test_a_skewed_table_is_judged_by_its_rows_not_only_by_its_values():
    values = np.concatenate([np.zeros(50_000, np.int64), np.arange(1, 50_001)])
    assert 30_000 < seen(values, 10_000).estimate(len(values)) <= 100_000


def test_what_is_damaged_is_refused():
    for text in ("all:AAAA", "some:", "all:###"):
        with pytest.raises(ValueError):
            DistinctSample.from_text(text)
