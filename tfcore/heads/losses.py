"""Losses that replace the loss of a task: built-in losses by name, and users' functions.

head = with_loss(head, "huber")
head = with_loss(head, "my_losses:focal", Path("my_losses.py"))      # def focal(batch, outputs): float32 [rows]
"""

import copy
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from headway.errors import ConfigError
from headway.user_code.loading import load_function
from tfcore.heads.head import Batch, Head, checked_losses, users_code

Loss = Callable[[Batch, tf.Tensor], tf.Tensor]
FOCUS = 2.0
"""The exponent of the focal loss that its authors found best (Lin et al., "Focal loss for dense object detection", 2017)."""


def with_loss(head: Head, name: str, file: Path | None = None) -> Head:
    """Returns a copy of the head whose loss is replaced.

    Args:
        name: one of `NAMED`, or with `file` module:function, the function in that Python file.

    Raises:
        ConfigError: the loss does not fit the head's task, or the function is missing.
    """
    where = "training.loss"
    function: Loss
    if file is not None:
        function, degree = _users(name, file), 0
    else:
        needs_classes, degree, function = _BY_NAME[name]
        if head.task.has_classes != needs_classes or head.outputs != 1:
            fits = [key for key, (classes, *_) in _BY_NAME.items() if classes == head.task.has_classes]
            fix = f"there is: {', '.join(fits)}, or module:function" if head.outputs == 1 else "write module:function"
            raise ConfigError(f"{name} is not a loss of a {head.task.name} task", where=where, fix=fix)
    changed = copy.copy(head)
    changed.degree = degree

    def loss(batch: Batch, outputs: tf.Tensor, *, smoothing: tf.Tensor | tf.Variable | None = None) -> tf.Tensor:
        return function(batch, outputs)

    changed.loss = loss  # type: ignore[method-assign]
    return changed


def _users(name: str, file: Path) -> Loss:
    function = load_function(file, name.partition(":")[2])

    def loss(batch: Batch, outputs: tf.Tensor) -> tf.Tensor:
        with users_code(f"the loss {name}", file, batch):
            losses = function(batch, outputs)
        return checked_losses(losses, outputs, f"the loss {name}")

    return loss


def _error(batch: Batch, outputs: tf.Tensor) -> tf.Tensor:
    return outputs[:, 0] - tf.cast(batch["label"], tf.float32)


def _huber(batch: Batch, outputs: tf.Tensor) -> tf.Tensor:
    """Returns the Huber loss: quadratic up to an error of 1 in the label's unit, then linear (Huber, "Robust estimation
    of a location parameter", 1964)."""
    size = tf.abs(_error(batch, outputs))
    return tf.where(size <= 1.0, 0.5 * tf.square(size), size - 0.5)


def _focal(batch: Batch, outputs: tf.Tensor) -> tf.Tensor:
    label = tf.cast(batch["label"], tf.float32)
    right = label * outputs[:, 0] - (1.0 - label) * outputs[:, 0]
    return tf.pow(tf.sigmoid(-right), FOCUS) * tf.nn.softplus(-right)


_BY_NAME: dict[str, tuple[bool, int, Loss]] = {
    "squared_error": (False, 2, lambda batch, outputs: tf.square(_error(batch, outputs))),
    "absolute_error": (False, 1, lambda batch, outputs: tf.abs(_error(batch, outputs))),
    "huber": (False, 0, _huber),
    "focal": (True, 0, _focal),
}
NAMED = tuple(_BY_NAME)
