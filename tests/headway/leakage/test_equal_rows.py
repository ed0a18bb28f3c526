"""The sample of what rows hold beside their key: exact while distinct rows are few, and close when they are many."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.leakage.key_index import DRAWN, KEPT, ContentSampler, DistinctSample, compared_columns, overlap
from headway.schema.columns import Column
from headway.tabular.hashing import mix64
from headway.tabular.splits import SplitConfig
from tests.properties import examples

COLUMNS = (
    Column(name="id", type="int64", nullable=False),
    Column(name="code", type="bytes", nullable=False, meaning="identifier"),
    Column(name="x", type="float32", nullable=True),
    Column(name="n", type="int64", nullable=True),
    Column(name="s", type="bytes", nullable=True, encoding="dictionary"),
)
BY_ID = SplitConfig(key=("id",))


def table(rows, repeated, seed=0, values=10**6):
    """Rows of which a share stands twice, under two ids, in any order; each with a split's code."""
    r = np.random.default_rng(seed)
    once = rows - round(rows * repeated / 2)
    n = r.integers(0, values, once)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array((n % 1000).astype(np.float32), mask=n % 17 == 0),
            pa.array(n),
            pa.array([f"w{v % 40}".encode() for v in n.tolist()], pa.binary()).dictionary_encode(),
        ],
        names=["x", "n", "s"],
    )
    at = np.concatenate([np.arange(once), np.arange(rows - once)])
    at = r.permutation(at)
    drawn = batch.take(pa.array(at))
    return at, drawn, r.choice(np.array([0, 1], np.int8), rows, p=[0.8, 0.2])


def drawn(batch, codes, size, kept=DRAWN):
    """The samples of both splits, from pieces that are merged."""
    sampler, total = ContentSampler(BY_ID, COLUMNS), [DistinctSample(KEPT), DistinctSample(KEPT)]
    for piece in range(0, batch.num_rows, 4 * size):
        samples = {0: DistinctSample(kept), 1: DistinctSample(kept)}
        for start in range(piece, min(piece + 4 * size, batch.num_rows), size):
            sampler.draw(batch.slice(start, size), codes[start : start + size], samples)
        for code, sample in samples.items():
            total[code].merge(DistinctSample.from_text(sample.to_text(), KEPT))
    return total


def test_keys_and_identifiers_are_left_out_and_nothing_is_compared_where_it_says_nothing():
    assert compared_columns(BY_ID, COLUMNS) == ("x", "n", "s")
    assert compared_columns(SplitConfig(mode="column", column="s"), COLUMNS) == ("id", "x", "n")
    assert compared_columns(SplitConfig(), COLUMNS) == ()
    timed = (*COLUMNS, Column(name="t", type="int64", nullable=False, role="time"))
    assert compared_columns(SplitConfig(mode="time"), timed) == ("id", "x", "n", "s")
    assert compared_columns(SplitConfig(mode="column", column="t", eval_from="2"), timed) == ("id", "x", "n", "s")


def test_of_a_wide_table_some_columns_are_compared():
    columns = (COLUMNS[0], *(Column(name=f"c{i}", type="float32", nullable=False) for i in range(1000)))
    sampler = ContentSampler(BY_ID, columns)
    assert len({*sampler.names}) == 128 and sampler.names[-1] == "c999" and sampler.apart == ("id",)


@pytest.mark.parametrize("repeated", [0.0, 0.5, 1.0])
def test_the_share_of_rows_in_both_splits_is_close_from_samples(repeated):
    at, batch, codes = table(60_000, repeated, values=2**40)
    true = np.isin(at[codes == 1], at[codes == 0]).mean()
    train, judging = drawn(batch, codes, 5_000)
    found = overlap(train, judging)
    assert not found.whole and found.values > 100
    assert found.share == pytest.approx(true, abs=0.12) and (found.share == 0) == (true == 0)
    assert found.beyond < 0.01  # train has as many again


def test_of_few_rows_the_share_is_exact_however_they_come():
    at, batch, codes = table(200, 0.6, values=2**40)
    true = np.isin(at[codes == 1], at[codes == 0]).mean()
    for size in (7, 200):
        found = overlap(*drawn(batch, codes, size))
        assert found.whole and found.share == pytest.approx(true)


def test_rows_of_few_values_are_all_counted():
    _, batch, codes = table(30_000, 0.0, values=30)
    train, judging = drawn(batch, codes, 10_000)
    assert train.whole and train.rows + judging.rows == 30_000 and overlap(train, judging).share == 1.0


def test_a_null_is_not_a_zero():
    sampler = ContentSampler(BY_ID, COLUMNS)
    made = []
    for x in (None, 0.0):
        sample = DistinctSample(DRAWN)
        batch = pa.RecordBatch.from_arrays(
            [pa.array([x], pa.float32()), pa.array([1]), pa.array([b"a"]).dictionary_encode()], names=["x", "n", "s"]
        )
        sampler.draw(batch, np.zeros(1, np.int8), {0: sample})
        made.append(sample)
    assert overlap(*made).share == 0.0


def test_rows_that_come_again_as_often_as_in_train_are_not_beyond_it_and_a_month_delivered_twice_is():
    """Equal data in 200 draws: of many combinations of categories, a few, and nearly none that come again."""
    for values in (50, 5_000, 10**7):
        beyond = []
        for seed in range(200):
            r, train, judging = np.random.default_rng(seed), DistinctSample(KEPT), DistinctSample(KEPT)
            hashes = r.integers(0, 2**64, values, dtype=np.uint64) if values < 10**6 else None
            for sample, rows in ((train, 6_000), (judging, 1_000)):
                at = r.integers(0, values, rows)
                sample.add(at.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) if hashes is None else hashes[at])
            beyond.append(overlap(train, judging).beyond)
        assert np.mean(np.array(beyond) > 0.01) <= 0.01
    months = [r.integers(0, 2**64, 1_000, dtype=np.uint64) for _ in range(6)]
    train, judging = DistinctSample(KEPT), DistinctSample(KEPT)
    train.add(np.concatenate(months))
    judging.add(months[2])
    assert overlap(train, judging).beyond > 0.9


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
    assert not whole.whole and whole.values == 512 and whole.estimate(len(values)) == pytest.approx(6e4, 1e-9)
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
