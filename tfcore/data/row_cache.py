"""Caches the transformed training rows in memory where they are small: later epochs parse nothing.

    kept = RowCache.of(reader, plan, prepared, shards, most=128 << 20)     # None: they take more, or may not be kept
    windows = kept.windows(epoch)                                      # of {ROW: int32 [rows]}, in the epoch's order
    rows = taken(kept.rows, window[ROW])                               # the same windows of rows that reading would give
    pick = kept.picked(taken, 8192, jit=True)                          # the same of so many places at a time, by XLA

The order is the plan's, so keeping them changes no batch. Rows are not kept where the pipeline calls Python: such a
function may answer otherwise the next time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import tensorflow as tf

from tfcore.data.order import Plan
from tfcore.data.reader import Reader
from tfcore.data.shards import Batch
from tfcore.graph.python_errors import PYTHON_NODES, all_nodes
from tfcore.graph.python_op import numpy_op

ROW = "row"
"""Which row of the manifests' order, int32."""
_CALLED_AGAIN = PYTHON_NODES - {"PyFuncStateless"}


class RowCache:
    """The transformed rows of a training in memory; see the module.

    Args:
        rows: all of them, in the order of the manifests.
        plan: of the same rows in every epoch.
    """

    def __init__(self, rows: Batch, plan: Plan):
        self.rows, self._plan = rows, plan
        self.spec = {name: tf.TensorSpec([None, *value.shape[1:]], value.dtype) for name, value in rows.items()}

    @classmethod
    def of(
        cls,
        reader: Reader,
        plan: Plan,
        prepared: tf.types.experimental.PolymorphicFunction,
        load: Callable[[tf.data.Dataset], list[Batch]],
        most: int,
    ) -> RowCache | None:
        """Read every row once, if the rows take at most `most` bytes; None otherwise.

        Args:
            prepared: a piece to rows, without AutoGraph.
            load: a dataset to the list of its elements, its errors made readable.
        """
        pieces = reader.in_order()
        spec = pieces.element_spec
        piece = spec if isinstance(spec, tuple) else (spec,)
        function = prepared.get_concrete_function(*piece)
        nodes = all_nodes(function.graph.as_graph_def())
        if row_bytes(function.structured_outputs) * plan.rows > most or any(n.op in _CALLED_AGAIN for n in nodes):
            return None
        with tf.device("/CPU:0"):
            parts = load(
                pieces.map(lambda *piece: function(*piece), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
            )
            return cls({name: tf.concat([part[name] for part in parts], 0) for name in parts[0]}, plan)

    def windows(self, epoch: tf.Tensor, first: tf.Tensor, bounds: tf.Tensor | None = None) -> tf.data.Dataset:
        """The dataset of an epoch's windows, from window `first` (int64) on.

        Args:
            bounds: where they begin, and their end; int64 [windows + 1]. None: they are the plan's.
        """
        size, rows = self._plan.window, self._plan.rows
        spec = tf.TensorSpec([rows], tf.int32)
        places = numpy_op(self._plan.places, spec, stateful=False)(epoch)
        if bounds is not None:
            return tf.data.Dataset.range(first, tf.size(bounds, tf.int64) - 1).map(
                lambda i: {ROW: places[bounds[i] : bounds[i + 1]]}
            )
        numbers = tf.data.Dataset.range(first, -(-rows // size))
        return numbers.map(lambda i: {ROW: places[i * size : (i + 1) * size]})

    def picked(
        self, pick: Callable[[Batch, tf.Tensor], Batch], places: int, *, jit: bool
    ) -> Callable[[tf.Tensor], Batch]:
        """The function from places, int32 [places], to `pick` of all rows.

        Args:
            jit: by XLA, unless there is text, which it does not know. It takes a fourth of the time: TensorFlow's own gather
                copies each column's rows call by call.
        """
        if not jit or any(value.dtype == tf.string for value in self.rows.values()):
            return lambda at: pick(self.rows, at)
        return tf.function(
            lambda at: pick(self.rows, at),
            input_signature=[tf.TensorSpec([places], tf.int32)],
            jit_compile=True,
            autograph=False,
        )


def taken(rows: Batch, places: tf.Tensor) -> Batch:
    """Gather the rows at `places`."""
    return {name: tf.gather(value, places) for name, value in rows.items()}


def row_bytes(spec: Mapping[str, tf.TensorSpec]) -> int:
    """The bytes of a row in memory; for text only those of its address."""
    return sum(math.prod(d or 1 for d in tensor.shape[1:]) * tensor.dtype.size for tensor in spec.values())
