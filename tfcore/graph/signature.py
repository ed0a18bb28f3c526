"""Binds the arguments of a graph function to its declared specs, and explains a mismatch.

    signature = {"x": tf.TensorSpec([None, 3], tf.float32), "scale": tf.TensorSpec([], tf.float32)}
    check_specs("scaled", signature)                       # SignatureError for what is not a tf.TensorSpec or nest of them
    bind("scaled", signature, {"x": x, "scale": scale})    # the tensors in the signature's order

What is bound is a tensor, a variable, or a NumPy array or scalar, of just the dtype that was declared: TensorFlow would
cast some of what else there is in silence, and describe the rest by what failed within it.
"""

import re
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from headway.errors import HeadwayError
from tfcore.graph.specs import Misfit, Spec, describe, dtype_of, pairs, side_by_side, value_text, walk

_PARTS = "pass its parts as tensors (values and row_splits, or indices, values and dense_shape)"
_TENSORS = (tf.Tensor, np.ndarray, np.generic, tf.Variable, keras.Variable)


class SignatureError(HeadwayError):
    """Arguments do not fit the signature: names them, what was expected and what was given."""


def bind(name: str, signature: Mapping[str, Spec], arguments: Mapping[str, Any]) -> list[tf.Tensor]:
    """The leaves of `arguments` in the signature's order.

    Raises:
        SignatureError: all that do not fit, expected and given side by side.
    """
    flat: list[tf.Tensor] = []
    wrong: list[Misfit] = []
    for argument, spec in signature.items():
        for pair in pairs(argument, spec, arguments[argument]):
            leaf = pair if isinstance(pair, Misfit) else _leaf(*pair)
            (wrong if isinstance(leaf, Misfit) else flat).append(leaf)
    if wrong:
        raise _misfits(name, wrong)
    return flat


def check_specs(name: str, signature: Mapping[str, Spec]) -> None:
    """Raise SignatureError unless every leaf of `signature` is a tf.TensorSpec."""
    wrong = [
        Misfit(path, "a tf.TensorSpec, or a dict, list or tuple of them", repr(spec), "tf.TensorSpec(shape, dtype)")
        for path, spec in walk(signature)
        if not isinstance(spec, tf.TensorSpec)
    ]
    if wrong:
        raise _misfits(name, wrong)


def leaves(signature: Mapping[str, Spec]) -> list[tf.TensorSpec]:
    """The leaves in the signature's order, each with a unique name."""
    named = ((re.sub(r"\W+", "_", path).strip("_"), spec) for path, spec in walk(signature))
    return [tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in named]


def _leaf(path: str, spec: tf.TensorSpec, value: Any) -> tf.Tensor | Misfit:
    if not isinstance(value, _TENSORS):
        return Misfit(path, describe(spec), value_text(value), _instead(value, spec))
    if isinstance(value, np.ma.MaskedArray):
        fix = "fill it, or pass its mask as an argument too"
        return Misfit(path, describe(spec), f"masked {describe(value)}", fix)
    if dtype_of(value.dtype) != spec.dtype or not spec.shape.is_compatible_with(value.shape):
        return Misfit(path, describe(spec), value_text(value))
    if isinstance(value, tf.Tensor):
        return value
    if isinstance(value, np.ndarray) and value.dtype == object:
        for item in value.flat:
            if not isinstance(item, str | bytes):
                given = f"{describe(value)} with {value_text(item)} in it"
                return Misfit(path, describe(spec), given, "str or bytes only")
    try:
        return tf.convert_to_tensor(value)
    except (ValueError, TypeError) as error:  # text that has no UTF-8, for one
        return Misfit(path, describe(spec), f"{describe(value)}: {str(error).splitlines()[0]}")


def _instead(value: Any, spec: tf.TensorSpec) -> str | None:
    """The fix for a value that is not a tensor."""
    if isinstance(value, bool | int | float):
        return "pass numbers as tensors or NumPy scalars: a tf.function would trace a new graph for each Python value"
    if isinstance(value, tf.RaggedTensor | tf.SparseTensor):
        return _PARTS
    if hasattr(value, "to_numpy"):  # of pandas, Polars, Arrow
        return f".to_numpy(), as {spec.dtype.name}"
    # a Python list has no dtype: binding it would pick one, and cast in silence
    return f"np.asarray(..., dtype), as {spec.dtype.name}" if isinstance(value, list | tuple) else None


def _misfits(where: str, wrong: list[Misfit]) -> SignatureError:
    """One error that lists all arguments that do not fit."""
    fixes = "; ".join(dict.fromkeys(misfit.fix for misfit in wrong if misfit.fix)) or None
    if len(wrong) == 1:
        (misfit,) = wrong
        problem = f"argument {misfit.argument}: expected {misfit.expected}, given {misfit.given}"
        return SignatureError(problem, where=where, fix=fixes)
    rows = [("argument", "expected", "given"), *((misfit.argument, misfit.expected, misfit.given) for misfit in wrong)]
    return SignatureError(f"{len(wrong)} arguments do not fit\n{side_by_side(rows)}", where=where, fix=fixes)
