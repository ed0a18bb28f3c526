"""`training: {eager: true}`: the same training op by op, where the user's own prints and breakpoints are run."""

import contextlib
import os
import pty
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from headway.errors import DataError
from headway.monitor import Monitor
from headway.schema.columns import Column
from tests.example_shards import write_examples
from tests.tfcore.train.trainings import weights
from tfcore.models.config import ModelConfig
from tfcore.train.config import TrainingConfig
from tfcore.train.request import TrainRequest
from tfcore.train.stage import train
from tfcore.transform.config import ColumnTransform

pytestmark = pytest.mark.long
SOURCE = """
import keras
import tensorflow as tf



class Ratio(keras.layers.Layer):
    def call(self, x):
        if tf.executing_eagerly():
            print("ratio of", x.shape, type(x.numpy()).__name__)
        return x / (1.0 - x)


def model(layout, options):
    inputs = {n: keras.Input(r, dtype=d, name=n) for n, (r, d) in layout.inputs().items()}
    return keras.Model(inputs, keras.layers.Dense(1, name="output")(Ratio(name="ratio")(inputs["numeric"])))


def loss(batch, outputs):
    return tf.square(batch["label"] - outputs[:, 0])
"""


@pytest.fixture
def request_of(tmp_path):
    """request_of(x, **training): a training of the module's model on one column."""
    (tmp_path / "mine.py").write_text(SOURCE)

    def made(x, own=True, **training):
        columns = (
            Column(name="x", type="float32", nullable=False),
            Column(name="label", type="int64", nullable=False, role="label"),
        )
        rows = pa.table({"x": np.float32(x), "label": np.arange(len(x)) % 2})
        examples = write_examples(tmp_path / "examples", {"train": rows}, columns, rows_per_record=64)
        as_it_is = {"x": ColumnTransform(transform="identity")}
        return TrainRequest(
            examples=(examples.part("train"),),
            transform=examples.fit(as_it_is if own else None, task="binary"),
            model=ModelConfig(name="mine:model") if own else ModelConfig(name="mlp", hidden=(4,), dropout=0.2, l2=1e-3),
            module=tmp_path / "mine.py",
            loss=tmp_path / "mine.py",
            training=TrainingConfig(batch_size=16, **training),
        )

    return made


def test_an_eager_training_is_the_compiled_one_op_by_op(request_of, tmp_path):
    asked = request_of(np.random.default_rng(0).standard_normal(96), own=False, steps=20, clip_norm=0.5)
    train(asked, tmp_path / "compiled", Monitor())
    eager = asked.training.model_copy(update={"eager": True})
    asked = asked.model_copy(update={"training": eager, "checkpoints": tmp_path / "checkpoints"})
    result = train(asked, tmp_path / "eager", Monitor())
    assert result["jit"] == "eager" and result["skipped"] == 0
    compiled = weights(tmp_path / "compiled")
    for name, value in weights(tmp_path / "eager").items():
        np.testing.assert_allclose(value, compiled[name], atol=1e-5)
    assert not tf.config.functions_run_eagerly()
    assert tf.function(lambda: tf.constant(tf.executing_eagerly()))().numpy() == np.False_


def test_prints_run_and_the_first_op_that_is_not_finite_is_named(request_of, tmp_path, capfd):
    x = np.random.default_rng(0).uniform(-1, 0, 96)
    train(request_of(x, eager=True, steps=3), tmp_path / "fine", Monitor())
    assert capfd.readouterr().out.count("ratio of (16, 1) ndarray") >= 3
    x[40] = 1.0
    asked = request_of(x, eager=True, steps=12, loss="mine:loss")
    said = r'step \d+: detected Infinity or NaN in output 0 of .*"RealDiv".*mine.py, line 11'
    with pytest.raises(DataError, match=said):
        train(asked, tmp_path / "out", Monitor())
    train(request_of(x, steps=12), tmp_path / "skips", Monitor())


def test_what_it_cannot_be_combined_with_is_said():
    for other in ({"jit": "on"}, {"strategy": "mirrored"}):
        with pytest.raises(ValueError, match=f"eager: .*; leave out {next(iter(other))}"):
            TrainingConfig(eager=True, **other)


BACKGROUND = """
import os, signal
os.setpgid(0, 0)
signal.signal(signal.SIGTTIN, signal.SIG_DFL)
from headway.process import mark_own_process
mark_own_process()
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
from tfcore.train.eager import eagerly
with eagerly():
    seen = 41
    breakpoint()
print("went on with", seen)
"""


def test_a_breakpoint_is_at_the_terminal_of_the_command():
    """Of a process whose input is no terminal, and which is in the terminal's background."""
    pid, terminal = pty.fork()
    if pid == 0:
        child = subprocess.Popen([sys.executable, "-P", "-c", BACKGROUND])
        os._exit(child.wait())
    shown, answers = b"", [b"seen = seen + 1\n", b"c\n"]
    with contextlib.suppress(OSError):  # how the end of a terminal is told
        while piece := os.read(terminal, 4096):
            shown += piece
            if answers and shown.count(b"(Pdb) ") == 3 - len(answers):
                os.write(terminal, answers.pop(0))
    assert b"went on with 42" in shown, shown.decode()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
