"""The members of `ensemble`: small networks that are trained together. Left-out rows decide on their weight decay.

    x = keras.layers.RepeatVector(8)(features)            # float32 [rows, width] -> [rows, 8, width]
    x = member_dense(x.shape, 3, seed=5)(x)               # -> [rows, 8, 3]
    output = Members((0.1, 1.0, 4.0, 16.0))([x, numeric, categorical])     # -> [rows, 3]

The best weight decay differs between data sets. So each member begins with one of several decays and leaves out a part
of the rows. Its losses on the left-out rows, while the learning rate falls to 0, tell how good its decay is. After
the share `CHOOSING` of the steps all members have the chosen decay and learn from all rows."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfcore.graph.scheduled import scheduled
from tfcore.models.config import CHOOSING, FOLDS
from tfcore.models.layers import UNITS, ConfigLayer, row_hash

LEFT_OUT = 5
"""The number of parts into which rows are divided; each member leaves out one part."""
CHOICE = "members/losses_left_out"
"""The path of the variable of losses by which the weight decay is chosen."""
_JUDGED = 0.9
"""The share of the choosing time after which losses count: before, weak decays are ahead because they learn faster."""
_APART = 0.02
"""The relative excess of the loss that divides a decay's weight in the choice by e."""
_SMALL = 1e-4
"""The factor of the sums of losses, so small that they add nothing to the norm of the gradients."""


def member_dense(shape: tuple[Any, ...], units: int, *, seed: int, **keywords: Any) -> keras.layers.EinsumDense:
    """Returns a dense layer on [rows, members, width]: each member has its own matrix and its own bias."""
    _, members, width = shape
    limit = (6.0 / (width + units)) ** 0.5  # of one member's matrix, as Glorot's
    start = {"kernel_initializer": keras.initializers.RandomUniform(-limit, limit, seed=seed)}
    return keras.layers.EinsumDense("rmw,mwu->rmu", (members, units), bias_axes="mu", **(start | keywords))


@keras.saving.register_keras_serializable("headway")
class Members(ConfigLayer):
    """A layer that averages the members' outputs, and chooses their weight decay by the losses on left-out rows.

    A hash decides which rows a member leaves out. Rows of one unit of the split stay together, as do equal rows.

    Args:
        decays: the weight decays to choose from; each is that of `FOLDS` members, one after another.

    Attributes:
        losses_left_out: for each decay, the sum of its members' losses on rows that they leave out, float32 [decays]. A
            training step adds the variable's gradient to it; no optimizer changes it.
    """

    def __init__(self, decays: Sequence[float], **keywords: Any):
        super().__init__({"decays": [*map(float, decays)]}, **keywords)
        self.decays = tuple(map(float, decays))

    def build(self, input_shape: Any) -> None:
        self.losses_left_out = self.add_weight(name="losses_left_out", shape=(len(self.decays),), initializer="zeros")
        self.losses_left_out.grows = True
        self.built = True

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Returns the mean of the members' outputs, [rows, outputs]. In training it returns the members' outputs,
        without gradients in rows that a member leaves out until the decay is chosen. `inputs` are the members' outputs,
        [rows, members, outputs], and the model's inputs, float32 [rows, n] and int32 [rows, m]."""
        members, *seen = inputs
        if not training:
            return tf.reduce_mean(members, axis=1)
        part, units = row_hash(seen), UNITS.get()
        if units is not None:
            part = tf.where(units < 0, part, row_hash([tf.bitcast(units, tf.int32)]))
        part %= LEFT_OUT
        self._left_out = part[:, None] == tf.constant(np.tile(np.arange(FOLDS), len(self.decays)), tf.int32)
        return tf.where((self._left_out & _choosing())[:, :, None], tf.stop_gradient(members), members)

    def row_losses(self, losses: tf.Tensor) -> tf.Tensor:
        """Returns each row's loss [rows], the mean of its members' losses [rows, members]. Late in the choosing time
        its gradient by `losses_left_out` is `_SMALL` times each decay's losses on left-out rows, else 0."""
        judging = _choosing() & (scheduled("progress", 0.0) >= _JUDGED * CHOOSING)
        counts = tf.where(self._left_out & judging, tf.stop_gradient(losses), 0.0)
        grown = tf.convert_to_tensor(self.losses_left_out)
        nothing = tf.repeat(_SMALL * (grown - tf.stop_gradient(grown)), FOLDS)
        return tf.reduce_mean(losses, axis=1) + tf.reduce_sum(counts * nothing, axis=1)

    def decay(self) -> tf.Tensor:
        """Returns each member's weight decay in the current step, float32 [members]. A step shrinks each weight by the
        share decay * learning rate."""
        tried, losses = tf.constant(self.decays, tf.float32), tf.convert_to_tensor(self.losses_left_out)
        best = tf.reduce_min(losses)
        apart = tf.math.divide_no_nan(losses - best, _APART * tf.abs(best))
        chosen = tf.exp(tf.reduce_sum(tf.nn.softmax(-apart) * tf.math.log(tried)))
        return tf.where(_choosing(), tf.repeat(tried, FOLDS), chosen)

    def shared_decay(self) -> tf.Tensor:
        """Returns the weight decay of variables that all members share: the geometric mean of the members' decays."""
        return tf.exp(tf.reduce_mean(tf.math.log(self.decay())))

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0][0], input_shape[0][-1])


def _choosing() -> tf.Tensor:
    """Returns whether the training is before the step at which the members' weight decay is chosen; bool scalar."""
    return scheduled("progress", 0.0) < CHOOSING
