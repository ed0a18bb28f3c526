"""The members of `stacked`: small networks that are trained as one, and how much each counts.

    x = keras.layers.RepeatVector(8)(features)            # float32 [rows, width] -> [rows, 8, width]
    x = member_dense(x.shape, 3, seed=5)(x)               # -> [rows, 8, 3]
    output = Stack(4)([x, numeric, categorical])          # -> [rows, 3]

Each decays its weights at a rate of its own and leaves out a part of the rows, and on these rows the mean learns how much each
rate counts (L. Breiman, "Stacked Regressions", 1996).
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfcore.models.config import FOLDS
from tfcore.models.layers import UNITS, ConfigLayer, row_hash

LEFT_OUT = 5
"""The number of parts of the rows, of which a member leaves out one."""
_SPEED = 10.0
"""The factor by which the shares of the decays learn faster than the weights."""


def member_dense(shape: tuple[Any, ...], units: int, *, seed: int, **keywords: Any) -> keras.layers.EinsumDense:
    """Returns a dense layer for inputs [rows, members, width], in which each member has a matrix and a bias of its
    own."""
    _, members, width = shape
    limit = (6.0 / (width + units)) ** 0.5  # of one member's matrix, as Glorot's
    start = {"kernel_initializer": keras.initializers.RandomUniform(-limit, limit, seed=seed)}
    return keras.layers.EinsumDense("rmw,mwu->rmu", (members, units), bias_axes="mu", **(start | keywords))


@keras.saving.register_keras_serializable("headway")
class Stack(ConfigLayer):
    """Weights the members' outputs by the share of their decay, which it learns from rows that they have not seen.

    A member leaves out whole units of the split, or else equal rows together: which ones follows from a hash.

    Args:
        decays: how many; the members are `FOLDS` of each, one after the other.
    """

    def __init__(self, decays: int, **keywords: Any):
        super().__init__({"decays": decays}, **keywords)
        self.decays = decays

    def build(self, input_shape: Any) -> None:
        self.shares = self.add_weight(name="shares", shape=(self.decays,), initializer="zeros")
        self.built = True

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Returns [rows, outputs] of the members' outputs [rows, members, outputs] and the inputs, float32 [rows, n]
        and int32 [rows, m]; in training [rows, members + 1, outputs]: the members' outputs, and then the prediction for
        rows that they leave out."""
        members, *seen = inputs
        shares = tf.repeat(tf.nn.softmax(_SPEED * self.shares), FOLDS)
        if not training:
            return tf.einsum("rmo,m->ro", members, shares / FOLDS)
        part, units = row_hash(seen), UNITS.get()
        if units is not None:
            part = tf.where(units < 0, part, row_hash([tf.bitcast(units, tf.int32)]))
        part %= LEFT_OUT
        left_out = part[:, None] == tf.constant(np.tile(np.arange(FOLDS), self.decays), tf.int32)
        fixed = tf.stop_gradient(members)
        unseen = tf.einsum("rmo,rm->ro", fixed, tf.where(left_out, shares, 0.0))
        seen_by_all = tf.stop_gradient(tf.einsum("rmo,m->ro", members, shares / FOLDS))
        stacked = tf.where(part[:, None] < FOLDS, unseen, seen_by_all)
        return tf.concat([tf.where(left_out[:, :, None], fixed, members), stacked[:, None]], 1)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0][0], input_shape[0][-1])
