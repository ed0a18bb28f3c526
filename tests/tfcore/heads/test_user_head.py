"""A task of the user's own in a training: its loss or its train_step is what is minimized."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from headway.errors import ConfigError
from headway.tasks.user_task import load_task
from tfcore.heads.table import head_of, label_head
from tfcore.train.config import OptimizerConfig
from tfcore.train.step import TrainStep, make_optimizer

TEXT = """
import tensorflow as tf

def error(label, prediction, columns):
    return 0.0

class Own:
    metrics = {"error": error}
    outputs = 2

    def loss(self, batch, outputs):
        return tf.square(outputs[:, 0] - batch["label"]) + outputs[:, 1] ** 2

    def predictions(self, outputs):
        return outputs[:, 0] * 2.0

class Steps(Own):
    def train_step(self, model, batch):
        with tf.GradientTape() as tape:
            loss = 7.0 * tf.reduce_mean(self.loss(batch, model({"numeric": batch["numeric"]}, training=True)))
        return loss, tape.gradient(loss, model.trainable_variables)

class Wrong(Own):
    def train_step(self, model, batch):
        return 1.0

    def predictions(self, outputs):
        return outputs
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "own.py").write_text(TEXT)
    return tmp_path / "own.py"


def step_of(head):
    inputs = keras.Input((3,), name="numeric")
    outputs = keras.layers.Dense(2, kernel_initializer="ones")(inputs)
    model = keras.Model({"numeric": inputs}, outputs)
    optimizer = make_optimizer(OptimizerConfig(name="sgd"))
    optimizer.build(model.trainable_variables)
    counter = tf.Variable(0, dtype=tf.int64)
    return TrainStep(model=model, head=head, optimizer=optimizer, counter=counter)


BATCH = {"numeric": np.ones([4, 3], np.float32), "label": np.zeros(4, np.float32), "weight": np.ones(4, np.float32)}


def test_its_loss_gives_the_gradients_and_its_predictions_what_is_served(file):
    head = label_head(SimpleNamespace(task="own:Own", file=file, classes=None))
    assert head.outputs == 2 and head.task.name == "own:Own"
    part = step_of(head).part(BATCH)
    assert float(part.loss) == pytest.approx(18.0)
    np.testing.assert_allclose(part.gradients[0], np.full((3, 2), 6.0))
    assert head.served(tf.constant([[3.0, 1.0]]))["prediction"].numpy().tolist() == [6.0]


def test_its_train_step_replaces_the_step(file):
    head = head_of(load_task("own:Steps", file))
    part = step_of(head).part(BATCH)
    assert float(part.loss) == pytest.approx(126.0)
    np.testing.assert_allclose(part.gradients[0], np.full((3, 2), 42.0))


@pytest.mark.parametrize(
    ("body", "said", "fix"),
    [
        ("return 1.0", "line 5: train_step of the task t:Own returned one float", "return loss, tape.gradient"),
        ("return 1.0, [], {}", "line 5: train_step of the task t:Own returned 3 values", "return loss, tape.gradient"),
        (
            "return 1.0, [None]",
            "line 5: train_step of the task t:Own returned 1 instead of a gradient for each of the 2",
            "return",
        ),
        ("return tf.zeros([4]), [None, None]", "line 5: the loss of train_step has the shape (4,)", "take its mean"),
        (
            "return batch['labels']",
            "line 6: train_step of the task t:Own failed: KeyError: 'labels'",
            "numeric, label, weight",
        ),
        (
            "return batch['label'].numpy()",
            "line 6: train_step of the task t:Own failed",
            "tf.print; training: {eager: true}",
        ),
        ("return 1 / 0", "line 6: train_step of the task t:Own failed: ZeroDivisionError", "correct the line"),
    ],
)
def test_a_mistake_in_a_train_step_has_its_file_its_line_and_a_fix(tmp_path, body, said, fix):
    (tmp_path / "t.py").write_text(
        "import tensorflow as tf\nclass Own:\n    metrics = {'e': len}\n    loss = len\n"
        f"    def train_step(self, model, batch):\n        {body}\n"
    )
    step = step_of(head_of(load_task("t:Own", tmp_path / "t.py")))
    with pytest.raises(ConfigError) as error:
        tf.function(lambda batch: step.part(batch).loss)({name: tf.constant(value) for name, value in BATCH.items()})
    assert f"t.py, {said}" in str(error.value) and fix in error.value.fix


def test_predictions_of_another_shape_name_what_to_return(file):
    head = head_of(load_task("own:Wrong", file))
    with pytest.raises(ConfigError, match=r"have the shape [^\n]*\n[^\n]*set width = 2"):
        head.predictions(tf.zeros([4, 2]))
