"""Knobs inside a graph: one float32 variable each, which the compiled step sets and everything in it reads.

    variables = KnobVariables(["dropout", "margin"])
    with variables.offered():
        model = my_model(layout, options)        # in there: knob("margin") is the variable
    variables.assign({"dropout": tensor, "margin": tensor})

A Python number in their place would be a constant of the graph: changing it would trace and compile the step again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import tensorflow as tf

from headway.errors import ConfigError

_OFFERED: ContextVar[KnobVariables | None] = ContextVar("knobs", default=None)


class KnobVariables(tf.Module):
    """The knobs of one training, by name."""

    def __init__(self, names: Sequence[str] = ()):
        super().__init__(name="knobs")
        self.variables_by_name = {name: tf.Variable(0.0, trainable=False, name=f"knob_{name}") for name in names}

    def get(self, name: str) -> tf.Variable | None:
        return self.variables_by_name.get(name)

    def assign(self, values: Mapping[str, tf.Tensor]) -> None:
        """Set every knob; float32 scalars."""
        for name, variable in self.variables_by_name.items():
            variable.assign(values[name])

    @contextmanager
    def offered(self) -> Iterator[None]:
        """`knob(name)` finds these inside."""
        token = _OFFERED.set(self)
        try:
            yield
        finally:
            _OFFERED.reset(token)


def knob(name: str, default: float | None = None) -> tf.Variable | tf.Tensor:
    """The variable of a knob of the training that is being built: a float32 scalar, for a layer or a loss to read.

    Args:
        default: what a model reads that is built to predict, or a training that does not configure the knob.

    Raises:
        ConfigError: the training has no such knob, and there is no default.
    """
    offered = _OFFERED.get()
    found = offered.get(name) if offered is not None else None
    if found is not None:
        return found
    if default is None:
        raise ConfigError(
            f"this training has no knob {name!r}", where="model", fix=f"training: {{knobs: {{{name}: 0.1}}}}"
        )
    return tf.constant(default, tf.float32)
