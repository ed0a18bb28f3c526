"""The pairwise ranking loss of groups of rows: the sum over all pairs of rows of a group whose labels differ.

    pairwise_loss(scores, labels, row_splits)                                # logistic (RankNet)
    pairwise_loss(scores, labels, row_splits, kind="lambdarank", k=10)       # each pair times its change of NDCG@10

A pair (i, j) with labels[i] > labels[j] costs weights[i] * weights[j] * log(1 + exp(scores[j] - scores[i])). With
"lambdarank" this is multiplied by the change of NDCG@k if i and j swapped ranks (Burges, "From RankNet to LambdaRank to
LambdaMART", 2010, sections 3 and 4): |2^labels[i] - 2^labels[j]| * |1 / log2(1 + rank i) - 1 / log2(1 + rank j)|, divided by
the DCG@k of the best order. Ranks follow from the scores; of equal scores the earlier row ranks higher. The gradient takes
ranks as constants.

Where the C++ op of `tfcore.ops` is compiled, it computes the loss. Elsewhere `pairwise_sums` uses TensorFlow's own ops. It
pairs each row with the next row of its group, then with the row after that, and so on up to the size of the largest group,
so that memory grows with the rows and not with the pairs. Both ways compute the gradient together with the loss, in float64:
the terms of a row's gradient may almost cancel out, and float32 would leave noise.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import tensorflow as tf

from headway.errors import ConfigError, HeadwayError
from tfcore.data.groups import row_groups
from tfcore.graph.xla import compiling
from tfcore.ops.library import library

Kind = Literal["logistic", "lambdarank"]
Reduction = Literal["none", "sum", "mean"]


class SecondDerivativeError(HeadwayError):
    """Raised when the gradient of the pairwise loss is differentiated once more."""

    ag_pass_through = True
    """Keeps AutoGraph from turning the error into a StagingError."""


@tf.autograph.experimental.do_not_convert
def pairwise_loss(
    scores: Any,
    labels: Any,
    row_splits: Any,
    *,
    weights: Any = None,
    kind: Kind = "logistic",
    k: int | None = None,
    reduction: Reduction = "none",
    native: bool | None = None,
) -> tf.Tensor:
    """Returns the loss of each group, [groups], or by `reduction` a scalar. It has a gradient by `scores` alone.

    A group without a pair (empty, one row, equal labels) has loss 0 and gradient 0. A group with a score, label or weight
    that is not finite has loss NaN and gradient NaN; other groups are not affected. A row of weight 0 is ignored, whatever
    it holds: it has no rank, and gradient 0.

    Args:
        scores: float32 or float64 [rows], one group after another; the loss has this dtype. Smaller floats become float32.
        labels: [rows], higher is better; for "lambdarank" not negative.
        row_splits: int [groups + 1]; group g has the rows from row_splits[g] up to, but not with, row_splits[g + 1].
        weights: [rows], not negative; None: 1. With a whole weight n a row counts in the logistic loss like n rows.
        k: "lambdarank": only the first k ranks count. None: all.
        reduction: "none", or to a scalar: "sum" over groups, "mean" over weighted pairs (lambdarank: groups with a pair).
        native: True: only the C++ op; False: only TensorFlow's own ops; None: the C++ op where it is built and runs.

    Raises:
        ValueError: an argument is not as described here, or shapes do not fit.
        ConfigError: `native` is True where the op is not built, or is to run under XLA or on a GPU.
        SecondDerivativeError: the gradient is differentiated once more.
        tf.errors.InvalidArgumentError: while running: row_splits are not valid, or a weight or gain is negative.
    """
    _check_settings(kind, k, reduction)
    scores, labels, weights, splits = _flat(scores, labels, weights, row_splits)
    ops = _ops(scores, native)
    if ops is None:
        loss, pairs = pairwise_sums(scores, labels, weights, splits, kind=kind, k=k or 0)
    else:
        absent = tf.zeros([0], scores.dtype)
        loss, _, pairs = ops.headway_pairwise_loss(
            scores=scores,
            labels=tf.stop_gradient(labels),
            weights=absent if weights is None else tf.stop_gradient(weights),
            row_splits=splits,
            kind=kind,
            k=k or 0,
        )
    if reduction == "none":
        return loss
    total = tf.reduce_sum(loss)
    if reduction == "sum":
        return total
    pairs = tf.stop_gradient(pairs)
    count = tf.reduce_sum(pairs if kind == "logistic" else tf.where(pairs > 0, tf.ones_like(pairs), 0))
    return tf.where(count == 0, total, total / tf.where(count == 0, tf.ones_like(count), count))


def _check_settings(kind: str, k: int | None, reduction: str) -> None:
    for name, value, choices in (("kind", kind, get_args(Kind)), ("reduction", reduction, get_args(Reduction))):
        if value not in choices:
            raise ValueError(f"{name} is one of {', '.join(choices)}, not {value!r}")
    if k is not None and (kind != "lambdarank" or k < 1):
        raise ValueError(f"k is a whole number from 1 on, and for lambdarank only, not {k!r} for {kind}")


def _flat(scores: Any, labels: Any, weights: Any, row_splits: Any) -> tuple[Any, Any, Any, tf.Tensor]:
    """Returns scores, labels, weights (or None) as vectors of one float dtype, and row_splits as int64."""
    scores = tf.convert_to_tensor(scores)
    if not scores.dtype.is_floating:
        raise ValueError(f"scores are float32 or float64, not {scores.dtype.name}")
    vectors = {"scores": scores, "labels": labels, "weights": weights}
    dtype = tf.float64 if scores.dtype == tf.float64 else tf.float32
    for name, value in vectors.items():
        if value is None:
            continue
        vectors[name] = tf.cast(value, dtype)
        if not vectors[name].shape.is_compatible_with(scores.shape) or vectors[name].shape.rank not in (None, 1):
            raise ValueError(f"{name} is a vector as long as scores, not of shape {vectors[name].shape}")
    splits = tf.cast(row_splits, tf.int64)
    if splits.shape.rank not in (None, 1) or splits.shape == [0]:
        raise ValueError(
            f"row_splits is a vector of one number more than there are groups, not of shape {splits.shape}"
        )
    return vectors["scores"], vectors["labels"], vectors["weights"], splits


def _ops(scores: tf.Tensor, native: bool | None) -> Any | None:
    """Returns the module with the C++ op; None where the op cannot be used, but ConfigError if `native` is True."""
    if native is False:
        return None
    ops = library()
    refused = fix = None
    if ops is None:
        refused, fix = "the op is not built", "python -m tfcore.ops.compile"
    elif compiling():
        refused, fix = "XLA has no kernel for the op", "native=None"
    elif _on_accelerator(scores):
        refused, fix = "the op has no kernel for this device", "with tf.device('CPU'), or native=None"
    if refused and native:
        raise ConfigError(refused, fix=fix)
    return None if refused else ops


def _on_accelerator(scores: tf.Tensor) -> bool:
    # an op that nobody placed goes to a GPU if there is one
    device = scores.device if tf.executing_eagerly() else tf.identity(scores).device
    if device:
        return tf.DeviceSpec.from_string(device).device_type not in (None, "CPU")
    return bool(tf.config.list_logical_devices("GPU"))


@tf.RegisterGradient("HeadwayPairwiseLoss")
def _gradient(op: Any, loss: tf.Tensor, *_: Any) -> list[Any]:
    """Returns a gradient for each input of the op: the one by scores, which the op has computed already, else None."""
    scores, splits = op.inputs[0], op.inputs[3]
    return [tf.gather(loss, row_groups(splits, tf.shape(scores)[0])) * _once(op.outputs[1], scores), None, None, None]


@tf.custom_gradient
def _once(gradient: tf.Tensor, scores: tf.Tensor) -> Any:
    """Returns `gradient`; differentiating it by `scores` raises SecondDerivativeError."""

    def none(_: tf.Tensor) -> Any:
        raise SecondDerivativeError("the pairwise loss has no second derivative", fix="differentiate it once")

    return tf.identity(gradient), none


def pairwise_sums(
    scores: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor | None, row_splits: tf.Tensor, *, kind: str, k: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns each group's loss and its sum of pair weights, [groups] each; see the module. `k` is 0 for all ranks.

    Raises:
        tf.errors.InvalidArgumentError: where the op raises it, too. Under XLA row_splits are not checked, and a
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
    columns = {"score": tf.where(used, scores, 0), "label": safe_labels, "weight": tf.where(used, weights, 0)}
    if kind == "lambdarank":
        gain, discount, held = _gains_and_discounts(
            tf.stop_gradient(columns["score"]), safe_labels, used, row_splits, group, groups, k
        )
        finite &= held
        columns |= {"gain": gain, "discount": discount}
    loss, pairs = _pair_sums(columns, group, groups, tf.reduce_max(row_splits[1:] - row_splits[:-1]))
    # not a number: the loss of such a group, and its gradient for each row that is there
    spoilt = tf.where(finite, tf.zeros([], tf.float64), math.nan)
    loss, pairs = loss + spoilt * summed(tf.where(there, scores, 0)), pairs + spoilt
    return tf.cast(loss, dtype), tf.cast(pairs, dtype)


def _checked(
    scores: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, splits: tf.Tensor, kind: str
) -> tuple[tf.Tensor, ...]:
    checks = [
        tf.debugging.assert_equal(splits[:1], tf.zeros([1], splits.dtype), "row_splits must begin with 0"),
        tf.debugging.assert_equal(
            splits[-1:], tf.shape(scores, splits.dtype)[:1], "row_splits must end with the number of rows"
        ),
        tf.debugging.assert_non_negative(splits[1:] - splits[:-1], "row_splits never falls"),
        tf.debugging.Assert(~tf.reduce_any(weights < 0), ["weights must not be negative"]),
    ]
    if kind == "lambdarank":
        below = tf.reduce_any((labels < 0) & (weights != 0))
        checks.append(tf.debugging.Assert(~below, ["labels of lambdarank must not be negative, a gain is 2^label - 1"]))
    with tf.control_dependencies([check for check in checks if check is not None]):
        # the splits too: a step that reads them may run before the checks otherwise, and fail in words of its own
        return tuple(tf.identity(vector) for vector in (scores, labels, weights, splits))


def _gains_and_discounts(
    scores: tf.Tensor,
    labels: tf.Tensor,
    used: tf.Tensor,
    splits: tf.Tensor,
    group: tf.Tensor,
    groups: tf.Tensor,
    k: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns each row's gain divided by the best DCG of its group (float64), each row's discount (float64), and
    whether each group's best DCG is finite (bool)."""
    starts = tf.gather(splits[:-1], group)
    absent = tf.where(used, tf.zeros_like(labels), 1)

    def discounts(by: tf.Tensor) -> tf.Tensor:
        """Returns the discount of each row's rank in its group by falling `by`. Ties keep their order, absent rows last."""
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


