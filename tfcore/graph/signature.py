"""Binds the arguments of a graph function to its declared specs, and explains a mismatch.

    signature = {"x": tf.TensorSpec([None, 3], tf.float32), "scale": tf.TensorSpec([], tf.float32)}
    check_specs("scaled", signature)                       # SignatureError for what is not a tf.TensorSpec or nest of them
    binder = Binder("scaled", signature)
    binder.bind({"x": x, "scale": scale})                  # the tensors in the signature's order

What is bound is a tensor, a variable, or a NumPy array or scalar, of just the dtype that was declared: TensorFlow would
cast some of what else there is in silence, and describe the rest by what failed within it.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from headway.errors import HeadwayError
from tfcore.graph.specs import Misfit, Spec, describe, dtype_of, holds, pairs, side_by_side, value_text, walk

Scalars = Literal["refuse", "convert"]

_RAGGED = "pass its parts as tensors (values and row_splits) and put it together in the body (tf.RaggedTensor.from_row_splits)"
_SPARSE = "pass its parts as tensors (indices, values, dense_shape) and put it together in the body (tf.SparseTensor)"
_PARTS: dict[type, str] = {
    tf.RaggedTensor: _RAGGED,
    tf.RaggedTensorSpec: _RAGGED,
    tf.SparseTensor: _SPARSE,
    tf.SparseTensorSpec: _SPARSE,
}


_NUMBERS = (bool, int, float)
_TENSORS = (tf.Tensor, np.ndarray, np.generic, tf.Variable, keras.Variable)


class SignatureError(HeadwayError):
    """Arguments do not fit the signature: names them, what was expected and what was given."""


class Binder:
    """Checks and orders a call's arguments; see the module. `trace_seconds` says what a Python number would cost."""

    def __init__(self, name: str, signature: Mapping[str, Spec], scalars: Scalars = "refuse"):
        self.name, self.signature, self.scalars = name, signature, scalars
        self.trace_seconds = 0.0

    def bind(self, arguments: Mapping[str, Any]) -> list[tf.Tensor]:
        """The leaves of `arguments` in the signature's order.

        Raises:
            SignatureError: all that do not fit, expected and given side by side.
        """
        flat: list[tf.Tensor] = []
        unknown = [name for name in arguments if name not in self.signature]
        wrong = [Misfit(name, "no such argument", value_text(arguments[name])) for name in unknown]
        for name, spec in self.signature.items():
            if name not in arguments:
                wrong.append(Misfit(name, describe(spec), "nothing"))
                continue
            for pair in pairs(name, spec, arguments[name]):
                leaf = pair if isinstance(pair, Misfit) else self._leaf(*pair)
                (wrong if isinstance(leaf, Misfit) else flat).append(leaf)
        if wrong:
            raise misfits(self.name, wrong)
        return flat

    def _leaf(self, path: str, spec: tf.TensorSpec, value: Any) -> tf.Tensor | Misfit:
        if isinstance(value, _NUMBERS) and not isinstance(value, np.generic):
            exact = spec.shape.rank in (0, None) and holds(value, spec.dtype)
            if not exact or self.scalars != "convert":
                return Misfit(path, describe(spec), value_text(value), self._cost(value, spec, exact))
            value = np.asarray(value, spec.dtype.as_numpy_dtype)
        # a Python list has no dtype: binding it would pick one, and cast in silence
        if not isinstance(value, _TENSORS):
            return Misfit(path, describe(spec), value_text(value), _instead(value, spec))
        if isinstance(value, np.ma.MaskedArray):
            return Misfit(
                path, describe(spec), f"masked {describe(value)}", "fill it, or pass its mask as an argument too"
            )
        if dtype_of(value.dtype) != spec.dtype or not spec.shape.is_compatible_with(value.shape):
            return Misfit(path, describe(spec), value_text(value))
        if isinstance(value, tf.Tensor):
            return value
        if isinstance(value, np.ndarray) and value.dtype == object:
            for item in value.flat:
                if not isinstance(item, str | bytes):
                    return Misfit(
                        path, describe(spec), f"{describe(value)} with {value_text(item)} in it", "str or bytes only"
                    )
        try:
            return tf.convert_to_tensor(value)
        except (ValueError, TypeError) as error:  # text that has no UTF-8, for one
            return Misfit(path, describe(spec), f"{describe(value)}: {str(error).splitlines()[0]}")

    def _cost(self, value: bool | int | float, spec: tf.TensorSpec, exact: bool) -> str:
        """The cost of a Python number instead of a tensor in a plain tf.function, and what to pass."""
        took = f" ({self.trace_seconds:.2g} s here)" if self.trace_seconds else ""
        name = spec.dtype.name
        instead = f"np.{name}({value!r})" if hasattr(np, name) else f"tf.constant({value!r}, tf.{name})"
        if not exact:  # a cast would make another number of it
            instead = f"pass a tensor or an array of {describe(spec)}"
        return f"{instead}: a tf.function would trace a new graph for each value{took}"


def check_specs(name: str, signature: Mapping[str, Spec]) -> None:
    """Raise SignatureError unless every leaf of `signature` is a tf.TensorSpec."""
    wrong = [
        Misfit(path, "a tf.TensorSpec, or a dict, list or tuple of them", _spec_text(spec), _spec_instead(spec))
        for path, spec in walk(signature)
        if not isinstance(spec, tf.TensorSpec)
    ]
    if wrong:
        raise misfits(name, wrong)


def paths(signature: Mapping[str, Spec]) -> list[str]:
    """The name of each leaf: "rate", "batch['x']"."""
    return [path for path, _ in walk(signature)]


def leaves(signature: Mapping[str, Spec]) -> list[tf.TensorSpec]:
    """The leaves in the signature's order, each with a unique name."""
    named = ((re.sub(r"\W+", "_", path).strip("_"), spec) for path, spec in walk(signature))
    return [tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in named]


def misfits(where: str, wrong: list[Misfit]) -> SignatureError:
    """One error that lists all arguments that do not fit."""
    fixes = "; ".join(dict.fromkeys(misfit.fix for misfit in wrong if misfit.fix)) or None
    if len(wrong) == 1:
        (misfit,) = wrong
        problem = f"argument {misfit.argument}: expected {misfit.expected}, given {misfit.given}"
        return SignatureError(problem, where=where, fix=fixes)
    rows = [("argument", "expected", "given"), *((misfit.argument, misfit.expected, misfit.given) for misfit in wrong)]
    return SignatureError(f"{len(wrong)} arguments do not fit\n{side_by_side(rows)}", where=where, fix=fixes)


def _instead(value: Any, spec: tf.TensorSpec) -> str | None:
    """The fix for a value that is not a tensor."""
    for kind, parts in _PARTS.items():
        if isinstance(value, kind):
            return parts
    if hasattr(value, "to_numpy"):  # of pandas, Polars, Arrow
        return f".to_numpy(), as {spec.dtype.name}"
    if isinstance(value, list | tuple) or hasattr(value, "__array__"):
        return f"np.asarray(..., {'object' if spec.dtype == tf.string else f'np.{spec.dtype.name}'})"
    return None


def _spec_text(spec: Any) -> str:
    return repr(spec) if isinstance(spec, tf.DType | str) else f"a {getattr(spec, '__name__', type(spec).__name__)}"


def _spec_instead(spec: Any) -> str | None:
    if isinstance(spec, tf.DType):
        return f"tf.TensorSpec([], tf.{spec.name}), with its shape"
    return next((parts for kind, parts in _PARTS.items() if isinstance(spec, kind)), None)
