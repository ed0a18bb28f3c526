"""Asserts a gradient against finite differences."""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

TOLERANCE = {"float64": 1e-6, "float32": 1e-2}


def assert_gradient(
    function: Callable[[tf.Tensor], tf.Tensor], argument: np.ndarray[Any, Any], *, graph: bool = True
) -> None:
    """Raise AssertionError unless the tape's gradient of `function` agrees with central differences.

    Differences are taken a cube root of the dtype's precision wide: choose an argument that wide of a kink.

    Args:
        graph: differentiate within a tf.function; otherwise eagerly.
    """
    delta = np.cbrt(np.finfo(argument.dtype).eps)
    with contextlib.ExitStack() as ends:
        tf.config.run_functions_eagerly(not graph)
        ends.callback(tf.config.run_functions_eagerly, False)
        [computed], [differences] = tf.test.compute_gradient(function, [tf.constant(argument)], delta)
    assert np.isfinite([computed, differences]).all(), (computed, differences)
    largest = np.abs(differences).max()
    np.testing.assert_allclose(computed, differences, rtol=0, atol=TOLERANCE[argument.dtype.name] * largest)
