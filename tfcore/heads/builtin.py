"""The heads of the built-in tasks."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.tasks.base import Task
from headway.tasks.builtin import Quantiles
from tfcore.heads.base import Batch, Head, Tensors, class_shares, label_scale


class BinaryHead(Head):
    """The head of a binary task: one logit; the loss is the natural log loss."""

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

    def decided(self, predictions: Tensors, argument: tf.Tensor) -> Tensors:
        probability = predictions["probability"]
        return {
            "decision": probability >= argument,
            "probability": probability,
            "threshold": tf.fill(tf.shape(probability), argument),
        }

    def start(self, label: Any) -> NDArray[np.float32] | None:
        shares = class_shares(label)
        return None if shares is None else np.asarray([math.log(shares[1] / shares[0])], np.float32)


class MulticlassHead(Head):
    """The head of a multiclass task: one logit for each class; the loss is the natural log loss."""

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

    def decided(self, predictions: Tensors, argument: tf.Tensor) -> Tensors:
        in_range = tf.debugging.Assert(
            (argument >= 1) & (argument <= self.outputs), [f"top_k must be from 1 to {self.outputs}, not", argument]
        )
        with tf.control_dependencies([in_range]):
            likely, places = tf.math.top_k(predictions["probabilities"], tf.identity(argument))
        return {"classes": tf.gather(self._names(), places), "probabilities": likely}

    def start(self, label: Any) -> NDArray[np.float32] | None:
        shares = class_shares(label)
        return None if shares is None else np.log(shares).astype(np.float32)

    def _names(self) -> tf.Tensor:
        return tf.constant(list(self.classes), tf.string if isinstance(self.classes[0], str) else tf.int64)


class RegressionHead(Head):
    """The head of a regression: the number in the label's own units; the loss is the squared error."""

    degree = 2

    def loss(self, batch: Batch, outputs: tf.Tensor, *, smoothing: tf.Tensor | tf.Variable | None = None) -> tf.Tensor:
        return tf.square(outputs[:, 0] - tf.cast(batch["label"], tf.float32))

    def units(self, label: Any) -> tuple[float, float]:
        return label_scale(label)


class CountHead(Head):
    """The head of counts: the logarithm of the expected count; the loss is the negative log likelihood of a Poisson
    distribution, without the part that no prediction changes."""

    meaning = "the logarithm of the expected count"

    def loss(self, batch: Batch, outputs: tf.Tensor, *, smoothing: tf.Tensor | tf.Variable | None = None) -> tf.Tensor:
        return tf.exp(outputs[:, 0]) - tf.cast(batch["label"], tf.float32) * outputs[:, 0]

    def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        return tf.exp(outputs[:, 0])

    def start(self, label: Any) -> NDArray[np.float32] | None:
        mean = getattr(label, "mean", None)
        return np.asarray([math.log(mean)], np.float32) if mean is not None and mean > 0 else None


class QuantilesHead(Head):
    """The head of quantiles: one number for each level, in the label's own units; the loss is the mean quantile loss
    over the levels."""

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
        """Returns the quantiles in rising order, since levels that are learned apart can cross (Chernozhukov et al.,
        "Quantile and probability curves without crossing", 2010: sorted they are never worse)."""
        return tf.sort(outputs, axis=1)

    def served(self, outputs: tf.Tensor) -> Tensors:
        quantiles = self.predictions(outputs)
        return {"quantiles": quantiles, "prediction": quantiles[:, self._middle]}

    def units(self, label: Any) -> tuple[float, float]:
        return label_scale(label)

    def start(self, label: Any) -> NDArray[np.float32] | None:
        values = getattr(label, "quantiles", None)
        if not values:
            return None
        scale, centre = label_scale(label)
        return ((np.asarray(values, np.float64) - centre) / scale).astype(np.float32)
