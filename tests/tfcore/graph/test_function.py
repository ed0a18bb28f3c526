"""tfcore.graph.function: one trace, checked arguments, and a fallback when XLA refuses."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from headway.errors import HeadwayError
from tfcore.graph.function import GraphFunction, RetraceError, SignatureError, graph_function
from tfcore.testing import assert_no_retrace


@pytest.fixture
def scaled():
    @graph_function(x=tf.TensorSpec([None, 3], tf.float32), scale=tf.TensorSpec([], tf.float32))
    def scaled(x, scale):
        return x * scale

    return scaled


def test_runs_and_is_traced_once_for_any_number_of_rows(scaled):
    with assert_no_retrace(scaled):
        for rows in (1, 5, 2):
            result = scaled(x=np.ones([rows, 3], np.float32), scale=tf.constant(2.0))
            assert result.numpy().tolist() == [[2.0] * 3] * rows
    assert scaled.mode == "graph"


@pytest.mark.parametrize(
    ("x", "scale", "words"),
    [
        (np.ones([2, 3]), np.float32(2), ["'x'", "expected float32 [None, 3]", "given float64 [2, 3]"]),
        (np.ones([2, 4], np.float32), np.float32(2), ["'x'", "given float32 [2, 4]"]),
        ([[1.0] * 3], np.float32(2), ["'x'", "given list"]),
        (np.ones([2, 3], np.float32), 2.0, ["'scale'", "expected float32 []", "given float 2.0"]),
        (np.ones([2, 3], np.float32), lambda: tf.constant(2), ["'scale'", "given int32 []"]),
    ],
)
def test_an_argument_that_changed_is_named_with_what_was_expected_and_given(scaled, x, scale, words):
    scaled(x=np.ones([2, 3], np.float32), scale=np.float32(2))
    with pytest.raises(SignatureError) as caught:
        scaled(x=x, scale=scale() if callable(scale) else scale)
    for word in ["scaled", *words]:
        assert word in str(caught.value)
    assert scaled.traces == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"x": 1}, "missing a required argument: 'scale'"),
        ({"x": 1, "scale": 1, "scales": 1}, "got an unexpected keyword argument 'scales'"),
    ],
)
def test_missing_and_unknown_arguments_are_named(scaled, arguments, words):
    with pytest.raises(SignatureError, match=words) as caught:
        scaled(**arguments)
    assert caught.value.fix == "pass x, scale"


def test_several_misfits_are_one_error_with_expected_and_given_side_by_side(scaled):
    with pytest.raises(SignatureError) as caught:
        scaled(x=np.ones([2, 4]), scale=1.0)
    assert caught.value.problem.splitlines() == [
        "2 arguments do not fit",
        "  argument  expected           given",
        "  'x'       float32 [None, 3]  float64 [2, 4]",
        "  'scale'   float32 []         float 1.0",
    ]


@pytest.mark.parametrize("number", [2.5, 2, True])
def test_a_python_number_is_refused_since_it_would_be_a_graph_of_its_own(scaled, number):
    with pytest.raises(SignatureError, match="'scale': expected float32 \\[\\], given ") as caught:
        scaled(x=np.ones([2, 3], np.float32), scale=number)
    assert "a tf.function would trace a new graph for each Python value" in caught.value.fix


def test_autograph_turns_python_s_own_loops_into_graph_ops_where_asked_for():
    def collatz(n):
        steps = 0
        while n > 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        return steps

    number = tf.TensorSpec([], tf.int32)
    function = graph_function(n=number, autograph=True)(collatz)
    assert [int(function(n=np.int32(n))) for n in (1, 6, 27)] == [collatz(n) for n in (1, 6, 27)] == [0, 8, 111]
    assert function.traces == 1
    with pytest.raises(Exception, match=r"symbolic `tf.Tensor` as a Python `bool`"):
        graph_function(n=number)(collatz)(n=np.int32(6))


def _spec():
    return tf.TensorSpec([2], tf.float32)


def test_a_second_trace_is_an_error():
    function = GraphFunction(lambda x: x + 1, {"x": _spec()})
    function(x=np.ones(2, np.float32))
    with pytest.raises(RetraceError, match=r"traced again with float32 \[2\]"):
        function._traced(tf.ones([2]))


def test_a_body_that_makes_its_variables_late_is_refused():
    made = []

    def late(x):
        if not made:
            made.append(tf.Variable(1.0))
        return x * made[0]

    with pytest.raises(Exception, match=r"traced again|before the first call|tf.function-decorated"):
        GraphFunction(late, {"x": _spec()})(x=np.ones(2, np.float32))


@pytest.mark.parametrize("jit", ["off", "auto", "on"])
def test_threads_may_make_the_first_call_together(jit):
    function = GraphFunction(lambda x: x * 2, {"x": _spec()}, jit=jit)
    gate = threading.Barrier(8)

    def call(number):
        gate.wait()
        return function(x=np.full(2, number, np.float32)).numpy().tolist()

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(call, range(8))) == [[2.0 * n] * 2 for n in range(8)]
    assert function.traces == 1


def test_a_body_that_fails_while_traced_raises_at_each_call_and_may_recover():
    tries = []

    def body(x):
        tries.append(1)
        if len(tries) < 3:
            raise KeyError("a table that is not there yet")
        return x + 1

    function = GraphFunction(body, {"x": _spec()})
    for _ in range(2):
        with pytest.raises(KeyError, match="a table that is not there yet"):
            function(x=np.ones(2, np.float32))
    assert function(x=np.ones(2, np.float32)).numpy().tolist() == [2.0, 2.0]
    assert function.traces == 1


def test_jit_runs_compiled_with_one_trace():
    total = tf.Variable(0.0)

    def count(x, steps):
        tf.while_loop(lambda i: i < steps, lambda i: (total.assign_add(x[i]), i + 1)[1:], [0])
        return total.read_value()

    function = GraphFunction(count, {"x": _spec(), "steps": tf.TensorSpec([], tf.int32)}, jit="auto")
    assert [float(function(x=np.ones(2, np.float32), steps=np.int32(n))) for n in (2, 1, 0)] == [2.0, 3.0, 3.0]
    assert (function.mode, function.traces) == ("jit", 1)


def test_auto_falls_back_when_xla_refuses_and_no_state_was_touched():
    lines, calls = [], tf.Variable(0)

    def refused(x):
        calls.assign_add(1)
        return tf.strings.length(tf.strings.as_string(x))

    function = GraphFunction(refused, {"x": _spec()}, jit="auto", log=lines.append)
    function(x=np.ones(2, np.float32))
    assert (function.mode, function.traces, int(calls)) == ("graph", 1, 1)
    assert len(lines) == 1
    assert "XLA cannot compile refused" in lines[0]
    assert "StringFormat" in lines[0] or "AsString" in lines[0]
    with pytest.raises(HeadwayError, match="XLA cannot compile refused"):
        GraphFunction(refused, {"x": _spec()}, jit="on")(x=np.ones(2, np.float32))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: graph_function(y=_spec())(lambda x: x), ["takes ['x'], its signature names ['y']", "name x, in this"]),
        (
            lambda: graph_function(x=tf.RaggedTensorSpec([None, None]))(lambda x: x),
            ["given RaggedTensorSpec", "tf.TensorSpec(shape, dtype)"],
        ),
        (
            lambda: graph_function(x={"a": tf.float32})(lambda x: x),
            ["x['a']", "given tf.float32", "tf.TensorSpec(shape, dtype)"],
        ),
        (lambda: graph_function(x=_spec())(Counter.add), ["takes ['self', 'x']", "self.add = graph_function(...)"]),
    ],
)
def test_a_signature_that_cannot_be_is_refused_when_it_is_made(make, words):
    with pytest.raises(SignatureError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


class Counter:
    def __init__(self):
        self.total = tf.Variable(0.0)
        self.add = graph_function(x=_spec())(self._add)

    def add(self, x):
        return x

    def _add(self, x):
        return self.total.assign_add(tf.reduce_sum(x))


def test_a_method_is_decorated_in_the_object_as_the_error_says():
    one, other = Counter(), Counter()
    one.add(x=np.ones(2, np.float32))
    assert [float(counter.add(x=np.ones(2, np.float32))) for counter in (one, other)] == [4.0, 2.0]


def test_arguments_may_be_given_by_their_places(scaled):
    x, two = np.ones([1, 3], np.float32), np.float32(2)
    assert scaled(x, two).numpy().tolist() == scaled(x, scale=two).numpy().tolist() == [[2.0] * 3]
    with pytest.raises(SignatureError, match="too many positional arguments"):
        scaled(x, two, two)
    with pytest.raises(SignatureError, match="multiple values for argument 'x'"):
        scaled(x, x=x, scale=two)
    with pytest.raises(SignatureError, match=r"'scale': expected float32 \[\], given float64 \[\]"):
        scaled(x, np.float64(2))
