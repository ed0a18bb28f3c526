"""Mixed precision: layers compute in 16-bit floats, variables and losses stay float32.

    with computing_in("float16"):
        model = keras.Model(...)               # its layers have the policy mixed_float16
    scale = LossScale()                        # float16 only: its smallest gradients would be zeros

Float16 has no numbers below 6e-8, so smaller gradients would be zero. The loss is multiplied by a scale before gradients are
taken, and the gradients are divided by it after (Micikevicius et al., "Mixed Precision Training", 2018, section 3.2). A scale
that is too large makes gradients infinite: the step is skipped and the scale halved. After many applied steps in a row the
scale is doubled. It is a power of two, so that it causes no rounding.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import keras
import tensorflow as tf

FIRST, MOST = 2.0**15, 2.0**24
GOOD_STEPS = 2000
"""The number of applied steps in a row after which the scale is doubled."""


@contextmanager
def computing_in(precision: str) -> Iterator[None]:
    """Layers made within the block compute in "float32", "bfloat16" or "float16"; their variables are float32. "tf32"
    means float32 whose products a GPU rounds: see `tfcore.runtime.devices.relaxed_numerics`."""
    if precision in ("float32", "tf32"):
        yield
        return
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(f"mixed_{precision}")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


class LossScale(tf.Module):
    """The loss scale of a float16 model; both variables belong in a checkpoint.

    Args:
        good_steps: the number of applied steps in a row after which the scale is doubled.
    """

    def __init__(self, *, good_steps: int = GOOD_STEPS):
        super().__init__(name="loss_scale")
        self.value = tf.Variable(FIRST, trainable=False, name="loss_scale")
        self.good = tf.Variable(0, dtype=tf.int64, trainable=False, name="loss_scale_good_steps")
        self._good_steps = good_steps

    def update(self, applied: tf.Tensor, finite_loss: tf.Tensor) -> tf.Tensor:
        """Update the scale after a step; both arguments are bool scalars.

        Returns:
            Whether a smaller scale may help: the step was skipped though its loss was finite, and the scale is above 1.
        """
        scale, good = self.value.read_value(), self.good.read_value()
        grows = applied & (good + 1 >= self._good_steps)
        larger = tf.where(grows, tf.minimum(scale * 2.0, MOST), scale)
        self.value.assign(tf.where(applied, larger, tf.maximum(scale * 0.5, 1.0)))
        self.good.assign(tf.where(applied & ~grows, good + 1, tf.zeros_like(good)))
        return ~applied & finite_loss & (scale > 1.0)
