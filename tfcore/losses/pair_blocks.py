"""Sums over the pairs of rows of one group whose labels differ, block by block: what the pairwise loss does without XLA.

    pairs = Pairs.of(label, row_splits, group)
    loss, count = pairs.sums(columns)            # [groups] each; differentiated by columns["score"], twice if need be

In order of falling label within its group, a row's partners are one run that reaches to the group's end. Rows with about as
many partners make one matrix of at most `BLOCK` pairs, so that memory goes with the rows, and few pairs are there for
nothing. The gradient is summed up beside the loss, as in the C++ op: no block is kept for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

BLOCK = 1 << 16
"""Pairs of a matrix: half a mebibyte in float64, which stays in a processor's cache."""


class Pairs(NamedTuple):
    """Which rows are partners; int32 or int64 [rows] each, by place in `order`."""

    order: tf.Tensor
    """Rows by group, then by falling label."""
    group: tf.Tensor
    groups: tf.Tensor
    first: tf.Tensor
    """The place of a row's first partner, a row of its group with a smaller label."""
    count: tf.Tensor
    """How many partners it has."""
    by_count: tf.Tensor
    """Places by falling count."""

    @staticmethod
    def of(label: tf.Tensor, row_splits: tf.Tensor, group: tf.Tensor) -> Pairs:
        """Args: label float [rows], finite; group [rows], which never falls; row_splits [groups + 1] of the same rows."""
        order = tf.argsort(label, direction="DESCENDING", stable=True)
        order = tf.gather(order, tf.argsort(tf.gather(group, order), stable=True))
        label = tf.gather(label, order)
        begins = (label[1:] != label[:-1]) | (group[1:] != group[:-1])
        run = tf.cumsum(tf.cast(tf.pad(begins, [[1, 0]]), tf.int32))[: tf.shape(label)[0]]
        rows = tf.shape(label)[0]
        sizes = tf.math.unsorted_segment_sum(tf.ones_like(run), run, rows)
        first = tf.gather(tf.cumsum(sizes), run)
        count = tf.gather(tf.cast(row_splits[1:], tf.int32), group) - first
        by_count = tf.argsort(count, direction="DESCENDING", stable=True)
        return Pairs(order, group, tf.shape(row_splits)[0] - 1, first, count, by_count)

    def sums(self, columns: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """(loss, summed weights of the pairs) of each group, from float64 [rows]: "score", "weight", for LambdaRank "gain" and
        "discount". Only "score" is differentiated."""
        columns = {name: tf.gather(column, self.order) for name, column in columns.items() if name != "label"}
        score = columns.pop("score")
        constant = {name: tf.stop_gradient(column) for name, column in columns.items()}

        @tf.custom_gradient
        def summed(score: tf.Tensor) -> Any:
            # so that no tape keeps the blocks
            loss, slope, pairs = self._over_all(constant | {"score": tf.stop_gradient(score)})

            def gradient(loss: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
                return tf.gather(loss, self.group) * sloped(score, slope)

            by_group = tf.math.unsorted_segment_sum(tf.stack([loss, pairs], 1), self.group, self.groups)
            return (by_group[:, 0], by_group[:, 1]), gradient

        @tf.custom_gradient
        def sloped(score: tf.Tensor, slope: tf.Tensor) -> Any:
            """`slope` as the function of `score` that it is."""

            def gradient(along: tf.Tensor) -> Any:
                return self._over_all(constant | {"score": score, "along": along})[1], None

            return tf.identity(slope), gradient

        return summed(score)

    def _over_all(self, columns: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """(loss, slope, pairs) of each row; with "along" the slope's change in that direction instead of the slope."""
        rows = tf.shape(self.order)[0]
        padded = {name: tf.pad(column, [[0, 1]]) for name, column in columns.items()}  # the last is of weight 0

        def any_left(at: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
            return (at < rows) & (tf.gather(padded_count, tf.gather(padded_by_count, at)) > 0)

        padded_count, padded_by_count = tf.pad(self.count, [[0, 1]]), tf.concat([self.by_count, [rows]], 0)

        def block(at: tf.Tensor, loss: tf.Tensor, slope: tf.Tensor, pairs: tf.Tensor) -> tuple[tf.Tensor, ...]:
            width = self.count[self.by_count[at]]
            until = tf.minimum(rows, at + tf.maximum(1, BLOCK // width))
            mine = self.by_count[at:until]
            step = tf.range(width)
            inside = step < tf.gather(self.count, mine)[:, None]
            theirs = tf.where(inside, tf.gather(self.first, mine)[:, None] + step, rows)
            one = {name: tf.gather(column, mine)[:, None] for name, column in columns.items()}
            other = {name: tf.gather(column, theirs) for name, column in padded.items()}
            factor = count = one["weight"] * other["weight"]
            if "gain" in columns:
                factor *= (one["gain"] - other["gain"]) * tf.abs(one["discount"] - other["discount"])
            behind = other["score"] - one["score"]
            push = tf.sigmoid(behind)
            if "along" in columns:
                push *= tf.sigmoid(-behind) * (other["along"] - one["along"])
            push *= factor
            slope = tf.tensor_scatter_nd_sub(slope, mine[:, None], tf.reduce_sum(push, 1))
            slope += tf.math.unsorted_segment_sum(push, theirs, rows + 1)
            loss = tf.tensor_scatter_nd_add(loss, mine[:, None], tf.reduce_sum(factor * tf.nn.softplus(behind), 1))
            return until, loss, slope, tf.tensor_scatter_nd_add(pairs, mine[:, None], tf.reduce_sum(count, 1))

        zeros = tf.zeros(rows + 1, tf.float64)
        _, loss, slope, pairs = tf.while_loop(any_left, block, (0, zeros, zeros, zeros), parallel_iterations=1)
        return loss[:rows], slope[:rows], pairs[:rows]
