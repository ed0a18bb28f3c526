"""tfcore.graph.python_op: declared outputs, the function's own exception, gradients that exist or are refused, one lock."""

import functools
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from headway.errors import DataError
from tfcore.graph.function import GraphFunction
from tfcore.graph.python_op import (
    FAILURES,
    NoGradientError,
    PythonOpError,
    name_of,
    numpy_op,
    python_errors,
    python_functions,
    python_op,
    python_text,
)
from tfcore.graph.specs import SignatureError

VECTOR = tf.TensorSpec([None], tf.float32)
X = np.array([1, 2, 3], np.float32)
AIRPORTS = {b"JFK": 1}


def lookup(codes):
    return np.array([AIRPORTS[code] for code in codes], np.int64)


def cube(x):
    return x**3


def in_graph(op, *arguments):
    return tf.function(lambda *a: op(*a))(*arguments)


def in_pipeline(op, *arguments):
    return next(iter(tf.data.Dataset.from_tensors(arguments).map(op)))


EVERYWHERE = pytest.mark.parametrize(
    "run", [lambda op, *a: op(*a), in_graph, in_pipeline], ids=["eager", "graph", "data"]
)


@EVERYWHERE
@pytest.mark.parametrize("kind", [python_op, numpy_op])
def test_nests_go_in_and_come_out_with_the_declared_dtypes_and_shapes(run, kind):
    def split(batch, scale):
        return {"half": batch["x"] / scale, "parts": (batch["n"] + 1, batch["name"])}

    signature = {"half": VECTOR, "parts": (tf.TensorSpec([2], tf.int64), tf.TensorSpec([None], tf.string))}
    op = kind(split, signature)
    given = {"name": tf.constant(["a", "ü"]), "x": X, "n": tf.constant([1, 2], tf.int64)}
    found = run(op, given, tf.constant(2.0))
    assert found["half"].numpy().tolist() == [0.5, 1.0, 1.5]
    assert found["parts"][0].numpy().tolist() == [2, 3]
    assert found["parts"][1].numpy().tolist() == [b"a", "ü".encode()]
    dataset = tf.data.Dataset.from_tensors((given, tf.constant(2.0))).map(op)
    wanted = {"half": (tf.float32, [None]), "parts": ((tf.int64, [2]), (tf.string, [None]))}
    assert tf.nest.map_structure(lambda s: (s.dtype, s.shape.as_list()), dataset.element_spec) == wanted


@EVERYWHERE
@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (np.ones(3), "returned float64 [3] for output, declared float32 [None]"),
        (np.ones([3, 1], np.float32), "returned float32 [3, 1] for output, declared float32 [None]"),
        ([1.0, 2.0], "returned list for output"),
        (None, "returned NoneType for output"),
        (np.array(["a"]), "declared float32 [None]"),
        (2, "returned int 2 for output, declared float32 [None]"),
        (0.5, "returned float 0.5 for output, declared float32 [None]"),
        ("text", "returned str 'text' for output"),
        ({"a": 1, 2: 3}, "returned dict for output"),
    ],
)
def test_what_is_not_declared_is_refused_at_run_time(run, returned, words):
    op = numpy_op(lambda x: returned() if callable(returned) else returned, VECTOR)
    with pytest.raises(PythonOpError) as caught, python_errors():
        run(op, X)
    assert words in str(caught.value)
    assert "test_python_op:" in str(caught.value)


@EVERYWHERE
def test_a_function_that_writes_into_its_argument_is_refused_and_changes_nothing(run):
    def clean(x):
        x[x < 0] = 0.0
        return x

    x = tf.constant([-1.0, 2.0])
    with pytest.raises(PythonOpError, match=r"read-only(.|\n)*x = x\.copy\(\)"), python_errors():
        run(numpy_op(clean, VECTOR), x)
    assert run(numpy_op(lambda x: clean(x.copy()), VECTOR), x).numpy().tolist() == [0.0, 2.0]
    assert x.numpy().tolist() == [-1.0, 2.0]


def test_an_array_that_the_function_uses_again_leaves_earlier_results_alone():
    memory = np.zeros(64, np.float32)
    first = -memory.ctypes.data % 64 // 4  # where TensorFlow takes an array's memory without a copy
    kept = memory[first : first + 8]

    def fill(i):
        kept[:] = i
        return kept

    op = numpy_op(fill, VECTOR)
    found = list(tf.data.Dataset.range(3).map(op)) + [in_graph(op, tf.constant(i)) for i in (3, 4)]
    assert [one.numpy()[0] for one in found] == [0.0, 1.0, 2.0, 3.0, 4.0]


