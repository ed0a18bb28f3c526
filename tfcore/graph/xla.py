"""Tells whether XLA will compile the graph that is being traced, and for what: Headway's C++ ops have no kernel there.

if compiling():
    ...                      # TensorFlow's own ops, static shapes
with intended(): trace()     # within: compiling() is true
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import tensorflow as tf

from tfcore.private_api import traced_for_xla

_INTENDED: ContextVar[str | None] = ContextVar("xla", default=None)


@contextmanager
def intended(yes: bool = True) -> Iterator[None]:
    """Tell `compiling` that a trace within the block will be compiled later, which TensorFlow cannot know yet, for the device
    that computes now."""
    token = _INTENDED.set(_device() if yes else None)
    try:
        yield
    finally:
        _INTENDED.reset(token)


def compiling() -> bool:
    """Returns whether a `tf.function(jit_compile=True)` is being traced, or the answer that `intended` set."""
    return _INTENDED.get() is not None or traced_for_xla()


def compiling_for_gpu() -> bool:
    """Returns whether it is traced for XLA on a GPU."""
    return (_INTENDED.get() or _device()) == "GPU" if compiling() else False


def _device() -> str:
    """Returns the kind of device that an op goes to here: "CPU", "GPU". In a graph nobody knows yet: a GPU if there is
    one."""
    device = tf.identity(tf.zeros([])).device if tf.executing_eagerly() else ""
    if device:
        return str(tf.DeviceSpec.from_string(device).device_type)
    return "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
