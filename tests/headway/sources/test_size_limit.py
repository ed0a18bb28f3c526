"""A cell beyond the bound costs its row, whatever the column's type, and says where it stood."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.sources.base import Chunk, Malformed
from headway.sources.spans import reject_large_rows


@pytest.mark.parametrize(
    "big",
    [
        pa.array([b"", b"x" * 11, None, b"y" * 10]),
        pa.array(["", "é" * 6, None, "y" * 10]),
        pa.array(["", "x" * 11, None, "y" * 10], pa.large_string()),
        pa.array(["", "x" * 11, None, "y" * 10]).dictionary_encode(),
        pa.array([[], [1, 2], None, [1]], pa.list_(pa.int64())),
        pa.array([["a"] * 9, ["a" * 6, "b" * 5], None, ["a" * 10]]),
        pa.array([[], [1, 2], None, [1]], pa.large_list(pa.int64())),
    ],
    ids=lambda array: str(array.type),
)
def test_a_row_with_an_oversize_cell_is_set_aside(big):
    batch = pa.RecordBatch.from_arrays([pa.array([0, 1, 2, 3]), big], names=["id", "big"])
    done = reject_large_rows(Chunk(batch, 100, None, (Malformed(7, "x", "y"),)), 10)
    assert done.batch.column(0).to_pylist() == [0, 2, 3] and done.positions().tolist() == [100, 102, 103]
    assert [(bad.row, bad.column) for bad in done.malformed] == [(7, None), (101, "big")]
    assert "max_cell_bytes: 10" in done.malformed[1].reason


@given(st.lists(st.none() | st.binary(max_size=12), max_size=30), st.integers(0, 5), st.integers(1, 12))
def test_what_is_left_is_within_the_bound_and_nothing_is_lost(values, start, bound):
    array = pa.array([b"zzzzzzzzzzzz"] * start + values, pa.binary()).slice(start)
    chunk = Chunk(pa.RecordBatch.from_arrays([array], names=["a"]), 0)
    done = reject_large_rows(chunk, bound)
    small = [(i, v) for i, v in enumerate(values) if v is None or len(v) <= bound]
    assert list(zip(done.positions().tolist(), done.batch.column(0).to_pylist(), strict=True)) == small
    assert sorted([bad.row for bad in done.malformed] + [i for i, _ in small]) == list(range(len(values)))


def test_columns_within_the_bound_are_passed_on_untouched():
    chunk = Chunk(pa.record_batch({"a": [1.0], "s": ["x"], "l": [[1]]}), 5)
    assert reject_large_rows(chunk, 100) is chunk
