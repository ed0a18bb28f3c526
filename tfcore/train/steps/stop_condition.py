"""The stop condition of the compiled steps: non-finite steps, or a training loss that is low enough.

    ending = StopCondition(non_finite_limit=10, stop_at_loss=0.3)
    ending.reason                       # None, "non_finite" or "loss": why no further step is run

Steps that are not finite are counted in a row. The loss is a running mean: each step counts 0.98 of the one after it, and
nothing ends before 50 steps were seen. Both are carried from call to call and through a checkpoint, so that where a
training ends does not depend on how its steps were cut into calls. The limits are arguments of the compiled program.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import tensorflow as tf

DECAY, LEAST_STEPS = 0.98, 50
Values = dict[str, Any]


class StopCondition:
    """The condition that ends the compiled steps; see the module.

    Args:
        non_finite_limit: steps in a row; None: they never end it.
        stop_at_loss: of the running mean of the training loss, in the label's units; None: it never ends it.
    """

    def __init__(self, *, non_finite_limit: int | None = None, stop_at_loss: float | None = None):
        self._limits: Values = {}
        self._values: Values = {}
        self._cut = False
        if non_finite_limit is not None:
            self._limits["non_finite_limit"] = np.int32(non_finite_limit)
            self._values["in_row"] = np.int32(0)
        if stop_at_loss is not None:
            self._limits["stop_at_loss"] = np.float32(stop_at_loss)
            self._values |= {"loss": np.float32(0), "weight": np.float32(0), "seen": np.int32(0)}

    @property
    def arguments(self) -> Values:
        """The arguments of the compiled program: the limits, and the counts so far; NumPy scalars."""
        return self._limits | self._values

    @property
    def specs(self) -> dict[str, tf.TensorSpec]:
        return {name: tf.TensorSpec([], value.dtype) for name, value in self.arguments.items()}

    @property
    def reason(self) -> Literal["non_finite", "loss"] | None:
        """Return why no further step is run; None while steps continue."""
        limits, now = self._limits, self._values
        if "in_row" in now and now["in_row"] >= limits["non_finite_limit"]:
            return "non_finite"
        if "seen" in now and now["seen"] >= LEAST_STEPS:
            # what the program found counts: it may take a number of 1e-40 for a zero, and be asked for ever to go on
            return "loss" if self._cut or now["loss"] <= limits["stop_at_loss"] * now["weight"] else None
        return None

    def counts(self, arguments: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return the counts carried from step to step, as tensors in the graph."""
        return {name: arguments[name] for name in self._values}

    def should_continue(self, arguments: Mapping[str, tf.Tensor], counts: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Return whether to run another step, as a bool scalar in the graph; agrees with `reason` outside of it."""
        on = tf.constant(True)
        if "in_row" in counts:
            on &= counts["in_row"] < arguments["non_finite_limit"]
        if "seen" in counts:
            low = counts["loss"] <= arguments["stop_at_loss"] * counts["weight"]
            on &= ~((counts["seen"] >= LEAST_STEPS) & low)
        return on

    def after(
        self, counts: Mapping[str, tf.Tensor], *, loss: tf.Tensor, weight: tf.Tensor, applied: tf.Tensor, retryable: Any
    ) -> dict[str, tf.Tensor]:
        """Return the counts after a step, in the graph. A `retryable` step (the loss scale was too large) is not
        counted as non-finite."""
        new = dict(counts)
        if "in_row" in counts:
            missed = counts["in_row"] + (1 if retryable is None else tf.cast(~retryable, tf.int32))
            new["in_row"] = tf.where(applied, 0, missed)
        if "seen" in counts:
            # a loss that is not finite would stay in the mean for ever
            new["loss"] = tf.where(applied, counts["loss"] * DECAY + loss * weight, counts["loss"])
            new["weight"] = tf.where(applied, counts["weight"] * DECAY + weight, counts["weight"])
            new["seen"] = counts["seen"] + tf.cast(applied, tf.int32)
        return new

    def take(self, counts: Mapping[str, tf.Tensor], *, cut: bool = False) -> None:
        """Store the counts at the end of a call, and whether it ran fewer steps than planned."""
        self._cut = cut
        self._values = {name: counts[name].numpy() for name in self._values}

    def state(self) -> dict[str, float]:
        return {name: value.item() for name, value in self._values.items()}

    def restore(self, state: Mapping[str, float]) -> None:
        """Restore the counts from a checkpoint's state."""
        self._values = {name: value.dtype.type(state[name]) for name, value in self._values.items()}
