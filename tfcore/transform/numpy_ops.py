"""The numeric operations in NumPy: what fitting sends train values through, and what the tests hold the graph against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tfcore.transform.parameters import FittedOp


def apply_numeric(op: FittedOp, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """One numeric operation on finite float64 values of any shape."""
    if op.op == "standardize":
        assert op.mean is not None and op.std is not None
        return (values - op.mean) / op.std
    if op.op == "min_max":
        assert op.minimum is not None and op.maximum is not None and op.low is not None and op.high is not None
        return (values - op.minimum) / (op.maximum - op.minimum) * (op.high - op.low) + op.low
    if op.op == "log":
        return np.sign(values) * np.log1p(np.abs(values))
    if op.op == "clip":
        return np.clip(values, op.minimum, op.maximum)
    return values


def bucket(op: FittedOp, values: NDArray[np.float64]) -> NDArray[np.int64]:
    """The bucket of each value: how many boundaries are at or below it."""
    return np.searchsorted(np.asarray(op.boundaries, np.float64), values, side="right")
