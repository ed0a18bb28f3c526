"""Columns with too many values to count: how far quantiles and distinct values may be off, and that they repeat."""

import numpy as np
import pyarrow as pa
import pytest

from headway.statistics.column_statistics import ColumnStatistics, Sketches

AT = np.array([0.0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0])
ROWS = 300_000


def _values(name):
    random = np.random.default_rng(7)
    return {
        "normal": lambda: random.normal(size=ROWS),
        "lognormal": lambda: random.lognormal(sigma=3, size=ROWS),
        "uniform": lambda: random.uniform(size=ROWS),
        "rising": lambda: np.arange(ROWS) + 0.5,
        "half zeros": lambda: np.where(random.random(ROWS) < 0.5, 0.0, random.normal(size=ROWS)),
        "two hills": lambda: np.concatenate([random.normal(-1e6, 1e3, ROWS // 2), random.normal(1e6, 1e3, ROWS // 2)]),
    }[name]().astype(np.float32)


def _column(values, size):
    column = ColumnStatistics("x", "float32")
    for start in range(0, len(values), size):
        column.update(pa.array(values[start : start + size]))
    return column


def _rank_errors(values, found):
    """How far each found value's ranks are from the wanted ones, as shares of the rows."""
    ordered = np.sort(values.astype(np.float64))
    below = np.searchsorted(ordered, found, side="left") / len(ordered)
    upto = np.searchsorted(ordered, found, side="right") / len(ordered)
    return np.maximum(np.maximum(below - AT, AT - upto), 0)


@pytest.mark.parametrize("name", ["normal", "lognormal", "uniform", "rising", "half zeros", "two hills"])
@pytest.mark.parametrize("size", [32_768, 5000, 777])
def test_ranks_are_off_by_less_than_half_a_percent(name, size):
    values = _values(name)
    column = _column(values, size)
    assert not column.complete
    found = column.quantile(AT)
    errors = _rank_errors(values, found)
    assert errors.max() < 0.005
    assert errors[[1, 2, -3, -2]].max() < 0.001  # the tails are finer
    assert found[0] == values.min() and found[-1] == values.max() and (np.diff(found) >= 0).all()


def test_many_tiny_batches_are_not_left_out():
    """Three rising values at a time, of another range each: a fixed place in a batch would see one of them alone."""
    early = _values("uniform")[:150_000]
    late = np.stack([_values("uniform")[:10_000] + shift for shift in (10, 20, 30)], axis=1).ravel()
    column = _column(early, 32_768)
    assert not column.complete
    for start in range(0, len(late), 3):
        column.update(pa.array(late[start : start + 3]))
    assert _rank_errors(np.concatenate([early, late]), column.quantile(AT)).max() < 0.005


def test_counts_of_billions_of_rows_are_absorbed_piece_by_piece():
    sketches = Sketches()
    values = np.arange(100_000, dtype=np.float64)
    counts = np.full(100_000, 40)
    counts[0] = 36_000_000
    sketches.absorb(values, counts)
    low, high = sketches.quantiles(np.array([0.85, 0.95]))
    assert low == 0 and abs(high - 50_000) < 5000  # half a percent of 40 million rows


@pytest.mark.parametrize("distinct", [1000, 70_000, 1_000_000])
def test_distinct_values_are_estimated(distinct):
    sketches = Sketches()
    values = np.arange(distinct, dtype=np.int64) * 12_345
    for piece in np.array_split(values, 20):
        sketches.add(piece, piece)
        sketches.add(piece, piece)  # the same values again change nothing
    assert abs(sketches.distinct() / distinct - 1) < (0.1 if distinct > 1024 else 1e-12)


def test_the_same_rows_in_the_same_order_give_the_same_bytes():
    values = _values("normal")
    first, again = _column(values, 10_000), _column(values, 10_000)
    first.quantile([0.5]), again.quantile([0.5])
    assert first.to_json() == again.to_json()
    kept = ColumnStatistics.from_json(first.to_json())
    assert kept.to_json() == first.to_json() and np.array_equal(kept.quantile(AT), first.quantile(AT))


def test_values_that_wait_are_kept_when_read_or_saved():
    column = _column(_values("rising"), 32_768)
    late = np.full(4000, 1e9, np.float32) + np.arange(4000, dtype=np.float32) * 64
    column.update(pa.array(late))
    assert column.quantile([0.995])[0] >= 1e9
    assert ColumnStatistics.from_json(column.to_json()).quantile([0.995])[0] >= 1e9
    assert column.quantile([0.995])[0] >= 1e9  # reading took nothing away


def test_bins_follow_the_digest_and_bear_equal_edges():
    random = np.random.default_rng(3)
    column = _column(random.normal(size=ROWS).astype(np.float32), 65_536)
    edges = np.linspace(column.minimum, column.maximum, 11)
    values = np.random.default_rng(3).normal(size=ROWS).astype(np.float32)
    assert column.per_bin(edges) == pytest.approx(np.histogram(values, edges)[0], abs=0.005 * ROWS)

    near = ColumnStatistics("n", "int64")
    near.update(pa.array(np.arange(2**62, 2**62 + 70_000)))
    low, high = float(near.minimum), float(near.minimum + 2048)  # 512 apart as float64: some of the edges are one
    assert not near.complete
    assert near.per_bin(np.linspace(low, high, 11)).sum() == pytest.approx(70_000)
