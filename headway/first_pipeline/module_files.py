"""A module to begin with, with a Keras model, a loss, a metric or a preprocess function of one's own, and a test of it.

files = module_files("model", draft)              # {"model.py": ..., "test_model.py": ...}
"""

import itertools
import json
import re
from typing import Any, Literal

from headway.errors import ConfigError
from headway.first_pipeline.draft import Draft

Module = Literal["model", "loss", "metric", "preprocess"]
NAMES = {"model": "model", "loss": "model", "metric": "metric", "preprocess": "features"}
"""Of the files, by what they hold."""

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
_METRIC = '''\
"""A metric of this pipeline: pipeline.yaml names it, as metric:cost, and says that lower is better."""

import numpy as np


def cost(label, prediction, columns):
    """Return one number for all rows; None where it is not defined.

    Args:
        label: [rows].
        prediction: [rows@SHAPE@]: @MEANING@.
        columns: {name: [rows]}: the weight of each row in "weight"; the columns of evaluation.slices, as text.
    """
@BODY@
    return float(np.average(costs, weights=columns["weight"]))
'''
_COSTS = {
    "binary": (
        "",
        "the probability of 1",
        """\
    positive = prediction >= 0.5
    costs = np.where(label > 0, 5.0 * ~positive, 1.0 * positive)  # a missed positive costs five false alarms""",
    ),
    "multiclass": (
        ", classes",
        "the probability of each class",
        """\
    best = np.argsort(-prediction, axis=1)[:, :2]
    costs = 1.0 - (best == label[:, None]).any(axis=1)  # the label is not among the two likeliest classes""",
    ),
    **dict.fromkeys(
        ("regression", "count"),
        (
            "",
            "the predicted number",
            """\
    error = prediction - label
    costs = np.where(error > 0, error, -2.0 * error)  # too little costs twice as much""",
        ),
    ),
}
_TEST_METRIC = '''\
"""Tests of metric.py: pytest test_metric.py"""

import numpy as np
import pytest
from metric import cost

LABEL = np.array([0, 1, 2, 1])@CUT@
EXACT = @EXACT@


def weighed(*weights):
    return {"weight": np.array(weights, np.float64)}


def test_exact_predictions_cost_nothing():
    assert cost(LABEL, EXACT, weighed(1, 1, 1, 1)) == 0


def test_a_row_of_weight_two_counts_as_two_rows():
    wrong, twice = EXACT[::-1], [0, 1, 1, 2, 3]
    once = cost(LABEL[twice], wrong[twice], weighed(1, 1, 1, 1, 1))
    assert cost(LABEL, wrong, weighed(1, 2, 1, 1)) == pytest.approx(once)
'''
_PREPROCESS = '''\
"""Columns that this pipeline computes: pipeline.yaml names them, below preprocess:, with features:preprocess."""

import tensorflow as tf


def preprocess(columns):
    """Return further columns, [rows] each. A row's values depend on that row alone.

    Args:
        columns: {name: [rows]} of the stored columns but the label; 0 or "" stands for null. `NAME__present` says which rows
            of a column that may be null have a value.
    """
    @READ@
    return {@NEW@: @VALUE@}
'''
_TEST_PREPROCESS = '''\
"""Tests of features.py: pytest test_features.py"""

import numpy as np
import tensorflow as tf
from features import preprocess

from tfcore.testing import assert_no_retrace, assert_same_bytes

ROWS = {@COLUMN@: tf.constant(@ROWS@)}


def test_every_row_has_a_finite_value():
    (values,) = preprocess(ROWS).values()
    assert values.shape == (3,) and np.isfinite(values.numpy()).all()


def test_a_row_s_value_depends_on_that_row_alone():
    alone = preprocess({name: column[1:2] for name, column in ROWS.items()})
    assert_same_bytes(alone, {name: column[1:2] for name, column in preprocess(ROWS).items()})


def test_it_is_traced_once():
    computed = tf.function(preprocess)
    computed(ROWS)
    with assert_no_retrace(computed):
        computed(ROWS)
'''
_READS = {
    "number": ("value = tf.cast(columns[{}], tf.float32)", "tf.sign(value) * tf.math.log1p(tf.abs(value))", "log_{}"),
    "text": ("text = columns[{}]", "tf.cast(tf.strings.length(text), tf.float32)", "{}_length"),
}
"""By a column's type: what is read of it, what is computed, and the name of that."""


def module_files(module: Module, draft: Draft) -> dict[str, str]:
    """The texts of the module and of its test.

    Raises:
        ConfigError: `preprocess` is to compute from a number or a text, and there is none.
    """
    task = draft.facts.task or draft.facts.kind
    if module == "metric":
        shape, meaning, body = _COSTS[task]
        exact = "np.eye(4)[LABEL]" if task == "multiclass" else "LABEL.astype(np.float64)"
        filled = {"SHAPE": shape, "MEANING": meaning, "BODY": body, "CUT": " % 2" * (task == "binary"), "EXACT": exact}
        return _filled({"metric.py": _METRIC, "test_metric.py": _TEST_METRIC}, filled)
    if module == "preprocess":
        column, kind = _column(draft)
        read, value, _ = _READS[kind]
        rows = "[0, 20, -3]" if kind == "number" else '["", "one", "three"]'
        filled = {"READ": read.format(_literal(column)), "VALUE": value, "ROWS": rows, "COLUMN": _literal(column)}
        filled["NEW"] = _literal(_computed_name(draft))
        return _filled({"features.py": _PREPROCESS, "test_features.py": _TEST_PREPROCESS}, filled)
    if module == "model":
        kind = {"count": "binary"}.get(task, task)  # of one output as well
        return _filled({"model.py": _MODEL, "test_model.py": _TEST_MODEL}, {"TASK": kind})
    width, meaning, body = _BODIES[task]
    return {
        **_filled({"model.py": _LOSS}, {"WIDTH": width, "MEANING": meaning, "BODY": body}),
        **_filled({"test_model.py": _TEST_LOSS}, {"WIDTH": {"classes": "3"}.get(width, width)}),
    }


def _filled(texts: dict[str, str], values: dict[str, str]) -> dict[str, str]:
    """Texts with each @NAME@ replaced, in one pass: a value may contain such a name itself."""
    return {file: re.sub("@([A-Z]+)@", lambda found: values[found[1]], text) for file, text in texts.items()}


def computed(draft: Draft) -> dict[str, Any]:
    """What `preprocess:` says of the columns that the template computes."""
    return {"function": "features:preprocess", "columns": {_computed_name(draft): "standardize"}}


def _computed_name(draft: Draft) -> str:
    """The name of the column that the template computes: one that the data have not."""
    column, kind = _column(draft)
    name = _READS[kind][2].format(column)
    taken = {choice.column for choice in draft.choices} | draft.label.columns()
    return next(free for n in itertools.count(1) if (free := name if n == 1 else f"{name}_{n}") not in taken)


def _column(draft: Draft) -> tuple[str, str]:
    """(name, type) of the column that the template computes from: the first number, else the first text."""
    kinds = {"number": "number", "integer": "number", "text": "text"}
    found = [
        (choice.column, kinds[choice.type])
        for choice in draft.choices
        if choice.use == "feature" and choice.type in kinds
    ]
    if not found:
        raise ConfigError("there is no number and no text to compute from", where="--module preprocess")
    return min(found, key=lambda each: each[1])


def _literal(name: str) -> str:
    """A name as a Python literal."""
    return json.dumps(name, ensure_ascii=False)
