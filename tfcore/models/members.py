"""An ensemble of small networks trained in one: its members share their matrices and differ in vectors.

    x = Members(8, seed=3)(features)                     # float32 [rows, width] -> [rows, 8, width]
    x = MemberDense(64, 8, activation="relu", seed=4)(x)          # -> [rows, 8, 64]
    x = MemberOutput(3, 8)(x)                                     # -> [rows, 8, 3]
    outputs = MeanOfMembers()(x)                          # [rows, 3]; in training as it came: each member has its own loss

The losses of the built-in tasks are convex in the outputs, so that the mean's loss is at most the mean of the members'.
Y. Gorishniy et al., "TabM: Advancing Tabular Deep Learning with Parameter-Efficient Ensembling", 2025 (its "mini" form), after
Y. Wen et al., "BatchEnsemble: An Alternative Approach to Efficient Ensemble and Lifelong Learning", 2020.
"""

from typing import Any

import keras
import tensorflow as tf

from tfcore.models.layers import Configured


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


@keras.saving.register_keras_serializable("headway")
class MemberOutput(Configured):
    """The last layer: each member has a matrix and a bias of its own. float32"""

    def __init__(
        self,
        units: int,
        *,
        seed: int,
        initial: str = "glorot",
        bias_initializer: Any = "zeros",
        regularizer: keras.regularizers.Regularizer | None = None,
        **keywords: Any,
    ):
        made_of = {"units": units, "seed": seed, "initial": initial}
        super().__init__(made_of | {"bias_initializer": bias_initializer, "regularizer": regularizer}, **keywords)
        self.units, self.seed, self.initial = units, seed, initial
        self._bias = keras.initializers.get(bias_initializer)
        self._regularizer = keras.regularizers.get(regularizer)

    def build(self, input_shape: Any) -> None:
        _, members, width = input_shape
        start: Any = "zeros"
        if self.initial != "zeros":
            limit = (6.0 / (width + self.units)) ** 0.5  # of one member's matrix, as Glorot's
            start = keras.initializers.RandomUniform(-limit, limit, seed=self.seed)
        self.kernel = self.add_weight(
            name="kernel", shape=(members, width, self.units), initializer=start, regularizer=self._regularizer
        )
        self.bias = self.add_weight(name="bias", shape=(members, self.units), initializer=self._bias)
        self.built = True

    def call(self, inputs: Any) -> Any:
        """[rows, members, width] -> [rows, members, units]."""
        return tf.einsum("rmw,mwu->rmu", inputs, self.kernel) + self.bias

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (*input_shape[:-1], self.units)


@keras.saving.register_keras_serializable("headway")
class MeanOfMembers(keras.layers.Layer):
    """The mean of the members' outputs; in training their outputs one by one, [rows, members, outputs]."""

    def call(self, inputs: Any, training: bool = False) -> Any:
        return inputs if training else tf.reduce_mean(inputs, axis=1)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0], input_shape[-1])
