"""What measuring holds of each eval row, in arrays of NumPy; docs/evaluation.md says it of many rows."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.evaluation.measure import measure
from headway.evaluation.predictions import UNIT
from headway.evaluation.requests import MeasureRequest
from headway.evaluation.units import SplitUnits
from headway.monitor import Monitor

ROWS = 60_000


@pytest.fixture
def models(tmp_path):
    """The predictions of three models on the same rows."""
    r = np.random.default_rng(0)
    truth = r.normal(size=ROWS)
    label = (r.random(ROWS) < 1 / (1 + np.exp(-truth))).astype(np.int64)
    own = {"row": np.arange(ROWS), "label": label, "weight": np.ones(ROWS), UNIT: r.integers(0, ROWS // 4, ROWS)}
    sliced = {name: pa.array([f"{name}{i}" for i in r.integers(0, of, ROWS)]) for name, of in (("a", 16), ("b", 3))}
    sliced |= {name: r.normal(size=ROWS).astype(np.float32) for name in "xyz"}
    files = {}
    for name, noise in (("candidate", 0.3), ("champion", 0.35), ("linear", 0.6)):
        prediction = 1 / (1 + np.exp(-truth - noise * r.normal(size=ROWS)))
        files[name] = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({**own, "prediction": prediction, **sliced}), files[name])
    return files


def test_measuring_holds_few_numbers_of_each_row(models, tmp_path, monkeypatch):
    monkeypatch.setattr("headway.process.cores", lambda: 1)
    request = MeasureRequest(
        task="binary",
        predictions=models["candidate"],
        slices=("a", "b"),
        searched=("a", "b", "x: 5", "y: 5", "z: 5"),
        baselines={"linear": models["linear"]},
        beside={"champion": models["champion"]},
        units=SplitUnits(key="split.key"),
    )
    tracemalloc.start()
    try:
        measure(request, tmp_path, Monitor())
        assert tracemalloc.get_traced_memory()[1] / ROWS < 200
    finally:
        tracemalloc.stop()
