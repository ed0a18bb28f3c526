"""Checks whether the tensors that a function takes or returns, and nests of them, fit the specs that were declared.

    signature = {"x": tf.TensorSpec([None, 3], tf.float32), "scale": tf.TensorSpec([], tf.float32)}
    check_specs("scaled", signature)                       # SignatureError for what is not a tf.TensorSpec or nest of them
    bind("scaled", signature, {"x": x, "scale": scale})    # the tensors in the signature's order
    list(walk({"x": spec}, "batch"))                       # [("batch['x']", spec)]
    describe(np.zeros([2, 3]))                             # "float64 [2, 3]"

A value is a tensor, a variable, or a NumPy array or scalar, of exactly the declared dtype. Nothing is cast. TensorFlow itself
turns an int32 into int64 and a large float64 into inf in silence, and traces a new graph for each Python number.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from headway.errors import HeadwayError

Spec = Any
"""A tf.TensorSpec, or a dict of them by name, or a list, tuple or namedtuple of them."""
_TENSORS = (tf.Tensor, np.ndarray, np.generic, tf.Variable, keras.Variable)


class SignatureError(HeadwayError):
    """The error of arguments that do not fit the signature (it names what was expected and given), or of a wrong signature."""


@dataclass(frozen=True)
class Misfit:
    """A value that does not fit its spec: its path, what was expected and given, and the fix."""

    path: str
    expected: str
    given: str
    fix: str | None = None

    @property
    def argument(self) -> str:
        return self.path if "[" in self.path else repr(self.path)


def bind(name: str, signature: Mapping[str, Spec], arguments: Mapping[str, Any]) -> list[tf.Tensor]:
    """Returns the leaves of `arguments` as tensors, in the signature's order.

    Raises:
        SignatureError: arguments do not fit; it lists all of them, with what was expected and given.
    """
    found = [
        leaf for argument, spec in signature.items() for leaf in leaves_or_misfits(argument, spec, arguments[argument])
    ]
    if wrong := [leaf for leaf in found if isinstance(leaf, Misfit)]:
        raise _misfits(name, wrong)
    return [leaf if isinstance(leaf, tf.Tensor) else tf.convert_to_tensor(leaf) for leaf in found]


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
    """Returns the specs of the signature's leaves, in its order, each named after its path: "batch_x" for batch['x']."""
    named = ((re.sub(r"\W+", "_", path).strip("_"), spec) for path, spec in walk(signature))
    return [tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in named]


