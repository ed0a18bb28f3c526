"""Numbers that change from one training step to the next. They enter the compiled step as tensors; layers and losses read them.

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
    """Within the block, let `scheduled` find `values`, float32 scalars by name; yields the set of the names read so far."""
    read: set[str] = set()
    token = _STEP.set((values, read))
    try:
        yield read
    finally:
        _STEP.reset(token)


@contextmanager
def making_a_model() -> Iterator[None]:
    """Within the block, which makes a user's model, `scheduled` called eagerly raises ConfigError: it would give a constant."""
    token = _MAKING.set(True)
    try:
        yield
    finally:
        _MAKING.reset(token)


def current_values() -> Mapping[str, tf.Tensor]:
    """Returns all scheduled numbers of the training step that runs, by name; an empty dict outside of a step."""
    step = _STEP.get()
    return {} if step is None else step[0]


def step_value(name: str) -> tf.Tensor | None:
    """Returns the scheduled number `name` in the training step that runs. None outside of a step, or if the training has no
    schedule of that name."""
    step = _STEP.get()
    if step is None or name not in step[0]:
        return None
    step[1].add(name)
    return step[0][name]


def scheduled(name: str, default: float) -> tf.Tensor:
    """Returns the number `name` of `training.schedules` for the training step that runs, a float32 scalar. Read it in a
    layer's call or in a loss.

    Args:
        default: the value outside of a training step, such as in prediction, and if the training has no such schedule.

    Raises:
        ConfigError: the number is read while the model is made.
    """
    if _MAKING.get() and tf.executing_eagerly():
        raise ConfigError(
            f"scheduled({name!r}) is read while the model is made, which would keep one value for ever",
            where="model",
            fix="read it in the call of a layer of yours",
        )
    value = step_value(name)
    return tf.constant(default, tf.float32) if value is None else value
