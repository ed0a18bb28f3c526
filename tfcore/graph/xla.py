"""Tells whether XLA will compile the graph being traced, and for which device. XLA cannot compile Headway's C++ ops.

if compiling():
    ...                      # TensorFlow's own ops, static shapes
with compiling_intended(): trace()     # within: compiling() is true
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import tensorflow as tf

from tfcore.private_api import traced_for_xla

_INTENDED: ContextVar[str | None] = ContextVar("xla", default=None)


@contextmanager
def compiling_intended(yes: bool = True) -> Iterator[None]:
    """Makes `compiling` return true within the block, for a trace that XLA compiles only later, for the present device.
    With `yes` false, `compiling` looks only at `jit_compile=True`."""
    token = _INTENDED.set(_device() if yes else None)
    try:
        yield
    finally:
        _INTENDED.reset(token)


def compiling() -> bool:
    """Returns whether XLA will compile the graph being traced: in a tf.function(jit_compile=True) or `compiling_intended`."""
    return _INTENDED.get() is not None or traced_for_xla()


def compiling_for_gpu() -> bool:
    """Returns whether XLA will compile the graph being traced, and will do so for a GPU."""
    return (_INTENDED.get() or _device()) == "GPU" if compiling() else False


def _device() -> str:
    """Returns the kind of device on which an op would run now, "CPU" or "GPU". In a graph the device is not known yet: then
    "GPU" if the machine has one."""
    device = tf.identity(tf.zeros([])).device if tf.executing_eagerly() else ""
    if device:
        return str(tf.DeviceSpec.from_string(device).device_type)
    return "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
