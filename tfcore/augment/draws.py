"""Random numbers by counter: each a hash of (seed, epoch, index, draw), for a whole batch of rows at once.

    draws = Draws(seed=7, epoch=epoch, index=index)          # int64 [rows] each
    draws.uniform(3)                                         # float32 [rows] in [0, 1)
    draws.uniform(3, columns=5)                              # float32 [rows, 5]
    draws.below(4, 9)                                        # int32 [rows] in 0 .. 8

A row's numbers depend on nothing but those four, so they are the same in any batch, on any thread, eagerly and in a
graph, and after a resume. tf.random.stateless_* takes one seed a call, which would be a call a row. The hash is
splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014): each row's key begins
a sequence of its own, and draw d is its d-th number. `headway.tabular.hashing.mix64` is the same in NumPy.
"""

import tensorflow as tf

from headway.tabular.hashing import GOLDEN

_ONES = 0xFFFFFFFFFFFFFFFF
_COLUMNS = 1 << 20
"""Numbers of one draw lie this far from the next draw's."""


class Draws:
    """Random numbers for a batch of rows, each a hash of (seed, epoch, index of the row, number of the draw).

    Args:
        seed: of the run.
        epoch: int64 [rows], or a scalar.
        index: int64 [rows]: the row's place in its epoch.
    """

    def __init__(self, *, seed: int, epoch: tf.Tensor, index: tf.Tensor):
        epoch, index = (tf.cast(value, tf.uint64) for value in (epoch, index))
        self._key = mix64(tf.bitwise.bitwise_xor(mix64(epoch, seed), index), 0)

    def bits(self, draw: int, columns: int | None = None) -> tf.Tensor:
        """Random bits, uint64 [rows], or [rows, columns]."""
        if columns is None:
            return mix64(self._key, draw * _COLUMNS)
        steps = tf.range(columns, dtype=tf.int64)
        offsets = tf.cast(steps, tf.uint64) * _u64(GOLDEN)
        return mix64(self._key[:, None] + offsets[None], draw * _COLUMNS)

    def uniform(self, draw: int, columns: int | None = None) -> tf.Tensor:
        """Uniform float32 in [0, 1), multiples of 2**-24, which float32 holds exactly."""
        high = tf.bitwise.right_shift(self.bits(draw, columns), _u64(40))
        return tf.cast(high, tf.float32) * (1.0 / (1 << 24))

    def below(self, draw: int, count: int, columns: int | None = None) -> tf.Tensor:
        """Uniform int32 in 0 .. count - 1."""
        high = tf.bitwise.right_shift(self.bits(draw, columns), _u64(32))
        return tf.cast(tf.bitwise.right_shift(high * _u64(count), _u64(32)), tf.int32)


def mix64(x: tf.Tensor, seed: int | tf.Tensor = 0) -> tf.Tensor:
    """Compute headway.tabular.hashing.mix64 in the graph; uint64, shape as `x` (and as `seed`, if a uint64 tensor)."""
    if isinstance(seed, int):
        z = x + _u64((seed + 1) * GOLDEN & _ONES)
    else:
        z = x + (seed + _u64(1)) * _u64(GOLDEN)
    shift, xor = tf.bitwise.right_shift, tf.bitwise.bitwise_xor
    z = xor(z, shift(z, _u64(30))) * _u64(0xBF58476D1CE4E5B9)
    z = xor(z, shift(z, _u64(27))) * _u64(0x94D049BB133111EB)
    return xor(z, shift(z, _u64(31)))


def _u64(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint64)
