"""The head of a task of the user's own; its protocol stands in `headway.tasks.user_task`."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from headway.errors import ConfigError
from headway.tasks.user_task import UserTask
from headway.user_code.loading import line_of
from tfcore.heads.base import Batch, Head, checked_losses


class UserHead(Head):
    """Calls the user's loss, predictions and train_step, and checks what they return."""

    def __init__(self, task: UserTask, classes: Sequence[str | int] = ()):
        super().__init__(task, classes)
        self._task, self._definition = task, task.definition
        self.outputs = task.count or (len(self.classes) if task.has_classes and len(self.classes) > 2 else 1)
        self.meaning = f"the outputs of the task {task.name}"
        self.train_step = getattr(task.definition, "train_step", None)

    def loss(self, batch: Batch, outputs: tf.Tensor, *, smoothing: tf.Tensor | tf.Variable | None = None) -> tf.Tensor:
        losses = self._called("loss", self._definition.loss, batch, outputs)
        return checked_losses(losses, outputs, f"the loss of {self._task.name}")

    def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        if callable(own := getattr(self._definition, "predictions", None)):
            values = tf.cast(self._called("predictions", own, outputs), tf.float32)
        else:
            values = outputs if self._task.wide else outputs[:, 0]
        shape = [None, self._task.width] if self._task.wide else [None]
        if not tf.TensorShape(shape).is_compatible_with(values.shape):
            raise ConfigError(
                f"the predictions of {self._task.name} have the shape {values.shape}",
                where=str(self._task.file),
                fix=f"one number per row, [rows], or set width = {values.shape[-1] if values.shape.rank == 2 else 2}",
            )
        return values

    def exact(self, outputs: Any) -> None:
        """Return None: the user's predictions are computed in TensorFlow alone."""

    def _called(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except ConfigError:
            raise
        except Exception as error:
            problem = f"{what} of the task {self._task.name} failed: {type(error).__name__}: {error}"
            raise ConfigError(problem, where=line_of(error, self._task.file)) from error
