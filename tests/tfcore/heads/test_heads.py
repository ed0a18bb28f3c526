"""The heads of the built-in tasks: losses, predictions, served outputs and where they start."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from headway.tasks.table import task_of
from tfcore.heads.table import head_of, label_head

OUTPUT = np.array([[0.3], [2.0]], np.float32)
CLASSES = np.array([[0.3, -1.0], [2.0, 0.1]], np.float32)
SIGMOID = 1 / (1 + np.exp(-OUTPUT[:, 0]))
SOFTMAX = np.exp(CLASSES) / np.exp(CLASSES).sum(1, keepdims=True)


@pytest.mark.parametrize(
    ("task", "output", "expected"),
    [
        ("binary", OUTPUT, [-np.log(SIGMOID[0]), -np.log(1 - SIGMOID[1])]),
        ("multiclass", CLASSES, [-np.log(SOFTMAX[0, 1]), -np.log(SOFTMAX[1, 0])]),
        ("regression", OUTPUT, [0.49, 4.0]),
        ("count", OUTPUT, [np.exp(0.3) - 0.3, np.exp(2.0)]),
        # the label 1 lies above both outputs by 0.7 and 2, the label 0 below by 2 and 0.1
        ("quantiles(0.1, 0.9)", CLASSES, [(0.1 * 0.7 + 0.9 * 2.0) / 2, (0.9 * 2.0 + 0.1 * 0.1) / 2]),
    ],
)
def test_the_loss_of_each_row(task, output, expected):
    found = head_of(task, ("a", "b")).loss({"label": tf.constant([1, 0], tf.int64)}, tf.constant(output))
    assert found.shape == (2,) and np.allclose(found, expected, rtol=1e-5)


def test_smoothed_losses_of_classes_are_those_of_soft_labels():
    output, label = np.array([[0.3, -1.0, 2.0]], np.float32), tf.constant([1])
    soft = np.full((1, 3), 0.3 / 3)
    soft[0, 1] += 0.7
    expected = tf.nn.softmax_cross_entropy_with_logits(soft.astype(np.float32), output)
    for given in (label, tf.one_hot(label, 3)):
        found = head_of("multiclass").loss({"label": given}, output, smoothing=tf.constant(0.3))
        assert np.allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression", "count", "quantiles(0.2, 0.6)"])
def test_predictions_in_tensorflow_and_numpy_agree_and_are_what_is_served(task):
    classes = ("a", "b") if task == "multiclass" else ()
    head = head_of(task, classes)
    output = np.random.default_rng(0).normal(size=(50, head.outputs)).astype(np.float32)
    predictions = head.predictions(tf.constant(output)).numpy()
    np.testing.assert_allclose(predictions, task_of(task).from_output(output.astype(np.float64)), rtol=1e-5)
    served = head.served(tf.constant(output))
    assert [(name, value.dtype.name, tuple(value.shape[1:])) for name, value in served.items()] == [
        tuple(entry) for entry in task_of(task).outputs(classes)
    ]
    np.testing.assert_array_equal(served[task_of(task).output], predictions)


def test_quantiles_never_cross_and_the_middle_one_is_the_prediction():
    served = head_of("quantiles").served(tf.constant([[3.0, 1.0, 2.0]]))
    assert served["quantiles"].numpy().tolist() == [[1.0, 2.0, 3.0]] and served["prediction"].numpy().tolist() == [2.0]


@pytest.mark.parametrize(
    ("label", "prediction"),
    [
        (SimpleNamespace(task="binary", classes=None, counts=(90, 10)), [0.1]),
        (SimpleNamespace(task="multiclass", classes=("a", "b"), counts=(90, 10)), [[0.9, 0.1]]),
        (SimpleNamespace(task="regression", classes=None, mean=50.0, std=4.0), [50.0]),
        (SimpleNamespace(task="count", classes=None, mean=3.0, std=4.0), [3.0]),
        (
            SimpleNamespace(task="quantiles(0.1, 0.9)", classes=None, mean=50.0, std=4.0, quantiles=(42.0, 61.0)),
            [[42.0, 61.0]],
        ),
    ],
)
def test_a_model_starts_at_the_distribution_of_the_train_labels(label, prediction):
    head = label_head(label)
    start = head.start(label)
    scale, centre = head.units(label)
    bias = np.zeros(head.outputs, np.float32) if start is None else start
    np.testing.assert_allclose(head.predictions(tf.constant([bias * scale + centre])), prediction, rtol=1e-5)
