"""Asserts that two values are equal bit for bit."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def assert_same_bytes(actual: Any, expected: Any, where: str = "value") -> None:
    """Raise AssertionError, with the first place that differs, unless both values have the same bits.

    Args:
        actual: a tensor, variable, array or number, or a dict, list or tuple of them. NaNs with the same bits are the same, 0.0
            and -0.0 are not.
        expected: likewise.
        where: what the values are called.
    """
    if isinstance(expected, Mapping):
        assert actual.keys() == expected.keys(), f"{where}: the keys {list(actual)}, expected {list(expected)}"
        for name, value in expected.items():
            assert_same_bytes(actual[name], value, f"{where}[{name!r}]")
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected), f"{where}: {len(actual)} values, expected {len(expected)}"
        for i, (one, other) in enumerate(zip(actual, expected, strict=True)):
            assert_same_bytes(one, other, f"{where}[{i}]")
    else:
        one, other = np.asarray(actual), np.asarray(expected)
        kinds = [f"{array.dtype} {list(array.shape)}" for array in (one, other)]
        assert kinds[0] == kinds[1], f"{where}: {kinds[0]}, expected {kinds[1]}"
        width = (one.size, one.dtype.itemsize)
        bits = [np.frombuffer(array.tobytes(), np.uint8).reshape(width) for array in (one, other)]
        different = np.flatnonzero((bits[0] != bits[1]).any(axis=1))
        first = [array.ravel()[different[:1]] for array in (one, other)]
        assert not len(different), (
            f"{where}: {len(different)} of {one.size} differ, first {first[0]}, expected {first[1]}"
        )
