"""Embeddings of numbers, which the hidden layers see in place of the numbers.

    embedded = PiecewiseLinear(edges=[[-1.5, 0.0, 2.0], []], width=8, seed=3)(numbers)  # float32 [rows, 2] -> [rows, 2, 8]

Y. Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep Learning", 2022.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfcore.models.layers import ConfigLayer


@keras.saving.register_keras_serializable("headway")
class PiecewiseLinear(ConfigLayer):
    """A layer that embeds each number by its position in bins: each unit is a piecewise linear function of the number.

    A bin below the number is 1, a bin above it is 0, and the number's own bin is the share of its width below the number.
    A linear function is added. At first the weights of bins are zero, and the linear weights are random.

    Args:
        edges: the rising edges of each number's bins. Fewer than two edges: no bins, the embedding is linear.
        width: the width of each number's embedding.
        limit: the linear function gets x / sqrt(1 + (x / limit)^2), which is within +-limit; with limit 0 it gets x.
        seed: the seed of the initial linear weights, uniform in [-1, 1).
    """

    def __init__(
        self,
        edges: Sequence[Sequence[float]],
        width: int,
        *,
        limit: float = 0.0,
        seed: int,
        **keywords: Any,
    ):
        plain = [list(map(float, of)) for of in edges]
        made_of = {"edges": plain, "width": width, "seed": seed, "limit": limit}
        super().__init__(made_of, **keywords)
        self.width, self.limit = width, float(limit)
        bins = max([1, *(len(of) - 1 for of in edges)])
        self._low, self._scale = np.zeros((len(edges), bins)), np.zeros((len(edges), bins))
        for number, of in enumerate(edges):
            for place, (low, high) in enumerate(pairwise(of)):
                self._low[number, place], self._scale[number, place] = low, 1.0 / (high - low)
        self._linear = keras.initializers.RandomUniform(-1.0, 1.0, seed=seed + 32_452_843)

    def build(self, input_shape: Any) -> None:
        numbers, bins = self._low.shape
        self.slopes = self.add_weight(name="slopes", shape=(numbers, self.width), initializer=self._linear)
        self.bins = self.add_weight(name="bins", shape=(numbers, bins, self.width), initializer="zeros")
        self.bias = self.add_weight(name="bias", shape=(numbers, self.width), initializer="zeros")
        self.built = True

    def call(self, inputs: Any) -> Any:
        """Returns the embeddings [rows, numbers, width] of numbers [rows, numbers]."""
        dtype = self.compute_dtype
        # float32 whatever the layer computes in: edges may lie close together
        numbers = tf.cast(inputs, tf.float32)[:, :, None]
        places = tf.clip_by_value((numbers - tf.constant(self._low, tf.float32)) * self._scale, 0.0, 1.0)
        binned = tf.einsum("rnb,nbw->rnw", tf.cast(places, dtype), self.bins)
        seen = _soft_clip(inputs, self.limit) if self.limit else inputs
        return tf.cast(seen, dtype)[:, :, None] * self.slopes + binned + self.bias

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (*input_shape, self.width)


def _soft_clip(x: tf.Tensor, limit: float) -> tf.Tensor:
    """Returns x / sqrt(1 + (x / limit)^2): x itself near zero, and never beyond +-limit."""
    share = tf.clip_by_value(x / limit, -100.0, 100.0)  # its square is finite in float16 too
    return limit * share * tf.math.rsqrt(1.0 + tf.square(share))
