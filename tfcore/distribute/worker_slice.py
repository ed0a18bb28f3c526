"""A worker's share of each batch.

    stacks = dataset.map(slice_of(worker=1, workers=2))       # [K, 256, ...] -> [K, 128, ...] and "place" int32 [K, 128]
    stacks = dataset.map(compact(workers=2))                  # where "own" says which rows are there at all

A batch's loss and gradients are sums over its rows, so that it matters not which worker has which of them. Those of a
worker's own shards are now more, now fewer: room is left for the most that a batch of the stack has, rounded up so that
only a few shapes are ever compiled, and filled with a row that is there, at weight 0.
"""

from collections.abc import Callable

import tensorflow as tf

from tfcore.data.owned_rows import OWN
from tfcore.data.shards import Batch

PLACE = "place"
"""Of a worker's stack, int32 [K, rows]: where each row stands in the whole batch."""


def slice_of(worker: int, workers: int) -> Callable[[Batch], Batch]:
    """A function from whole stacks to this worker's contiguous slice of each batch."""

    def sliced(stack: Batch) -> Batch:
        count, batch = stack["weight"].shape
        size = batch // workers
        first = worker * size
        places = tf.broadcast_to(first + tf.range(size), [count, size])
        return {name: value[:, first : first + size] for name, value in stack.items()} | {PLACE: places}

    return sliced


def compact(workers: int, multiple: int = 1) -> Callable[[Batch], Batch]:
    """A function from stacks with zeros for other workers' rows to the rows of each batch that this worker owns.

    Args:
        multiple: of what the rows are to be, a divisor of a batch: they are cut into so many micro-batches.
    """

    def compacted(stack: Batch) -> Batch:
        own = stack[OWN]
        batch = own.shape[1]
        unit = multiple * max(1, batch // (4 * workers * multiple))
        counts = tf.math.count_nonzero(own, axis=1, dtype=tf.int32)
        room = tf.minimum(batch, -(-tf.maximum(tf.reduce_max(counts), 1) // unit) * unit)
        order = tf.argsort(tf.cast(~own, tf.int32), axis=1, stable=True)[:, :room]
        filled = tf.range(room) < counts[:, None]
        # a row of zeros might be one that the model makes no number of
        places = tf.where(filled, order, order[:, :1])
        rows = {name: tf.gather(value, places, batch_dims=1) for name, value in stack.items() if name != OWN}
        return rows | {"weight": tf.where(filled, rows["weight"], 0.0), PLACE: places}

    return compacted
