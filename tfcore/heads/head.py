"""The head of a model: computes the loss, the predictions and the served outputs from the model's outputs.

    head = label_head(label)                     # from LabelParameters; from a task: head_of("binary")
    head.loss(batch, outputs)                    # float32 [rows]
    head.predictions(outputs)                    # what evaluation scores: [rows] or [rows, width]
    head.served(outputs)                         # {"probability": [rows], "logit": [rows]}

Outputs are those of the model, float32 [rows, head.outputs]."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import ConfigError
from headway.tasks.base import Output, Task
from headway.tasks.builtin import Binary, Count, Multiclass, Quantiles, Regression
from headway.tasks.table import task_of
from headway.tasks.user_task import UserTask, load_task
from headway.user_code.loading import line_of, line_of_definition

Batch = Mapping[str, Any]
Tensors = dict[str, tf.Tensor]


class Head:
    """The base class of heads, for built-in tasks and users' tasks.

    Args:
        task: the task for which the head computes.
        classes: the label's classes, in the order of the model's outputs; empty if the label has none.
    """

    outputs = 1
    """The number of columns of the model's output."""
    meaning = "one number"
    """What the model's outputs for a row are, in words for messages."""
    degree = 0
    """The power of the label's unit in which the loss is measured, 2 for a squared error; 0: the loss has no unit."""
    train_step: Callable[..., Any] | None = None
    """The user's own training step: from (model, batch) to the loss and the gradients; None: the task has none."""

    def __init__(self, task: Task, classes: Sequence[str | int] = ()):
        self.task, self.classes = task, tuple(classes)

    @property
    def label_dtype(self) -> tf.DType:
        return tf.int32 if self.task.per_class else tf.float32

    def loss(self, batch: Batch, outputs: tf.Tensor, *, smoothing: tf.Tensor | tf.Variable | None = None) -> tf.Tensor:
        """Returns the loss of each row, float32 [rows].

        Args:
            batch: "label" is [rows]; for multiclass with mixup, the probability of each class, float32 [rows, classes].
            smoothing: the share of the label's weight that is spread evenly over all classes (Szegedy et al., "Rethinking
                the Inception architecture", 2016, section 7); float32 scalar. Only for labels with classes.
        """
        raise NotImplementedError

    def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        """Returns the predictions, float32 [rows] or [rows, width]."""
        return outputs[:, 0]

    def float64_predictions(self, outputs: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Returns the predictions in float64, by NumPy; None for a user's task, whose predictions need TensorFlow."""
        return self.task.from_output(outputs)

    def served(self, outputs: tf.Tensor) -> Tensors:
        """Returns the outputs of an exported model by name. `task.outputs` describes them."""
        return {"prediction": self.predictions(outputs)}

    def described(self) -> tuple[Output, ...]:
        """Returns the names, dtypes and shapes of the `served` outputs."""
        return self.task.outputs(self.classes)

    def classify_outputs(self, predictions: Tensors, argument: tf.Tensor) -> Tensors:
        """Returns the outputs of the signature `classify`, from the outputs of `served`. `argument` is a scalar tensor:
        the threshold of a binary task, or the top_k of a multiclass task."""
        raise NotImplementedError

    def scale_and_centre(self, label: Any) -> tuple[float, float]:
        """Returns the scale and the centre by which the model computes its outputs: scale * last layer + centre."""
        return 1.0, 0.0

    def initial_bias(self, label: Any) -> NDArray[np.float32] | None:
        """Returns the last layer's initial bias, which predicts the distribution of the train labels; None: zeros."""
        return None


def label_std_and_mean(label: Any) -> tuple[float, float]:
    """Returns the label's standard deviation and mean in the train split; (1, 0) if unknown, not finite, or without deviation."""
    std, mean = getattr(label, "std", None), getattr(label, "mean", None)
    if std is None or mean is None or not math.isfinite(std) or not math.isfinite(mean) or std <= 0:
        return 1.0, 0.0
    return float(std), float(mean)


def class_shares(label: Any) -> NDArray[np.float64] | None:
    """Returns each class's share of the train split, clipped to [1e-4, 1 - 1e-4]; None if classes were not counted."""
    counts = getattr(label, "counts", None)
    return np.clip(np.asarray(counts, np.float64) / sum(counts), 1e-4, 1 - 1e-4) if counts else None


@contextlib.contextmanager
def users_code(what: str, file: Path, batch: Batch) -> Iterator[None]:
    """Within the block turn an error of the user's function into a ConfigError with the error's line and a fix.

    Args:
        what: the name of the function in messages, such as "the loss my_losses:focal".
        batch: the batch that the function is given; after a KeyError the message lists the batch's keys.
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
    """Returns the losses as float32; ConfigError, naming them `name`, unless they are one float per row of `outputs`."""
    if not tf.is_tensor(losses) or not losses.dtype.is_floating or losses.shape.rank != 1:
        what = f"{losses.dtype.name} of shape {losses.shape}" if tf.is_tensor(losses) else type(losses).__name__
        fix = "return one float32 per row, [rows]: Headway weighs them and takes the mean"
        raise ConfigError(f"{name} is {what}", where="loss", fix=fix)
    if not losses.shape.is_compatible_with(outputs.shape[:1]):
        raise ConfigError(f"{name} has {losses.shape[0]} rows of {outputs.shape[0]}", where="loss")
    return tf.cast(losses, tf.float32)


class BinaryHead(Head):
    """The head of a binary task: one logit; the loss is the log loss with the natural logarithm."""

    meaning = "one logit"

    def loss(self, batch: Batch, outputs: tf.Tensor, *, smoothing: tf.Tensor | tf.Variable | None = None) -> tf.Tensor:
        target = tf.cast(batch["label"], tf.float32)
        if smoothing is not None:
            target = target * (1.0 - smoothing) + 0.5 * smoothing
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=target, logits=outputs[:, 0])

    def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        return tf.sigmoid(outputs[:, 0])

    def served(self, outputs: tf.Tensor) -> Tensors:
        return {"probability": self.predictions(outputs), "logit": outputs[:, 0]}

    def classify_outputs(self, predictions: Tensors, argument: tf.Tensor) -> Tensors:
        probability = predictions["probability"]
        return {
            "decision": probability >= argument,
            "probability": probability,
            "threshold": tf.fill(tf.shape(probability), argument),
        }

    def initial_bias(self, label: Any) -> NDArray[np.float32] | None:
        shares = class_shares(label)
        return None if shares is None else np.asarray([math.log(shares[1] / shares[0])], np.float32)


class MulticlassHead(Head):
    """The head of a multiclass task: one logit for each class; the loss is the log loss with the natural logarithm."""

    meaning = "one logit for each class"

    def __init__(self, task: Task, classes: Sequence[str | int] = ()):
        super().__init__(task, classes)
        self.outputs = len(self.classes)

    def loss(self, batch: Batch, outputs: tf.Tensor, *, smoothing: tf.Tensor | tf.Variable | None = None) -> tf.Tensor:
        label = batch["label"]
        if label.shape.rank == 2:
            loss = tf.nn.softmax_cross_entropy_with_logits(labels=label, logits=outputs)
        else:
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.cast(label, tf.int32), logits=outputs)
        if smoothing is not None:
            even = -tf.reduce_mean(tf.nn.log_softmax(outputs), axis=1)
            loss = loss * (1.0 - smoothing) + even * smoothing
        return loss

    def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(outputs)

    def served(self, outputs: tf.Tensor) -> Tensors:
        probabilities = self.predictions(outputs)
        return {"probabilities": probabilities, "class": tf.gather(self._names(), tf.argmax(probabilities, axis=1))}

    def classify_outputs(self, predictions: Tensors, argument: tf.Tensor) -> Tensors:
        in_range = tf.debugging.Assert(
            (argument >= 1) & (argument <= self.outputs), [f"top_k must be from 1 to {self.outputs}, not", argument]
        )
        with tf.control_dependencies([in_range]):
            likely, places = tf.math.top_k(predictions["probabilities"], tf.identity(argument))
        return {"classes": tf.gather(self._names(), places), "probabilities": likely}

    def initial_bias(self, label: Any) -> NDArray[np.float32] | None:
        shares = class_shares(label)
        return None if shares is None else np.log(shares).astype(np.float32)

    def _names(self) -> tf.Tensor:
        return tf.constant(list(self.classes), tf.string if isinstance(self.classes[0], str) else tf.int64)


class RegressionHead(Head):
    """The head of a regression: outputs the number in the label's own units; the loss is the squared error."""

    degree = 2

    def loss(self, batch: Batch, outputs: tf.Tensor, *, smoothing: tf.Tensor | tf.Variable | None = None) -> tf.Tensor:
        return tf.square(outputs[:, 0] - tf.cast(batch["label"], tf.float32))

    def scale_and_centre(self, label: Any) -> tuple[float, float]:
        return label_std_and_mean(label)


class CountHead(Head):
    """The head of a count: outputs the logarithm of the expected count; the loss is the negative log likelihood of a
    Poisson distribution, without the term that depends on the label alone."""

    meaning = "the logarithm of the expected count"

    def loss(self, batch: Batch, outputs: tf.Tensor, *, smoothing: tf.Tensor | tf.Variable | None = None) -> tf.Tensor:
        return tf.exp(outputs[:, 0]) - tf.cast(batch["label"], tf.float32) * outputs[:, 0]

    def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        return tf.exp(outputs[:, 0])

    def initial_bias(self, label: Any) -> NDArray[np.float32] | None:
        mean = getattr(label, "mean", None)
        return np.asarray([math.log(mean)], np.float32) if mean is not None and mean > 0 else None


class QuantilesHead(Head):
    """The head of quantiles: outputs one number for each level, in the label's own units; the loss is the quantile
    (pinball) loss, averaged over the levels."""

    degree = 1
    meaning = "one number for each level"

    def __init__(self, task: Quantiles, classes: Sequence[str | int] = ()):
        super().__init__(task, classes)
        self._levels, self._middle = np.asarray(task.levels, np.float32), task.middle
        self.outputs = len(task.levels)

    def loss(self, batch: Batch, outputs: tf.Tensor, *, smoothing: tf.Tensor | tf.Variable | None = None) -> tf.Tensor:
        above = tf.cast(batch["label"], tf.float32)[:, None] - outputs
        return tf.reduce_mean(tf.maximum(self._levels * above, (self._levels - 1.0) * above), axis=1)

    def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        """Returns the quantiles in rising order. Levels that are learned separately can cross, and sorted quantiles are
        never worse (Chernozhukov et al., "Quantile and probability curves without crossing", 2010)."""
        return tf.sort(outputs, axis=1)

    def served(self, outputs: tf.Tensor) -> Tensors:
        quantiles = self.predictions(outputs)
        return {"quantiles": quantiles, "prediction": quantiles[:, self._middle]}

    def scale_and_centre(self, label: Any) -> tuple[float, float]:
        return label_std_and_mean(label)

    def initial_bias(self, label: Any) -> NDArray[np.float32] | None:
        values = getattr(label, "quantiles", None)
        if not values:
            return None
        scale, centre = label_std_and_mean(label)
        return ((np.asarray(values, np.float64) - centre) / scale).astype(np.float32)


class UserHead(Head):
    """The head of a user's task: calls its loss, predictions and train_step, and checks what they return."""

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

    def float64_predictions(self, outputs: Any) -> None:
        """Returns None, since a user's predictions need TensorFlow."""

    def _stepped(self, own: Callable[..., Any], model: Any, batch: Batch) -> tuple[tf.Tensor, Sequence[Any]]:
        """Returns the loss and the gradients by `own`, the user's train_step; ConfigError if it returns anything else."""
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


_HEADS: tuple[tuple[type[Task], Any], ...] = (
    (Binary, BinaryHead),
    (Multiclass, MulticlassHead),
    (Count, CountHead),
    (Regression, RegressionHead),
    (Quantiles, QuantilesHead),
    (UserTask, UserHead),
)


def head_of(task: Head | Task | str, classes: Sequence[str | int] | None = None) -> Head:
    """Returns the head of a task, given as an object or by name. A head is returned unchanged.

    Args:
        classes: the label's classes, in the order of the model's outputs; None: it has no classes.
    """
    if isinstance(task, Head):
        return task
    task = task_of(task)
    head = next(head for kind, head in _HEADS if isinstance(task, kind))
    return head(task, classes or ())


def label_head(label: Any) -> Head:
    """Returns the head for a label, given by its `tfcore.heads.label_parameters.LabelParameters`."""
    return head_of(label_task(label), label.classes)


def label_task(label: Any) -> Task:
    """Returns the task of a label, given by its LabelParameters. A user's task is loaded from the file `label.file`."""
    file = getattr(label, "file", None)
    return task_of(label.task) if file is None else load_task(label.task, file)
