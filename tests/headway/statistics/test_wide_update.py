"""Hundreds of numeric columns counted together: the figures are those that each alone would have."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.schema.columns import Column
from headway.statistics.column_statistics import ColumnStatistics, Limits
from headway.statistics.split_statistics import SplitStatistics, merge_all
from headway.statistics.wide_update import Numbers
from headway.tabular.stacked import Stack
from tests.properties import examples

WIDE = Limits(distinct=40, wide=True)


def _both(kind, batches):
    """A column of each of the arrays of a batch: counted one at a time, and all together."""
    made = [[ColumnStatistics(f"c{i}", kind, limits=WIDE) for i in range(len(batches[0]))] for _ in range(2)]
    for arrays in batches:
        for column, array in zip(made[0], arrays, strict=True):
            column.update(array)
        stack = Stack.of(pa.RecordBatch.from_arrays(list(arrays), names=[str(i) for i in range(len(arrays))]))
        numbers = Numbers(made[1])
        numbers.add(stack.values[kind], stack.present[kind])
        numbers.settle()
    return made


def _check(alone, together):
    for one, other in zip(alone, together, strict=True):
        figures, others = one.to_json(), other.to_json()
        for name in ("mean", "m2"):
            scale = max(1.0, abs(one.maximum or 0), abs(one.minimum or 0)) ** (1 + (name == "m2")) * max(1, one.rows)
            assert others.pop(name) == pytest.approx(figures.pop(name), rel=1e-9, abs=1e-12 * scale)
        if not one.complete:
            assert figures.pop("sketches")["hashes"] == others.pop("sketches")["hashes"]
        assert figures == others and one.distinct == other.distinct
        if one.complete:
            for a, b in zip(one.numbers.sorted(), other.numbers.sorted(), strict=True):
                assert a.dtype == b.dtype and np.array_equal(a, b)


special = st.sampled_from([None, 0.0, -0.0, 1.0, float("nan"), float("inf"), float("-inf"), 3.4e38, 1e-45])
floats = st.one_of(special, st.integers(-60, 60).map(float))
integers = st.one_of(st.none(), st.integers(-60, 60), st.sampled_from([2**63 - 1, -(2**63), 0]))


@examples(60)
@given(st.data())
def test_a_column_among_many_has_the_figures_that_it_has_alone(data):
    kind = data.draw(st.sampled_from(["float32", "int64"]))
    values, arrow = (floats, pa.float32()) if kind == "float32" else (integers, pa.int64())
    width = data.draw(st.integers(1, 5))
    batches = []
    for _ in range(data.draw(st.integers(1, 4))):
        rows = data.draw(st.integers(0, 60))
        column = st.lists(values, min_size=rows + 1, max_size=rows + 1)
        # a slice, as a batch of a row group is
        batches.append([pa.array(data.draw(column), arrow)[1:] for _ in range(width)])
    _check(*_both(kind, batches))


def test_blocks_of_columns_and_batches_that_overflow_make_no_difference():
    random = np.random.default_rng(3)
    batches = [
        [
            pa.array(
                random.integers(0, 20 + 200 * i, rows).astype(np.float32), mask=random.random(rows) < 0.1 * (i % 3)
            )
            for i in range(60)
        ]
        for rows in (5000, 3, 700, 0, 1)
    ]
    alone, together = _both("float32", batches)
    _check(alone, together)
    assert together[0].complete and not together[1].complete
    for i, column in enumerate(together[1:], 1):
        values = np.sort(np.concatenate([arrays[i].drop_null().to_numpy() for arrays in batches]))
        at = np.linspace(0.05, 0.95, 19)
        found = column.quantile(at)
        below, upto = (np.searchsorted(values, found, side=side) / len(values) for side in ("left", "right"))
        assert np.maximum(np.maximum(below - at, at - upto), 0).max() <= column.rank_error
        exact = len(np.unique(values))
        assert abs(column.distinct - exact) <= 4 * column.distinct_error * exact


@pytest.fixture
def wide_columns():
    kinds = ("float32", "int64", "bytes")
    return tuple(Column(name=f"c{i}", type=kinds[i % 3], nullable=True) for i in range(900))


@pytest.mark.long
def test_pieces_merged_repeat_and_are_as_good_as_the_whole(wide_columns, tmp_path):
    random = np.random.default_rng(8)
    rows = 6000
    makers = [
        lambda: pa.array(random.standard_normal(rows).astype(np.float32)),
        lambda: pa.array(random.integers(0, 10**9, rows)),
        lambda: pa.array([b"%d" % v for v in random.integers(0, 50, 100)], pa.binary()).take(
            pa.array(random.integers(0, 100, rows))
        ),
    ]
    batch = pa.record_batch([makers[i % 3]() for i in range(900)], names=[c.name for c in wide_columns])
    whole = SplitStatistics.create(wide_columns)
    whole.update(batch)
    folders = []
    for i, piece in enumerate([batch.slice(0, 100), batch.slice(100, 2900), batch.slice(3000)]):
        part = SplitStatistics.create(wide_columns, spill=tmp_path / "spill")
        part.update(piece)
        part.save(tmp_path / str(i))
        folders.append(tmp_path / str(i))
    for name in ("one", "two"):
        merge_all(folders, wide_columns, spill=tmp_path / "spill").save(tmp_path / name)
    saved = [sorted((tmp_path / name).iterdir()) for name in ("one", "two")]
    assert [file.read_bytes() for file in saved[0]] == [file.read_bytes() for file in saved[1]]
    merged = SplitStatistics.load(tmp_path / "one")
    for name, column in merged.columns.items():
        other = whole.columns[name]
        assert (column.rows, column.missing) == (rows, 0)
        if column.type == "bytes":
            assert column.top() == other.top() and len(column.top()) <= 50
        else:
            assert column.distinct == other.distinct and not column.complete
            values = np.sort(batch.column(name).to_numpy())
            ranks = np.searchsorted(values, column.quantile([0.1, 0.5, 0.9])) / rows
            assert np.abs(ranks - [0.1, 0.5, 0.9]).max() < column.rank_error
