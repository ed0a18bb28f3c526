"""Each private name of TensorFlow and Keras that Headway uses is there and does what it is used for."""

import subprocess
from pathlib import Path

import keras
import tensorflow as tf

from tfcore import private_api

ROOT = Path(__file__).parents[2]


def test_tapes_and_the_variables_that_they_watch():
    variable = tf.Variable(1.0)
    assert not private_api.tape_is_active()
    with tf.GradientTape(), private_api.watching_variables() as watcher:
        assert private_api.tape_is_active()
        variable.read_value()
    assert [found.ref() for found in watcher.watched_variables()] == [variable.ref()]


def test_seeds_that_were_set_within_are_forgotten():
    def drawn():
        return [float(draw([])) for draw in (tf.random.uniform, keras.random.uniform)]

    keras.utils.set_random_seed(7)
    expected = [drawn(), drawn()]
    keras.utils.set_random_seed(7)
    found = [drawn()]
    with private_api.seeds_kept():
        keras.utils.set_random_seed(8)
        drawn()
    assert [*found, drawn()] == expected


def test_traces_and_layers():
    plain = tf.function(lambda x: x + 1)
    plain(1), plain(2.0)
    assert len(private_api.concrete_functions(plain)) == 2
    inner = keras.Sequential([keras.layers.Dense(2)])
    model = keras.Sequential([inner])
    assert inner.layers[0] in private_api.flat_layers(model)


def test_whether_a_trace_is_for_xla():
    found = []
    for compiled in (True, False):
        tf.function(lambda: found.append(private_api.traced_for_xla()), jit_compile=compiled)()
    assert found == [True, False]


def test_the_python_function_behind_a_node():
    def answer(x):
        return x

    calls = tf.function(lambda x: tf.py_function(answer, [x], tf.int32), autograph=False)
    graph = calls.get_concrete_function(tf.constant(1)).graph
    (token,) = [node.attr["token"].s.decode() for node in graph.as_graph_def().node if node.op == "EagerPyFunc"]
    found = private_api.python_function_of(token)
    assert getattr(found, "__wrapped__", found).__name__ == "answer"


def test_no_other_module_imports_what_is_private():
    command = [
        "git",
        "grep",
        "-lE",
        r"tensorflow\.python|keras\.src|\._flatten_layers|\._list_all_concrete",
        "--",
        "*.py",
    ]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in found if not name.startswith("tests/")] == ["tfcore/private_api.py"]
