"""The training stage with micro-batches and mixed precision."""

import shutil

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from headway.errors import ConfigError, DataError
from headway.monitor import Monitor
from headway.schema.columns import Column
from headway.tasks.user_task import load_task
from tests.example_shards import write_examples
from tfcore.evaluation.request import EvaluateRequest, TrainedModel
from tfcore.evaluation.stage import predict
from tfcore.export.saved_model import ExportRequest, export
from tfcore.models import build
from tfcore.models.config import ModelConfig
from tfcore.runtime.devices import numerics
from tfcore.train.config import TrainingConfig
from tfcore.train.loop import Learner
from tfcore.train.request import TrainRequest
from tfcore.train.stage import train
from tfcore.train.trainer import TrainingSession

ROWS = 2000
COLUMNS = (
    Column(name="delay", type="float32", nullable=True),
    Column(name="hour", type="int64", nullable=False),
    Column(name="carrier", type="bytes", nullable=False, encoding="dictionary"),
    Column(name="label", type="int64", nullable=False, role="label"),
)
MODEL = ModelConfig(hidden=(8,), embedding=3, dropout=0.1)


def table(rows, seed):
    rng = np.random.default_rng(seed)
    delay = rng.standard_normal(rows).astype(np.float32)
    hour, carrier = rng.integers(0, 24, rows), rng.integers(0, 5, rows)
    label = delay + 0.1 * hour + 0.5 * carrier - 2.2 + 0.3 * rng.standard_normal(rows) > 0
    return pa.table(
        {
            "delay": pa.array(delay, mask=rng.random(rows) < 0.1),
            "hour": hour,
            "carrier": pa.array([b"AA", b"BB", b"CC", b"DD", b"EE"]).take(pa.array(carrier)),
            "label": label.astype(np.int64),
        }
    )


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    return write_examples(folder, {"train": table(ROWS, 1), "eval": table(500, 2)}, COLUMNS, shards=3)


class Lines(Monitor):
    """Keeps what is said; asks to stop once `stop` steps were made."""

    def __init__(self, stop=None):
        super().__init__()
        self.lines, self.until = [], stop

    def progress(self, done, total, unit, **facts):
        if self.until is not None and done >= self.until:
            self.stop.set()

    def log(self, line):
        self.lines.append(line)


@pytest.fixture(scope="module", autouse=True)
def _every_call_is_shown():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfcore.train.callbacks.PROGRESS_SECONDS", 0.0)
        patch.setattr("tfcore.train.trainer.STEPS_PER_CALL", 8)
        yield


def request(examples, checkpoints=None, **training):
    settings = {"batch_size": 32, "steps": 60, "jit": "off", "learning_rate": 0.01} | training
    return TrainRequest(
        examples=(examples.part("train"),),
        transform=examples.fit(),
        model=MODEL,
        training=TrainingConfig(**settings),
        seed=3,
        checkpoints=checkpoints,
    )


def weights(prefix):
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in sorted(reader.get_variable_to_shape_map()) if "model/" in name}


def same(left, right):
    assert left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_array_equal(value, right[name], err_msg=name)


def resumed(examples, folder, whole, step, **options):
    """The result of a training that goes on from the checkpoint of `step` of one that was never stopped, in `folder` /
    `whole`: it has to end where that ended. A stop takes the same checkpoint, see `test_stage.py`."""
    shutil.copytree(folder / "checkpoints" / str(step), folder / "again" / str(step))
    result = train(request(examples, folder / "again", **options), folder / "resumed", Lines())
    assert result["resumed_from"] == step
    same(weights(folder / "resumed" / "weights"), weights(folder / whole / "weights"))
    return result


@pytest.fixture(scope="module")
def plain(examples, tmp_path_factory):
    """(result, weights) of whole batches."""
    out = tmp_path_factory.mktemp("plain")
    return train(request(examples), out, Lines()), weights(out / "weights")


@pytest.mark.long
@pytest.mark.parametrize("jit", ["off", "on"])
def test_micro_batches_train_what_whole_batches_do(examples, plain, tmp_path, jit):
    options = {"jit": jit, "micro_batches": 4, "checkpoint_every_steps": 24}
    found = train(request(examples, tmp_path / "checkpoints", **options), tmp_path / "whole", Lines())
    if jit == "on":  # a resume keeps the mode it began in; that it ends alike is in steps/test_data_dependent_steps.py
        session = TrainingSession(request(examples, tmp_path / "checkpoints", **options | {"jit": "off"}), Lines())
        assert session.jit == "on" and session.start == 48
    expected, one = plain
    assert (found["traces"], found["jit"], expected["jit"]) == (1, {"off": "graph", "on": "jit"}[jit], "graph")
    assert np.isclose(found["final_loss"], expected["final_loss"], rtol=1e-3)
    other = weights(tmp_path / "whole" / "weights")
    for name, value in one.items():
        np.testing.assert_allclose(other[name], value, rtol=0.02, atol=2e-3, err_msg=name)


EVERY = {"precision": "float16", "micro_batches": 2, "schedules": {"label_smoothing": 0.1}}
EVERY |= {"checkpoint_every_steps": 72, "steps": 200}


@pytest.fixture(scope="module")
def every_option(examples, tmp_path_factory):
    """(folder, result) of a training with every option on: its output in "whole", its checkpoints."""
    folder = tmp_path_factory.mktemp("every_option")
    return folder, train(request(examples, folder / "checkpoints", **EVERY), folder / "whole", Lines())


@pytest.mark.long
def test_float16_in_micro_batches_resumes_exactly_with_its_loss_scale_in_calls_of_any_size(
    examples, every_option, monkeypatch
):
    monkeypatch.setattr("tfcore.train.trainer.STEPS_PER_CALL", 3)
    folder, whole = every_option
    again = resumed(examples, folder, "whole", 72, **EVERY)
    assert again["loss_scale"] == whole["loss_scale"]
    assert np.isfinite(again["final_loss"]) and again["traces"] == 1


