"""tfcore.testing: each assertion passes what holds, and says where, what was expected and what was found otherwise."""

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from tfcore.graph.function import graph_function
from tfcore.graph.python_op import numpy_op, python_op
from tfcore.heads.table import head_of
from tfcore.testing import (
    assert_gradient,
    assert_no_retrace,
    assert_no_skew,
    assert_resumes_exactly,
    assert_same_bytes,
    assert_signature,
    write_examples,
)

X = np.array([0.5, -1.25, 2.0])
VECTOR = tf.TensorSpec([None], tf.float32)


def failure(call, *arguments, **named):
    with pytest.raises(AssertionError) as caught:
        call(*arguments, **named)
    return str(caught.value)


def test_no_retrace_holds_for_tensors_and_names_the_python_value_otherwise():
    step = tf.function(lambda x, rate: x * rate)
    with assert_no_retrace(step):
        for rate in (0.1, 0.2):
            step(tf.ones([2]), tf.constant(rate))
    step = tf.function(lambda x, rate: x * rate)
    with pytest.raises(AssertionError, match=r"argument 'rate': Python value 0\.1 -> 0\.2"), assert_no_retrace(step):
        for rate in (0.1, 0.2):
            step(tf.ones([2]), rate)


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
    assert "no signature 'other'" in failure(assert_signature, tmp_path, {}, signature="other")
    nested = graph_function(batch={"a": VECTOR, "b": (VECTOR,)})(lambda batch: (batch["a"], batch["b"][0]))
    assert_signature(nested, {"batch": {"a": VECTOR, "b": (VECTOR,)}}, {"output_0": VECTOR, "output_1": VECTOR})
    single = tf.function(lambda x: x[:, 0], input_signature=[tf.TensorSpec([None, 2])])
    assert_signature(single, None, {"output": VECTOR})


def test_what_has_no_signature_is_named(tmp_path):
    said = failure(assert_signature, tf.function(lambda x: x), {"x": VECTOR})
    assert "has no signature of its own" in said and "input_signature" in said
    assert "neither a tf.function nor" in failure(assert_signature, len, {"x": VECTOR})
    for folder in (tmp_path, tmp_path / "missing", str(tmp_path / "missing")):
        assert "expected a SavedModel's folder" in failure(assert_signature, folder, {})
    assert_signature(tf.function(lambda: tf.ones([2])), {}, {"output": (tf.float32, [2])})


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


@pytest.mark.long
def test_no_skew_between_a_model_here_and_its_saved_form_elsewhere(tmp_path):
    from headway.schema.columns import Column
    from tfcore.data.decode import Labeler
    from tfcore.data.pipeline import Shards, evaluation_dataset, safe
    from tfcore.export.saved_model import predictor, save
    from tfcore.transform.layer import Transform

    rng = np.random.default_rng(0)
    columns = (
        Column(name="x", type="float32", nullable=True),
        Column(name="word", type="bytes", nullable=False, encoding="dictionary"),
        Column(name="label", type="int64", nullable=False, role="label"),
    )
    table = pa.table(
        {
            "x": pa.array(rng.normal(size=60).astype(np.float32), mask=rng.random(60) < 0.2),
            "word": pa.array([b"a", b"bb"] * 30),
            "label": pa.array(rng.integers(0, 2, 60)),
        }
    )
    examples = write_examples(tmp_path / "examples", {"train": table}, columns, rows_per_record=16)
    parameters = examples.fit(task="binary")
    transform, labeler = Transform(parameters), Labeler(parameters.label)
    inputs = {name: keras.Input(shape, dtype=dtype, name=name) for name, (shape, dtype) in parameters.inputs().items()}
    dense = keras.layers.Concatenate()([keras.ops.cast(one, "float32") for one in inputs.values()])
    model = keras.Model(inputs, keras.layers.Dense(1)(dense))
    shards = Shards.of([(examples.folder, examples.result, "train")])
    (batch,) = safe(evaluation_dataset(shards, transform, labeler, batch=60), shards)
    expected = predictor(model, "binary")({name: batch[name] for name in inputs})["probability"].numpy()
    variables = [v.value for v in model.variables]
    path = tmp_path / "saved"
    save(
        path,
        transform=transform,
        predict=predictor(model, "binary"),
        variables=variables,
        columns=[c for c in columns if c.role != "label"],
        task="binary",
    )
    assert_no_skew(path, examples, "train", expected=expected, output="probability")
    expected[7] += 0.01
    said = failure(assert_no_skew, path, examples, "train", expected=expected, output="probability")
    assert "in row 7 (bound 1e-05)" in said
    assert "'word'" in said
