"""The choice among a batch's items as a part of the objective, for a model of two towers.

part = RetrievalPart(model, config, model_config, layout)
output, user, item = part.outputs(inputs, training=True)
part.loss(batch, user, item, weights)          # float32 scalar
"""

from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from headway.errors import ConfigError
from tfcore.data.groups.group_ids import GROUP
from tfcore.losses.in_batch import in_batch_softmax
from tfcore.models.config import ModelConfig
from tfcore.models.inputs import Layout
from tfcore.models.towers.two_towers import ITEM, USER, vectors
from tfcore.train.settings.retrieval import RetrievalConfig

_WHERE = "training.retrieval"


class RetrievalPart:
    """See the module.

    Args:
        model: of `two_towers`.
        layout: with the counts of the item's vocabulary where the correction is asked for.

    Raises:
        ConfigError: the model is no `two_towers`, the item has no ids, or nobody knows how frequent they are.
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
        """(The model's output, the users' vectors, the items'), float32 [rows, ...]."""
        output, user, item = (tf.cast(one, tf.float32) for one in self._model(inputs, training=training))
        return output, user, item

    def loss(self, batch: Mapping[str, tf.Tensor], user: tf.Tensor, item: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """The mean of the rows' losses by weight times label; 0 where no label is above 0.

        Args:
            batch: with "categorical", "label", and where there are groups "group".
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
    """The logarithm of each id's share of the train rows, float32 [size].

    Args:
        counts: rows of each value of the vocabulary, then of all others, which share alike.
    """
    words = len(counts) - 1
    rest = np.full(size - words, counts[-1] / max(size - words, 1))
    shares = np.maximum(np.concatenate([counts[:-1], rest]), 1.0)
    return np.log(shares / shares.sum()).astype(np.float32)
