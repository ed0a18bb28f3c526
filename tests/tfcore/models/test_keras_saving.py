"""Keras' own files of models with Headway's layers."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from headway.schema.columns import Column
from tests.example_shards import write_examples
from tfcore.models.build import build
from tfcore.models.config import ModelConfig

LOADS = """
import os, sys
import tensorflow  # once for all, and with it keras
for imports in sys.argv[2:]:
    if not os.fork():
        exec(imports)
        model = keras.saving.load_model(sys.argv[1])
        print(type(model.layers[-1]).__module__, len(model.layers), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, imports
"""


@pytest.fixture
def model(tmp_path):
    columns = (
        Column(name="x", type="float32", nullable=False),
        Column(name="label", type="int64", nullable=False, role="label"),
    )
    rows = pa.table({"x": np.arange(64, dtype=np.float32), "label": np.arange(64) % 2})
    written = write_examples(tmp_path / "examples", {"train": rows}, columns)
    return build(ModelConfig(hidden=(8,)), written.fit(), seed=0)


@pytest.mark.long
def test_a_saved_model_loads_in_a_fresh_process_that_imported_tfcores_models(model, tmp_path):
    orders = "import keras; import tfcore.models.build", "import tfcore.models.build; import keras"
    model.save(tmp_path / "model.keras")
    command = [sys.executable, "-c", LOADS, str(tmp_path / "model.keras"), *orders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == [f"{type(model.layers[-1]).__module__} {len(model.layers)}"] * 2
