"""Tells whether XLA will compile the graph that is being traced: Headway's C++ ops have no kernel there.

if compiling():
    ...                      # TensorFlow's own ops, static shapes
with intended(): trace()     # within: compiling() is true
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tfcore.private_api import traced_for_xla

_INTENDED: ContextVar[bool] = ContextVar("xla", default=False)


@contextmanager
def intended(yes: bool = True) -> Iterator[None]:
    """Tell `compiling` that a trace within the block will be compiled later, which TensorFlow cannot know yet."""
    token = _INTENDED.set(yes)
    try:
        yield
    finally:
        _INTENDED.reset(token)


def compiling() -> bool:
    """Whether a `tf.function(jit_compile=True)` is being traced, or the answer that `intended` set."""
    if _INTENDED.get():
        return True
    return traced_for_xla()
