"""The pairwise loss in TensorFlow's own ops, used where the C++ op is not available.

    loss, pairs = pairwise_sums(scores, labels, None, row_splits, kind="logistic", k=0)    # [groups] each

Ranks, gains and discounts are worked out row by row; then the pairs of each group in blocks of bounded memory. In order of
falling label within its group, a row's partners are one run that reaches to the group's end. Rows with about as many partners
make one matrix of at most `BLOCK` pairs, so that memory goes with the rows, and few pairs are there for nothing. The gradient
is summed up beside the loss, as in the C++ op: no block is kept for it. Under XLA, where no shape may depend on the groups, one
matrix of all rows with all rows stands in.

As in the op it is all in float64: what a row's gradient sums up may cancel out, and in float32 the rest would be noise.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import tensorflow as tf

from tfcore.data.groups.group_ids import row_groups
from tfcore.graph.xla import compiling

BLOCK = 1 << 16
"""Pairs of a matrix: half a mebibyte in float64, which stays in a processor's cache."""


def pairwise_sums(
    scores: tf.Tensor,
    labels: tf.Tensor,
    weights: tf.Tensor | None,
    row_splits: tf.Tensor,
    *,
    kind: str,
    k: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return (loss, pairs), both [groups]; see `tfcore.losses.pairwise`. k: 0 for all ranks.

    Raises:
        tf.errors.InvalidArgumentError: as the op does; under XLA row_splits are not checked, and a
            negative weight or gain makes the loss of its group NaN.
    """
    labels = tf.stop_gradient(labels)
    weights = tf.ones_like(scores) if weights is None else tf.stop_gradient(weights)
    scores, labels, weights, row_splits = _checked(scores, labels, weights, row_splits, kind)
    rows, groups = tf.shape(scores)[0], tf.shape(row_splits)[0] - 1
    group = row_groups(row_splits, rows)

    def summed(values: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(values, group, groups)

    there = weights != 0
    sound = tf.math.is_finite(scores) & tf.math.is_finite(labels) & tf.math.is_finite(weights) & (weights >= 0)
    if kind == "lambdarank":
        sound &= labels >= 0  # under XLA nobody has checked
    # before it is widened: what is beyond the dtype stays so
    high = tf.math.unsorted_segment_max(tf.where(there, scores, -math.inf), group, groups)
    low = tf.math.unsorted_segment_min(tf.where(there, scores, math.inf), group, groups)
    finite = (summed(tf.cast(there & ~sound, tf.int32)) == 0) & ((high < low) | tf.math.is_finite(high - low))
    used = there & tf.gather(finite, group)
    dtype = scores.dtype
    scores, labels, weights = (tf.cast(vector, tf.float64) for vector in (scores, labels, weights))
    safe_labels = tf.where(used, labels, 0)
    columns = {
        "score": tf.where(used, scores, 0),
        "label": safe_labels,
        "weight": tf.where(used, weights, 0),
    }
    if kind == "lambdarank":
        gain, discount, held = _ndcg(
            tf.stop_gradient(columns["score"]), safe_labels, used, row_splits, group, groups, k
        )
        finite &= held
        columns |= {"gain": gain, "discount": discount}
    if compiling():
        loss, pairs = _matrix_sums(columns, group, groups)
    else:
        loss, pairs = _Pairs.of(safe_labels, row_splits, group).sums(columns)
    # not a number: the loss of such a group, and its gradient for each row that is there
    spoilt = tf.where(finite, tf.zeros([], tf.float64), math.nan)
    loss, pairs = loss + spoilt * summed(tf.where(there, scores, 0)), pairs + spoilt
    return tf.cast(loss, dtype), tf.cast(pairs, dtype)


def _checked(
    scores: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, splits: tf.Tensor, kind: str
) -> tuple[tf.Tensor, ...]:
    checks = [
        tf.debugging.assert_equal(splits[:1], tf.zeros([1], splits.dtype), "row_splits begins with 0"),
        tf.debugging.assert_equal(
            splits[-1:], tf.shape(scores, splits.dtype)[:1], "row_splits ends with the number of rows"
        ),
        tf.debugging.assert_non_negative(splits[1:] - splits[:-1], "row_splits never falls"),
        tf.debugging.Assert(~tf.reduce_any(weights < 0), ["weights are not negative"]),
    ]
    if kind == "lambdarank":
        below = tf.reduce_any((labels < 0) & (weights != 0))
        checks.append(tf.debugging.Assert(~below, ["labels of lambdarank are not negative, a gain is 2^label - 1"]))
    with tf.control_dependencies([check for check in checks if check is not None]):
        # the splits too: a step that reads them may run before the checks otherwise, and fail in words of its own
        return tuple(tf.identity(vector) for vector in (scores, labels, weights, splits))


def _ndcg(
    scores: tf.Tensor,
    labels: tf.Tensor,
    used: tf.Tensor,
    splits: tf.Tensor,
    group: tf.Tensor,
    groups: tf.Tensor,
    k: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """(gain over the best list's DCG, discount) of each row and whether a group's are finite; float64, bool."""
    starts = tf.gather(splits[:-1], group)
    absent = tf.where(used, tf.zeros_like(labels), 1)

    def discounts(by: tf.Tensor) -> tf.Tensor:
        """Return the discount at each row's rank: by falling `by`, then by place; absent rows come last."""
        order = tf.argsort(tf.where(by == 0, tf.zeros_like(by), by), direction="DESCENDING", stable=True)
        order = tf.gather(order, tf.argsort(tf.gather(absent, order), stable=True))
        order = tf.gather(order, tf.argsort(tf.gather(group, order), stable=True))
        places = tf.range(tf.shape(by)[0], dtype=splits.dtype)
        rank = tf.scatter_nd(order[:, None], places, tf.shape(places, order.dtype)) - starts
        discount = math.log(2.0) / tf.math.log(tf.cast(rank, tf.float64) + 2.0)
        counts = used if k == 0 else used & (rank < k)
        return tf.where(counts, discount, 0)

    gain = tf.math.expm1(labels * math.log(2.0))
    ideal = discounts(labels)
    best = tf.math.unsorted_segment_sum(tf.where(ideal > 0, gain * ideal, 0), group, groups)
    held = tf.math.is_finite(best)
    best = tf.gather(tf.where(held & (best > 0), best, 1), group)
    return tf.where(tf.gather(held, group), gain / best, 0), discounts(scores), held


def _matrix_sums(columns: dict[str, tf.Tensor], group: tf.Tensor, groups: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """(loss, pairs) of each group, from columns float64 [rows] whose weight is 0 where a row is not there; all shapes follow
    from those of the arguments."""
    first = {name: column[:, None] for name, column in columns.items()}
    second = {name: column[None] for name, column in columns.items()}
    counts = (first["label"] > second["label"]) & (group[:, None] == group)
    count = tf.where(counts, first["weight"] * second["weight"], 0)
    factor = count
    if "gain" in columns:
        factor *= tf.abs(first["gain"] - second["gain"]) * tf.abs(first["discount"] - second["discount"])
    loss = tf.reduce_sum(factor * tf.nn.softplus(second["score"] - first["score"]), 1)
    sums = tf.math.unsorted_segment_sum(tf.stack([loss, tf.reduce_sum(count, 1)], -1), group, groups)
    return sums[:, 0], sums[:, 1]


class _Pairs(NamedTuple):
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
    def of(label: tf.Tensor, row_splits: tf.Tensor, group: tf.Tensor) -> _Pairs:
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
        return _Pairs(order, group, tf.shape(row_splits)[0] - 1, first, count, by_count)

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
