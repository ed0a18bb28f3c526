"""The numbers of `training.schedules` and the learning rate, step by step, for the compiled steps to take as tensors.

    values = StepValues({"learning_rate": Schedule(name="cosine"), "label_smoothing": 0.1}, total=2000)
    values(first=0, count=32)         # {"learning_rate": float32 [32], "label_smoothing": float32 [32]}

They are a function of the step alone, so that a training which is resumed at step s goes on with the numbers of step s.
"""

from collections.abc import Callable, Mapping

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import ConfigError
from tfcore.train.settings.schedule import COSINE, Schedule, Scheduled, cosine, fault

Values = Mapping[str, NDArray[np.float32]]


class StepValues:
    """The scheduled numbers of a training of `total` steps; see the module."""

    def __init__(self, schedules: Mapping[str, Scheduled], total: int):
        self._of = {name: _of(name, schedule, total) for name, schedule in schedules.items()}

    @property
    def names(self) -> list[str]:
        return list(self._of)

    def __call__(self, first: int, count: int) -> Values:
        """Each number at steps first .. first + count - 1; float32 [count].

        Raises:
            ConfigError: a schedule of Keras gives what the number cannot be.
        """
        return {name: of(first, count) for name, of in self._of.items()}

    def at(self, step: int) -> dict[str, float]:
        """Each number at one step."""
        return {name: float(values[0]) for name, values in self(step, 1).items()}


def _of(name: str, schedule: Scheduled, total: int) -> Callable[[int, int], NDArray[np.float32]]:
    if not isinstance(schedule, Schedule):
        return lambda first, count: np.full(count, schedule, np.float32)
    if schedule.name == COSINE:
        return lambda first, count: cosine(schedule, first, count, total)
    where = f"training.{'' if name == 'learning_rate' else 'schedules.'}{name}"
    try:
        made = getattr(keras.optimizers.schedules, schedule.name)(**schedule.settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{schedule.name} of Keras refuses its settings: {error}", where=where) from None

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)], autograph=False)
    def by_step(steps: tf.Tensor) -> tf.Tensor:
        return tf.map_fn(lambda step: tf.cast(made(step), tf.float32), steps, fn_output_signature=tf.float32)

    def of(first: int, count: int) -> NDArray[np.float32]:
        values: NDArray[np.float32] = by_step(tf.range(first, first + count, dtype=tf.int64)).numpy()
        for step, value in ((first + int(i), float(values[i])) for i in (values.argmin(), values.argmax())):
            if (wrong := fault(name, value)) is not None:
                raise ConfigError(f"{wrong}: what {schedule.name} gives at step {step:,}", where=where)
        return values

    return of
