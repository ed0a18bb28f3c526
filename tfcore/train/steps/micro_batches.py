"""A batch's step in several micro-batches: the memory of one micro-batch, the result of the whole batch.

    part = accumulated(step, batch, count, total=total)       # count: int32 scalar tensor, a divisor of the batch's rows

The number of micro-batches is a value of the running graph, not of its trace: a tf.while_loop goes over them. XLA has to
know the size of one, so that each new count is compiled once there (and not traced).

The sum is the whole batch's to float tolerance: rows keep their weights, their dropout masks, and their share of the
model's own losses. What looks at a batch as a whole sees a micro-batch: batch normalisation, and Keras' own Dropout draws
other masks.
"""

from typing import Any

import tensorflow as tf

from tfcore.train.steps.train_step import Batch, Part, TrainStep


def accumulated(
    step: TrainStep,
    batch: Batch,
    count: tf.Tensor,
    *,
    total: tf.Tensor,
    share: float = 1.0,
    places: tf.Tensor | None = None,
) -> Part:
    """The loss and gradients of all rows, from `count` micro-batches.

    Args:
        count: int32 scalar; it divides the rows, which the caller sees to.
        total: the summed row weights of the whole batch.
        share, places: of a replica's rows: their share of the whole batch, and int32 [rows] where they stand in it.
    """
    rows = batch["weight"].shape[0]
    size = (tf.shape(batch["weight"])[0] if rows is None else int(rows)) // count
    part_share = share / tf.cast(count, tf.float32)

    def body(i: tf.Tensor, loss: tf.Tensor, objective: tf.Tensor, gradients: list[tf.Tensor]) -> Any:
        first = i * size
        micro = {name: _rows(value, first, size) for name, value in batch.items()}
        where = first if places is None else _rows(places, first, size)
        part = step.part(micro, total=total, share=part_share, first_row=where)
        added = [sum_ + gradient for sum_, gradient in zip(gradients, part.gradients, strict=True)]
        return i + 1, loss + part.loss, objective + part.objective, added

    zero = tf.zeros([], tf.float32)
    zeros = [tf.zeros_like(variable.value) for variable in step.model.trainable_variables]
    # one after another: side by side they would need the whole batch's memory
    end = tf.while_loop(lambda i, *_: i < count, body, (tf.constant(0), zero, zero, zeros), parallel_iterations=1)
    return Part(*end[1:])


def _rows(value: tf.Tensor, first: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Rows first .. first + size - 1, the sizes of all other dimensions kept."""
    rest = value.shape[1:]
    begin = tf.concat([[first], tf.zeros([len(rest)], tf.int32)], 0)
    cut = tf.slice(value, begin, tf.concat([[size], tf.constant(rest.as_list(), tf.int32)], 0))
    return tf.ensure_shape(cut, [None, *rest])
