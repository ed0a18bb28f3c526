"""The private names of TensorFlow and Keras that Headway uses, in one module; its test fails where a version lacks one.

Nothing else in Headway imports `tensorflow.python` or reads an attribute of TensorFlow's or Keras's that begins with "_".
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from tensorflow.python.eager import context as _context
from tensorflow.python.eager import record as _record
from tensorflow.python.framework import config as _config
from tensorflow.python.framework import ops as _ops
from tensorflow.python.ops import control_flow_util as _control_flow


def tape_is_active() -> bool:
    """Returns whether a gradient tape or a forward accumulator may record what is computed now."""
    return bool(_record.could_possibly_record())


def watching_variables() -> Any:
    """Returns a context manager of an object whose `watched_variables()` are the trainable variables read in the block."""
    return _record.VariableWatcher()


def traced_for_xla() -> bool:
    """Returns whether a `tf.function(jit_compile=True)` is being traced."""
    return bool(_control_flow.GraphOrParentsInXlaContext(_ops.get_default_graph()))


def op_determinism() -> bool:
    """Returns whether ops give the same bits each time: whether `tf.config.experimental.enable_op_determinism` is on."""
    return bool(_config.is_op_determinism_enabled())


def set_op_determinism(on: bool) -> None:
    """Switch deterministic ops on or off; TensorFlow itself only offers to switch them on."""
    (_config.enable_op_determinism if on else _config.disable_op_determinism)()


@contextlib.contextmanager
def tf_data_debug_mode() -> Iterator[None]:
    """Switch on the debug mode of tf.data for pipelines that are made in the block; TensorFlow itself only offers to
    switch it on for good."""
    from tensorflow.python.data.ops import debug_mode

    before = debug_mode.DEBUG_MODE
    debug_mode.toggle_debug_mode(True)
    try:
        yield
    finally:
        debug_mode.toggle_debug_mode(before)


def python_function_of(token: str) -> Any:
    """Returns the Python function that a node of tf.py_function or tf.numpy_function calls. KeyError: TensorFlow has
    dropped it."""
    from tensorflow.python.ops import script_ops  # here: only an error's words need it

    function = script_ops._py_funcs._funcs[token]
    return getattr(function, "_func", function)  # tf.py_function wraps it


@contextlib.contextmanager
def seeds_kept() -> Iterator[None]:
    """Restore the seeds and random generators of TensorFlow and Keras after the block, as if nothing had set a seed in it."""
    from keras.src.backend.common import global_state
    from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR
    from keras.src.utils.rng_utils import GLOBAL_RANDOM_SEED

    context = _context.context()
    names = (GLOBAL_RANDOM_SEED, GLOBAL_SEED_GENERATOR)
    before = context._seed, getattr(context, "_rng", None), [global_state.get_global_attribute(name) for name in names]
    try:
        yield
    finally:
        context._seed, generator, attributes = before
        if generator is None:  # nothing had set a seed, or drawn
            del context._rng
        else:
            context._rng = generator
        for name, value in zip(names, attributes, strict=True):
            global_state.set_global_attribute(name, value)


def flat_layers(model: Any) -> list[Any]:
    """Returns a Keras model and every layer in it, at any depth, as one list."""
    return list(model._flatten_layers(include_self=True))


def concrete_functions(function: Any) -> list[Any]:
    """Returns the traces of a tf.function."""
    return list(function._list_all_concrete_functions())
