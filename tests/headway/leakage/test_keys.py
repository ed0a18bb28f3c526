"""A key is what it says, not how a file wrote it; and the split's hash has no part in it."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.leakage.keys import canonical, key_hashes
from headway.tabular.splits import SplitConfig, assign_splits

TEXTS = st.binary(max_size=12) | st.from_regex(rb"\A\s?[+-]?[0-9]{0,5}(\.0*)?\s?\Z")


def batch(**columns):
    return pa.RecordBatch.from_pydict(columns)


def hashes(*columns):
    return key_hashes(batch(**{f"c{i}": c for i, c in enumerate(columns)}), [f"c{i}" for i in range(len(columns))])[0]


@pytest.mark.parametrize(
    ("written", "meant"),
    [(b"7.0", b"7"), (b"7.", b"7"), (b"+7", b"7"), (b" 7\t", b"7"), (b"-7.000\n", b"-7"), (b" x y ", b"x y")],
)
def test_what_a_file_adds_to_a_key_is_no_part_of_it(written, meant):
    assert canonical(pa.array([written])).to_pylist() == [meant]
    assert len(set(hashes(pa.array([written, meant, meant])).tolist())) == 1


@pytest.mark.parametrize("text", [b"007", b"7.5", b"1e5", b"a.0", b"7.0.0", b"", b"0x7", b"A", b"1e+15", b"\xff.0x"])
def test_everything_else_is(text):
    assert canonical(pa.array([text])).to_pylist() == [text]


@given(st.lists(TEXTS | st.none(), max_size=30), st.integers(0, 5))
def test_canonical_is_settled_and_does_not_depend_on_company_or_encoding(texts, cut):
    array = pa.array(texts, pa.binary())
    once = canonical(array)
    assert canonical(once).to_pylist() == once.to_pylist()
    assert [v for t in texts for v in canonical(pa.array([t], pa.binary())).to_pylist()] == once.to_pylist()
    assert canonical(array.dictionary_encode()).cast(pa.binary()).to_pylist() == once.to_pylist()
    assert canonical(array.slice(cut)).to_pylist() == once.to_pylist()[cut:]
    assert once.null_count == array.null_count


@given(st.lists(st.tuples(st.integers(0, 3), TEXTS), min_size=1, max_size=30))
def test_equal_keys_have_equal_hashes_and_others_have_not(rows):
    numbers, texts = (list(column) for column in zip(*rows, strict=True))
    made = hashes(pa.array(numbers), pa.array(texts, pa.binary())).tolist()
    keys = list(zip(numbers, canonical(pa.array(texts, pa.binary())).to_pylist(), strict=True))
    assert len(set(made)) == len(set(keys)) == len(set(zip(keys, made, strict=True)))


def test_columns_in_any_order_are_one_key_and_swapped_values_another():
    rows = batch(a=pa.array([1, 2]), b=pa.array([2, 1]))
    assert key_hashes(rows, ["a", "b"])[0].tolist() == key_hashes(rows, ["b", "a"])[0].tolist()
    assert len(set(key_hashes(rows, ["a", "b"])[0].tolist())) == 2


def test_hashes_made_for_the_split_are_used_only_where_they_say_the_same():
    rows = batch(k=pa.array([b"7", b"7.0", b"8"]), n=pa.array([1, 1, 2]))
    split = assign_splits(SplitConfig(key=("k", "n")), rows)
    assert set(split.columns) == {"k", "n"}
    assert key_hashes(rows, ["k", "n"], split.columns)[0].tolist() == key_hashes(rows, ["k", "n"])[0].tolist()
    assert len(set(key_hashes(rows, ["k", "n"])[0].tolist())) == 2


def test_null_and_nan_are_no_key_and_empty_and_zero_are():
    rows = batch(
        f=pa.array([0.0, -0.0, float("nan"), None], pa.float32()), s=pa.array([b"", b"", b"x", b"x"], pa.binary())
    )
    found, missing = key_hashes(rows, ["f", "s"])
    assert missing.tolist() == [False, False, True, True] and found[0] == found[1]
    assert key_hashes(rows, ["s"])[1] is None
    odd = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int32()), pa.array([b"a", None]))
    assert key_hashes(batch(s=odd), ["s"])[1].tolist() == [False, True, True]


def test_no_rows():
    assert hashes(pa.array([], pa.binary()), pa.array([], pa.int64())).tolist() == []
    assert np.dtype(np.uint64) == hashes(pa.array([], pa.binary())).dtype
