"""The training stage on real shards: exact resume, early stopping, tasks, and a process that is killed."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from headway.errors import Cancelled, ConfigError, DataError
from headway.monitor import Monitor
from headway.schema.columns import Column
from tests.example_shards import write_examples
from tfcore.data.dataset import evaluation_dataset
from tfcore.models.config import ModelConfig
from tfcore.train.config import TrainingConfig
from tfcore.train.request import TrainRequest
from tfcore.train.stage import train
from tfcore.train.training_data import TrainingData, training_data

ROWS = 3000
COLUMNS = (
    Column(name="delay", type="float32", nullable=True),
    Column(name="hour", type="int64", nullable=False),
    Column(name="carrier", type="bytes", nullable=False, encoding="dictionary"),
    Column(name="importance", type="float32", nullable=False, role="weight"),
)
LABELS = {"binary": "int64", "multiclass": "bytes", "regression": "float32"}


def table(task, rows=ROWS):
    rng = np.random.default_rng(1)
    delay = rng.standard_normal(rows).astype(np.float32)
    hour = rng.integers(0, 24, rows)
    carrier = rng.integers(0, 5, rows)
    score = delay + 0.1 * hour + 0.5 * carrier - 2.2 + 0.3 * rng.standard_normal(rows)
    label = {
        "binary": pa.array((score > 0).astype(np.int64)),
        "multiclass": pa.array([[b"early", b"fair", b"late"][i] for i in np.digitize(score, [-0.7, 0.7])], pa.binary()),
        "regression": pa.array((1000 + 50 * score).astype(np.float32)),
    }[task]
    return pa.table(
        {
            "delay": pa.array(delay, mask=rng.random(rows) < 0.1),
            "hour": pa.array(hour),
            "carrier": pa.array([b"AA", b"BB", b"CC", b"DD", b"EE"]).take(pa.array(carrier)),
            "importance": pa.array(rng.uniform(0.5, 2, rows).astype(np.float32)),
            "label": label,
        }
    )


def written(folder, task="binary"):
    columns = (*COLUMNS, Column(name="label", type=LABELS[task], nullable=False, role="label"))
    return write_examples(folder, {"train": table(task)}, columns, rows_per_record=256, shards=3)


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    return written(tmp_path_factory.mktemp("examples"))


@pytest.fixture(scope="module", autouse=True)
def _short_calls():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfcore.train.trainer.STEPS_PER_CALL", 8)
        yield


def request(examples, task="binary", model=None, **training):
    training = {"batch_size": 32, "steps": 60, "jit": "off", "learning_rate": 0.01} | training
    return TrainRequest(
        examples=(examples.part("train"),),
        transform=examples.fit(task=task),
        model=model or ModelConfig(hidden=(8,), embedding=3, dropout=0.1),
        training=TrainingConfig(**training),
        seed=3,
    )


def weights(out, name="weights"):
    reader = tf.train.load_checkpoint(str(out / name))
    names = sorted(n for n in reader.get_variable_to_shape_map() if n.startswith("model/"))
    return [reader.get_tensor(n).tobytes() for n in names]


class StopAt(Monitor):
    """Asks to stop once `step` was reached, as a Ctrl-C would."""

    def __init__(self, step):
        super().__init__()
        self.step, self.lines, self.seen = step, [], []

    def progress(self, done, total, unit, **facts):
        self.seen.append((done, total, unit, facts))

    def cancelled(self):
        return super().cancelled()

    def log(self, line):
        self.lines.append(line)


def test_a_training_learns_and_says_what_it_did(examples, tmp_path):
    monitor = StopAt(None)
    asked = request(examples, epochs=4, steps=None).model_copy(update={"summaries": tmp_path / "summaries"})
    result = train(asked, tmp_path / "out", monitor)
    json.dumps(result)
    assert result["steps"] == -(-4 * ROWS // 32)
    assert (result["rows"], result["traces"], result["jit"], result["stopped"]) == (ROWS, 1, "graph", "end")
    assert result["final_loss"] < 0.35
    assert result["parameters"] > 100
    history = json.loads((tmp_path / "out" / "history.json").read_text())["history"]
    assert history[0]["loss"] > history[-1]["loss"]
    assert history[-1]["step"] == result["steps"]
    assert json.loads((tmp_path / "out" / "model.json").read_text())["model"]["hidden"] == [8]
    done, total, unit, facts = monitor.seen[-1]
    assert (done, total, unit) == (result["steps"], result["steps"], "steps")
    assert facts["loss"] > 0
    assert facts["rows_per_second"] > 0
    assert _scalars(tmp_path / "summaries") == {"loss", "learning_rate"}


def _scalars(folder):
    names = set()
    for file in folder.glob("events.*"):
        for record in tf.data.TFRecordDataset(str(file)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            names |= {value.tag for value in event.summary.value}
    return names


@pytest.mark.parametrize("task", ["multiclass", "regression"])
def test_other_tasks_learn_too(task, tmp_path):
    made = written(tmp_path / "examples", task)
    result = train(
        request(made, task, steps=300, class_weights="balanced" if task == "multiclass" else None), tmp_path, Monitor()
    )
    history = json.loads((tmp_path / "history.json").read_text())["history"]
    assert result["final_loss"] < {"multiclass": 0.55, "regression": 1300}[task] < history[0]["loss"]


STOPPED = {"early_stopping": {"every_steps": 40, "patience": 9}, "checkpoint_every_steps": 30}


def test_stopped_and_resumed_it_ends_at_the_same_bits(examples, tmp_path, monkeypatch):
    folder = tmp_path / "whole"
    whole = train(request(examples, epochs=1.6, steps=None, **STOPPED), folder, Monitor())
    assert whole["steps"] > 121
    # as many steps, however they are asked for
    steps, epochs = (
        request(examples, **length, **STOPPED).model_copy(update={"checkpoints": tmp_path / "checkpoints"})
        for length in ({"steps": whole["steps"]}, {"epochs": 1.6, "steps": None})
    )
    monkeypatch.setattr("tfcore.train.callbacks.PROGRESS_SECONDS", 0.0)
    for stop, asked in ((37, steps), (121, epochs)):  # one that was resumed is stopped too
        monitor = StopAt(None)
        monkeypatch.setattr(
            monitor, "progress", lambda done, *_, m=monitor, stop=stop, **__: done >= stop and m.stop.set()
        )
        with pytest.raises(Cancelled):
            train(asked, tmp_path / "stopped", monitor)
    monitor = StopAt(None)
    again = train(epochs, tmp_path / "resumed", monitor)
    assert again["resumed_from"] >= 121
    assert any("resumed at step" in line for line in monitor.lines)
    assert "tracing the training step" in monitor.lines or "compiling the training step" in monitor.lines
    assert weights(tmp_path / "resumed") == weights(folder)
    history = [json.loads((out / "history.json").read_text())["history"] for out in (tmp_path / "resumed", folder)]
    assert history[0] == history[1]
    assert again["best_loss"] == whole["best_loss"]


@pytest.mark.long
def test_scheduled_numbers_are_recorded_and_a_resumed_training_goes_on_with_them(examples, tmp_path):
    """A schedule of Keras for the learning rate, which moves nothing from step 40 on."""
    steps = {"name": "PiecewiseConstantDecay", "settings": {"boundaries": [39], "values": [0.01, 0.0]}}
    falling = {"name": "cosine", "settings": {"initial": 0.4}}
    options = {"learning_rate": steps, "schedules": {"label_smoothing": falling, "temperature": 2.0}}
    asked = request(examples, steps=60, checkpoint_every_steps=40, **options)
    asked = asked.model_copy(update={"checkpoints": tmp_path / "checkpoints"})
    result = train(asked, tmp_path / "whole", Monitor())
    history = {
        point["step"]: point for point in json.loads((tmp_path / "whole" / "history.json").read_text())["history"]
    }
    assert [history[step]["learning_rate"] for step in (8, 40, 48)] == [pytest.approx(0.01)] * 2 + [0.0]
    assert 0.4 > history[8]["label_smoothing"] > history[48]["label_smoothing"] > 0 and history[8]["temperature"] == 2.0
    assert result["traces"] == 1
    assert weights(asked.checkpoints / "40", "variables") == weights(tmp_path / "whole")
    other = asked.model_copy(update={"checkpoints": tmp_path / "others"})
    shutil.copytree(asked.checkpoints / "40", other.checkpoints / "40")
    assert train(other, tmp_path / "resumed", Monitor())["resumed_from"] == 40
    histories = [json.loads((tmp_path / name / "history.json").read_text())["history"] for name in ("resumed", "whole")]
    assert histories[0] == histories[1] and weights(tmp_path / "resumed") == weights(tmp_path / "whole")


@pytest.mark.parametrize(
    ("task", "schedules", "words"),
    [
        ("regression", {"label_smoothing": 0.1}, "a label with classes"),
        ("multiclass", {"positive_weight": 2.0}, "for a binary label"),
        ("binary", {"margin": 2.0}, "nothing reads 'margin'"),
    ],
)
def test_numbers_that_nothing_reads_are_mistakes(task, schedules, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        train(request(written(tmp_path / "examples", task), task, schedules=schedules), tmp_path, Monitor())


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (
            {
                "name": "ExponentialDecay",
                "settings": {"initial_learning_rate": 1, "decay_steps": 5, "decay_rate": -2.0},
            },
            "nan",
        ),
        (
            {
                "name": "PolynomialDecay",
                "settings": {"initial_learning_rate": 1, "decay_steps": 9, "end_learning_rate": -1},
            },
            "-",
        ),
    ],
)
def test_a_schedule_of_keras_that_gives_no_learning_rate_ends_the_training(examples, tmp_path, schedule, words):
    with pytest.raises(ConfigError, match=rf"learning_rate is {words}.* what {schedule['name']} gives at step \d"):
        train(request(examples, learning_rate=schedule), tmp_path, Monitor())


def test_early_stopping_keeps_the_best_weights(examples, tmp_path, monkeypatch):
    monkeypatch.setattr("tfcore.train.checkpoints.KEPT", 99)
    monitor = StopAt(None)
    options = {
        "learning_rate": 0.3,
        "early_stopping": {"every_steps": 10, "patience": 3, "holdout": 0.2},
        "steps": 5000,
    }
    asked = request(examples, **options, checkpoint_every_steps=10)
    asked = asked.model_copy(update={"checkpoints": tmp_path / "checkpoints"})
    result = train(asked, tmp_path / "long", monitor)
    assert result["stopped"] == "early"
    assert result["steps"] == result["best_step"] + 30
    assert 0.75 * ROWS < result["rows"] < 0.85 * ROWS
    assert "has not fallen since step" in monitor.lines[-1]
    best = weights(asked.checkpoints / str(result["best_step"]), "variables")
    assert best == weights(tmp_path / "long") != weights(asked.checkpoints / str(result["steps"]), "variables")


CHILD = """
import sys
from pathlib import Path
from headway.monitor import Monitor
from headway.process import own
own()
from tfcore.train.request import TrainRequest
from tfcore.train.stage import train
train(TrainRequest.model_validate_json(Path(sys.argv[1]).read_text()), Path(sys.argv[2]), Monitor())
"""


@pytest.mark.long
def test_a_killed_process_continues_where_its_last_checkpoint_was(examples, tmp_path, fork_server):
    options = {"steps": 500, "checkpoint_every_steps": 50}
    whole = request(examples, **options)
    train(whole, tmp_path / "whole", Monitor())
    checkpoints = tmp_path / "checkpoints"
    asked = whole.model_copy(update={"checkpoints": checkpoints})
    (tmp_path / "request.json").write_text(asked.model_dump_json())
    (tmp_path / "train.py").write_text(CHILD)
    process = fork_server.start(tmp_path / "train.py", tmp_path / "request.json", tmp_path / "killed", cwd=tmp_path)
    deadline = time.monotonic() + 120
    while not list(checkpoints.glob("[0-9]*")) and time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
            break
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed" / "weights.index").exists()
    result = train(asked, tmp_path / "resumed", Monitor())
    assert 50 <= result["resumed_from"] < 500
    assert weights(tmp_path / "resumed") == weights(tmp_path / "whole")


def test_mistakes_are_reported_before_training(examples, tmp_path):
    with pytest.raises(ConfigError, match="'9' is not a class"):
        train(request(examples, class_weights={"9": 2.0}), tmp_path, Monitor())
    empty = examples.result | {"splits": {"train": {"rows": 0, "shards": []}}}
    asked = request(examples)
    part = asked.examples[0].model_copy(update={"result": empty})
    with pytest.raises(DataError, match="train split has no rows"):
        train(asked.model_copy(update={"examples": (part,)}), tmp_path, Monitor())


def test_a_damaged_shard_is_named(examples, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    for file in examples.folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    shard = sorted(folder.glob("train-*"))[1]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(bytes(data))
    asked = request(examples)
    part = asked.examples[0].model_copy(update={"path": folder})
    with pytest.raises(DataError, match=shard.name):
        train(asked.model_copy(update={"examples": (part,)}), Path(tmp_path), Monitor())


def test_a_shuffle_window_holds_a_whole_epoch_where_memory_allows(examples):
    # sorted data in windows of a part of an epoch cost flights 0.01 of AUC: what came last weighed more
    asked = request(examples)
    assert training_data(asked).rows.plan.order.window > 1_000_000


def test_the_linear_baseline_is_of_the_rows_as_they_are_stored(examples, monkeypatch):
    """Whether they stay in memory for the training or not; neither a holdout nor class weights change them. Rows in memory,
    and a holdout there, are not read again."""

    def data(**training):
        asked = request(examples, **training)
        return training_data(asked)

    wanted, looked, batches = data().linear_baseline(), [], TrainingData._batches
    monkeypatch.setattr(TrainingData, "_batches", lambda data, names: looked.append(data) or batches(data, names))
    weighted = data(class_weights={"1": 3.0})
    for begun in (data(), data(early_stopping={}), weighted):
        next(begun.stacks(1)(0))
        if begun.rows.held_out is not None:
            begun.holdout()
        found = begun.linear_baseline()
        np.testing.assert_array_equal(found.weights, wanted.weights)
        np.testing.assert_array_equal(found.bias, wanted.bias)
    assert looked == [weighted]


def test_a_holdout_too_large_for_memory_is_read_each_time_from_one_dataset(examples, monkeypatch):
    """Making the dataset anew would trace the transform at each look at the holdout."""
    made = []

    def counted(*positional, **named):
        made.append(1)
        return evaluation_dataset(*positional, **named)

    monkeypatch.setattr("tfcore.train.training_data.HOLDOUT_MEMORY_BYTES", 0)
    monkeypatch.setattr("tfcore.train.training_data.evaluation_dataset", counted)
    asked = request(examples, early_stopping={"holdout": 0.2})
    data = training_data(asked)
    first, second = ([{k: v.numpy().tobytes() for k, v in batch.items()} for batch in data.holdout()] for _ in range(2))
    assert first == second and len(first) == 1
    assert len(made) == 1


def test_a_users_model_trains_from_its_file(examples, tmp_path):
    module = tmp_path / "mine.py"
    module.write_text(
        "import keras\n"
        "def model(layout, options):\n"
        "    inputs = {'numeric': keras.Input((len(layout.numeric),), name='numeric'),\n"
        "              'categorical': keras.Input((len(layout.categorical),), dtype='int32', name='categorical')}\n"
        "    x = keras.layers.Dropout(0.1)(keras.layers.Dense(options['units'], 'relu')(inputs['numeric']))\n"
        "    return keras.Model(inputs, keras.layers.Dense(1)(x))\n"
    )
    model = ModelConfig(name="mine:model", options={"units": 6})
    asked = request(examples, model=model, jit="auto").model_copy(update={"module": module})
    first, second = (train(asked, tmp_path / name, Monitor()) for name in "ab")
    assert first["traces"] == 1
    assert first["final_loss"] == second["final_loss"]
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
