"""The stop condition of the compiled steps: too many in a row whose loss or gradients are not finite.

    ending = StopCondition(limit=10)
    ending.met                          # whether no further step is run

The count is carried from call to call and through a checkpoint, so that where a training ends does not depend on how its steps
were cut into calls.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

LIMIT = 10
"""A few bad rows spoil single steps, and ten in a row are no accident: what follows would be skipped too."""
IN_ROW = "in_row"
Counts = Mapping[str, tf.Tensor]


class StopCondition:
    """The condition that ends the compiled steps; see the module.

    Args:
        limit: steps in a row; None: nothing ends them.
    """

    def __init__(self, limit: int | None = None):
        self.limit, self._in_row = limit, np.int32(0)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the compiled program: the count so far."""
        return {} if self.limit is None else {IN_ROW: self._in_row}

    @property
    def specs(self) -> dict[str, tf.TensorSpec]:
        return {name: tf.TensorSpec([], value.dtype) for name, value in self.arguments.items()}

    @property
    def met(self) -> bool:
        """Whether no further step is run."""
        return self.limit is not None and bool(self._in_row >= self.limit)

    def counts(self, arguments: Counts) -> dict[str, tf.Tensor]:
        """Return the count that is carried from step to step, in the graph."""
        return {name: arguments[name] for name in self.arguments}

    def should_continue(self, counts: Counts) -> tf.Tensor:
        """Return whether to run another step, as a bool scalar in the graph; agrees with `met` outside of it."""
        return counts[IN_ROW] < self.limit if IN_ROW in counts else tf.constant(True)

    def after(self, counts: Counts, *, applied: tf.Tensor, retryable: tf.Tensor | None) -> dict[str, tf.Tensor]:
        """Return the count after a step, in the graph. A `retryable` step (the loss scale was too large) is not counted."""
        missed = 1 if retryable is None else tf.cast(~retryable, tf.int32)
        return {name: tf.where(applied, 0, count + missed) for name, count in counts.items()}

    def take(self, counts: Counts) -> None:
        """Store the count at the end of a call."""
        if IN_ROW in counts:
            self._in_row = counts[IN_ROW].numpy()

    def state(self) -> dict[str, int]:
        return {IN_ROW: int(self._in_row)}

    def restore(self, state: Mapping[str, int]) -> None:
        self._in_row = np.int32(state[IN_ROW])
