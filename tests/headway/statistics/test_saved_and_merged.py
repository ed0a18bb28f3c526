"""Statistics that were saved, loaded and merged in any order are NumPy's of the same rows: exact where exact is said,
within the stated error where they are estimated."""

from functools import reduce
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from headway.errors import DataError
from headway.schema.columns import Column
from headway.statistics.column_statistics import MAX_DISTINCT
from headway.statistics.counts import BLOCK
from headway.statistics.split_statistics import COUNTS_NAME, SplitStatistics
from tests.headway.statistics.made import statistics_of
from tests.properties import examples

BOUNDS = [1, BLOCK, 2 * BLOCK, MAX_DISTINCT, 2 * MAX_DISTINCT]
"""Where a block of saved counts is full, and where complete counts end."""
AT = np.arange(33) / 32  # a share of the rows is exact in binary, and so is its rank
COLUMNS = (
    Column(name="n", type="int64", nullable=True),
    Column(name="x", type="float32", nullable=True),
    Column(name="s", type="bytes", nullable=True),
    Column(name="l", type="int64", nullable=True, shape=(None,)),
    Column(name="v", type="float32", nullable=True, shape=(2,)),
)


def _rows(distinct: int, seed: int, repeats: bool) -> dict[str, np.ndarray]:
    """The values of each column, of which so many differ; some occur more often than others."""
    random = np.random.default_rng(seed)
    codes = np.arange(distinct)
    if repeats:
        codes = np.concatenate([codes, random.choice(codes, distinct // 2), np.zeros(distinct // 3, np.int64)])
    random.shuffle(codes)
    signed = codes - distinct // 3
    return {"n": signed * 1_000_003, "x": (signed / 64).astype(np.float32), "s": codes, "l": signed * 7}


def _batch(values: dict[str, np.ndarray], null: np.ndarray, odd: np.ndarray) -> pa.RecordBatch:
    """`null` rows are null in every column but l; `odd` ones are NaN or infinite in x, and have a null in their list."""
    x = np.where(odd, np.where(np.arange(len(odd)) % 2, np.nan, np.inf), values["x"]).astype(np.float32)
    words = [None if gone else b"w%d" % code for code, gone in zip(values["s"].tolist(), null.tolist(), strict=True)]
    of_row = np.repeat(np.arange(len(null)), 1 + odd)
    again = np.concatenate([[False], of_row[1:] == of_row[:-1]])
    ends = np.concatenate([[0], np.cumsum(1 + odd)]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(ends), pa.array(values["l"][of_row], mask=again))
    text = pa.array(words, pa.binary())
    arrays = [
        pa.array(values["n"], mask=null),
        pa.array(x, mask=null),
        text.dictionary_encode() if len(null) % 2 else text,
        pa.array(lists.to_pylist(), pa.list_(pa.int64())) if len(null) < 100 else lists,
        pa.FixedSizeListArray.from_arrays(pa.array(_pairs(values["x"]).ravel()), 2, mask=pa.array(null)),
    ]
    return pa.record_batch(arrays, names=[column.name for column in COLUMNS])


def _pairs(x: np.ndarray) -> np.ndarray:
    """Vectors whose values are twice as many: they pass a bound at half of it."""
    return np.stack([x, x + np.float32(1 / 128)], 1).astype(np.float32)


def _agrees(column, values: np.ndarray) -> None:
    """What a number column says equals NumPy's figures of its finite values."""
    distinct = len(np.unique(values))
    assert column.finite == len(values)
    assert (column.minimum, column.maximum, column.zeros) == (values.min(), values.max(), (values == 0).sum())
    assert column.mean == pytest.approx(values.mean(), rel=1e-9, abs=1e-9)
    assert column.std == pytest.approx(values.std(), rel=1e-9, abs=1e-9)
    assert column.distinct == pytest.approx(distinct, rel=6 * column.distinct_error, abs=0)
    if column.complete:
        assert column.quantile(AT).tolist() == np.quantile(values, AT, method="inverted_cdf").tolist()
        value, count = np.unique(values, return_counts=True)
        assert column.top(None) == sorted(zip(value.tolist(), count.tolist(), strict=True), key=lambda v: (-v[1], v[0]))
    else:
        ordered, quantiles = np.sort(values), column.quantile(AT)
        low = np.searchsorted(ordered, quantiles, side="left") / len(values)
        high = np.searchsorted(ordered, quantiles, side="right") / len(values)
        assert (np.maximum(low - AT, AT - high) <= column.rank_error).all()


@pytest.mark.long
@pytest.mark.parametrize("bound", BOUNDS)
@given(
    beside=st.sampled_from([-1, 0, 1, 97]),
    seed=st.integers(0, 999),
    repeats=st.booleans(),
    pieces=st.integers(1, 4),
    order=st.randoms(use_true_random=False),
    odd_shares=st.tuples(st.sampled_from([0.0, 0.1]), st.sampled_from([0.0, 0.1])),
)
@examples(5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_saved_statistics_are_those_of_the_rows(
    tmp_path_factory, bound, beside, seed, repeats, pieces, order, odd_shares
):
    values = _rows(max(1, bound + beside), seed, repeats)
    rows = len(values["n"])
    random = np.random.default_rng(seed + 1)
    null, odd = (random.random(rows) < share for share in odd_shares)
    null[0] = odd[0] = False
    batch = _batch(values, null, odd)
    ends = np.linspace(0, rows, pieces + 1).astype(int)
    folders = []
    for first, last in pairwise(ends):
        folders.append(tmp_path_factory.mktemp("part"))
        statistics_of(COLUMNS, batch.slice(first, last - first)).save(folders[-1])
    order.shuffle(folders)
    merged = reduce(lambda a, b: (a.merge(b), a)[1], map(SplitStatistics.load, folders))
    again = tmp_path_factory.mktemp("merged")
    merged.save(again)
    for statistics in (merged, SplitStatistics.load(again)):
        assert statistics.rows == rows
        columns = statistics.columns
        _agrees(columns["n"], values["n"][~null])
        _agrees(columns["x"], values["x"][~null & ~odd].astype(np.float64))
        _agrees(columns["l"], values["l"])
        _agrees(columns["v"], _pairs(values["x"])[~null].ravel().astype(np.float64))
        assert columns["l"].null_elements == odd.sum() and columns["l"].elements == rows
        assert columns["x"].nan + columns["x"].infinite == (odd & ~null).sum()
        assert columns["n"].missing == columns["s"].missing == null.sum()
        code, count = np.unique(values["s"][~null], return_counts=True)
        expected = {b"w%d" % c: n for c, n in zip(code.tolist(), count.tolist(), strict=True)}
        assert dict(columns["s"].top(None)) == expected and columns["s"].distinct == len(expected)


def test_counts_that_are_fewer_than_the_saved_number_are_refused(tmp_path):
    statistics_of(COLUMNS[:1], pa.record_batch([pa.array(range(5))], names=["n"])).save(tmp_path)
    with pa.ipc.open_file(tmp_path / COUNTS_NAME) as file:
        schema, batch = file.schema, file.get_batch(0)
    with pa.ipc.new_file(tmp_path / COUNTS_NAME, schema) as writer:
        writer.write_batch(batch.slice(0, 4))
    with pytest.raises(DataError, match="has 4 distinct values of 'n' in place of 5"):
        SplitStatistics.load(tmp_path)
