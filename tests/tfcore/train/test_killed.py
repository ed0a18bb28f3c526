"""`kill -9` at any step, also in the middle of a checkpoints, and the next process ends at the bits of one never killed."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from PIL import Image

from headway.schema.columns import UNIT, UNIT_COLUMN, Column
from tests.example_shards import write_examples
from tfcore.models.config import ModelConfig
from tfcore.train.config import TrainingConfig
from tfcore.train.request import TrainRequest
from tfcore.train.rows import training_data
from tfcore.transform.config import ColumnTransform

ROWS = 256
COLUMNS = (
    Column(name="delay", type="float32", nullable=True),
    Column(name="photo", type="bytes", nullable=True, encoding="plain"),
    Column(name="label", type="int64", nullable=False, role="label"),
)
CHILD = """
import json, os, signal, sys
from pathlib import Path
from headway.process import gc_paused
with gc_paused():
    from headway.monitor import Monitor
    from headway.process import mark_own_process
    from tfcore.train.request import TrainRequest
    from tfcore.train.stage import train
    from tfcore.train import checkpoints
mark_own_process()
at, inside = int(sys.argv[3]), sys.argv[4] == "inside"

class Killed(Monitor):
    def progress(self, done, total, unit, **facts):
        if not inside and at <= done < total:
            os.kill(os.getpid(), signal.SIGKILL)
    def log(self, line):
        print(line)

def killed(path):  # a checkpoints's files are written, its manifest is not, or it is not renamed yet
    if inside and Killed.saves == at:
        os.kill(os.getpid(), signal.SIGKILL)
    Killed.saves += 1
    return whole(path)

Killed.saves = 0
import tfcore.train.callbacks
tfcore.train.callbacks.PROGRESS_SECONDS = 0.0
whole, checkpoints.sync_path = checkpoints.sync_path, killed
print(json.dumps(train(TrainRequest.model_validate_json(Path(sys.argv[1]).read_text()), Path(sys.argv[2]), Killed())), flush=True)
os._exit(0)  # without taking TensorFlow apart
"""
NEVER = 10**9


def photo(rng, bright):
    """A PNG of noise, brighter where the label is 1."""
    pixels = rng.integers(0, 128, (12, 12, 3)) + 100 * int(bright)
    out = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(out, "PNG")
    return out.getvalue()


def requested(examples, columns, model, **more):
    stopping = {"every_steps": 10, "patience": 50, "holdout": 0.2}
    settings = {"batch_size": 16, "steps": 60, "checkpoint_every_steps": 8, "early_stopping": stopping, "jit": "off"}
    return TrainRequest(
        examples=(examples.part("train"),),
        transform=examples.fit(columns, "binary"),
        model=ModelConfig(name=model, hidden=(8,), dropout=0.2),
        training=TrainingConfig(**settings, **more),
        seed=11,
    )


def varied_images(folder):
    """A request on tables and images, each row of which is varied: the pixels of a step have to come back too."""
    rng = np.random.default_rng(5)
    label = rng.integers(0, 2, ROWS)
    photos = [None if rng.random() < 0.05 else photo(rng, one) for one in label]
    table = pa.table(
        {
            "delay": pa.array(rng.standard_normal(ROWS).astype(np.float32), mask=rng.random(ROWS) < 0.1),
            "photo": pa.array(photos, pa.binary()),
            "label": label.astype(np.int64),
        }
    )
    examples = write_examples(folder, {"train": table}, COLUMNS, rows_per_record=32, shards=3)
    config = {"photo": ColumnTransform(transform={"image": {"height": 10, "width": 10}})}
    return requested(examples, config, "mlp", augment={"flip": "horizontal", "crop": 2, "mixup": 0.2})


def patients(folder):
    """A request on rows of patients whom the split keeps together, a fifth of whom are held out; of an ensemble, which leaves
    others out."""
    rng = np.random.default_rng(6)
    patient = rng.permutation(np.repeat(np.arange(40), 16))
    table = pa.table(
        {
            "delay": rng.standard_normal(40).astype(np.float32)[patient],
            "label": rng.integers(0, 2, 40)[patient],
            UNIT: patient,
        }
    )
    columns = (COLUMNS[0], COLUMNS[2], UNIT_COLUMN)
    examples = write_examples(folder, {"train": table}, columns, rows_per_record=32, shards=3)
    return requested(examples, {}, "ensemble")


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    return varied_images(tmp_path_factory.mktemp("examples"))


def child(request: TrainRequest, folder: Path, name: str, at: int = NEVER, where: str = "between"):
    """Its answer, or None where it was killed."""
    file = folder / "request.json"
    file.write_text(request.model_dump_json())
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(file), str(folder / name), str(at), where],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == -signal.SIGKILL:
        assert at != NEVER and not (folder / name / "weights.index").exists()
        return None
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def weights(prefix):
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in sorted(reader.get_variable_to_shape_map()) if "model/" in name}


def check_same(folder):
    """The training that was resumed ended at the weights and the history of the whole one, which is returned."""
    expected, found = (weights(folder / name / "weights") for name in ("whole", "resumed"))
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    histories = [json.loads((folder / name / "history.json").read_text())["history"] for name in ("whole", "resumed")]
    assert histories[0] == histories[1]
    return histories[0]


@pytest.mark.chaos
def test_images_too_a_training_that_is_killed_again_and_again_ends_at_the_same_bits(asked, tmp_path):
    whole = child(asked, tmp_path, "whole")
    assert whole["traces"] == 1 and whole["resumed_from"] is None
    again = asked.model_copy(update={"checkpoints": tmp_path / "checkpoints"})
    # before any checkpoints; between two; in the middle of writing one; just before the end
    for at, where in ((4, "between"), (21, "between"), (3, "inside"), (53, "between")):
        assert child(again, tmp_path, "killed", at, where) is None
    assert 48 <= child(again, tmp_path, "resumed")["resumed_from"] < 60
    check_same(tmp_path)
    assert not list((tmp_path / "checkpoints").glob(".*"))  # nothing half-written is left


@pytest.mark.chaos
def test_a_killed_training_goes_on_with_the_same_patients_held_out(tmp_path):
    whole = patients(tmp_path)
    data = training_data(whole)
    assert data.rows.held_out_count % 16 == 0 and data.rows.held_out_count + data.rows.count == 640  # whole patients
    again = whole.model_copy(update={"checkpoints": tmp_path / "checkpoints"})
    assert child(whole, tmp_path, "whole")["resumed_from"] is None
    assert child(again, tmp_path, "killed", 21) is None
    assert 16 <= child(again, tmp_path, "resumed")["resumed_from"] < 60
    assert sum("holdout_loss" in point for point in check_same(tmp_path)) == 6
