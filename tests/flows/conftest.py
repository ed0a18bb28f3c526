"""A small pipeline on real flights, made anew for each test that asks."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PIPELINE = """
name: flights
source: {format: parquet, path: "data/{span}.parquet"}
label: arr_delay > 15
columns:
  dep_delay: [{clip: {min: -30, max: 300}}, standardize]
  distance: [log, standardize]
  sched_dep_time: {bucketize: {buckets: 8}}
  carrier: vocabulary
  origin: vocabulary
split: {mode: time}
model: {name: mlp, hidden: [16, 8], embedding: 4}
training: {steps: 60, batch_size: 128, checkpoint_every_steps: 32, learning_rate: 0.01}
evaluation: {slices: [origin]}
gate: {thresholds: {auc: {min: 0.5}}, tolerance: {auc: 0.5, loss: 0.5}}
store: store
"""


def _lay(folder, monthly):
    folder.mkdir(exist_ok=True)
    shutil.copytree(monthly, folder / "data")
    (folder / "pipeline.yaml").write_text(PIPELINE)
    return folder


@pytest.fixture
def project(monthly, tmp_path):
    """A folder with pipeline.yaml and data/ of four small months."""
    return _lay(tmp_path / "project", monthly)


@pytest.fixture(scope="session")
def exported_once(monthly, made_once, typed_once):
    """The same with a store: all four months were ingested, trained on, evaluated and exported; nothing was promoted. Not to be
    written to."""

    def make(folder):
        _lay(folder, monthly)
        stages = json.loads(typed_once("run", "--to", "export", folder, "--json", check=0).stdout)["stages"]
        assert stages[-1]["stage"] == "replay" and not any(stage["cached"] for stage in stages)

    return made_once("exported", make)


@pytest.fixture
def exported(exported_once, tmp_path):
    """The same, to be changed."""
    return shutil.copytree(exported_once, tmp_path / "project")


def month(folder, name, *, shift=0.0, labels=True):
    """A month of 300 rows; `shift` moves a column and unlearns the label."""
    r = np.random.default_rng(int(name.replace("-", "")))
    x, c = r.normal(size=300).astype(np.float32), r.choice(["a", "b", "c"], 300)
    y = (x + (c == "a") + r.normal(size=300) > 0) if not shift else (r.normal(size=300) - x > 0)
    table = {"id": np.arange(300), "x": x + np.float32(shift), "c": c}
    table |= {"y": y.astype(np.int64)} if labels else {}
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(table), folder / f"{name}.parquet")


@pytest.fixture(scope="session")
def land():
    """land(folder, "2024-05") -> a month's file is there."""
    return month
