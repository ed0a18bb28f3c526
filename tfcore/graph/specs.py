"""Specs of tensors and nests of them: their leaves, their text, and the check that a function returns what it declares.

    list(walk({"x": spec}, "batch"))               # [("batch['x']", spec)]
    describe(np.zeros([2, 3]))                     # "float64 [2, 3]"
    leaves = checked("features:rank", {"rank": tf.TensorSpec([None], tf.int32)}, {"rank": ranks})
    # PythonOpError: features:rank: returned int64 [5] for output['rank'], declared int32 [None]

Nothing is cast: TensorFlow would make int64 of an int32 in silence, or inf of a large float64. A Python number, which has
no dtype, takes the declared one where that keeps it, but for a float's rounding; str becomes UTF-8.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf

from headway.messages import short
from tfcore.graph.python_errors import PythonOpError

Spec = Any
"""A tf.TensorSpec, or a dict of them by name, or a list, tuple or namedtuple of them."""


@dataclass(frozen=True)
class Misfit:
    """A value and its expectation, which it does not meet."""

    path: str
    expected: str
    given: str
    fix: str | None = None

    @property
    def argument(self) -> str:
        return self.path if "[" in self.path else repr(self.path)


def walk(spec: Spec, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, such as "batch['x']"; leaf) of each leaf of a nest."""
    if isinstance(spec, Mapping | list | tuple):
        for key, inner in spec.items() if isinstance(spec, Mapping) else enumerate(spec):
            yield from walk(inner, f"{path}[{key!r}]" if path else str(key))
    else:
        yield path, spec


def pairs(path: str, spec: Spec, value: Any) -> Iterator[tuple[str, Any, Any] | Misfit]:
    """(path, leaf of `spec`, leaf of `value`) of each leaf; a Misfit where the structures differ."""
    if isinstance(spec, Mapping | list | tuple):
        if _content(spec) != _content(value):
            yield Misfit(path, _content(spec), _content(value))
            return
        for key, inner in spec.items() if isinstance(spec, Mapping) else enumerate(spec):
            yield from pairs(f"{path}[{key!r}]", inner, value[key])
    else:
        yield path, spec, value


def pack(spec: Spec, leaves: Iterator[Any]) -> Any:
    """Arrange `leaves` in the structure of `spec`; a list becomes a tuple."""
    if isinstance(spec, Mapping):
        return {key: pack(inner, leaves) for key, inner in spec.items()}
    if isinstance(spec, list | tuple):
        inside = [pack(inner, leaves) for inner in spec]
        return type(spec)(*inside) if hasattr(spec, "_fields") else tuple(inside)
    return next(leaves)


def dims(shape: Any) -> str:
    """The text of a shape: "[None, 3]", or "[...]" for any shape."""
    shape = tf.TensorShape(shape)
    return "[...]" if shape.rank is None else str(shape.as_list())


