"""Columns and batches that the statistics tests share."""

import numpy as np
import pyarrow as pa
import pytest

from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics

COLUMNS = (
    Column(name="n", type="int64", nullable=True),
    Column(name="x", type="float32", nullable=True),
    Column(name="s", type="bytes", nullable=True, encoding="dictionary"),
)


@pytest.fixture
def columns():
    return COLUMNS


@pytest.fixture
def batch():
    """batch(n, x, s) -> RecordBatch in stored types; None is null."""

    def make(n, x, s):
        words = pa.array([None if word is None else word.encode() for word in s], pa.binary())
        numbers = pa.array([None if v is None else np.float32(v) for v in x], pa.float32())
        return pa.record_batch([pa.array(n, pa.int64()), numbers, words.dictionary_encode()], names=["n", "x", "s"])

    return make


@pytest.fixture
def small(batch):
    """Saved figures of eight rows with one of everything."""
    statistics = SplitStatistics.create(COLUMNS)
    inf, nan = float("inf"), float("nan")
    statistics.update(batch([1, None, 0, 3], [0.5, None, nan, inf], ["a", None, "", "b"]))
    statistics.update(batch([3, 3, -2, 2**62], [0.0, -0.0, -inf, 2.5], ["b", "b", "Zürich", "a"]))
    return statistics
