"""The retrieval loss of a two_towers model: each row has to find its own item among all items of the batch.

    part = RetrievalPart(model, config, model_config, layout)
    output, user, item = part.outputs(inputs, training=True)
    part.loss(batch, user, item, weights)                          # float32 scalar
    in_batch_softmax(user, item, items, log_share=log_share)       # float32 [rows]

A row's item competes with the items of all other rows, the negatives. Frequent items are negatives more often, which alone
would lower their scores. So the logarithm of an item's share of the train rows is subtracted from its logit (Yi et al.,
"Sampling-bias-corrected neural modeling for large corpus item recommendations", 2019, section 4).
"""

from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from headway.errors import ConfigError
from tfcore.data.groups import GROUP, NO_GROUP
from tfcore.models.config import ModelConfig
from tfcore.models.inputs import Layout
from tfcore.models.towers.two_towers import ITEM, USER, vectors
from tfcore.train.config import RetrievalConfig

_WHERE = "training.retrieval"


class RetrievalPart:
    """Computes the retrieval loss, and the vectors of users and items that it needs; see the module.

    Args:
        model, towers: a model of `two_towers`, and its config.
        layout: the model's inputs; the correction needs its counts of the item's vocabulary.

    Raises:
        ConfigError: the model is no `two_towers`, the item has no ids, or the counts for the correction are missing.
    """

    def __init__(self, model: keras.Model, config: RetrievalConfig, towers: ModelConfig, layout: Layout):
        if towers.name != "two_towers":
            raise ConfigError(f"only two_towers has vectors of items, not {towers.name}", where=_WHERE)
        self.share, name = config.share, towers.item[0]
        names = [entry.name for entry in layout.categorical]
        if name not in names:
            problem = f"{name!r}, the first column of model.item, has no ids to tell items apart by"
            raise ConfigError(problem, where=_WHERE, fix=f"columns: {{{name}: vocabulary}}, or name another one first")
        self._place = names.index(name)
        self._log_share: tf.Tensor | None = None
        if config.correction:
            counts = next(fitted.counts for fitted in layout.fitted if fitted.column.name == name)
            if not counts:
                raise ConfigError(
                    f"the rows of each {name!r} are not counted, which the correction needs",
                    where=f"{_WHERE}.correction",
                    fix=f"columns: {{{name}: vocabulary}}, or correction: false",
                )
            self._log_share = tf.constant(log_shares(counts, layout.categorical[self._place].size))
        both = vectors(model)
        self._model = keras.Model(model.input, [model.output, both[USER].output, both[ITEM].output])

    def outputs(self, inputs: Mapping[str, tf.Tensor], *, training: bool) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the model's outputs, the users' vectors and the items' vectors, float32 [rows, ...] each."""
        output, user, item = (tf.cast(one, tf.float32) for one in self._model(inputs, training=training))
        return output, user, item

    def loss(self, batch: Mapping[str, tf.Tensor], user: tf.Tensor, item: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns the mean softmax loss of the rows, each counted by weight times label; 0 if no label is above 0.

        Args:
            batch: has "categorical", "label", and "group" if there are groups.
            weights: float32 [rows]; 0 for rows that only fill up the batch.
        """
        items = batch["categorical"][:, self._place]
        reward = tf.maximum(tf.cast(batch["label"], tf.float32), 0.0)
        losses = in_batch_softmax(
            user,
            item,
            items,
            log_share=None if self._log_share is None else tf.gather(self._log_share, items),
            there=weights > 0,
            groups=batch.get(GROUP),
            liked=reward > 0,
        )
        counts = weights * reward
        return tf.math.divide_no_nan(tf.reduce_sum(losses * counts), tf.reduce_sum(counts))


def log_shares(counts: tuple[int, ...], size: int) -> np.ndarray:
    """Returns the logarithm of each id's share of the train rows, float32 [size].

    Args:
        counts: rows of each vocabulary value, then of all other values together, divided equally among the other ids.
    """
    words = len(counts) - 1
    rest = np.full(size - words, counts[-1] / max(size - words, 1))
    shares = np.maximum(np.concatenate([counts[:-1], rest]), 1.0)
    return np.log(shares / shares.sum()).astype(np.float32)


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
    """Returns the cross-entropy of each row's own item among the items of the batch, float32 [rows].

    A row's negatives are the other rows, except for fillers, rows of the same item, and rows whose item its group likes.

    Args:
        user, item: float32 [rows, n], the vectors whose product is the logit.
        items: int [rows], the item of each row.
        log_share: float32 [rows], the logarithm of the item's share of the train rows; None: no correction.
        there: bool [rows], False for rows that only fill up the batch; None: there are none.
        groups: int64 [rows], the group (user) of each row, NO_GROUP for none; None: no groups.
        liked: bool [rows], whether the row's item is one that its group wants; None: all are.
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
