"""tfcore.graph.retrace: how often a graph function was traced, and which argument made it so."""

import numpy as np
import pytest
import tensorflow as tf

from tfcore.graph.function import GraphFunction, graph_function
from tfcore.graph.retrace import RetraceError, RetraceGuard, changes, traces

TWO, THREE = np.ones(2, np.float32), np.ones(3, np.float32)
SCALAR = tf.TensorSpec([], tf.float32)


def step_function():
    @tf.function
    def step(batch, rate=0.1, *, options=None):
        return batch

    return step


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (((TWO, 0.1), {}), ((TWO, 0.2), {}), "argument 'rate': Python value 0.1 -> 0.2"),
        (((TWO, 1), {}), ((TWO, "a"), {}), "argument 'rate': Python value 1 -> 'a'"),
        (((TWO, 0.1), {}), ((TWO, np.float32(0.1)), {}), "argument 'rate': Python value 0.1 -> float32 []"),
        (((TWO,), {}), ((THREE,), {}), "argument 'batch': shape [2] -> [3]"),
        (((TWO,), {}), ((np.ones([2, 1], np.float32),), {}), "argument 'batch': shape [2] -> [2, 1]"),
        (((TWO,), {}), ((np.ones(2),), {}), "argument 'batch': dtype float32 -> float64"),
        ((({"x": TWO, "y": TWO},), {}), (({"x": TWO, "y": THREE},), {}), "argument batch['y']: shape [2] -> [3]"),
        (
            (({"x": TWO},), {}),
            (({"x": TWO, "y": TWO},), {}),
            "'batch': structure the keys ['x'] -> the keys ['x', 'y']",
        ),
        ((([TWO],), {}), (((TWO,),), {}), "argument 'batch': structure a list of 1 -> a tuple of 1"),
        (((TWO,), {"options": "a"}), ((TWO,), {"options": None}), "argument 'options': Python value 'a' -> None"),
        (((TWO,), {"options": object()}), ((TWO,), {"options": object()}), "argument 'options': an object -> another"),
    ],
)
def test_the_argument_that_changed_is_named_and_how(first, second, words):
    step = step_function()
    with pytest.raises(RetraceError) as caught, RetraceGuard(step):
        for positional, named in (first, second):
            step(*positional, **named)
    said = f"step: traced 2 times, allowed is 1\n  trace 2: argument {words.removeprefix('argument ')}"
    assert said in str(caught.value)
    assert caught.value.fix


def test_a_new_trace_is_compared_with_the_earlier_one_most_like_it():
    step = step_function()
    for batch, rate in ((TWO, 0.1), (THREE, 0.2), (TWO, 0.3)):
        step(batch, rate)
    assert [[c.argument for c in found] for found in changes(step)] == [["batch", "rate"], ["rate"]]


def test_a_changed_context_is_named_where_no_argument_changed():
    step = step_function()
    step(TWO)
    with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        step(TWO)
    assert traces(step) == 2
    assert "no argument changed, so the context did" in str(changes(step)[0][0])


def test_the_first_trace_and_earlier_ones_are_allowed():
    step = step_function()
    step(TWO)
    step(THREE)
    with RetraceGuard(step):
        step(TWO)
        step(THREE)
    assert traces(step) == 2
    with pytest.raises(RetraceError, match="traced 3 times, allowed is 2"), RetraceGuard(step):
        step(tf.ones([4]))
    with RetraceGuard(step_function(), allowed=2) as guard:
        guard.functions[0](TWO)
        guard.functions[0](THREE)


def test_in_production_it_warns_once_for_each_retrace():
    step, lines = step_function(), []
    guard = RetraceGuard(step, action="warn", log=lines.append)
    for batch in (TWO, THREE, THREE):
        step(batch)
        guard.check()
    assert len(lines) == 1
    assert lines[0].startswith("step: traced 2 times")
    with pytest.warns(UserWarning, match="traced 3 times"), RetraceGuard(step, action="warn"):
        step(tf.ones([5]))


def test_an_error_in_the_block_is_not_hidden_by_the_guard_s_own():
    step = step_function()
    with pytest.raises(KeyError), RetraceGuard(step):
        step(TWO)
        step(THREE)
        raise KeyError("mine")


def test_a_graph_function_counts_its_own_and_other_things_are_refused():
    @graph_function(x=tf.TensorSpec([None], tf.float32))
    def plus(x):
        return x + 1

    with RetraceGuard(plus):
        plus(x=TWO)
        plus(x=THREE)
    assert traces(plus) == 1
    with pytest.raises(TypeError, match="counts no traces"):
        RetraceGuard(lambda x: x)


def test_a_recompilation_for_other_shapes_is_reported():
    specs = {"x": tf.TensorSpec([None, 2], tf.float32), "y": tf.TensorSpec([None], tf.float32)}
    summed = GraphFunction(
        lambda batch, rate: tf.reduce_sum(batch["x"]) * rate, {"batch": specs, "rate": SCALAR}, jit="on"
    )

    def call(x, y, rate=1.0):
        summed(batch={"x": np.ones([x, 2], np.float32), "y": np.ones(y, np.float32)}, rate=np.float32(rate))

    lines = []
    guard = RetraceGuard(summed, action="warn", log=lines.append)
    for rate in (1.0, 2.0):
        call(4, 4, rate)
    guard.check()
    assert summed.traces == 1 and lines == []
    for x, y in ((4, 3), (4, 4), (4, 3)):
        call(x, y)
    guard.check()
    assert summed.traces == 2
    assert lines[0].startswith(
        "<lambda>: traced 2 times, allowed is 1\n  trace 2: argument batch['y']: compiled for shape [4] -> [3]\n"
        "  fix: pad it to one shape, or to few, or leave jit off"
    )
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        call(4, 4)
    call(5, 4)
    guard.check()
    assert summed.traces == 4
    assert "  trace 3: no argument changed, so the context did" in lines[1]
    assert "  trace 4: argument batch['x']: compiled for shape [4, 2] -> [5, 2]" in lines[1]
    with (
        pytest.raises(RetraceError, match=r"trace 5: argument batch\['x'\]: .* \[5, 2\] -> \[6, 2\]"),
        RetraceGuard(summed),
    ):
        call(6, 4)


def test_other_shapes_cost_nothing_where_xla_compiles_nothing():
    for jit, body in (("off", lambda x: x + 1), ("auto", lambda x: tf.strings.as_string(x))):
        function = GraphFunction(body, {"x": tf.TensorSpec([None], tf.float32)}, jit=jit)
        with RetraceGuard(function):
            function(x=TWO)
            function(x=THREE)
        assert function.traces == 1
