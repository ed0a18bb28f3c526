"""The assertions of these tests: each passes what holds, and says where, what was expected and what was found otherwise."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from tests.exact_resume import assert_resumes_exactly
from tests.same_bytes import assert_same_bytes
from tfcore.graph.python_op import numpy_op, python_op
from tfcore.heads.head import head_of

X = np.array([0.5, -1.25, 2.0])
TOLERANCE = {"float64": 1e-6, "float32": 1e-2}


def assert_gradient(function, argument, *, graph=True):
    """Raise AssertionError unless the tape's gradient agrees with central differences, a cube root of the dtype's precision
    wide, within a tf.function or eagerly."""
    delta = np.cbrt(np.finfo(argument.dtype).eps)
    with contextlib.ExitStack() as ends:
        tf.config.run_functions_eagerly(not graph)
        ends.callback(tf.config.run_functions_eagerly, False)
        [computed], [differences] = tf.test.compute_gradient(function, [tf.constant(argument)], delta)
    assert np.isfinite([computed, differences]).all(), (computed, differences)
    largest = np.abs(differences).max()
    np.testing.assert_allclose(computed, differences, rtol=0, atol=TOLERANCE[argument.dtype.name] * largest)


def failure(call, *arguments, **named):
    with pytest.raises(AssertionError) as caught:
        call(*arguments, **named)
    return str(caught.value)


@pytest.mark.parametrize(
    ("found", "expected", "words"),
    [
        ({"a": X}, {"a": X, "b": X}, "the keys ['a'], expected ['a', 'b']"),
        ([X], [X, X], "1 values, expected 2"),
        ({"a": [X, X + np.array([0, 0, 1e-15])]}, {"a": [X, X]}, "['a'][1]: 1 of 3 differ, first [2.], expected [2.]"),
        (np.float32(X), X, "value: float32 [3], expected float64 [3]"),
        (np.array(0.0), np.array(-0.0), "1 of 1 differ"),
    ],
)
def test_same_bytes_says_where_and_what_differs(found, expected, words):
    assert_same_bytes(found, found)
    assert_same_bytes({"x": tf.Variable(X), "y": np.nan}, {"x": X, "y": np.nan})
    assert words in failure(assert_same_bytes, found, expected)


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_right_gradient_passes_and_a_wrong_one_or_one_that_is_no_number_does_not(graph, dtype):
    @tf.custom_gradient
    def wrong(x):
        return x**2, lambda upstream: upstream * 2.05 * x

    assert_gradient(tf.sin, X.astype(dtype), graph=graph)
    for function, at in ((wrong, X), (tf.sqrt, np.array([-1.0]))):
        failure(assert_gradient, function, at.astype(dtype), graph=graph)


@pytest.mark.parametrize(
    "op",
    [
        python_op(lambda x: tf.sin(x) * x, tf.TensorSpec([None], tf.float64), gradient="traced"),
        numpy_op(
            lambda x: np.sin(x) * x,
            tf.TensorSpec([None], tf.float64),
            gradient=lambda upstream, x: upstream * (np.cos(x) * x + np.sin(x)),
        ),
    ],
)
def test_the_gradients_of_python_ops_are_those_of_differences(op):
    assert_gradient(op, X)
    assert_gradient(op, X, graph=False)


@pytest.mark.parametrize(
    ("task", "label", "outputs"),
    [
        ("binary", [0.0, 1.0], 1),
        ("multiclass", [2, 0], 3),
        ("regression", [0.3, -1.0], 1),
        ("count", [3.0, 0.0], 1),
        ("quantiles(0.2, 0.7)", [0.3, -1.0], 2),
    ],
)
def test_the_gradients_of_the_losses_are_those_of_differences(task, label, outputs):
    output = np.random.default_rng(0).normal(size=(2, outputs)).astype(np.float32)
    assert_gradient(lambda output: head_of(task).loss({"label": tf.constant(label)}, output), output)


class Walk:
    """A training of one weight that moves at random; `kept` is whether its generator is in its checkpoint."""

    def __init__(self, kept):
        self.weight, self.step = tf.Variable(0.0), tf.Variable(0, dtype=tf.int64)
        self.generator, self.kept = tf.random.Generator.from_seed(1), kept

    def run(self, first, end):
        for _ in range(first, end):
            self.weight.assign_add(self.generator.normal([]))
            self.step.assign_add(1)

    def variables(self):
        state = {"generator": [self.generator.state]} if self.kept else {}
        return {"weight": [self.weight], "step": [self.step], **state}


def test_a_resume_is_exact_only_with_all_of_the_state(tmp_path):
    whole = assert_resumes_exactly(
        lambda: Walk(True), Walk.run, Walk.variables, steps=9, stops=(1, 4), folder=tmp_path / "kept"
    )
    assert int(whole.step) == 9
    said = failure(
        assert_resumes_exactly, lambda: Walk(False), Walk.run, Walk.variables, steps=9, stops=(4,), folder=tmp_path
    )
    assert said.startswith("stopped at step 4 of 9 and resumed: value['weight'][0]: 1 of 1 differ")
