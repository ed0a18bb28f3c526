"""Knobs in a graph: one float32 variable each, which the compiled step sets and any layer or loss reads.

    variables = KnobVariables(["dropout", "margin"])
    with variables.offered():
        model = my_model(layout, options)        # in there: knob("margin") is the variable
    variables.assign({"dropout": tensor, "margin": tensor})

A Python number in their place would be a constant of the graph: changing it would trace and compile the step again. So
`float(knob("margin"))` is an error while a model is made or a graph is traced; and until a step sets them the variables are
NaN, so that a constant made of one some other way stops the training as not finite.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from headway.errors import ConfigError

_OFFERED: ContextVar[KnobVariables | None] = ContextVar("knobs", default=None)


_CONVERSIONS = (
    "__float__",
    "__int__",
    "__complex__",
    "__bool__",
    "__round__",
    "__array__",
    "numpy",
    "eval",
)
_KINDS: dict[type, type] = {}


class KnobVariables(tf.Module):
    """The variables of a training's knobs, by name."""

    def __init__(self, names: Sequence[str] = ()):
        super().__init__(name="knobs")
        self.variables_by_name = {name: _variable(name) for name in names}

    def get(self, name: str) -> tf.Variable | None:
        return self.variables_by_name.get(name)

    def assign(self, values: Mapping[str, tf.Tensor]) -> None:
        """Set every knob; float32 scalars."""
        for name, variable in self.variables_by_name.items():
            variable.assign(values[name])

    @contextmanager
    def offered(self) -> Iterator[None]:
        """Let `knob(name)` find these variables within the block."""
        token = _OFFERED.set(self)
        try:
            yield
        finally:
            _OFFERED.reset(token)


def knob(name: str, default: float | None = None) -> tf.Variable | tf.Tensor:
    """The variable of a knob of the training that is being built: a float32 scalar, for a layer or a loss to read.

    float(), int(), if, NumPy and .numpy() of it are a ConfigError while the model is built or traced.

    Args:
        default: what a model reads that is built to predict, or a training that does not configure the knob.

    Raises:
        ConfigError: the training has no such knob, and there is no default.
    """
    offered = _OFFERED.get()
    value = offered.get(name) if offered is not None else None
    if value is not None:
        return value
    if default is None:
        raise ConfigError(
            f"this training has no knob {name!r}", where="model", fix=f"training: {{knobs: {{{name}: 0.1}}}}"
        )
    return tf.constant(default, tf.float32)


def is_knob(variable: Any) -> bool:
    """Whether the variable came from `knob`: such a variable belongs to the training, whoever refers to it."""
    return type(variable) in _KINDS.values()


def _variable(name: str) -> tf.Variable:
    variable = tf.Variable(float("nan"), trainable=False, name=f"knob_{name}")
    # a strategy decides which class of variable it is, so the class is extended once it is known
    kind = type(variable)
    if kind not in _KINDS:
        refusing = {conversion: _refusing(kind, conversion) for conversion in _CONVERSIONS}
        _KINDS[kind] = types.new_class(f"Knob{kind.__name__}", (kind,), {}, lambda body: body.update(refusing))
    variable.__class__ = _KINDS[kind]
    variable._knob = name
    return variable


def _refusing(kind: type, conversion: str) -> Any:
    """A conversion to a Python or NumPy value that raises where the graph would keep that value."""
    plain = getattr(kind, conversion, None)

    def convert(self: Any, *arguments: Any, **named: Any) -> Any:
        if _OFFERED.get() is not None or not tf.executing_eagerly():
            raise ConfigError(
                f"is converted to a Python or NumPy value ({conversion}), which the graph would keep whatever the knob is "
                "set to; another value would cost another trace and compilation",
                where=f"knob({self._knob!r})",
                fix="use the variable itself: knob + 1.0, tf.where(x > knob, ...), tf.cast(knob, x.dtype)",
            )
        if plain is None:  # a strategy's variable has few of its own
            return getattr(self.read_value().numpy(), conversion)(*arguments, **named)
        return plain(self, *arguments, **named)

    return convert
