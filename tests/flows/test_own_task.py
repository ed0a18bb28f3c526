"""A pipeline whose task, loss and metrics are the user's own, from raw files to predictions of the promoted version."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

PIPELINE = """
name: own
source: {format: parquet, path: table.parquet}
label: weight_g
task: my_tasks:Spread
columns: auto
model: {name: mlp, hidden: [8]}
training: {steps: 300, batch_size: 64, learning_rate: 0.01}
evaluation: {slices: [kind], slice_min_rows: 1, metrics: {"my_tasks:worst": lower}}
gate: {tolerance: {"my_tasks:error": 5%, "my_tasks:worst": 200%}, slice_min_rows: 20}
"""
MODULE = """
import numpy as np
import tensorflow as tf
from my_units import UNIT

def error(label, prediction, columns):
    return float(np.average(np.abs(label - prediction), weights=columns["weight"]))

def worst(label, prediction, columns):
    assert set(columns) == {"kind", "weight"}, columns
    return float(np.abs(label - prediction).max())

class Spread:
    metrics = {"error": error}
    outputs = 2

    def loss(self, batch, outputs):
        spread = tf.nn.softplus(outputs[:, 1]) + 0.01
        return 0.5 * tf.square((batch["label"] / UNIT - outputs[:, 0]) / spread) + tf.math.log(spread)

    def predictions(self, outputs):
        return outputs[:, 0] * UNIT
"""


@pytest.mark.long
def test_a_task_of_ones_own_is_trained_judged_promoted_and_predicted_with(typed, tmp_path):
    random = np.random.default_rng(0)
    kind, size = random.integers(0, 2, 400), random.normal(size=400)
    weight = 3000 + 800 * kind + 300 * size + 50 * random.normal(size=400)
    table = pa.table({"kind": pa.array(["a", "b"]).take(pa.array(kind)), "size": size, "weight_g": weight})
    pq.write_table(table, tmp_path / "table.parquet")
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "my_tasks.py").write_text(MODULE)
    (tmp_path / "my_units.py").write_text("UNIT = 1000.0\n")

    record = json.loads(typed("run", tmp_path, "--json", check=0).stdout)
    assert record["verdict"]["status"] == "promoted"
    assert record["metrics"]["my_tasks:error"] < 300 < record["metrics"]["my_tasks:worst"] * 10
    summary = json.loads(next((tmp_path / "store").glob("**/metrics.json")).read_text())
    assert set(summary["by_slice"]["kind"]) == {"a", "b"}
    assert summary["by_slice"]["kind"]["a"]["metrics"]["my_tasks:error"] > 0
    assert summary["worst_slices"]["tried"] and list(summary["tables"]) == ["residuals"]

    typed("predict", tmp_path, "--input", tmp_path / "table.parquet", "--output", tmp_path / "out", check=0)
    predicted = (
        ds.dataset([str(path) for path in (tmp_path / "out").glob("*.parquet")]).to_table()["prediction"].to_numpy()
    )
    assert np.abs(predicted - weight).mean() < 300

    # a file that the module imports is part of the training's key; the candidate is held against the champion
    (tmp_path / "my_units.py").write_text("UNIT = 500.0\n")
    plan = json.loads(typed("plan", tmp_path, "--json", check=0).stdout)
    cached = {step["stage"]: step["cached"] for step in plan["steps"]}
    assert cached["ingest"] and not cached["train"]
    again = json.loads(typed("run", tmp_path, "--set", "training.steps=5", "--json").stdout)
    assert again["verdict"]["status"] == "rejected"
    assert "my_tasks:error rose from" in " ".join(again["reasons"])


EXAMPLE = Path(__file__).parents[2] / "examples" / "own-step"


@pytest.mark.long
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
