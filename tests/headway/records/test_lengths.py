"""Rows of records as manifests keep them."""

from hypothesis import given
from hypothesis import strategies as st

from headway.records.encode import packed, total, unpacked


@given(st.lists(st.integers(1, 3)))
def test_unpacking_undoes_packing(rows):
    assert unpacked(packed(rows)).tolist() == rows
    assert total(packed(rows)) == sum(rows)
    assert len(packed(rows)) == sum(1 for a, b in zip(rows, [None, *rows], strict=False) if a != b)


def test_equal_records_take_one_pair():
    assert packed([1] * 1_000_000) == [[1, 1_000_000]]
