"""The loss per row of each task.

row_losses("binary", label, output)                                     # [rows]: natural log loss
row_losses("multiclass", label, output, smoothing=tf.constant(0.1))
row_losses("regression", label, output)                                 # the squared error
"""

from __future__ import annotations

import tensorflow as tf

from headway.evaluation.tasks import Task


def row_losses(
    task: Task, label: tf.Tensor, output: tf.Tensor, *, smoothing: tf.Tensor | tf.Variable | None = None
) -> tf.Tensor:
    """The loss of each row from the model's output [rows, outputs]: natural log loss, or the squared error. [rows]

    Args:
        label: [rows], or of several classes also float32 [rows, classes], a probability for each, as mixup gives.
        smoothing: the share of the label's weight that is spread evenly over all classes (Szegedy et al., "Rethinking
            the Inception architecture", 2016, section 7); float32 scalar.
    """
    if task == "binary":
        target = tf.cast(label, tf.float32)
        if smoothing is not None:
            target = target * (1.0 - smoothing) + 0.5 * smoothing
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=target, logits=output[:, 0])
    if task == "multiclass":
        if label.shape.rank == 2:
            loss = tf.nn.softmax_cross_entropy_with_logits(labels=label, logits=output)
        else:
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.cast(label, tf.int32), logits=output)
        if smoothing is not None:
            even = -tf.reduce_mean(tf.nn.log_softmax(output), axis=1)
            loss = loss * (1.0 - smoothing) + even * smoothing
        return loss
    return tf.square(output[:, 0] - tf.cast(label, tf.float32))
