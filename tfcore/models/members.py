"""An ensemble of small networks trained in one: its members share their matrices and differ in vectors.

    x = Members(8, seed=3)(features)                     # float32 [rows, width] -> [rows, 8, width]
    x = MemberDense(64, seed=4)(x)                       # -> [rows, 8, 64]
    x = member_dense(x.shape, 3, seed=5)(x)               # -> [rows, 8, 3]
    outputs = MeanOfMembers()(x)                          # [rows, 3]; in training as it came: each member has its own loss

The losses of the built-in tasks are convex in the outputs, so that the mean's loss is at most the mean of the members'.
Y. Gorishniy et al., "TabM: Advancing Tabular Deep Learning with Parameter-Efficient Ensembling", 2025 (its "mini" form), after
Y. Wen et al., "BatchEnsemble: An Alternative Approach to Efficient Ensemble and Lifelong Learning", 2020.

Members of `stacked` share no matrices. Each decays its weights at a rate of its own and leaves out a part of the rows, and on
these rows the mean learns how much each rate counts (L. Breiman, "Stacked Regressions", 1996):

    output = Stack(4)([x, numeric, categorical])          # [rows, 8, 3] -> [rows, 3]
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfcore.models.config import FOLDS
from tfcore.models.layers import UNITS, Configured, row_hash

LEFT_OUT = 5
"""A member leaves out one of so many parts of the rows."""
_SPEED = 10.0
"""How much faster the shares of the decays move than the weights."""


@keras.saving.register_keras_serializable("headway")
class Members(Configured):
    """Each row once per member, every feature times a weight of the member's own, which begins at 1 or -1."""

    def __init__(self, members: int, *, seed: int, **keywords: Any):
        super().__init__({"members": members, "seed": seed}, **keywords)
        self.members, self.seed = members, seed

    def build(self, input_shape: Any) -> None:
        self.scale = self.add_weight(
            name="scale", shape=(self.members, int(input_shape[-1])), initializer=RandomSigns(self.seed + 49_979_687)
        )
        self.built = True

    def call(self, inputs: Any) -> Any:
        """[rows, width] -> [rows, members, width]."""
        return inputs[:, None, :] * self.scale

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0], self.members, input_shape[-1])


@keras.saving.register_keras_serializable("headway")
class RandomSigns(keras.initializers.Initializer):
    """1 or -1, each with probability one half."""

    def __init__(self, seed: int):
        self.seed = seed

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        drawn = keras.random.uniform(shape, seed=self.seed, dtype="float32")
        return keras.ops.cast(keras.ops.where(drawn < 0.5, -1.0, 1.0), dtype or "float32")

    def get_config(self) -> dict[str, Any]:
        return {"seed": self.seed}


@keras.saving.register_keras_serializable("headway")
class MemberDense(Configured):
    """A dense layer whose matrix all members share; each has a bias of its own."""

    def __init__(
        self,
        units: int,
        *,
        seed: int,
        regularizer: keras.regularizers.Regularizer | None = None,
        **keywords: Any,
    ):
        super().__init__({"units": units, "seed": seed, "regularizer": regularizer}, **keywords)
        self.units, self.seed = units, seed
        self._regularizer = keras.regularizers.get(regularizer)

    def build(self, input_shape: Any) -> None:
        _, members, width = input_shape
        start = keras.initializers.GlorotUniform(seed=self.seed)
        self.kernel = self.add_weight(
            name="kernel", shape=(width, self.units), initializer=start, regularizer=self._regularizer
        )
        self.bias = self.add_weight(name="bias", shape=(members, self.units), initializer="zeros")
        self.built = True

    def call(self, inputs: Any) -> Any:
        """[rows, members, width] -> [rows, members, units], rectified."""
        _, members, width = inputs.shape
        # one product of two matrices: a batch of small ones is slower
        flat = tf.matmul(tf.reshape(inputs, [-1, width]), self.kernel)
        return tf.nn.relu(tf.reshape(flat, [-1, members, self.units]) + self.bias)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (*input_shape[:-1], self.units)


def member_dense(shape: tuple[Any, ...], units: int, *, seed: int, **keywords: Any) -> keras.layers.EinsumDense:
    """A dense layer for what has `shape`, [rows, members, width], of which each member has a matrix and a bias of its own."""
    _, members, width = shape
    limit = (6.0 / (width + units)) ** 0.5  # of one member's matrix, as Glorot's
    start = {"kernel_initializer": keras.initializers.RandomUniform(-limit, limit, seed=seed)}
    return keras.layers.EinsumDense("rmw,mwu->rmu", (members, units), bias_axes="mu", **(start | keywords))


@keras.saving.register_keras_serializable("headway")
class MeanOfMembers(keras.layers.Layer):
    """The mean of the members' outputs; in training their outputs one by one, [rows, members, outputs]."""

    def call(self, inputs: Any, training: bool = False) -> Any:
        return inputs if training else tf.reduce_mean(inputs, axis=1)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0], input_shape[-1])


@keras.saving.register_keras_serializable("headway")
class Stack(Configured):
    """The members' outputs by the share of their decay, which it learns from rows that they have not seen.

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
        """[rows, members, outputs], float32 [rows, n], int32 [rows, m] -> [rows, outputs]; in training the members' outputs
        and then what they say of rows that they leave out, [rows, members + 1, outputs]."""
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
