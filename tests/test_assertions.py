"""The assertions of these tests: each passes what holds, and says where, what was expected and what was found otherwise."""

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from tests.exact_resume import assert_resumes_exactly
from tests.gradients import assert_gradient
from tests.same_bytes import assert_same_bytes
from tfcore.graph.python_op import numpy_op, python_op
from tfcore.heads.table import head_of

X = np.array([0.5, -1.25, 2.0])


def failure(call, *arguments, **named):
    with pytest.raises(AssertionError) as caught:
        call(*arguments, **named)
    return str(caught.value)


@pytest.mark.parametrize(
    ("found", "expected", "words"),
    [
        ({"a": X}, {"a": X, "b": X}, "the keys ['a'], expected ['a', 'b']"),
        ([X], [X, X], "1 values, expected 2"),
        ({"a": [X, X + np.array([0, 0, 1e-15])]}, {"a": [X, X]}, "['a'][1]: 1 of 3 differ, first at [2]"),
        (np.float32(X), X, "value: float32 [3], expected float64 [3]"),
        (np.array(0.0), np.array(-0.0), "1 of 1 differ"),
        (lambda: tf.constant(["a", "b"]), lambda: tf.constant(["a", "c"]), "first at [1]: b'b', expected b'c'"),
        (lambda: tf.ragged.constant([[1], [2]]), lambda: tf.ragged.constant([[1, 2], []]), ".splits[0]: 1 of 3 differ"),
        (pa.table({"a": [1, None]}), pa.table({"a": [1, 2]}), "['a']"),
    ],
)
def test_same_bytes_says_where_and_what_differs(found, expected, words):
    found, expected = (each() if callable(each) else each for each in (found, expected))
    assert_same_bytes(found, found)
    assert_same_bytes(expected, expected)
    assert words in failure(assert_same_bytes, found, expected)


def test_same_bytes_takes_what_holds_the_same_values_and_not_a_number():
    assert_same_bytes({"x": tf.Variable(X)}, {"x": np.append(X, np.nan)[:3]})
    assert_same_bytes(np.array([np.nan]), np.array([np.nan]))
    assert_same_bytes("text", "text")


def test_same_bytes_of_files_and_folders(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / name / "inner" / "file").write_bytes(b"abc")
    assert_same_bytes(tmp_path / "one", tmp_path / "two")
    (tmp_path / "two" / "inner" / "file").write_bytes(b"abd")
    (tmp_path / "two" / "more").write_bytes(b"")
    said = failure(assert_same_bytes, tmp_path / "one", tmp_path / "two")
    assert "more: is missing" in said
    assert "differs at byte 2" in said


@pytest.mark.parametrize("graph", [True, False])
def test_a_right_gradient_passes_and_a_wrong_or_absent_one_does_not(graph):
    assert_gradient(lambda x, n: (tf.sin(x), {"y": x * tf.cast(n, x.dtype) ** 2}), X, np.int64(3), graph=graph)
    assert_gradient(tf.sin, X.astype(np.float32), graph=graph)

    @tf.custom_gradient
    def wrong(x):
        return x**2, lambda upstream: upstream * 2.001 * x

    said = failure(assert_gradient, wrong, X, graph=graph)
    assert "argument 0 at [0]: the gradient is" in said
    assert "differences say" in said
    assert "argument 1: there is no gradient" in failure(
        assert_gradient, lambda x, y: x + tf.stop_gradient(y), X, X, graph=graph
    )
    assert "nothing to differentiate" in failure(assert_gradient, tf.sin, np.int64(3), graph=graph)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_small_gradient_is_held_to_its_own_size(dtype):
    x = np.random.default_rng(0).normal(size=256).astype(dtype)

    def mean(times):
        @tf.custom_gradient
        def function(x):
            return tf.reduce_mean(x), lambda upstream: tf.ones_like(x) * upstream * times / 256

        return function

    assert_gradient(mean(1.0), x)
    assert_gradient(lambda x: 1e-6 * tf.reduce_mean(x), x)
    assert_gradient(lambda x: (x * 0.0, tf.ones(3)), x)
    assert_gradient(lambda x: tf.concat([x[:9], 1 + x[9:] * 1e-12], 0), x)
    for times in (0.0, 1.1):
        assert "differences say 0.0057" in failure(assert_gradient, mean(times), x)


def test_a_gradient_that_rounding_hides_is_reported_and_not_passed():
    x = np.linspace(0.1, 1.0, 8).astype(np.float32)
    for size in (1e3, 1e6):
        said = failure(assert_gradient, lambda x, size=size: size + tf.reduce_mean(x) / 100, x)
        assert "finite differences cannot check" in said and "give float64 arguments" in said
    assert_gradient(lambda x: 1e3 + tf.reduce_mean(x) / 100, x.astype(np.float64))


def test_a_gradient_that_is_not_a_number_is_wrong():
    assert "is nan" in failure(assert_gradient, tf.sqrt, np.array([-1.0]))


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
    assert said.startswith("stopped at step 4 of 9 and resumed: not the same bytes")
    assert "weight" in said
    assert "step/0" not in said