def test_a_model_trained_in_mixed_precision_is_evaluated_and_served_in_float32(examples, every_option, tmp_path):
    asked = request(examples, **EVERY)
    trained, result = every_option[0] / "whole", every_option[1]
    assert result["final_loss"] < 0.45
    assert all(value.dtype.kind != "f" or value.dtype == np.float32 for value in weights(trained / "weights").values())
    scored = predict(
        EvaluateRequest(
            model=TrainedModel(path=trained, config=MODEL, seed=3),
            transform=asked.transform,
            examples=(examples.part("eval"),),
        ),
        tmp_path / "scored",
        Lines(),
    )
    assert scored["metrics"]["auc"] > 0.85
    export(
        ExportRequest(trained=trained, transform=asked.transform, model=MODEL, seed=3),
        tmp_path / "exported",
        Lines(),
    )
    served = tf.saved_model.load(str(tmp_path / "exported" / "saved_model")).signatures["serving_nullable"]
    rows = table(500, 2)
    present = rows["delay"].is_valid().to_numpy()
    answer = served(
        delay=tf.constant(rows["delay"].fill_null(0).to_numpy()),
        delay__present=tf.constant(present),
        hour=tf.constant(rows["hour"].to_numpy()),
        carrier=tf.constant(rows["carrier"].to_pylist()),
    )
    assert all(value.dtype == tf.float32 for value in answer.values())
    expected = np.load(tmp_path / "scored" / "expected.npy")
    difference = np.abs(answer["probability"].numpy()[: len(expected)] - expected)
    assert difference.max() <= 1e-5  # the bound of the replay
    mixed = build.build(MODEL, asked.transform, seed=3, precision="float16")
    build.load_weights(mixed, trained / "weights")  # the same variables, to train on from there


BEST = {"steps": 120, "learning_rate": 0.2, "early_stopping": {"every_steps": 10, "patience": 50, "holdout": 0.2}}
BEST |= {"checkpoint_every_steps": 40}


def test_the_holdout_is_evaluated_exactly_whatever_relaxes_the_steps(examples, tmp_path, monkeypatch):
    seen = {"steps": set(), "holdout": set()}
    for name, of in (("run", "steps"), ("evaluate", "holdout")):

        def noted(learner, *given, done=getattr(Learner, name), of=of, **more):
            seen[of].add(numerics())
            return done(learner, *given, **more)

        monkeypatch.setattr(Learner, name, noted)
    asked = request(examples, None, **BEST | {"steps": 20}, precision="tf32", deterministic=False)
    train(asked, tmp_path, Lines())
    assert seen == {"steps": {(True, False)}, "holdout": {(False, True)}} and numerics() == (False, True)


def test_steps_that_are_not_finite_end_a_training_in_the_middle_of_a_call(tmp_path, monkeypatch):
    """The square of 1e30 is no float32; in calls of 64 steps, the tenth in a row is the last."""
    monkeypatch.setattr("tfcore.train.trainer.STEPS_PER_CALL", 64)
    columns = (COLUMNS[0], Column(name="label", type="float32", nullable=False, role="label"))
    rows = table(300, 1).select(["delay"]).append_column("label", pa.array(np.float32([1e30, 2e30] * 150)))
    made = write_examples(tmp_path / "examples", {"train": rows}, columns)
    asked = TrainRequest(
        examples=(made.part("train"),),
        transform=made.fit(task="regression"),
        model=MODEL,
        training=TrainingConfig(batch_size=1, steps=200, jit="off"),
    )
    with pytest.raises(DataError, match="10 steps in a row, up to step 10, whose loss is inf"):
        train(asked, tmp_path / "out", Lines())


OWN = """
import tensorflow as tf

class {name}:
    metrics = {{"error": len}}

    def loss(self, batch, outputs):
        return {loss}

    def predictions(self, outputs):
        return {predictions}

    def train_step(self, model, batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model({{n: batch[n] for n in ("numeric", "categorical")}}, training=True))
        return {times} * loss, tape.gradient(loss, model.trainable_variables)
"""


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        (
            "Shape",
            {"predictions": "tf.stack([outputs, outputs], 1)"},
            "line 10: the predictions of own:Shape have the shape",
        ),
        ("Fails", {"predictions": "outputs['x']"}, "own.py, line 11: predictions of the task own:Fails failed"),
        ("Loss", {"loss": "batch['labels']"}, "own.py, line 8: loss of the task own:Loss failed: KeyError"),
        ("Nan", {"times": "float('nan')"}, "fix: check own:Nan, which computes the loss"),
    ],
)
def test_a_mistake_in_a_task_of_ones_own_is_told_before_a_step_and_its_nan_is_its_own(
    examples, tmp_path, monkeypatch, name, given, words
):
    text = OWN.format(name=name, **{"loss": "outputs[:, 0]", "predictions": "outputs[:, 0]", "times": "1.0"} | given)
    (tmp_path / "own.py").write_text(text)
    load_task(f"own:{name}", tmp_path / "own.py")
    asked = TrainRequest(
        examples=(examples.part("train"),),
        transform=examples.fit(task=f"own:{name}"),
        model=MODEL,
        training=TrainingConfig(batch_size=64, steps=20, jit="off"),
    )
    if name != "Nan":
        monkeypatch.setattr(Learner, "run", lambda *given, **more: pytest.fail("it was not told before"))
    with pytest.raises((ConfigError, DataError)) as error:
        train(asked, tmp_path / "out", Lines())
    assert words in str(error.value)
