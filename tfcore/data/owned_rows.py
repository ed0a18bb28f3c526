"""The rows that this worker reads; zeros stand for the rows of other workers, so that all share one row order.

    own = owned(shards, worker=0, workers=2)                  # bool [shards], or None where they cannot be shared out
    holes = OwnedRows(shards, own)
    rows, shard, number = holes(read, piece)                  # as read(*piece), with "own"; zeros where not own[shard]

Where a row stands in the shuffled sequence is a function of the manifests alone. A worker that knows it needs no other
worker's rows: it lets as many zeros pass, which costs neither reading, parsing nor a transform.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfcore.data.shards import Batch, Shards

OWN = "own"
MOST_UNEVEN = 1.5
"""A worker may have so many times its even part of the rows; else all of them read everything."""


def owned(shards: Shards, *, worker: int, workers: int) -> NDArray[np.bool_] | None:
    """The shards that a worker reads, so that all workers have about as many rows; bool [shards]. None where whole
    shards cannot be divided so."""
    rows = np.asarray(shards.counts, np.int64)
    load, owner = np.zeros(workers, np.int64), np.zeros(len(rows), np.int64)
    for shard in np.argsort(-rows, kind="stable"):
        owner[shard] = np.argmin(load)
        load[owner[shard]] += rows[shard]
    return owner == worker if load.max() * workers <= MOST_UNEVEN * rows.sum() else None


class OwnedRows:
    """Reads a worker's own rows, and puts zeros in the place of the others; see the module."""

    def __init__(self, shards: Shards, own: NDArray[np.bool_]):
        self._own = tf.constant(own)
        counts = [np.asarray(rows, np.int64) for rows in shards.rows]
        self._counts = tf.constant(np.concatenate(counts) if counts else np.zeros(0, np.int64), tf.int64)
        self._begin = tf.constant(np.cumsum([0] + [len(c) for c in counts])[:-1], tf.int64)

    def __call__(
        self, read: Callable[..., tuple[Batch, tf.Tensor, tf.Tensor]], piece: tuple[tf.Tensor, ...]
    ) -> tuple[Batch, tf.Tensor, tf.Tensor]:
        """Return `read(*piece)` for a row group (shard, number, record) of this worker, as many zeros for another's."""
        shard, number, _ = piece
        specs: dict[str, Any] = {}

        def rows() -> Batch:
            batch, *_ = read(*piece)
            specs.update({name: (value.shape[1:], value.dtype) for name, value in batch.items()})
            return batch

        def zeros() -> Batch:
            count = tf.gather(self._counts, tf.gather(self._begin, shard) + number)
            return {
                name: tf.zeros(tf.concat([[count], tf.cast(shape, tf.int64)], 0), dtype)
                for name, (shape, dtype) in specs.items()
            }

        own = tf.gather(self._own, shard)
        batch = tf.cond(own, rows, zeros)
        for name, (shape, _) in specs.items():
            batch[name] = tf.ensure_shape(batch[name], [None, *shape])
        batch[OWN] = tf.fill([tf.shape(batch["label"])[0]], own)
        return batch, shard, number
