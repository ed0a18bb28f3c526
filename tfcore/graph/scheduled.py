"""Numbers that change from step to step: tensors that the compiled step is given, and that any layer or loss reads by name.

    with stepping({"margin": tensor}):       # a training does this in each step
        scheduled("margin", 1.0)             # the tensor; in a layer's call, or in a loss
    scheduled("margin", 1.0)                 # 1.0: as where the model predicts

A Python number in its place would be a constant of the graph, and another number would cost another trace and compilation.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

import tensorflow as tf

from headway.errors import ConfigError

_STEP: ContextVar[tuple[Mapping[str, tf.Tensor], set[str]] | None] = ContextVar("step", default=None)
_MAKING: ContextVar[bool] = ContextVar("making", default=False)


@contextmanager
def stepping(values: Mapping[str, tf.Tensor]) -> Iterator[set[str]]:
    """Let `scheduled` find these float32 scalars within the block; yields the set of names read so far."""
    read: set[str] = set()
    token = _STEP.set((values, read))
    try:
        yield read
    finally:
        _STEP.reset(token)


@contextmanager
def making_a_model() -> Iterator[None]:
    """Within the block, in which a user's function makes a model, `scheduled` refuses: it would give a constant."""
    token = _MAKING.set(True)
    try:
        yield
    finally:
        _MAKING.reset(token)


def current_values() -> Mapping[str, tf.Tensor]:
    """Returns all scheduled numbers of the step that runs, by name; an empty dict outside of one."""
    step = _STEP.get()
    return {} if step is None else step[0]


def step_value(name: str) -> tf.Tensor | None:
    """Returns the scheduled number `name` in the step that runs; None outside of a step, and if the training does not
    schedule it."""
    step = _STEP.get()
    if step is None or name not in step[0]:
        return None
    step[1].add(name)
    return step[0][name]


def scheduled(name: str, default: float) -> tf.Tensor:
    """Returns the number of `training.schedules` in the step that runs: a float32 scalar. Read it in a layer's call or
    in a loss.

    Args:
        default: its value outside of a step, as where the model predicts, and where the training does not schedule it.

    Raises:
        ConfigError: it is read while the model is made.
    """
    if _MAKING.get() and tf.executing_eagerly():
        raise ConfigError(
            f"scheduled({name!r}) is read while the model is made, which would keep one value for ever",
            where="model",
            fix="read it in the call of a layer of yours",
        )
    value = step_value(name)
    return tf.constant(default, tf.float32) if value is None else value
