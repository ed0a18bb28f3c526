"""Lists and vectors from whatever a file holds to the stored column."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from headway.errors import DataError
from headway.schema.columns import Column, ColumnConfig
from headway.tabular.coerce import coerce
from headway.tabular.list_arrays import factorize, flatten, stable_argsort
from headway.tabular.splits import column_hash

LIST = Column(name="c", type="float32", nullable=True, shape=(None,))
PAIR = Column(name="c", type="int64", nullable=True, shape=(2,))
WORDS = Column(name="c", type="bytes", nullable=True, shape=(None,), separator="|", encoding="dictionary")


def coerced(column, array):
    batch = pa.RecordBatch.from_arrays([array], names=["c"])
    done = coerce(batch, [column])
    done.batch.validate(full=True)
    assert done.batch.column(0).type == column.arrow
    rows = range(batch.num_rows) if done.fitting_rows is None else done.fitting_rows.tolist()
    assert sorted([*rows, *done.rejected.column("row").to_pylist()]) == list(range(batch.num_rows))
    return done.batch.column(0).to_pylist(), dict(
        zip(*(done.rejected.column(n).to_pylist() for n in ("row", "reason")), strict=True)
    )


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_view(pa.float64()), pa.list_(pa.decimal128(5, 2))],
)
def test_every_kind_of_list_keeps_null_empty_and_zero_apart(kind):
    number = Decimal if pa.types.is_decimal(kind.value_type) else float
    wanted = ([None, [], [0.0], [1.0, 2.0]], {})
    assert coerced(LIST, pa.array([None, [], [number(0)], [number(1), number(2)]], kind)) == wanted


def test_nan_in_a_list_is_no_null():
    kept, bad = coerced(LIST, pa.array([[float("nan")], [0.0]]))
    assert np.isnan(kept[0][0]) and kept[1] == [0.0] and not bad


def test_a_row_is_as_good_as_its_worst_element():
    kept, bad = coerced(LIST, pa.array([["1", "x"], ["2.5"], None, ["3", None], []]))
    assert kept == [[2.5], None, [3.0, None], []]  # the statistics count the null
    assert bad == {0: "an element is not a number that fits float32"}
    flat = flatten(pa.array([["3", None], None, [None]]))
    assert (flat.values.to_pylist(), flat.lengths.tolist(), flat.nulls) == (["3"], [1, 0, 0], 2)


def test_a_vector_has_its_length():
    kept, bad = coerced(PAIR, pa.array([[1, 2], [3], None, [4, 5, 6], [7, 8], []]))
    assert kept == [[1, 2], None, [7, 8]]
    assert set(bad) == {1, 3, 5} and set(bad.values()) == {"does not have 2 values (shape: list takes any number)"}
    fixed = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2))
    assert coerced(PAIR, fixed) == ([[1, 2], None, [3, 4]], {})
    assert coerced(PAIR, fixed.slice(1)) == ([None, [3, 4]], {})


def test_text_is_split_at_the_separator():
    raw = pa.array(["Comedy|Drama", "", None, "War", "|"]).dictionary_encode()
    assert coerced(WORDS, raw) == ([[b"Comedy", b"Drama"], [], None, [b"War"], [b"", b""]], {})


def test_a_number_is_no_list():
    with pytest.raises(DataError, match=r"double cannot be stored as float32 \[any\]"):
        coerced(LIST, pa.array([1.0]))


def test_different_lists_have_different_hashes():
    lists = pa.array([None, [], [0], [0, 0], [1, 2], [2, 1], [1, 2]], pa.list_(pa.int64()))
    hashes = column_hash(lists)
    assert len(set(hashes.tolist())) == 6 and hashes[4] == hashes[6]
    assert column_hash(lists.slice(4)).tolist() == hashes[4:].tolist()
    # lists in a batch of others hash as they do alone
    assert [column_hash(lists.slice(i, 1))[0] for i in range(len(lists))] == hashes.tolist()


def test_a_separator_needs_a_list():
    with pytest.raises(ValueError, match="set shape: list"):
        ColumnConfig(type="string", separator="|")


def test_an_order_is_the_stable_one_whatever_is_equal():
    random = np.random.default_rng(3)
    for values in (
        random.random(1000),
        np.round(random.random(1000), 2),
        np.zeros(5),
        np.zeros(0),
        np.array([1.0, -0.0, 0.0]),
        np.tile([1.0, -0.0, 0.0, -np.inf, np.inf, -5e-324, 5e-324, -1e300], 3000),
        np.round(random.normal(size=20_000), 3),
        random.normal(size=20_000).astype(np.float32),
        random.integers(-(1 << 62), 1 << 62, 20_000),
        random.integers(0, 300, 20_000).astype(np.uint16),
    ):
        assert np.array_equal(stable_argsort(values), np.argsort(values, kind="stable"))


def test_values_are_numbered_in_their_order_whether_they_are_small_or_not():
    for values in (
        np.array([5, 2, 5, 0]),
        np.array([1 << 62, -7, 1 << 62]),
        np.random.default_rng(3).integers(-(1 << 62), 1 << 62, 10_000).repeat(2),
        np.arange(5)[::-1],
        np.zeros(0, np.int64),
        np.array([b"b", b"a"]),
    ):
        expected, codes = np.unique(values, return_inverse=True)
        found, count = factorize(values)
        assert count == len(expected) and np.array_equal(found, codes)
