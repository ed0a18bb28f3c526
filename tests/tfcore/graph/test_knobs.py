"""tfcore.graph.knobs: a knob is a variable in the graph, and no Python value is made of it by mistake."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from headway.errors import ConfigError
from tfcore.graph.knobs import KnobVariables, knob

CONVERSIONS = {
    "float": float,
    "int": int,
    "bool": bool,
    "if": lambda margin: 1.0 if margin else 0.0,
    "math": math.sqrt,
    "round": round,
    "numpy": lambda margin: margin.numpy(),
    "an array": np.asarray,
    "a NumPy scalar": np.float32,
}


def variables(strategy):
    with strategy.scope():
        return KnobVariables(["margin"])


@pytest.fixture(params=[tf.distribute.get_strategy, lambda: tf.distribute.MirroredStrategy(["CPU:0"])])
def knobs(request):
    return variables(request.param())


@pytest.mark.parametrize("name", CONVERSIONS)
def test_a_value_made_of_a_knob_is_refused_while_a_model_is_made_and_while_a_graph_is_traced(knobs, name):
    with (
        knobs.offered(),
        pytest.raises(ConfigError, match=r"knob\('margin'\): is converted to a Python or NumPy value"),
    ):
        CONVERSIONS[name](knob("margin"))
    with knobs.offered():
        margin = knob("margin")
    with pytest.raises(ConfigError, match="another value would cost another trace and compilation"):
        tf.function(lambda x: x + CONVERSIONS[name](margin), autograph=False)(tf.ones([]))


def test_a_value_made_of_a_knob_in_a_roundabout_way_is_not_finite(knobs):
    with knobs.offered():
        assert math.isnan(float(knob("margin") * 2.0))


def test_a_knob_is_a_variable_for_tensorflow_and_keras(knobs):
    with knobs.offered():
        margin = knob("margin")
    assert isinstance(margin, tf.Variable)
    read = tf.function(lambda x: keras.ops.multiply(tf.where(x > margin, x - margin, 0.0), 2.0))
    for value in (1.0, 2.0):
        knobs.assign({"margin": tf.constant(value)})
        assert read(tf.constant([1.5, 4.0])).numpy().tolist() == [max(0.0, 3.0 - 2 * value), 8.0 - 2 * value]
        # between the calls, eagerly, anyone may look
        assert [float(margin), float(margin.numpy()), float(np.asarray(margin)), round(margin)] == [value] * 4
    assert read.experimental_get_tracing_count() == 1
