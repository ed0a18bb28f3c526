"""The training stage on real shards: exact resume, early stopping, tasks, and a process that is killed."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from headway.errors import Cancelled, ConfigError, DataError
from headway.monitor import Monitor
from headway.schema.columns import Column
from tests.example_shards import write_examples
from tests.patched import patched
from tests.tfcore.train.trainings import COLUMNS, Lines, request, table, weight_bits
from tfcore.data.dataset import evaluation_dataset
from tfcore.models.config import ModelConfig
from tfcore.train.rows import TrainingData, training_data
from tfcore.train.stage import train

ROWS = 3000
LABELS = {"binary": "int64", "multiclass": "bytes", "regression": "float32"}


def written(folder, task="binary"):
    rows = table(ROWS, 1)
    late = rows["label"].to_numpy()
    label = {
        "binary": late,
        "multiclass": pa.array([b"early", b"late"]).take(pa.array(late)),
        "regression": (1000 + 50 * late).astype(np.float32),
    }[task]
    weight = np.random.default_rng(2).uniform(0.5, 2, ROWS).astype(np.float32)
    rows = rows.drop_columns(["label"]).append_column("importance", pa.array(weight)).append_column("label", [label])
    columns = (
        *COLUMNS[:-1],
        Column(name="importance", type="float32", nullable=False, role="weight"),
        COLUMNS[-1].model_copy(update={"type": LABELS[task]}),
    )
    return write_examples(folder, {"train": rows}, columns, rows_per_record=256, shards=3)


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    return written(tmp_path_factory.mktemp("examples"))


_short_calls = patched({"tfcore.train.trainer.STEPS_PER_CALL": 8})


def test_a_training_learns_and_says_what_it_did(examples, tmp_path):
    monitor = Lines()
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
    files = [str(file) for file in (tmp_path / "summaries").glob("events.*")]
    events = [tf.compat.v1.Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(files)]
    assert {value.tag for event in events for value in event.summary.value} == {"loss", "learning_rate"}


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
        with pytest.raises(Cancelled):
            train(asked, tmp_path / "stopped", Lines(stop=stop))
    monitor = Lines()
    again = train(epochs, tmp_path / "resumed", monitor)
    assert again["resumed_from"] >= 121
    assert any("resumed at step" in line for line in monitor.lines)
    assert "tracing the training step" in monitor.lines or "compiling the training step" in monitor.lines
    assert weight_bits(tmp_path / "resumed") == weight_bits(folder)
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
    assert weight_bits(asked.checkpoints / "40", "variables") == weight_bits(tmp_path / "whole")
    other = asked.model_copy(update={"checkpoints": tmp_path / "others"})
    shutil.copytree(asked.checkpoints / "40", other.checkpoints / "40")
    assert train(other, tmp_path / "resumed", Monitor())["resumed_from"] == 40
    histories = [json.loads((tmp_path / name / "history.json").read_text())["history"] for name in ("resumed", "whole")]
    assert histories[0] == histories[1] and weight_bits(tmp_path / "resumed") == weight_bits(tmp_path / "whole")


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
    ("name", "settings", "words"),
    [
        ("ExponentialDecay", {"decay_steps": 5, "decay_rate": -2.0}, "nan"),
        ("PolynomialDecay", {"decay_steps": 9, "end_learning_rate": -1}, "-"),
    ],
)
def test_a_schedule_of_keras_that_gives_no_learning_rate_ends_the_training(examples, tmp_path, name, settings, words):
    schedule = {"name": name, "settings": {"initial_learning_rate": 1} | settings}
    with pytest.raises(ConfigError, match=rf"learning_rate is {words}.* what {name} gives at step \d"):
        train(request(examples, learning_rate=schedule), tmp_path, Monitor())


def test_early_stopping_keeps_the_best_weights(examples, tmp_path, monkeypatch):
    monkeypatch.setattr("tfcore.train.checkpoints.KEPT", 99)
    monitor = Lines()
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
    best = weight_bits(asked.checkpoints / str(result["best_step"]), "variables")
    assert best == weight_bits(tmp_path / "long") != weight_bits(asked.checkpoints / str(result["steps"]), "variables")


def test_mistakes_are_reported_before_training(examples, tmp_path):
    with pytest.raises(ConfigError, match="'9' is not a class"):
        train(request(examples, class_weights={"9": 2.0}), tmp_path, Monitor())
    empty = examples.result | {"splits": {"train": {"rows": 0, "shards": []}}}
    asked = request(examples)
    part = asked.examples[0].model_copy(update={"result": empty})
    with pytest.raises(DataError, match="train split has no rows"):
        train(asked.model_copy(update={"examples": (part,)}), tmp_path, Monitor())


def test_a_shuffle_window_holds_a_whole_epoch_where_memory_allows(examples):
    # sorted data in windows of a part of an epoch cost flights 0.01 of AUC: what came last weighed more
    assert training_data(request(examples)).rows.plan.order.window > 1_000_000


def test_the_linear_baseline_is_of_the_rows_as_they_are_stored(examples, monkeypatch):
    """Whether they stay in memory for the training or not; neither a holdout nor class weights change them. Rows in memory,
    and a holdout there, are not read again."""

    def data(**training):
        return training_data(request(examples, **training))

    wanted, looked, batches = data().linear_baseline(), [], TrainingData._batches
    monkeypatch.setattr(TrainingData, "_batches", lambda data, names: looked.append(data) or batches(data, names))
    weighted = data(class_weights={"1": 3.0})
    for begun in (data(), data(early_stopping={}), weighted):
        next(begun.stack_reader(1)(0))
        if begun.rows.held_out is not None:
            begun.holdout()
        found = begun.linear_baseline()
        np.testing.assert_array_equal(found.weights, wanted.weights)
    assert looked == [weighted]


def test_a_holdout_too_large_for_memory_is_read_each_time_from_one_dataset(examples, monkeypatch):
    """Making the dataset anew would trace the transform at each look at the holdout."""
    made = []

    def counted(*positional, **named):
        made.append(1)
        return evaluation_dataset(*positional, **named)

    monkeypatch.setattr("tfcore.train.rows.HOLDOUT_MEMORY_BYTES", 0)
    monkeypatch.setattr("tfcore.train.rows.evaluation_dataset", counted)
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
    assert weight_bits(tmp_path / "a") == weight_bits(tmp_path / "b")
