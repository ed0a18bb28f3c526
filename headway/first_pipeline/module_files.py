"""A model.py to begin with, a Keras model or a loss of one's own, and a test of it.

files = module_files("model", "binary")           # {"model.py": ..., "test_model.py": ...}
"""

from typing import Literal

Module = Literal["model", "loss"]

_MODEL = '''\
"""The model of this pipeline: pipeline.yaml names it, as model:build."""

import keras


def build(layout, options):
    """Build the Keras model, from the columns to the outputs of the label.

    Args:
        layout: what the columns became: {name: (shape of a row, dtype)} in layout.inputs(), the names of numbers in
            layout.numeric, name and size of each category in layout.categorical, the label in layout.label.
        options: further keys of `model:` in pipeline.yaml.

    Returns:
        A model whose inputs are those of layout.inputs(). Its output is float32 [rows, 1]: a logit of two classes, a number,
        the logarithm of a count; or [rows, classes]: a logit for each class.
    """
    inputs = {name: keras.Input(shape, name=name, dtype=dtype) for name, (shape, dtype) in layout.inputs().items()}
    parts = [inputs["numeric"]]
    for place, category in enumerate(layout.categorical):
        parts.append(keras.layers.Embedding(category.size, 8)(inputs["categorical"][:, place]))
    for name in inputs:
        if name.startswith("image_"):
            pixels = keras.layers.Rescaling(1 / 255)(inputs[name])
            pixels = keras.layers.Conv2D(32, 3, padding="same", activation="relu")(pixels)
            parts.append(keras.layers.GlobalAveragePooling2D()(pixels))
    hidden = keras.layers.Concatenate()(parts)
    for width in options.get("hidden", (64, 32)):
        hidden = keras.layers.Dense(width, activation="relu")(hidden)
    label = layout.label
    outputs = keras.layers.Dense(len(label.classes) if label.task == "multiclass" else 1)(hidden)
    if label.task == "regression":  # the layer above works in standard deviations from the mean
        outputs = keras.layers.Rescaling(label.std, label.mean)(outputs)
    return keras.Model(inputs, outputs)
'''
_TEST_MODEL = '''\
"""Tests of model.py: pytest test_model.py"""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from model import build

from tfcore.testing import assert_no_retrace, assert_same_bytes

ROWS = 8
TASKS = {"binary": 1, "multiclass": 3, "regression": 1}


def layout(task):
    return SimpleNamespace(
        numeric=("a", "b"),
        categorical=(SimpleNamespace(name="c", size=5),),
        label=SimpleNamespace(task=task, classes=("x", "y", "z"), mean=10.0, std=2.0),
        inputs=lambda: {"numeric": ((2,), "float32"), "categorical": ((1,), "int32")},
    )


def some_rows():
    random = np.random.default_rng(0)
    return {
        "numeric": tf.constant(random.normal(size=(ROWS, 2)), tf.float32),
        "categorical": tf.constant(random.integers(0, 5, (ROWS, 1)), tf.int32),
    }


@pytest.mark.parametrize("task", TASKS)
def test_a_row_has_the_outputs_of_the_task(task):
    outputs = build(layout(task), {})(some_rows())
    assert outputs.shape == (ROWS, TASKS[task]) and np.isfinite(outputs.numpy()).all()


def test_predicting_is_traced_once_and_gives_the_same_bits_again():
    model = build(layout("@TASK@"), {})
    predict = tf.function(lambda rows: model(rows, training=False))
    first = predict(some_rows())
    with assert_no_retrace(predict):
        assert_same_bytes(predict(some_rows()), first)


def test_every_weight_learns():
    model = build(layout("@TASK@"), {})
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(model(some_rows(), training=True)))
    assert all(gradient is not None for gradient in tape.gradient(loss, model.trainable_variables))
'''
_LOSS = '''\
"""The loss of this pipeline: pipeline.yaml names it, as model:loss. Evaluation and the gate keep the task's metrics."""

import tensorflow as tf


def loss(batch, outputs):
    """Return the loss of each row, float32 [rows]; Headway weighs them and takes the mean.

    Args:
        batch: the model's inputs, and `label` and `weight`, [rows] each.
        outputs: of the model, float32 [rows, @WIDTH@]: @MEANING@.
    """
@BODY@
'''
_BODIES = {
    "binary": (
        "1",
        "a logit",
        """\
    label = tf.cast(batch["label"], tf.float32)
    loss = tf.nn.sigmoid_cross_entropy_with_logits(labels=label, logits=outputs[:, 0])
    return tf.where(label > 0, 2.0 * loss, loss)  # a missed positive costs twice as much""",
    ),
    "multiclass": (
        "classes",
        "a logit for each class",
        """\
    label = tf.cast(batch["label"], tf.int32)
    smooth = tf.one_hot(label, outputs.shape[1], on_value=0.95, off_value=0.05 / (outputs.shape[1] - 1))
    return tf.nn.softmax_cross_entropy_with_logits(labels=smooth, logits=outputs)""",
    ),
    "regression": (
        "1",
        "the prediction",
        """\
    error = outputs[:, 0] - tf.cast(batch["label"], tf.float32)
    return tf.where(error > 0, tf.square(error), 2.0 * tf.square(error))  # too little costs twice as much""",
    ),
    "count": (
        "1",
        "the logarithm of the expected count",
        """\
    label = tf.cast(batch["label"], tf.float32)
    return tf.exp(outputs[:, 0]) - label * outputs[:, 0]  # Poisson""",
    ),
}
_TEST_LOSS = '''\
"""Tests of model.py: pytest test_model.py"""

import numpy as np
import tensorflow as tf
from model import loss

from tfcore.testing import assert_gradient

LABEL = tf.constant([0, 1, 0, 1, 1])
BATCH = {"label": LABEL, "weight": tf.ones([5])}
OUTPUTS = tf.constant(np.random.default_rng(0).normal(size=(5, @WIDTH@)), tf.float32)


def test_each_row_has_a_finite_loss():
    losses = loss(BATCH, OUTPUTS)
    assert losses.shape == (5,) and losses.dtype == tf.float32 and np.isfinite(losses.numpy()).all()


def test_the_gradient_is_that_of_finite_differences():
    assert_gradient(lambda outputs: loss(BATCH, outputs), OUTPUTS)
'''


def module_files(module: Module, task: str) -> dict[str, str]:
    """The texts of model.py and test_model.py.

    Args:
        task: binary, multiclass, regression or count.
    """
    if module == "model":
        kind = {"count": "binary"}.get(task, task)  # of one output as well
        return {"model.py": _MODEL, "test_model.py": _TEST_MODEL.replace("@TASK@", kind)}
    width, meaning, body = _BODIES[task]
    text = _LOSS.replace("@WIDTH@", width).replace("@MEANING@", meaning).replace("@BODY@", body)
    return {"model.py": text, "test_model.py": _TEST_LOSS.replace("@WIDTH@", {"classes": "3"}.get(width, width))}
