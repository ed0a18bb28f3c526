"""A HeadwayError that is raised where TensorFlow or Keras run Python arrives as it was raised."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from headway.errors import ConfigError, DataError
from tfcore.graph.python_op import PythonOpError, numpy_op, python_errors
from tfcore.models.user_model import _check


def refuse(x):
    raise DataError("too many", where="photos", fix="look at them")


class Layer(keras.layers.Layer):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x):
        return self.function(x)


@pytest.mark.parametrize(
    "run",
    [
        tf.function(refuse),
        tf.function(lambda x: tf.cond(x[0, 0] > 0, lambda: refuse(x), lambda: x)),
        lambda x: Layer(refuse)(x),
        tf.function(lambda x: Layer(refuse)(x), autograph=False),
        lambda x: list(tf.data.Dataset.from_tensors(x).map(refuse)),
        lambda x: tf.data.Dataset.from_tensors(x).map(Layer(refuse)),
    ],
    ids=["tf.function", "cond", "layer", "layer in a graph", "map", "layer in a map"],
)
def test_while_it_is_traced_or_runs_eagerly(run):
    with pytest.raises(DataError) as caught:
        run(tf.ones([1, 1]))
    error = caught.value
    assert (error.problem, error.where, error.fix) == ("too many", "photos", "look at them")


def test_a_python_op_in_a_layer_names_its_own_failure():
    codes = {1: 2}
    op = numpy_op(lambda x: np.float32([codes[int(v)] for v in x]), tf.TensorSpec([None], tf.float32))
    layer = Layer(lambda x: op(x[:, 0])[:, None])
    for call in (layer, tf.function(layer)):
        with pytest.raises(PythonOpError, match=r"raised KeyError: 0(.|\n)*codes") as caught, python_errors():
            call(tf.zeros([2, 1]))
    assert isinstance(caught.value.__cause__, KeyError)  # Keras drops it where it runs eagerly


def test_a_model_that_fails_is_a_config_error_unless_its_own_function_says_more():
    class Layout:
        label = type("Label", (), {"task": "binary", "classes": None})

        @staticmethod
        def inputs():
            return {"numeric": ((1,), "float32")}

    def model(function):
        inputs = keras.Input([1], name="numeric")
        layer = Layer(lambda x: x)
        made = keras.Model({"numeric": inputs}, keras.layers.Dense(1)(layer(inputs)))
        layer.function = function
        return made

    with pytest.raises(ConfigError, match="does not take numeric float32"):
        _check(model(lambda x: x @ tf.ones([7, 7])), "mine:model", Layout, 1)
    op = numpy_op(lambda x: x.astype(np.float64), tf.TensorSpec([None, 1], tf.float32))
    with pytest.raises(PythonOpError, match=r"returned float64 \[2, 1\] for output, declared float32"):
        _check(model(op), "mine:model", Layout, 1)
