"""Checks that a Python function returns what it declares.

    leaves = checked("features:rank", {"rank": tf.TensorSpec([None], tf.int32)}, {"rank": found})
    # PythonOpError: features:rank: returned int64 [5] for output['rank'], declared int32 [None]

Nothing is cast: TensorFlow would make int64 of an int32 in silence, or inf of a large float64. A Python number, which has
no dtype, takes the declared one where that keeps it, but for a float's rounding; str becomes UTF-8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from tfcore.graph.python_errors import PythonOpError

Signature = Any
"""A tf.TensorSpec, or a dict, list or tuple of them."""


def checked(where: str, signature: Signature, value: Any) -> list[Any]:
    """The leaves of what the function `where` returned; PythonOpError where it is not what was declared."""
    leaves: list[Any] = []
    _collect(where, "output", signature, value, leaves)
    return leaves


def _collect(where: str, path: str, spec: Signature, value: Any, leaves: list[Any]) -> None:
    if isinstance(spec, Mapping):
        if not isinstance(value, Mapping) or set(value) != set(spec):
            given = f"the keys {sorted(value, key=repr)}" if isinstance(value, Mapping) else f"a {type(value).__name__}"
            declared = sorted(spec, key=repr)
            raise PythonOpError(f"returned {given} for {path}, declared are the keys {declared}", where=where)
        for key, inner in spec.items():
            _collect(where, f"{path}[{key!r}]", inner, value[key], leaves)
    elif isinstance(spec, list | tuple):
        if value is None and not spec:
            return  # what a function for its effects returns
        if not isinstance(value, list | tuple) or len(value) != len(spec):
            given = f"{len(value)} values" if isinstance(value, list | tuple) else f"a {type(value).__name__}"
            raise PythonOpError(f"returned {given} for {path}, declared are {len(spec)}", where=where)
        for i, (inner, one) in enumerate(zip(spec, value, strict=True)):
            _collect(where, f"{path}[{i}]", inner, one, leaves)
    else:
        leaves.append(check(where, path, value, spec.dtype, spec.shape))


def check(where: str, what: str, value: Any, dtype: Any, shape: Any) -> Any:
    """`value` as an array or tensor of just this dtype and a shape that fits; PythonOpError otherwise."""
    dtype, shape = tf.as_dtype(dtype), tf.TensorShape(shape)
    declared = f"{dtype.name} {shape.as_list() if shape.rank is not None else '[...]'}"

    def refuse(returned: str, fix: str | None = None) -> NoReturn:
        raise PythonOpError(f"returned {returned} for {what}, declared {declared}", where=where, fix=fix)

    if isinstance(value, bool | int | float | str | bytes) and not isinstance(value, np.generic):
        kinds = {bool: dtype.is_bool, int: dtype.is_integer or dtype.is_floating, float: dtype.is_floating}
        if not kinds.get(type(value), dtype == tf.string and isinstance(value, str | bytes)):
            refuse(f"{type(value).__name__} {value!r}")
        if isinstance(value, int | float) and not _kept(value, dtype):
            refuse(f"{type(value).__name__} {_short(value)}", f"{dtype.name} does not hold it: declare another dtype")
        value = np.asarray(value, object if dtype == tf.string else dtype.as_numpy_dtype)
    elif isinstance(value, tf.RaggedTensor | tf.SparseTensor):
        refuse(f"a {type(value).__name__}", "return its parts, or to_tensor() or tf.sparse.to_dense() of it")
    elif isinstance(value, np.ma.MaskedArray):
        refuse("a masked array", "say what stands where it is masked: filled(...)")
    elif isinstance(value, tf.IndexedSlices):
        value = tf.convert_to_tensor(value)
    elif hasattr(value, "to_numpy") and hasattr(value, "dtype"):
        value = value.to_numpy()  # a column of a table
    found, has = getattr(value, "dtype", None), getattr(value, "shape", None)
    if found is None or has is None:
        refuse(f"a {type(value).__name__}", "return an array or a tensor")
    array = isinstance(value, np.ndarray | np.generic)
    text = array and found.kind in "SUO"
    same = dtype == tf.string if text else dtype_of(found) == dtype
    if not same or not shape.is_compatible_with(has):
        name = found.name if hasattr(found, "name") else str(found)
        dims = list(has) if isinstance(has, tuple) else tf.TensorShape(has).as_list()
        fix = "convert it in the function, or declare what it returns" if not same else "declare the shape it returns"
        refuse(f"{name} {dims}", fix)
    if text:
        try:
            return _encoded(np.asarray(value))
        except UnicodeEncodeError as error:
            refuse(f"text that UTF-8 has no form for, {_short(str(error.object))}")
        except TypeError as error:
            refuse(f"an object array with {error}", "make every element str or bytes")
    # TensorFlow takes the bytes as they lie, in a graph
    return value.astype(found.newbyteorder("=")) if array and not found.isnative else value


def dtype_of(found: Any) -> tf.DType | None:
    """TensorFlow's, where it has one: none for dates, or rows of fields."""
    try:
        return tf.as_dtype(found)
    except TypeError:
        return None


def _kept(value: float, dtype: tf.DType) -> bool:
    """Whether a Python number is still there as a `dtype`: as it is, or a float as the nearest that is finite, not 0."""
    if dtype.is_bool:
        return True
    if dtype.is_integer:
        return bool(dtype.min <= value <= dtype.max)
    try:
        with np.errstate(over="ignore", under="ignore"):
            made = float(np.asarray(float(value), dtype.as_numpy_dtype))
    except OverflowError:  # an int of more digits than a float has room for
        return False
    if isinstance(value, int):
        return made == value
    return not np.isfinite(value) or (bool(np.isfinite(made)) and (made != 0.0 or value == 0.0))


def _encoded(text: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Strings as bytes: a graph takes no others. UnicodeEncodeError, or TypeError of what is neither str nor bytes."""
    if text.dtype.kind == "U":
        return np.char.encode(text, "utf-8")
    if text.dtype != object or set(map(type, text.flat)) <= {bytes}:
        return text
    made = np.empty(text.size, object)
    for i, one in enumerate(text.flat):
        if not isinstance(one, str | bytes):
            raise TypeError(f"the {type(one).__name__} {_short(one)}")
        made[i] = one.encode() if isinstance(one, str) else one
    return made.reshape(text.shape)


def _short(value: Any) -> str:
    shown = repr(value) if not isinstance(value, int) or value.bit_length() < 256 else f"of {value.bit_length()} bits"
    return shown if len(shown) <= 60 else shown[:57] + "..."


def flatten(spec: Signature, path: str = "output") -> list[tuple[str, Any]]:
    """(its place, a leaf) of a signature."""
    if isinstance(spec, Mapping):
        return [leaf for key, inner in spec.items() for leaf in flatten(inner, f"{path}[{key!r}]")]
    if isinstance(spec, list | tuple):
        return [leaf for i, inner in enumerate(spec) for leaf in flatten(inner, f"{path}[{i}]")]
    return [(path, spec)]


def pack(spec: Signature, leaves: Any) -> Any:
    """`leaves` structured as the signature; a list becomes a tuple."""
    if isinstance(spec, Mapping):
        return {key: pack(inner, leaves) for key, inner in spec.items()}
    if isinstance(spec, list | tuple):
        return tuple(pack(inner, leaves) for inner in spec)
    return next(leaves)