@EVERYWHERE
def test_text_arrives_as_utf_8_however_it_is_held(run):
    strings = tf.TensorSpec([None], tf.string)
    for held in (np.array(["é", ""]), np.array(["é", b""], object), np.array(["é".encode(), b""])):
        assert run(numpy_op(lambda x, held=held: held, strings), X).numpy().tolist() == ["é".encode(), b""]
    assert run(numpy_op(lambda x: np.str_("é"), tf.TensorSpec([], tf.string)), X).numpy() == "é".encode()


@EVERYWHERE
def test_numbers_are_read_in_their_own_order_of_bytes(run):
    assert run(numpy_op(lambda x: np.array([1.0, 2.0], ">f4"), VECTOR), X).numpy().tolist() == [1.0, 2.0]


@pytest.mark.parametrize("run", [lambda op, x: op(x), in_graph], ids=["eager", "graph"])
@pytest.mark.parametrize("kind", [python_op, numpy_op])
def test_a_function_without_results_runs_for_its_effects(run, kind):
    seen = []
    assert run(kind(lambda x: seen.append(float(x[0])), ()), X) == ()
    assert run(kind(lambda x: (), ()), X) == ()
    assert seen == [1.0]
    with pytest.raises(PythonOpError, match="returned NoneType for output, declared 1 values"), python_errors():
        run(kind(lambda x: None, (VECTOR,)), X)


def test_structures_are_compared_key_by_key():
    op = numpy_op(lambda x: {"a": x, "c": x}, {"a": VECTOR, "b": VECTOR})
    said = r"returned the keys \['a', 'c'\] for output, declared the keys \['a', 'b'\]"
    with pytest.raises(PythonOpError, match=said):
        op(X)
    with pytest.raises(PythonOpError, match="returned 1 values for output, declared 2 values"):
        numpy_op(lambda x: (x,), (VECTOR, VECTOR))(X)
    with pytest.raises(SignatureError, match=r"tf\.TensorSpec\(shape, dtype\)"):
        numpy_op(cube, tf.float32)
    with pytest.raises(PythonOpError, match=r"row_lengths\(\)"):
        numpy_op(cube, VECTOR)(tf.ragged.constant([[1.0], []]))


@EVERYWHERE
@pytest.mark.parametrize("kind", [python_op, numpy_op])
def test_the_function_s_own_exception_arrives_with_its_traceback(run, kind):
    op = kind(lambda codes: lookup(np.asarray(codes)), tf.TensorSpec([None], tf.int64))
    with pytest.raises(PythonOpError) as caught, python_errors():
        run(op, tf.constant(["JFK", "LGA"]))
    cause = caught.value.__cause__
    assert isinstance(cause, KeyError)
    assert cause.args == (b"LGA",)
    frames = traceback.extract_tb(cause.__traceback__)
    assert frames[-1].line == "return np.array([AIRPORTS[code] for code in codes], np.int64)"
    shown = str(caught.value)
    assert "raised KeyError: b'LGA'" in shown
    assert "AIRPORTS[code]" in shown
    assert "tensorflow" not in shown
    assert "python failure" not in shown


def test_each_failure_is_its_own_also_from_threads_and_parallel_maps():
    def fail(x):
        raise ValueError(f"row {int(x)}")

    op = numpy_op(fail, tf.TensorSpec([], tf.int64), thread_safe=True)

    def run(i):
        with pytest.raises(PythonOpError) as caught, python_errors():
            in_graph(op, tf.constant(i, tf.int64))
        return str(caught.value.__cause__)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(8))) == [f"row {i}" for i in range(8)]
    dataset = tf.data.Dataset.range(100).map(op, num_parallel_calls=4, deterministic=True)
    with pytest.raises(PythonOpError, match="ValueError: row 0"), python_errors():
        list(dataset)
    assert len(FAILURES._failures) <= 16


def test_an_error_of_headway_s_own_arrives_as_itself():
    def refuse(x):
        raise DataError("too many", where="photos", fix="look at them")

    with pytest.raises(DataError, match="photos: too many"), python_errors():
        in_pipeline(numpy_op(refuse, VECTOR), X)


def test_a_stop_iteration_does_not_end_the_data():
    def stop(x):
        return next(iter([]))

    with pytest.raises(PythonOpError, match="StopIteration"), python_errors():
        list(tf.data.Dataset.range(3).map(numpy_op(stop, tf.TensorSpec([], tf.int64))))


