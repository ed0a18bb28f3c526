"""The head of a model: computes the loss, the predictions and the served outputs from the model's outputs.

    head = head_of(label)                        # of LabelParameters, or of a task's name
    head.loss(batch, outputs)                    # float32 [rows]
    head.predictions(outputs)                    # what evaluation scores: [rows] or [rows, width]
    head.served(outputs)                         # {"probability": [rows], "logit": [rows]}

Outputs are those of the model, float32 [rows, head.outputs].
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import ConfigError
from headway.tasks.base import Output, Task
from headway.user_code.loading import line_of

Batch = Mapping[str, Any]
Tensors = dict[str, tf.Tensor]


class Head:
    """A task in TensorFlow; the base of the built-in ones and of a user's own.

    Args:
        task: how its predictions are judged.
        classes: the label's, where it has some.
    """

    outputs = 1
    """The columns of the model's output."""
    meaning = "one number"
    """The words of messages for a row's outputs."""
    degree = 0
    """The power of the label's unit with which the loss grows."""
    train_step: Callable[..., Any] | None = None
    """The user's own training step: from (model, batch) to the loss and the gradients; None for other tasks."""

    def __init__(self, task: Task, classes: Sequence[str | int] = ()):
        self.task, self.classes = task, tuple(classes)

    @property
    def label_dtype(self) -> tf.DType:
        return tf.int32 if self.task.per_class else tf.float32

    def loss(self, batch: Batch, outputs: tf.Tensor, *, smoothing: tf.Tensor | tf.Variable | None = None) -> tf.Tensor:
        """Returns the loss of each row, float32 [rows].

        Args:
            batch: "label" [rows], for several classes also float32 [rows, classes], a probability for each, as mixup gives.
            smoothing: the share of the label's weight that is spread evenly over all classes (Szegedy et al., "Rethinking
                the Inception architecture", 2016, section 7); float32 scalar. Only for labels with classes.
        """
        raise NotImplementedError

    def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        """Returns the prediction for each row."""
        return outputs[:, 0]

    def exact(self, outputs: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Returns the predictions in float64, from outputs in NumPy; None where only TensorFlow can compute them."""
        return self.task.from_output(outputs)

    def served(self, outputs: tf.Tensor) -> Tensors:
        """Returns the outputs of an exported model, as `task.outputs` describes them."""
        return {"prediction": self.predictions(outputs)}

    def described(self) -> tuple[Output, ...]:
        """Returns the names, dtypes and shapes of the `served` outputs."""
        return self.task.outputs(self.classes)

    def decided(self, predictions: Tensors, argument: tf.Tensor) -> Tensors:
        """Returns the outputs of the signature `classify` for `served` outputs and a request's argument, a scalar."""
        raise NotImplementedError

    def units(self, label: Any) -> tuple[float, float]:
        """Returns (scale, centre) of the last layer's units: outputs are scale * layer + centre."""
        return 1.0, 0.0

    def start(self, label: Any) -> NDArray[np.float32] | None:
        """Returns the bias of the last layer that predicts the train labels' distribution; None where it is zero."""
        return None


def label_scale(label: Any) -> tuple[float, float]:
    """Returns (standard deviation, mean) of a label in the train split; (1, 0) where they are not known."""
    std, mean = getattr(label, "std", None), getattr(label, "mean", None)
    if std is None or mean is None or not math.isfinite(std) or not math.isfinite(mean) or std <= 0:
        return 1.0, 0.0
    return float(std), float(mean)


def class_shares(label: Any) -> NDArray[np.float64] | None:
    """Returns the share of each class in the train split, at least 1e-4; None where the classes were not counted."""
    counts = getattr(label, "counts", None)
    return np.clip(np.asarray(counts, np.float64) / sum(counts), 1e-4, 1 - 1e-4) if counts else None


@contextlib.contextmanager
def users_code(what: str, file: Path, batch: Batch) -> Iterator[None]:
    """Raise an error of the user's function as a ConfigError with its line and the fix.

    Args:
        what: "the loss my_losses:focal".
        batch: what it was given.
    """
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        fix = "correct the line; training: {eager: true} runs it op by op, for print and breakpoint()"
        if isinstance(error, KeyError):
            fix = f"a batch has: {', '.join(batch)}"
        elif "numpy" in str(error):
            fix = "it is traced once, when tensors have no values yet: use TensorFlow's functions, such as tf.print; training: "
            fix += "{eager: true} runs it op by op"
        problem = f"{what} failed: {type(error).__name__}: {error}"
        raise ConfigError(problem, where=line_of(error, file), fix=fix) from error


def checked_losses(losses: Any, outputs: tf.Tensor, name: str) -> tf.Tensor:
    """Raise ConfigError unless `losses` is one floating-point number per row of `outputs`."""
    if not tf.is_tensor(losses) or not losses.dtype.is_floating or losses.shape.rank != 1:
        what = f"{losses.dtype.name} of shape {losses.shape}" if tf.is_tensor(losses) else type(losses).__name__
        fix = "return one float32 per row, [rows]: Headway weighs them and takes the mean"
        raise ConfigError(f"{name} is {what}", where="loss", fix=fix)
    if not losses.shape.is_compatible_with(outputs.shape[:1]):
        raise ConfigError(f"{name} has {losses.shape[0]} rows of {outputs.shape[0]}", where="loss")
    return tf.cast(losses, tf.float32)
