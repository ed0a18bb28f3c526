"""What a Python function declares that it returns, and whether it did.

    leaves = checked("features:rank", {"rank": tf.TensorSpec([None], tf.int32)}, {"rank": found})
    # PythonOpError: features:rank: returned int64 [5] for output['rank'], declared int32 [None]

Nothing is cast: TensorFlow would make int64 of an int32 in silence, or inf of a large float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfcore.python_failure import PythonOpError

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
            given = f"the keys {sorted(value)}" if isinstance(value, Mapping) else f"a {type(value).__name__}"
            raise PythonOpError(f"returned {given} for {path}, declared are the keys {sorted(spec)}", where=where)
        for key, inner in spec.items():
            _collect(where, f"{path}[{key!r}]", inner, value[key], leaves)
    elif isinstance(spec, list | tuple):
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
    if isinstance(value, bool | int | float | str | bytes) and not isinstance(value, np.generic):
        kinds = {bool: dtype.is_bool, int: dtype.is_integer or dtype.is_floating, float: dtype.is_floating}
        if not kinds.get(type(value), dtype == tf.string):
            raise PythonOpError(
                f"returned {type(value).__name__} {value!r} for {what}, declared {declared}", where=where
            )
        value = np.asarray(value, object if dtype == tf.string else dtype.as_numpy_dtype)
    found, has = getattr(value, "dtype", None), getattr(value, "shape", None)
    if found is None or has is None:
        raise PythonOpError(
            f"returned a {type(value).__name__} for {what}, declared {declared}",
            where=where,
            fix="return an array or a tensor",
        )
    text = isinstance(value, np.ndarray | np.generic) and found.kind in "SUO"
    same = dtype == tf.string if text else tf.as_dtype(found) == dtype
    if not same or not shape.is_compatible_with(has):
        name = found.name if hasattr(found, "name") else str(found)
        dims = list(has) if isinstance(has, tuple) else tf.TensorShape(has).as_list()
        fix = "convert it in the function, or declare what it returns" if not same else "declare the shape it returns"
        raise PythonOpError(f"returned {name} {dims} for {what}, declared {declared}", where=where, fix=fix)
    return value


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
