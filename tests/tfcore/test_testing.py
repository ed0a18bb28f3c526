"""tfcore.testing: each assertion passes what holds, and says where, what was expected and what was found otherwise."""

import numpy as np
import pytest
import tensorflow as tf

from tests.test_assertions import failure
from tfcore.graph.function import graph_function
from tfcore.testing import assert_no_retrace, assert_same_predictions, assert_signature

VECTOR = tf.TensorSpec([None], tf.float32)


def test_no_retrace_holds_for_tensors_and_names_the_python_value_otherwise():
    step = tf.function(lambda x, rate: x * rate)
    with assert_no_retrace(step):
        for rate in (0.1, 0.2):
            step(tf.ones([2]), tf.constant(rate))
    step = tf.function(lambda x, rate: x * rate)
    with pytest.raises(AssertionError, match=r"argument 'rate': Python value 0\.1 -> 0\.2"), assert_no_retrace(step):
        for rate in (0.1, 0.2):
            step(tf.ones([2]), rate)


def test_signatures_are_compared_side_by_side(tmp_path):
    @graph_function(x=VECTOR, n=tf.TensorSpec([], tf.int32))
    def both(x, n):
        return {"y": x * tf.cast(n, tf.float32)}

    inputs = {"x": VECTOR, "n": (tf.int32, [])}
    assert_signature(both, inputs, {"y": VECTOR})
    said = failure(assert_signature, both, {"x": ("float64", [None]), "m": (tf.int32, [])}, {"y": VECTOR})
    assert [line.split("  ")[0:1] and line.split() for line in said.splitlines()[2:]] == [
        ["input", "'x'", "float64", "[None]", "float32", "[None]"],
        ["input", "'m'", "int32", "[]", "nothing"],
        ["input", "'n'", "nothing", "int32", "[]"],
    ]
    module = tf.Module()
    module.f = tf.function(lambda x: {"y": x}, input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    assert_signature(module.f, {"x": VECTOR}, {"y": VECTOR})
    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": module.f.get_concrete_function()})
    assert_signature(tmp_path, {"x": VECTOR}, {"y": VECTOR})
    nested = graph_function(batch={"a": VECTOR, "b": (VECTOR,)})(lambda batch: (batch["a"], batch["b"][0]))
    assert_signature(nested, {"batch": {"a": VECTOR, "b": (VECTOR,)}}, {"output_0": VECTOR, "output_1": VECTOR})
    single = tf.function(lambda x: x[:, 0], input_signature=[tf.TensorSpec([None, 2])])
    assert_signature(single, None, {"output": VECTOR})


def test_predictions_are_compared_row_by_row_with_what_goes_in(tmp_path):
    module = tf.Module()
    module.f = tf.function(lambda x: {"y": 2.0 * x}, input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": module.f.get_concrete_function()})
    rows = {"x": np.float32([1, 2, 3]), "other": np.array([b"a", b"b", b"c"])}
    for function in (tmp_path, str(tmp_path), lambda rows: {"y": 2.0 * rows["x"]}, lambda rows: 2.0 * rows["x"]):
        assert_same_predictions(function, rows, np.float32([2, 4, 6]), bound=0)
        assert_same_predictions(function, rows, np.float32([2, 4, 6.00001]))
        said = failure(assert_same_predictions, function, rows, np.float32([2, 4.5, 6]))
        assert "differs by 0.111 in row 1 (bound 1e-05): it is 4.0, expected 4.5" in said and "'x': 2.0" in said
        assert "'other': b'b'" in said
    assert_same_predictions(tmp_path, rows, {"y": [2, 4, 6]})
    assert "no output 'z', only ['y']" in failure(assert_same_predictions, tmp_path, rows, {"z": [2, 4, 6]})
    assert "shape [3], expected [2]" in failure(assert_same_predictions, tmp_path, rows, [2, 4])


def test_what_is_no_number_is_the_same_only_as_itself():
    rows, nothing = {"x": np.float32([1, 0])}, np.float32([1, np.nan])
    assert_same_predictions(lambda rows: nothing, rows, nothing)
    for other in ([1, 0], [1, np.inf], [np.nan, np.nan]):
        assert "differs by" in failure(assert_same_predictions, lambda rows: nothing, rows, other)
