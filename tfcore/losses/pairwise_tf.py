"""The pairwise loss in TensorFlow's own ops, used where the C++ op is not available.

Ranks, gains and discounts are worked out row by row; then the pairs of each group in blocks of bounded memory
(`tfcore.losses.pair_blocks`). Under XLA, where no shape may depend on the groups, one matrix of all rows with all rows
stands in, or with `max_rows` one of that size for each group.

As in the op it is all in float64: what a row's gradient sums up may cancel out, and in float32 the rest would be noise.
"""

from __future__ import annotations

import math

import tensorflow as tf

from tfcore.data.groups.group_ids import row_groups
from tfcore.graph.xla import compiling
from tfcore.losses.pair_blocks import Pairs


def pairwise_sums(
    scores: tf.Tensor,
    labels: tf.Tensor,
    weights: tf.Tensor | None,
    row_splits: tf.Tensor,
    *,
    kind: str,
    k: int,
    max_rows: int | None,
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
        loss, pairs = _matrix_sums(columns, row_splits, group, groups, max_rows)
    else:
        loss, pairs = Pairs.of(safe_labels, row_splits, group).sums(columns)
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


def _matrix_sums(
    columns: dict[str, tf.Tensor], splits: tf.Tensor, group: tf.Tensor, groups: tf.Tensor, max_rows: int | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """(loss, pairs) of each group, from columns float64 [rows] whose weight is 0 where a row is not there; all shapes follow
    from those of the arguments."""
    square = max_rows is None
    if max_rows is not None:
        places = splits[:-1, None] + tf.range(max_rows, dtype=splits.dtype)
        inside = places < splits[1:, None]
        last = tf.maximum(tf.shape(group, splits.dtype)[0] - 1, 0)
        columns = {
            # a row more, so that there is one to take when there is none
            name: tf.where(
                inside, tf.gather(tf.pad(column, [[0, 1]]), tf.minimum(places, last)), tf.zeros([], column.dtype)
            )
            for name, column in columns.items()
        }
    else:
        columns = {name: column[None] for name, column in columns.items()}
    first = {name: column[:, :, None] for name, column in columns.items()}
    second = {name: column[:, None, :] for name, column in columns.items()}
    counts = first["label"] > second["label"]
    if square:
        counts &= group[:, None] == group
    count = tf.where(counts, first["weight"] * second["weight"], 0)
    factor = count
    if "gain" in columns:
        factor *= tf.abs(first["gain"] - second["gain"]) * tf.abs(first["discount"] - second["discount"])
    loss = tf.reduce_sum(factor * tf.nn.softplus(second["score"] - first["score"]), 2)
    pairs = tf.reduce_sum(count, 2)
    both = tf.stack([loss, pairs], -1)
    if square:
        sums = tf.math.unsorted_segment_sum(both[0], group, groups)
    else:
        sums = tf.where(splits[1:, None] - splits[:-1, None] <= max_rows, tf.reduce_sum(both, 1), math.nan)
    return sums[:, 0], sums[:, 1]