def describe(value: Any) -> str:
    """The text of a spec, tensor or array: "float32 [None, 3]"; the type's name of anything else."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {describe(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, tuple) and value and all(isinstance(inner, tf.TensorSpec) for inner in value):
        return "(" + ", ".join(describe(inner) for inner in value) + ")"
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype} {list(value.shape)}"
    if isinstance(value, tf.Tensor | tf.Variable | tf.TensorSpec | keras.Variable):
        return f"{tf.as_dtype(value.dtype).name} {dims(value.shape)}"
    return type(value).__name__


def side_by_side(rows: Sequence[tuple[str, str, str]]) -> str:
    """Lines that show what was expected and what was given for each of several values."""
    first, second = (max(len(row[i]) for row in rows) for i in range(2))
    return "\n".join(f"  {name:<{first}}  {expected:<{second}}  {actual}" for name, expected, actual in rows)


def value_text(value: Any) -> str:
    """The text of a value: a tensor or array by dtype and shape, anything else by its type and value."""
    plain = isinstance(value, bool | int | float | str | bytes) and not isinstance(value, np.generic)
    return f"{describe(value)} {value!r:.40}" if plain else describe(value)


def _content(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"the keys [{', '.join(sorted(map(repr, value)))}]"
    return f"{len(value)} values" if isinstance(value, list | tuple) else value_text(value)


def checked(where: str, spec: Spec, value: Any) -> list[Any]:
    """The leaves of a result of the function `where`; PythonOpError where it is not as declared."""
    if value is None and isinstance(spec, list | tuple) and not spec:
        return []  # what a function for its effects returns
    leaves = []
    for pair in pairs("output", spec, value):
        if isinstance(pair, Misfit):
            problem = f"returned {pair.given} for {pair.path}, declared are {pair.expected}"
            raise PythonOpError(problem, where=where)
        path, leaf, item = pair
        leaves.append(check(where, path, item, leaf.dtype, leaf.shape))
    return leaves


def check(where: str, what: str, value: Any, dtype: Any, shape: Any) -> Any:
    """Convert `value` to an array or tensor of exactly this dtype and a shape that fits; PythonOpError otherwise."""
    dtype, shape = tf.as_dtype(dtype), tf.TensorShape(shape)
    declared = f"{dtype.name} {dims(shape)}"

    def refuse(returned: str, fix: str | None = None) -> NoReturn:
        raise PythonOpError(f"returned {returned} for {what}, declared {declared}", where=where, fix=fix)

    if isinstance(value, bool | int | float | str | bytes) and not isinstance(value, np.generic):
        converted = _array_of(value, dtype)
        if converted is None:
            refuse(
                f"{type(value).__name__} {short(repr(value), 60)}", "return an array, or declare a dtype that holds it"
            )
        value = converted
    elif isinstance(value, tf.RaggedTensor | tf.SparseTensor):
        refuse(f"a {type(value).__name__}", "return its parts, or to_tensor() or tf.sparse.to_dense() of it")
    elif isinstance(value, np.ma.MaskedArray):
        refuse("a masked array", "fill the masked values: filled(...)")
    elif isinstance(value, tf.IndexedSlices):
        value = tf.convert_to_tensor(value)
    elif hasattr(value, "to_numpy") and hasattr(value, "dtype"):
        value = value.to_numpy()  # a column of a table
    actual, has = getattr(value, "dtype", None), getattr(value, "shape", None)
    if actual is None or has is None:
        refuse(f"a {type(value).__name__}", "return an array or a tensor")
    array = isinstance(value, np.ndarray | np.generic)
    text = array and actual.kind in "SUO"
    same = dtype == tf.string if text else dtype_of(actual) == dtype
    if not same or not shape.is_compatible_with(has):
        name = actual.name if hasattr(actual, "name") else str(actual)
        fix = "convert it in the function, or declare what it returns" if not same else "declare the shape it returns"
        refuse(f"{name} {dims(has)}", fix)
    if text:
        try:
            return _encoded(np.asarray(value))
        except UnicodeEncodeError as error:
            refuse(f"text that UTF-8 cannot encode, {short(repr(str(error.object)), 60)}")
        except TypeError as error:
            refuse(f"an object array with {error}", "make every element str or bytes")
    # TensorFlow takes the bytes as they lie, in a graph
    return value.astype(actual.newbyteorder("=")) if array and not actual.isnative else value


def dtype_of(dtype: Any) -> tf.DType | None:
    """TensorFlow's dtype of a value; None where it has none, as for dates and structured rows."""
    try:
        return tf.as_dtype(dtype)
    except TypeError:
        return None


def _array_of(value: bool | int | float | str | bytes, dtype: tf.DType) -> np.ndarray[Any, Any] | None:
    """The array of a Python value in the declared dtype; None where that would change more than round a float."""
    if isinstance(value, str | bytes):
        return np.asarray(value, object) if dtype == tf.string else None
    kinds = {bool: dtype.is_bool, int: dtype.is_integer or dtype.is_floating, float: dtype.is_floating}
    if not kinds.get(type(value), False):
        return None
    try:
        with np.errstate(over="ignore", under="ignore"):
            array = np.asarray(float(value) if dtype.is_floating else value, dtype.as_numpy_dtype)
    except OverflowError:
        return None
    if isinstance(value, int):
        return array if not dtype.is_floating or float(array) == value else None
    kept = np.isfinite(array) and (array != 0 or value == 0)
    return array if kept or not np.isfinite(value) else None


def _encoded(text: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Encode strings as bytes, a graph's only strings. UnicodeEncodeError, or TypeError for neither str nor bytes."""
    if text.dtype.kind == "U":
        return np.char.encode(text, "utf-8")
    if text.dtype != object or set(map(type, text.flat)) <= {bytes}:
        return text
    encoded = np.empty(text.size, object)
    for i, item in enumerate(text.flat):
        if not isinstance(item, str | bytes):
            raise TypeError(f"the {type(item).__name__} {short(repr(item), 60)}")
        encoded[i] = item.encode() if isinstance(item, str) else item
    return encoded.reshape(text.shape)