def _pair_sums(
    columns: dict[str, tf.Tensor], group: tf.Tensor, groups: tf.Tensor, largest: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the loss and the summed pair weights of each group. `columns` are float64 [rows]: "score", "label",
    "weight", and for LambdaRank "gain" and "discount". Only "score" is differentiated.

    Args:
        group: the number of each row's group; it never falls from row to row.
        largest: rows of the largest group.
    """
    given = {name: tf.stop_gradient(column) for name, column in columns.items() if name != "score"}

    @tf.custom_gradient
    def summed(score: tf.Tensor) -> Any:
        # so that no tape keeps what the loop computes
        loss, slope, pairs = _sums_over_pairs(given | {"score": tf.stop_gradient(score)}, group, largest)

        def gradient(loss: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
            return tf.gather(loss, group) * _once(slope, score)

        by_group = tf.math.unsorted_segment_sum(tf.stack([loss, pairs], 1), group, groups)
        return (by_group[:, 0], by_group[:, 1]), gradient

    return summed(columns["score"])


def _sums_over_pairs(
    columns: dict[str, tf.Tensor], group: tf.Tensor, largest: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns for each row the loss of the pairs that it begins, the loss's derivative by its score, and these pairs' weight."""
    places = tf.range(tf.shape(group)[0])

    def add(distance: tf.Tensor, loss: tf.Tensor, slope: tf.Tensor, pairs: tf.Tensor) -> tuple[tf.Tensor, ...]:
        other = {name: tf.roll(column, -distance, 0) for name, column in columns.items()}
        higher = tf.sign(columns["label"] - other["label"])  # 1: the first row ranks higher, -1: the other one
        paired = (places + distance < tf.size(places)) & (group == tf.roll(group, -distance, 0)) & (higher != 0)
        factor = count = tf.where(paired, columns["weight"] * other["weight"], 0)
        if "gain" in columns:
            factor *= tf.abs(columns["gain"] - other["gain"]) * tf.abs(columns["discount"] - other["discount"])
        behind = higher * (other["score"] - columns["score"])
        push = factor * tf.sigmoid(behind) * higher
        slope += tf.roll(push, distance, 0) - push
        return distance + 1, loss + factor * tf.nn.softplus(behind), slope, pairs + count

    zeros = tf.zeros_like(columns["label"])
    return tf.while_loop(
        lambda distance, *_: distance < tf.cast(largest, tf.int32),
        add,
        (tf.constant(1), zeros, zeros, zeros),
        parallel_iterations=1,
    )[1:]
