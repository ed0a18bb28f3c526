"""Laws of the distances that drift is judged by."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.statistics.column_statistics import MAX_DISTINCT, ColumnStatistics
from headway.validation.drift import jensen_shannon, l_infinity, quantile_distance
from tests.properties import examples

numbers = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=60)
words = st.lists(st.binary(max_size=2), min_size=1, max_size=60)


def column(values, kind="float32"):
    made = ColumnStatistics("c", kind)
    types = {"float32": pa.float32(), "int64": pa.int64(), "bytes": pa.binary()}
    made.update(pa.array(values, types[kind]))
    return made


@examples(150)
@given(numbers, numbers)
def test_numbers_symmetric_bounded_and_zero_for_equal_columns(a, b):
    one, two = column(a), column(b)
    divergence, shift = jensen_shannon(one, two), quantile_distance(one, two)
    assert 0 <= divergence <= 1 and shift >= 0
    assert divergence == pytest.approx(jensen_shannon(two, one), abs=1e-12)
    assert shift == pytest.approx(quantile_distance(two, one), abs=1e-12)
    assert jensen_shannon(one, column(a)) == quantile_distance(one, column(a)) == 0


@examples(150)
@given(words, words)
def test_text_symmetric_bounded_zero_and_the_greatest_change(a, b):
    one, two = column(a, "bytes"), column(b, "bytes")
    distance, value, share, was = l_infinity(one, two)
    assert distance == l_infinity(two, one)[0] and 0 <= distance <= 1
    assert l_infinity(one, column(a, "bytes"))[0] == 0
    assert share == pytest.approx(a.count(value) / len(a)) and was == pytest.approx(b.count(value) / len(b))
    greatest = max(abs(a.count(v) / len(a) - b.count(v) / len(b)) for v in {*a, *b})
    assert distance == pytest.approx(greatest)


@pytest.mark.parametrize("rows", [4000, MAX_DISTINCT + 30_000])
def test_numbers_grow_with_the_shift(rows):
    """Counted and sketched columns alike; disjoint ones are 1 bit apart."""
    values = np.random.default_rng(0).normal(size=rows).astype(np.float32)
    base = column(values)
    assert base.complete == (rows < MAX_DISTINCT)
    shifts = [0.0, 0.3, 1.0, 2.0, 10.0]
    divergences = [jensen_shannon(base, column(values + np.float32(s))) for s in shifts]
    distances = [quantile_distance(base, column(values + np.float32(s))) for s in shifts]
    assert divergences == sorted(divergences) and distances == sorted(distances)
    assert divergences[0] == distances[0] == 0 and divergences[-1] > 0.99
    assert 0.005 < divergences[1] < 0.1 < divergences[2]
    assert distances[2] == pytest.approx(1 / 3.29, abs=0.02)


def test_two_samples_of_one_distribution_are_near():
    random = np.random.default_rng(1)
    assert jensen_shannon(column(random.normal(size=5000)), column(random.normal(size=5000))) < 0.01
    few = [column(random.integers(0, 5, 5000), "int64") for _ in range(2)]
    assert jensen_shannon(*few) < 0.005 and quantile_distance(*few) < 0.1


def test_a_share_of_zeros_that_changes():
    assert jensen_shannon(column([0] * 90 + [1] * 10, "int64"), column([0] * 10 + [1] * 90, "int64")) > 0.5
    assert quantile_distance(column([5], "int64"), column([6], "int64")) == 1
