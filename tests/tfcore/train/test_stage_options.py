"""The training stage with micro-batches and mixed precision."""

import numpy as np
import pyarrow as pa
import pytest

from headway.errors import ConfigError, DataError
from headway.schema.columns import Column
from headway.tasks.user_task import load_task
from tests.example_shards import write_examples
from tests.patched import patched
from tests.tfcore.train.trainings import COLUMNS, Lines, request, table, weights
from tfcore.runtime.devices import numerics
from tfcore.train.loop import Learner
from tfcore.train.stage import train
from tfcore.train.trainer import TrainingSession

pytestmark = pytest.mark.long
ROWS = 2000


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    return write_examples(folder, {"train": table(ROWS, 1), "eval": table(500, 2)}, COLUMNS, shards=3)


_every_call_is_shown = patched(
    {"tfcore.train.callbacks.PROGRESS_SECONDS": 0.0, "tfcore.train.trainer.STEPS_PER_CALL": 8}
)


@pytest.fixture(scope="module")
def plain(examples, tmp_path_factory):
    """(result, weights) of whole batches."""
    out = tmp_path_factory.mktemp("plain")
    return train(request(examples), out, Lines()), weights(out)


@pytest.mark.parametrize("jit", ["off", "on"])
def test_micro_batches_train_what_whole_batches_do(examples, plain, tmp_path, jit):
    options = {"jit": jit, "micro_batches": 4, "checkpoint_every_steps": 24}
    found = train(request(examples, checkpoints=tmp_path / "checkpoints", **options), tmp_path / "whole", Lines())
    if jit == "on":  # a resume keeps the mode it began in; that it ends alike is in test_data_dependent_steps.py
        session = TrainingSession(
            request(examples, checkpoints=tmp_path / "checkpoints", **options | {"jit": "off"}), Lines()
        )
        assert session.jit == "on" and session.start == 48
    expected, one = plain
    assert (found["traces"], found["jit"], expected["jit"]) == (1, {"off": "graph", "on": "jit"}[jit], "graph")
    assert np.isclose(found["final_loss"], expected["final_loss"], rtol=1e-3)
    other = weights(tmp_path / "whole")
    for name, value in one.items():
        np.testing.assert_allclose(other[name], value, rtol=0.02, atol=2e-3, err_msg=name)


def test_the_holdout_is_evaluated_exactly_whatever_relaxes_the_steps(examples, tmp_path, monkeypatch):
    seen = {"steps": set(), "holdout": set()}
    for name, of in (("run", "steps"), ("evaluate", "holdout")):

        def noted(learner, *given, done=getattr(Learner, name), of=of, **more):
            seen[of].add(numerics())
            return done(learner, *given, **more)

        monkeypatch.setattr(Learner, name, noted)
    asked = request(examples, steps=20, early_stopping={"every_steps": 10}, precision="tf32", deterministic=False)
    train(asked, tmp_path, Lines())
    assert seen == {"steps": {(True, False)}, "holdout": {(False, True)}} and numerics() == (False, True)


def test_steps_that_are_not_finite_end_a_training_in_the_middle_of_a_call(tmp_path, monkeypatch):
    """The square of 1e30 is no float32; in calls of 64 steps, the tenth in a row is the last."""
    monkeypatch.setattr("tfcore.train.trainer.STEPS_PER_CALL", 64)
    columns = (COLUMNS[0], Column(name="label", type="float32", nullable=False, role="label"))
    rows = table(300, 1).select(["delay"]).append_column("label", pa.array(np.float32([1e30, 2e30] * 150)))
    made = write_examples(tmp_path / "examples", {"train": rows}, columns)
    asked = request(made, "regression", batch_size=1, steps=200)
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
    asked = request(examples, f"own:{name}", batch_size=64, steps=20)
    if name != "Nan":
        monkeypatch.setattr(Learner, "run", lambda *given, **more: pytest.fail("it was not told before"))
    with pytest.raises((ConfigError, DataError)) as error:
        train(asked, tmp_path / "out", Lines())
    assert words in str(error.value) and (name != "Shape" or "set width = 2" in error.value.fix)
