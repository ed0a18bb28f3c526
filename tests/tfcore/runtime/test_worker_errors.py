"""An op that fails while it runs tells why, in which op, and from which line of the user's, compiled or not."""

import importlib.util

import pytest
import tensorflow as tf

from headway.errors import HeadwayError
from tfcore.graph.function import graph_function
from tfcore.runtime.worker import error_as_json, explain_error

MODULE = """
import keras
import tensorflow as tf


class Table(keras.layers.Layer):
    def call(self, x):
        rows = tf.cast(x[:, 0], tf.int32)
        return tf.gather(tf.zeros([3]), rows)


class Small(keras.layers.Layer):
    def call(self, x):
        tf.debugging.assert_less(x, 0.5, message="too large")
        return x


class Reshaped(keras.layers.Layer):
    def call(self, x):
        return tf.reshape(x, [tf.cast(tf.reduce_max(x), tf.int32), 3])


class Looked(keras.layers.Layer):
    def call(self, x):
        return tf.numpy_function(lambda x: {}[1], [x], tf.float32)
"""
LINES = {
    "Table": (9, "indices[0] = 7 is not in [0, 3)", "return tf.gather(tf.zeros([3]), rows)"),
    "Small": (14, "too large", 'tf.debugging.assert_less(x, 0.5, message="too large")'),
    "Reshaped": (20, "a tensor with 4 values, but the requested shape has 21", "return tf.reshape(x, ["),
    "Looked": (25, "KeyError: 1", "return tf.numpy_function"),
}
X = {"x": tf.TensorSpec([None, 2], tf.float32)}


@pytest.fixture
def user(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("users_model", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, str(path)


def _in_a_graph(layer):
    return graph_function(X)(lambda x: layer(x))


def _in_a_loop(layer):
    def body(x):
        return tf.while_loop(lambda i: i < 2, lambda i: i + tf.size(layer(x)), [0])

    return graph_function(X)(body)


def _eagerly(layer):
    return lambda x: layer(x)


@pytest.mark.parametrize(
    ("run", "name"),
    # of Python that fails where it runs eagerly TensorFlow tells nothing: the error is its own
    [
        (run, name)
        for run in (_in_a_graph, _in_a_loop, _eagerly)
        for name in LINES
        if (run, name) != (_eagerly, "Looked")
    ],
)
def test_the_line_the_op_and_the_reason_are_named(user, run, name):
    module, path = user
    line, why, source = LINES[name]
    call = run(getattr(module, name)())
    with pytest.raises(tf.errors.OpError) as caught:
        call(x=tf.fill([2, 2], 7.0))
    told = error_as_json(caught.value)
    assert (told["kind"], told["traceback"]) == ("HeadwayError", None)
    assert told["where"].startswith(f"{path}:{line}, in ")
    first, second = told["problem"].splitlines()
    assert why in first and second.strip().startswith(source)
    assert "Graph execution error" not in told["problem"] and "\x1b" not in told["problem"] and "{{" not in first
    if name == "Table":
        op = "GatherV2" if run is _eagerly else f"{'while/' * (run is _in_a_loop)}table"
        assert first.startswith(f"InvalidArgumentError in op {op}")


def test_without_a_line_of_the_users_the_one_line_has_the_reason():
    with pytest.raises(tf.errors.OpError) as caught:
        tf.gather(tf.zeros([3]), [7])
    error = caught.value.with_traceback(None)  # as where libraries alone lead to the op
    reason, explanation = explain_error(error)
    assert explanation is error
    told = error_as_json(error)
    assert told["kind"] is None and told["traceback"]
    assert told["problem"] == "InvalidArgumentError: indices[0] = 7 is not in [0, 3) (op GatherV2)"
    assert reason in told["problem"]


def test_a_worker_that_was_lost_is_no_mistake_of_the_line_that_waited_for_it():
    def call(kind):
        raise kind(None, None, "Socket closed")

    for kind in (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError):
        with pytest.raises(kind) as caught:
            call(kind)
        assert explain_error(caught.value)[1] is caught.value
        assert error_as_json(caught.value)["problem"] == f"{kind.__name__}: Socket closed"


def test_the_error_itself_stays_the_cause(user):
    module, _ = user
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        _in_a_graph(module.Table())(x=tf.fill([2, 2], 7.0))
    _, told = explain_error(caught.value)
    assert isinstance(told, HeadwayError) and told.__cause__ is caught.value
