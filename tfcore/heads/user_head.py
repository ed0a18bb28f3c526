"""The head of a task of the user's own; its protocol stands in `headway.tasks.user_task`."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from headway.errors import ConfigError
from headway.tasks.user_task import UserTask
from headway.user_code.loading import line_of_definition
from tfcore.heads.base import Batch, Head, checked_losses, users_code


class UserHead(Head):
    """Calls the user's loss, predictions and train_step, and checks what they return."""

    def __init__(self, task: UserTask, classes: Sequence[str | int] = ()):
        super().__init__(task, classes)
        self._task, self._definition = task, task.definition
        self.outputs = task.count or (len(self.classes) if task.has_classes and len(self.classes) > 2 else 1)
        self.meaning = f"the outputs of the task {task.name}"
        if callable(own := getattr(task.definition, "train_step", None)):
            self.train_step = functools.partial(self._stepped, own)

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
                where=line_of_definition(own, self._task.file) if callable(own) else str(self._task.file),
                fix=f"one number per row, [rows], or set width = {values.shape[-1] if values.shape.rank == 2 else 2}",
            )
        return values

    def exact(self, outputs: Any) -> None:
        """Returns None, since only TensorFlow computes the user's predictions."""

    def _stepped(self, own: Callable[..., Any], model: Any, batch: Batch) -> tuple[tf.Tensor, Sequence[Any]]:
        """Returns the loss and the gradients that the user's train_step gives."""
        answer, trained = self._called("train_step", own, model, batch), model.trainable_variables
        where, fix = (
            line_of_definition(own, self._task.file),
            "return loss, tape.gradient(loss, model.trainable_variables)",
        )
        problem = f"train_step of the task {self._task.name} returned "
        if not isinstance(answer, tuple | list) or len(answer) != 2:
            what = f"{len(answer)} values" if isinstance(answer, tuple | list) else f"one {type(answer).__name__}"
            raise ConfigError(f"{problem}{what} instead of a loss and the gradients", where=where, fix=fix)
        loss, gradients = answer
        if not isinstance(gradients, tuple | list) or len(gradients) != len(trained):
            found = len(gradients) if isinstance(gradients, tuple | list) else f"one {type(gradients).__name__}"
            problem += f"{found} instead of a gradient for each of the {len(trained)} trainable variables"
            raise ConfigError(problem, where=where, fix=fix)
        loss = tf.cast(loss, tf.float32)
        if loss.shape.rank != 0:
            problem = f"the loss of train_step has the shape {loss.shape}, and is to be one number"
            raise ConfigError(problem, where=where, fix="take its mean")
        return loss, gradients

    def _called(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        batch = next((argument for argument in arguments if isinstance(argument, Mapping)), {})
        with users_code(f"{what} of the task {self._task.name}", self._task.file, batch):
            return function(*arguments)
