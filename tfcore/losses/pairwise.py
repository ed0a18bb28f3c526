"""The pairwise ranking loss: of each group, over all pairs of rows whose labels differ.

    pairwise_loss(scores, labels, row_splits)                                # logistic (RankNet)
    pairwise_loss(scores, labels, row_splits, kind="lambdarank", k=10)       # each pair by what it moves NDCG@10

A pair (i, j) with labels[i] > labels[j] costs weights[i] * weights[j] * log(1 + exp(scores[j] - scores[i])). With
"lambdarank" it costs |change of NDCG@k if i and j changed places| times that (Burges, "From RankNet to LambdaRank to
LambdaMART", 2010, sections 3 and 4): (|2^labels[i] - 2^labels[j]|) * |1 / log2(1 + rank i) - 1 / log2(1 + rank j)| over
the DCG@k of the best order. Ranks follow from the scores and are constants to the gradient; of equal scores the earlier
row ranks higher.
"""

from typing import Any, Literal, get_args

import tensorflow as tf

from headway.errors import ConfigError, HeadwayError
from tfcore.data.groups.group_ids import row_groups
from tfcore.graph.xla import compiling
from tfcore.losses.pairwise_tf import pairwise_sums
from tfcore.ops.library import library

Kind = Literal["logistic", "lambdarank"]
Reduction = Literal["none", "sum", "mean"]


class SecondDerivativeError(HeadwayError):
    """The gradient of the op was differentiated."""

    ag_pass_through = True
    """AutoGraph would make a StagingError of it."""


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
    """The loss of each group [groups], in the dtype of `scores`; it has a gradient by `scores` alone.

    A group without a pair (empty, one row, equal labels) has loss 0 and gradient 0. One with a score, label or weight that
    is not finite has loss NaN and gradient NaN; the other groups keep theirs. A row of weight 0 is not there, whatever it
    holds: it has no rank, and gradient 0.

    Args:
        scores: float32 or float64 [rows], groups one behind the other. Smaller floats are computed in float32.
        labels: [rows], higher is better; for "lambdarank" not negative.
        row_splits: int [groups + 1]: group g has the rows row_splits[g] to row_splits[g + 1].
        weights: [rows], not negative; in whole numbers the logistic loss is that of rows repeated so often.
        k: "lambdarank": only the first k ranks count. None: all.
        reduction: "sum" over groups; "mean" over pairs by weight ("logistic") or over groups that have a pair; scalar.
        native: True: only by the op in C++; False: only without it, which has a second derivative too, and whose memory
            under XLA goes with rows ** 2. None: by the op where it is built and runs.

    Raises:
        ValueError: an argument that is none of these, or shapes that cannot fit.
        ConfigError: `native` is True where the op is not built, or is to run under XLA or on a GPU.
        SecondDerivativeError: the op's gradient is differentiated once more.
        tf.errors.InvalidArgumentError: (while running) row_splits that are none, a negative weight or gain.
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
    """Return scores, labels, weights (or None) as vectors of one float dtype, and row_splits as int64."""
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
    """Return the module with the op, or None where it should not be used."""
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
    """Return the gradient by scores, which the op has computed already."""
    scores, splits = op.inputs[0], op.inputs[3]
    return [tf.gather(loss, row_groups(splits, tf.shape(scores)[0])) * _once(op.outputs[1], scores), None, None, None]


@tf.custom_gradient
def _once(gradient: tf.Tensor, scores: tf.Tensor) -> Any:
    """Return `gradient` as a function of `scores` without a derivative."""

    def none(_: tf.Tensor) -> Any:
        raise SecondDerivativeError(
            "the op's pairwise loss has no second derivative", fix="pairwise_loss(..., native=False) has one"
        )

    return tf.identity(gradient), none
