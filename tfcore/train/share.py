"""A worker's share of each batch.

    stacks = dataset.map(slice_of(worker=1, workers=2))       # [K, 256, ...] -> [K, 128, ...] and "place" int32 [K, 128]

A batch's loss and gradients are sums over its rows, so that it matters not which worker has which of them.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tfcore.shards import Batch

PLACE = "place"
"""Of a worker's stack, int32 [K, rows]: where each row stands in the whole batch."""


def slice_of(worker: int, workers: int) -> Callable[[Batch], Batch]:
    """From whole stacks to a worker's rows of each batch, one after another."""

    def sliced(stack: Batch) -> Batch:
        count, batch = stack["weight"].shape
        size = batch // workers
        first = worker * size
        places = tf.broadcast_to(first + tf.range(size), [count, size])
        return {name: value[:, first : first + size] for name, value in stack.items()} | {PLACE: places}

    return sliced
