"""The cross layers of a Deep & Cross Network v2.

    crossed = CrossNetwork(2, rank=16, seed=3)(features)         # float32 [rows, width] -> the same shape

R. Wang et al., "DCN V2: Improved Deep & Cross Network and Practical Lessons for Web-scale Learning to Rank Systems", 2021.
"""

import math
from typing import Any

import keras

from tfcore.models.layers import Configured


@keras.saving.register_keras_serializable("headway")
class CrossNetwork(Configured):
    """x(l + 1) = x(0) * (W x(l) + b) + x(l): after `layers` of them, products of up to `layers` + 1 features.

    Args:
        layers: how many.
        rank: W is the product of two matrices, [width, rank] and [rank, width]; 0, or `width` / 2 and more: one full matrix,
            which then has no more weights.
        seed: of the initial W, Glorot uniform.
        regularizer: of W.
    """

    def __init__(
        self,
        layers: int,
        *,
        rank: int = 0,
        seed: int,
        regularizer: keras.regularizers.Regularizer | None = None,
        **keywords: Any,
    ):
        super().__init__({"layers": layers, "rank": rank, "seed": seed, "regularizer": regularizer}, **keywords)
        self.count, self.rank, self.seed = layers, rank, seed
        self.regularizer = keras.regularizers.get(regularizer)

    def build(self, input_shape: Any) -> None:
        width = int(input_shape[-1])
        low = 0 < self.rank < math.ceil(width / 2)
        shapes = [(width, self.rank), (self.rank, width)] if low else [(width, width)]
        self.kernels = [
            [self._kernel(f"kernel_{layer}_{part}", shape, 2 * layer + part) for part, shape in enumerate(shapes)]
            for layer in range(self.count)
        ]
        self.biases = [
            self.add_weight(name=f"bias_{layer}", shape=(width,), initializer="zeros") for layer in range(self.count)
        ]
        self.built = True

    def _kernel(self, name: str, shape: tuple[int, int], salt: int) -> keras.Variable:
        start = keras.initializers.GlorotUniform(seed=self.seed + 15_485_863 + salt)
        return self.add_weight(name=name, shape=shape, initializer=start, regularizer=self.regularizer)

    def call(self, inputs: Any) -> Any:
        """[rows, width] -> [rows, width]."""
        x = inputs
        for kernels, bias in zip(self.kernels, self.biases, strict=True):
            crossed = x
            for kernel in kernels:
                crossed = keras.ops.matmul(crossed, kernel)
            x = inputs * (crossed + bias) + x
        return x
