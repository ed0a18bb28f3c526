"""A tensor in one line: dtype, shape, the range of its finite values, zeros, NaNs and infinities.

summarize(tf.constant([0.0, 2.0, float("nan")]))
# {"dtype": "float32", "shape": [3], "min": 0.0, "max": 2.0, "mean": 1.0, "zeros": 1 / 3, "nan": 1, "inf": 0}
"""

from typing import Any

import numpy as np
import tensorflow as tf


def summarize(tensor: Any) -> dict[str, Any]:
    """The facts of a dense, ragged or sparse tensor, an IndexedSlices, or an array, as JSON values.

    Returns:
        dtype and shape; of numbers also min, max and mean of the finite values (None where there are none), zeros (the
        share of all values), nan and inf (counts). Of a ragged or sparse tensor it is the stored values that count.
    """
    if isinstance(tensor, tf.IndexedSlices):
        tensor = tf.convert_to_tensor(tensor)
    shape = [None if size is None else int(size) for size in tensor.shape]
    if isinstance(tensor, tf.RaggedTensor):
        tensor = tensor.flat_values
    elif isinstance(tensor, tf.SparseTensor):
        tensor = tensor.values
    if not tf.is_tensor(tensor) and not isinstance(tensor, np.ndarray):
        tensor = tf.convert_to_tensor(tensor)
    dtype = tf.as_dtype(tensor.dtype)
    facts: dict[str, Any] = {"dtype": dtype.name, "shape": shape}
    if not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
        return facts
    values = np.asarray(tensor)
    if dtype.is_bool:
        values = values.astype(np.int8)
    elif dtype.is_floating and values.dtype != np.float64:
        values = values.astype(np.float32)  # also bfloat16, which NumPy itself cannot sum
    finite = values[np.isfinite(values)] if dtype.is_floating else values.ravel()
    return facts | {
        "min": float(finite.min()) if finite.size else None,
        "max": float(finite.max()) if finite.size else None,
        "mean": float(finite.mean(dtype=np.float64)) if finite.size else None,
        "zeros": float(np.mean(values == 0)) if values.size else 0.0,
        "nan": int(np.isnan(values).sum()) if dtype.is_floating else 0,
        "inf": int(np.isinf(values).sum()) if dtype.is_floating else 0,
    }


def not_finite(facts: dict[str, Any]) -> int:
    """The number of values that are not finite."""
    return int(facts.get("nan", 0)) + int(facts.get("inf", 0))


def largest(facts: dict[str, Any]) -> float:
    """The largest absolute value of a summary; 0 where there is none."""
    low, high = facts.get("min"), facts.get("max")
    return 0.0 if low is None or high is None else max(abs(low), abs(high))
