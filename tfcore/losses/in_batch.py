"""The softmax over the items of a batch, with the bias of its sample taken back: the loss of a retrieval.

    in_batch_softmax(user, item, items, log_share=log_share)       # float32 [rows]

Each row's item competes with those of all other rows. An item comes up as a negative as often as it has rows, so that the
frequent ones would be pushed down for being frequent: the logarithm of an item's share of the train rows is taken off its
logit (Yi et al., "Sampling-bias-corrected neural modeling for large corpus item recommendations", 2019, section 4).
"""

import tensorflow as tf

from tfcore.data.groups.group_ids import NO_GROUP


@tf.autograph.experimental.do_not_convert
def in_batch_softmax(
    user: tf.Tensor,
    item: tf.Tensor,
    items: tf.Tensor,
    *,
    log_share: tf.Tensor | None = None,
    there: tf.Tensor | None = None,
    groups: tf.Tensor | None = None,
    liked: tf.Tensor | None = None,
) -> tf.Tensor:
    """The cross-entropy of each row's item among those of the batch; float32 [rows].

    No negative of a row are rows of its own item, rows that are not there, and what its group likes in other rows.

    Args:
        user, item: float32 [rows, n], the vectors whose product is the logit.
        items: int [rows], the item of each row.
        log_share: float32 [rows], the logarithm of the item's share of the train rows; None: no correction.
        there: bool [rows], False for rows that only fill up the batch.
        groups: int64 [rows], the group (user) of each row, NO_GROUP for none.
        liked: bool [rows], whether the row's item is one that its group wants; without it all are.
    """
    logits = tf.matmul(user, item, transpose_b=True)
    if log_share is not None:
        logits -= log_share[None, :]
    own = tf.eye(tf.shape(items)[0], dtype=tf.bool)
    hit = items[:, None] == items[None, :]
    if groups is not None:
        same = (groups[:, None] == groups[None, :]) & (groups != NO_GROUP)[:, None]
        hit |= same if liked is None else same & liked[None, :]
    if there is not None:
        hit |= ~there[None, :]
    logits = tf.where(hit & ~own, logits.dtype.min, logits)
    return tf.reduce_logsumexp(logits, axis=1) - tf.linalg.diag_part(logits)