def test_other_errors_pass_and_those_of_a_bare_py_function_are_recognised():
    def boom(x):
        raise ValueError("not this one")

    with pytest.raises(tf.errors.InvalidArgumentError) as caught, python_errors():
        in_graph(lambda x: tf.numpy_function(boom, [x], tf.float32), X)
    assert python_text(caught.value).startswith("ValueError: not this one in File ")
    with pytest.raises(tf.errors.InvalidArgumentError) as caught, python_errors():
        in_graph(lambda x: tf.ensure_shape(x, [None]) + tf.gather(x, 7), X)
    assert python_text(caught.value) is None


def test_a_graph_function_names_the_failure_by_itself():
    op = numpy_op(lambda x: 1 // 0, VECTOR)
    function = GraphFunction(lambda x: op(x), {"x": VECTOR})
    with pytest.raises(PythonOpError, match="ZeroDivisionError") as caught:
        function(x=X)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def gradient_of(op, x=X, graph=True):
    def body(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(op(x))
        return tape.gradient(y, x)

    with python_errors():
        return (tf.function(body) if graph else body)(tf.constant(x))


def _numpy_gradient(upstream, x):
    return upstream * 3 * x**2


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize(
    "op",
    [
        python_op(cube, VECTOR, gradient="traced"),
        python_op(cube, VECTOR, gradient=_numpy_gradient),
        numpy_op(cube, VECTOR, gradient=_numpy_gradient),
        numpy_op(cube, VECTOR, gradient=lambda u, x: (_numpy_gradient(u, x),)),
    ],
)
def test_gradients_traced_or_given_are_right(op, graph):
    assert gradient_of(op, graph=graph).numpy().tolist() == [3.0, 12.0, 27.0]


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("kind", [python_op, numpy_op])
def test_a_gradient_that_does_not_exist_is_an_error_and_a_stopped_one_is_none(kind, graph):
    with pytest.raises(NoGradientError, match=r"test_python_op:cube .*its gradient is needed(.|\n)*gradient=\"stop\""):
        gradient_of(kind(cube, VECTOR), graph=graph)
    assert gradient_of(lambda x: x + kind(cube, VECTOR, gradient="stop")(x), graph=graph).numpy().tolist() == [1.0] * 3


@pytest.mark.parametrize("graph", [True, False])
def test_a_trace_that_numpy_broke_is_an_error(graph):
    with pytest.raises(NoGradientError, match="no TensorFlow op leads from its argument 0"):
        gradient_of(python_op(lambda x: tf.constant(x.numpy() ** 3), VECTOR, gradient="traced"), graph=graph)
    with pytest.raises(PythonOpError, match="use numpy_op for a pure function"):
        python_op(tf.identity, tf.TensorSpec([], tf.float32), stateful=False)
    with pytest.raises(PythonOpError, match="NumPy leaves no trace"):
        numpy_op(cube, VECTOR, gradient="traced")


def weight_gradient(op, weight, graph, *arguments):
    """Of a weight that the function reads by itself, and of one outside; no argument is differentiated."""
    bias = tf.Variable(0.5)

    def body():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(op(*arguments) + bias)
        return tape.gradient(loss, [weight, bias])

    with python_errors():
        return (tf.function(body) if graph else body)()


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("gradient", ["refuse", "traced", lambda upstream, x: upstream])
@pytest.mark.parametrize("argument", [X, np.array([1, 2])], ids=["float", "int"])
def test_variables_that_would_never_learn_are_an_error_also_where_no_argument_is_differentiated(
    graph, gradient, argument
):
    weight = tf.Variable(2.0, name="weight")
    op = python_op(lambda x: tf.cast(x, tf.float32) * weight, VECTOR, gradient=gradient)
    with pytest.raises(NoGradientError, match=r"trainable variables weight \[\](.|\n)*pass them as arguments"):
        weight_gradient(op, weight, graph, argument)


@EVERYWHERE
def test_variables_are_read_freely_where_nothing_is_learned_from_it(run):
    weight, table = tf.Variable(2.0), tf.Variable(3.0, trainable=False)
    assert run(python_op(lambda x: x * weight, VECTOR), X).numpy().tolist() == [2.0, 4.0, 6.0]  # no tape
    with tf.GradientTape():
        assert run(python_op(lambda x: x * weight, VECTOR, gradient="stop"), X)[0] == 2.0
        assert run(python_op(lambda x: x * table, VECTOR), X)[0] == 3.0
        assert run(numpy_op(lambda x: x * weight.numpy(), VECTOR), X)[0] == 2.0


def test_a_wrong_gradient_is_refused():
    for gradient, words in (
        (lambda u, x: u.astype(np.float64), "float64 .* for the gradient of argument 0, declared float32"),
        (lambda u, x: (u, u), "2 gradients for 1 floating"),
        (lambda u, x: u[:1], r"float32 \[1\] for the gradient of argument 0, declared float32 \[3\]"),
    ):
        with pytest.raises(PythonOpError, match=words):
            gradient_of(numpy_op(cube, VECTOR, gradient=gradient))


def test_a_traced_gradient_holds_in_loops_and_when_asked_for_twice():
    op = python_op(lambda x: x * x, tf.TensorSpec([], tf.float32), gradient="traced")

    def looped(x):
        total = tf.constant(0.0)
        for i in tf.range(3):
            total += op(x[i])
        return total

    assert gradient_of(tf.autograph.to_graph(looped)).numpy().tolist() == [2.0, 4.0, 6.0]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x := tf.constant(X))
        y = op(x[0])
    assert [float(tape.gradient(y, x)[0]) for _ in range(2)] == [2.0, 2.0]


def test_several_outputs_and_arguments_that_are_no_numbers_have_gradients():
    def two(x, names, n):
        return x * 2.0, tf.cast(n, tf.float32) * x, n

    signature = (VECTOR, VECTOR, tf.TensorSpec([], tf.int32))

    def body(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            a, b, _ = op(x, tf.constant(["a"]), tf.constant(5))
            y = tf.reduce_sum(a) + tf.reduce_sum(b)
        return tape.gradient(y, x)

    for gradient in ("traced", lambda up, x, names, n: (2.0 * up[0] + 5.0 * up[1], None, None)):
        op = python_op(two, signature, gradient=gradient)
        assert tf.function(body)(X).numpy().tolist() == [7.0] * 3


@pytest.mark.parametrize("graph", [True, False])
def test_a_mask_is_bool_and_one_of_floats_would_need_a_gradient(graph):
    def both(op, *masks):
        def body(x, mask):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = op(x, mask)
            return tape.gradient(y, x)

        with python_errors():
            return (tf.function(body) if graph else body)(tf.constant(X), tf.constant(masks))

    masked = python_op(lambda x, mask: tf.where(tf.cast(mask, tf.bool), x, 0.0), VECTOR, gradient="traced")
    assert both(masked, True, False, True).numpy().tolist() == [1.0, 0.0, 1.0]
    with pytest.raises(NoGradientError, match=r"from its argument 1 (.|\n)*a mask, which has none, is to be bool"):
        both(masked, 1.0, 0.0, 1.0)


def test_calls_never_overlap_by_default():
    inside, most = [0], [0]

    def count(x):
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.01)
        inside[0] -= 1
        return x

    op = tf.function(numpy_op(count, VECTOR))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: op(X), range(12)))
    assert most == [1]