def walk(spec: Spec, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the path, such as "batch['x']", and the value of each leaf of a nest."""
    if isinstance(spec, Mapping | list | tuple):
        for key, inner in spec.items() if isinstance(spec, Mapping) else enumerate(spec):
            yield from walk(inner, f"{path}[{key!r}]" if path else str(key))
    else:
        yield path, spec


def leaves_or_misfits(path: str, spec: Spec, value: Any) -> Iterator[Any]:
    """Yields each leaf of `value`, in a form that needs no cast, or a `Misfit` in place of a leaf that does not fit `spec`."""
    if not isinstance(spec, Mapping | list | tuple):
        yield _leaf(path, spec, value)
    elif _content(spec) != _content(value):
        yield Misfit(path, _content(spec), _content(value))
    else:
        for key, inner in spec.items() if isinstance(spec, Mapping) else enumerate(spec):
            yield from leaves_or_misfits(f"{path}[{key!r}]", inner, value[key])


def pack(spec: Spec, leaves: Iterator[Any]) -> Any:
    """Arrange `leaves` in the structure of `spec`; a list becomes a tuple."""
    if isinstance(spec, Mapping):
        return {key: pack(inner, leaves) for key, inner in spec.items()}
    if isinstance(spec, list | tuple):
        inside = [pack(inner, leaves) for inner in spec]
        return type(spec)(*inside) if hasattr(spec, "_fields") else tuple(inside)
    return next(leaves)


def dims(shape: Any) -> str:
    """Returns the text of a shape: "[None, 3]", or "[...]" if the rank is unknown."""
    shape = tf.TensorShape(shape)
    return "[...]" if shape.rank is None else str(shape.as_list())


def describe(value: Any) -> str:
    """Returns the text of a spec, tensor or array: "float32 [None, 3]"; for any other value the name of its type."""
    if isinstance(value, np.ndarray | np.generic):
        return f"{'masked ' if isinstance(value, np.ma.MaskedArray) else ''}{value.dtype} {list(value.shape)}"
    if isinstance(value, tf.Tensor | tf.Variable | tf.TensorSpec | keras.Variable):
        return f"{tf.as_dtype(value.dtype).name} {dims(value.shape)}"
    return type(value).__name__


def side_by_side(rows: Sequence[tuple[str, str, str]]) -> str:
    """Returns a text table with a line for each (name, expected, given) of `rows`."""
    first, second = (max(len(row[i]) for row in rows) for i in range(2))
    return "\n".join(f"  {name:<{first}}  {expected:<{second}}  {actual}" for name, expected, actual in rows)


def _leaf(path: str, spec: tf.TensorSpec, value: Any) -> Any:
    if not isinstance(value, _TENSORS) or isinstance(value, np.ma.MaskedArray):
        return Misfit(path, describe(spec), _text(value), _instead(value, spec))
    if _dtype_of(value) != spec.dtype or not spec.shape.is_compatible_with(value.shape):
        return Misfit(path, describe(spec), _text(value))
    if not isinstance(value, np.ndarray | np.generic):
        return value
    if spec.dtype != tf.string:
        # in a graph TensorFlow takes the bytes as they lie
        return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))
    if value.dtype.kind == "S" or {*map(type, np.asarray(value).flat)} <= {bytes}:
        return value
    encoded = np.empty(value.size, object)  # a graph's only strings are bytes
    for i, item in enumerate(np.asarray(value).flat):
        if not isinstance(item, str | bytes):
            return Misfit(path, describe(spec), f"{describe(value)} with {_text(item)} in it", "str or bytes only")
        try:
            encoded[i] = item.encode() if isinstance(item, str) else item
        except UnicodeEncodeError:
            given = f"{describe(value)} with text that UTF-8 cannot encode, {str(item)!r:.60}"
            return Misfit(path, describe(spec), given)
    return encoded.reshape(value.shape)


def _dtype_of(value: Any) -> tf.DType | None:
    """Returns TensorFlow's dtype for a value; None if TensorFlow has none, as for dates and structured rows."""
    try:
        return tf.as_dtype(value.dtype)
    except TypeError:
        return None


def _instead(value: Any, spec: tf.TensorSpec) -> str | None:
    """Returns the advice on what to pass in place of a value that is not a tensor; None if there is no advice."""
    if isinstance(value, bool | int | float):
        return "pass numbers as tensors or NumPy scalars: a tf.function would trace a new graph for each Python value"
    if isinstance(value, tf.RaggedTensor | tf.SparseTensor):
        return "pass its parts as tensors (values and row_splits, or indices, values and dense_shape)"
    if isinstance(value, np.ma.MaskedArray):
        return "fill it, or pass its mask as an argument too"
    if hasattr(value, "to_numpy"):  # of pandas, Polars, Arrow
        return f".to_numpy(), as {spec.dtype.name}"
    # a Python list has no dtype: binding it would pick one, and cast in silence
    return f"np.asarray(..., dtype), as {spec.dtype.name}" if isinstance(value, list | tuple) else None


def _misfits(where: str, wrong: list[Misfit]) -> SignatureError:
    """Returns one error that lists all arguments that do not fit."""
    fixes = "; ".join(dict.fromkeys(misfit.fix for misfit in wrong if misfit.fix)) or None
    if len(wrong) == 1:
        (misfit,) = wrong
        problem = f"argument {misfit.argument}: expected {misfit.expected}, given {misfit.given}"
        return SignatureError(problem, where=where, fix=fixes)
    rows = [("argument", "expected", "given"), *((misfit.argument, misfit.expected, misfit.given) for misfit in wrong)]
    return SignatureError(f"{len(wrong)} arguments do not fit\n{side_by_side(rows)}", where=where, fix=fixes)


def _content(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"the keys [{', '.join(sorted(map(repr, value)))}]"
    return f"{len(value)} values" if isinstance(value, list | tuple) else _text(value)


def _text(value: Any) -> str:
    """Returns a value as text: the dtype and shape of a tensor or array, the type and value of a plain value, else the type."""
    plain = isinstance(value, bool | int | float | str | bytes) and not isinstance(value, np.generic)
    return f"{describe(value)} {value!r:.40}" if plain else describe(value)
