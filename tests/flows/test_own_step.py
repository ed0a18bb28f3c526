"""The example of a model with a loss and a training step of its own: from its package's data to a promoted model."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "own-step"


@pytest.mark.slow
def test_a_training_step_of_ones_own_trains_a_model_that_predicts_ranges(typed, tmp_path):
    for file in EXAMPLE.glob("*.*"):
        shutil.copy(file, tmp_path)
    subprocess.run([sys.executable, tmp_path / "prepare.py", "4000"], check=True)
    record = json.loads(typed("run", tmp_path, "--json", "--set", "training.steps=200", check=0).stdout)
    # one range for all of these flights scores 140
    assert record["state"] == "promoted" and record["metrics"]["delays:interval_score"] < 80, record["metrics"]
    raw = tmp_path / "data" / "flights.parquet"
    typed("predict", tmp_path, "--input", raw, "--output", tmp_path / "scored", check=0)
    scored = ds.dataset([str(path) for path in (tmp_path / "scored").glob("*.parquet")]).to_table()
    for middle, low, high in scored["prediction"].to_pylist()[:100]:
        assert low < middle < high
