"""A task of the user's own in a training: its loss or its train_step is what is minimized."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from headway.errors import ConfigError
from headway.tasks.user_task import load_task
from tfcore.heads.table import head_of, label_head
from tfcore.train.settings.config import OptimizerConfig
from tfcore.train.steps.train_step import TrainStep, make_optimizer

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


def test_a_wrong_train_step_or_shape_names_what_to_return(file):
    head = head_of(load_task("own:Wrong", file))
    with pytest.raises(ConfigError, match=r"fix: return loss, tape\.gradient"):
        step_of(head).part(BATCH)
    with pytest.raises(ConfigError, match=r"have the shape [^\n]*\n[^\n]*set width = 2"):
        head.predictions(tf.zeros([4, 2]))
