"""One column: what is counted, and that pieces give what the whole gives."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.statistics.column_statistics import MAX_DISTINCT, ColumnStatistics

INF, NAN = float("inf"), float("nan")
ARROW = {"int64": pa.int64(), "float32": pa.float32(), "bytes": pa.binary()}


def column(kind, *pieces):
    """A column that saw each piece: an Arrow array, or a list with None for null."""
    made = ColumnStatistics("c", kind)
    for piece in pieces:
        made.update(piece if isinstance(piece, pa.Array) else pa.array(piece, ARROW[kind]))
    return made


def merged(kind, *pieces):
    made = ColumnStatistics("c", kind)
    for piece in pieces:
        made.merge(column(kind, piece))
    return made


def exact(stats):
    """Everything that may not depend on how the rows were cut."""
    fields = ["rows", "missing", "nan", "infinite", "zeros", "minimum", "maximum", "distinct", "complete"]
    lengths = ["bytes_total", "shortest", "longest"]
    return [getattr(stats, name) for name in fields + lengths] + [stats.top() if stats.complete else None]


def test_null_nan_infinity_zero_and_empty_are_counted_apart():
    x = column("float32", [None, NAN, INF, -INF, 0.0, -0.0, 1.5, None])
    assert (x.rows, x.missing, x.present, x.nan, x.infinite, x.zeros, x.finite) == (8, 2, 6, 1, 2, 2, 3)
    assert (x.minimum, x.maximum, x.distinct, x.mean) == (0.0, 1.5, 2, 0.5)
    assert x.top() == [(0.0, 2), (1.5, 1)]
    s = column("bytes", [None, b"", b"ab", b""])
    assert (s.rows, s.missing, s.shortest, s.longest, s.mean_bytes) == (4, 1, 0, 2, 2 / 3)
    assert s.top() == [(b"", 2), (b"ab", 1)]


@pytest.mark.parametrize("kind", ARROW)
@pytest.mark.parametrize("rows", [[], [None, None]])
def test_a_column_without_values(kind, rows):
    stats = column(kind, rows)
    assert (stats.missing, stats.present, stats.distinct, stats.std, stats.mean) == (len(rows), 0, 0, 0.0, 0.0)
    assert stats.minimum is None and stats.shortest is None and stats.top() == [] and stats.mean_bytes == 0.0
    if kind != "bytes":
        assert np.isnan(stats.quantile([0.5])).all()


INTS = st.lists(st.none() | st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1), max_size=30)
FLOATS = st.lists(st.none() | st.sampled_from([0.0, -0.0, 1.0]) | st.floats(width=32), max_size=30)
TEXTS = st.lists(st.none() | st.binary(max_size=3), max_size=30)
PIECES = st.one_of(
    st.tuples(st.just("int64"), st.lists(INTS, max_size=4)),
    st.tuples(st.just("float32"), st.lists(FLOATS, max_size=4)),
    st.tuples(st.just("bytes"), st.lists(TEXTS, max_size=4)),
)


@given(PIECES)
def test_pieces_updated_or_merged_give_what_the_whole_gives(case):
    kind, pieces = case
    whole = column(kind, [value for piece in pieces for value in piece])
    for parts in (column(kind, *pieces), merged(kind, *pieces)):
        assert exact(parts) == exact(whole)
        size = max(abs(whole.minimum or 0), abs(whole.maximum or 0), 1e-30)
        assert abs(parts.mean - whole.mean) <= 1e-12 * size
        assert abs(parts.std - whole.std) <= 1e-6 * size  # a root doubles the digits lost to cancellation
        if kind != "bytes":
            at = [0, 0.1, 0.5, 0.9, 1]
            assert np.array_equal(parts.quantile(at), whole.quantile(at), equal_nan=True)


@given(PIECES)
def test_counts_are_those_of_a_plain_dictionary(case):
    kind, pieces = case
    counts = {}
    for value in (value for piece in pieces for value in piece):
        if value is not None and (kind == "bytes" or np.isfinite(value)):
            counts[value] = counts.get(value, 0) + 1
    assert column(kind, *pieces).top() == sorted(counts.items(), key=lambda item: (-item[1], item[0]))


@pytest.mark.parametrize("shift", [0.0, 1e6])
@pytest.mark.parametrize("kind", ["int64", "float32"])
@pytest.mark.parametrize("distinct", [50, 10**9])
def test_moments_agree_with_numpy(kind, distinct, shift):
    random = np.random.default_rng(3)
    values = (random.integers(-distinct, distinct, 100_000) + shift).astype(ARROW[kind].to_pandas_dtype())
    pieces = [pa.array(piece) for piece in np.array_split(values, [10, 40_000, 40_001, 90_000])]
    wide = values.astype(np.float64)
    for stats in (column(kind, *pieces), merged(kind, *pieces)):
        scale = np.abs(wide).mean()
        assert abs(stats.mean - wide.mean()) <= 1e-9 * scale
        assert abs(stats.m2 / len(wide) - wide.var()) <= 1e-9 * wide.var()
        assert abs(stats.std - wide.std()) <= 1e-9 * wide.std()


def test_integers_at_the_ends_of_their_range_stay_exact():
    low, high = -(2**63), 2**63 - 1
    stats = column("int64", [low, high, high - 1, high])
    assert (stats.minimum, stats.maximum) == (low, high)
    assert stats.top() == [(high, 2), (low, 1), (high - 1, 1)]


def test_dictionary_and_plain_strings_are_one():
    plain = [b"b", None, b"a", b"b", b""]
    encoded = pa.array(plain, pa.binary()).dictionary_encode()
    unused = pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1, 2]), pa.array([b"a", b"b", b"", b"no"]))
    twice = pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 2, 3]), pa.array([b"b", b"a", b"b", b""]))
    nulls = pa.DictionaryArray.from_arrays(pa.array([1, 3, 0, 1, 2]), pa.array([b"a", b"b", b"", None]))
    want = exact(column("bytes", plain))
    for array in (encoded, unused, twice, nulls, pa.array(plain, pa.large_binary()), encoded.slice(0)):
        assert exact(column("bytes", array)) == want
    assert column("bytes", encoded.slice(2, 2)).top() == [(b"a", 1), (b"b", 1)]


def test_a_column_of_many_values_keeps_sketches_from_one_more_than_the_bound():
    exactly = column("int64", pa.array(np.arange(MAX_DISTINCT)), pa.array(np.arange(MAX_DISTINCT)))
    assert exactly.complete and exactly.distinct == MAX_DISTINCT
    more = column("int64", pa.array(np.arange(MAX_DISTINCT)), [MAX_DISTINCT])
    assert not more.complete and (more.minimum, more.maximum, more.rows) == (0, MAX_DISTINCT, MAX_DISTINCT + 1)
    with pytest.raises(ValueError, match="distinct values"):
        more.top()
    apart = column("int64", pa.array(np.arange(40_000)))
    apart.merge(column("int64", pa.array(np.arange(40_000, 80_000))))
    assert not apart.complete and abs(apart.distinct / 80_000 - 1) < 0.1


def test_columns_of_another_kind_do_not_merge():
    with pytest.raises(ValueError, match="cannot take in"):
        column("int64", [1]).merge(column("float32", [1.0]))


def test_strings_have_no_quantiles():
    with pytest.raises(ValueError, match="no quantiles"):
        column("bytes", [b"a"]).quantile([0.5])
