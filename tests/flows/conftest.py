"""A small pipeline on real flights, made anew for each test that asks."""

import shutil

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
model: {hidden: [16, 8], embedding: 4}
training: {steps: 60, batch_size: 128, steps_per_call: 16, checkpoint_every_steps: 32, learning_rate: 0.01}
evaluation: {slices: [origin]}
gate: {thresholds: {auc: {min: 0.5}}, tolerance: {auc: 0.5, loss: 0.5}}
store: store
"""


@pytest.fixture
def project(monthly, tmp_path):
    """A folder with pipeline.yaml and data/ of four small months."""
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copytree(monthly, folder / "data")
    (folder / "pipeline.yaml").write_text(PIPELINE)
    return folder