def test_calls_marked_thread_safe_run_together():
    both = threading.Barrier(2, timeout=60)  # passed only by two calls at once

    def meet(x):
        both.wait()
        return x

    op = numpy_op(meet, VECTOR, thread_safe=True)
    with ThreadPoolExecutor(2) as pool:
        assert [len(found) for found in pool.map(lambda _: op(X), range(2))] == [3, 3]


def test_functions_are_named_however_they_are_wrapped():
    class Table:
        def __call__(self, x):
            return x

        def method(self, x):
            return x

    assert name_of(lookup) == f"{__name__}:lookup (test_python_op.py:{lookup.__code__.co_firstlineno})"
    assert "lookup (test_python_op.py:" in name_of(functools.partial(lookup))
    assert "Table (test_python_op.py:" in name_of(Table())
    assert "Table.method (test_python_op.py:" in name_of(Table().method)
    assert "ufunc" in name_of(np.exp) or "exp" in name_of(np.exp)


def test_the_python_functions_of_a_graph_are_found_in_nested_functions_and_pipelines():
    op = python_op(cube, VECTOR, gradient="traced")
    inner = tf.function(lambda x: op(x), input_signature=[VECTOR]).get_concrete_function()

    @tf.function(input_signature=[VECTOR])
    def outer(x):
        return tf.cond(x[0] > 0, lambda: inner(x), lambda: x)

    @tf.function(input_signature=[])
    def piped():
        return (
            tf.data.Dataset.range(3)
            .map(lambda i: numpy_op(lookup, tf.TensorSpec([], tf.int64))(i))
            .reduce(tf.constant(0, tf.int64), lambda a, b: a + b)
        )

    plain = tf.function(lambda x: x, input_signature=[VECTOR])
    found = [python_functions(f.get_concrete_function().graph.as_graph_def()) for f in (outer, piped, plain)]
    assert found == [[name_of(cube)], [name_of(lookup)], []]
