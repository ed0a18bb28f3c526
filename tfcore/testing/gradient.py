"""A gradient against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfcore.python_failure import python_errors

TOLERANCE = {tf.float64: 1e-6, tf.float32: 1e-2}
COORDINATES = 64
"""Of a large argument, so many places are compared, the same ones each time."""


def assert_gradient(
    function: Callable[..., Any],
    *arguments: Any,
    tolerance: float | None = None,
    coordinates: int = COORDINATES,
    graph: bool = True,
) -> None:
    """AssertionError unless the tape's gradient of `function` is that of central differences.

    The outputs (float, any number and structure) are summed with fixed random weights, and that sum is differentiated
    by each float argument. Differences are taken a cube root of the dtype's precision wide, so float64 arguments give
    the sharper test; choose arguments that wide of a kink.

    Args:
        arguments: tensors or arrays; those that are not float are passed as they are.
        tolerance: of |difference| / max(1, |gradient|); 1e-6 for float64, 1e-2 for float32.
        graph: differentiate within a tf.function; otherwise eagerly.

    Raises:
        AssertionError: there is no gradient, it is not finite, or differs: argument, place, both values.
    """
    tensors = [tf.convert_to_tensor(argument) for argument in arguments]
    floating = [i for i, tensor in enumerate(tensors) if tensor.dtype in TOLERANCE]
    if not floating:
        raise AssertionError("no argument is float32 or float64: there is nothing to differentiate by")

    def weighted(*values: tf.Tensor) -> tf.Tensor:
        outputs = [o for o in tf.nest.flatten(function(*values)) if tf.as_dtype(o.dtype).is_floating]
        if not outputs:
            raise AssertionError("no output is float: there is nothing to differentiate")
        sums = [
            tf.reduce_sum(tf.cast(o, tf.float64) * tf.cast(_weights(tf.shape(o), seed), tf.float64))
            for seed, o in enumerate(outputs)
        ]
        return tf.add_n(sums)

    def differentiated(*values: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([values[i] for i in floating])
            total = weighted(*values)
        return tape.gradient(total, [values[i] for i in floating])

    run = tf.function if graph else (lambda f: f)
    with python_errors():
        gradients = run(differentiated)(*tensors)
        value = run(weighted)
        for i, gradient in zip(floating, gradients, strict=True):
            if gradient is None:
                raise AssertionError(f"argument {i}: there is no gradient")
            found = tf.convert_to_tensor(gradient).numpy()
            _compare(i, found, tensors, value, tolerance or TOLERANCE[tensors[i].dtype], coordinates)


def _compare(
    i: int,
    found: np.ndarray[Any, Any],
    tensors: list[tf.Tensor],
    value: Callable[..., Any],
    tolerance: float,
    coordinates: int,
) -> None:
    """One argument, place by place."""
    at = tensors[i].numpy()
    if found.shape != at.shape:
        raise AssertionError(f"argument {i}: the gradient has the shape {found.shape}, the argument {at.shape}")
    step = np.cbrt(np.finfo(at.dtype).eps)
    places = np.arange(at.size)
    if at.size > coordinates:
        places = np.sort(np.random.default_rng(0).choice(places, coordinates, replace=False))
    for place in places:
        sums, width = [], []
        for sign in (1, -1):
            moved = np.array(at)
            moved.flat[place] += sign * step * max(1.0, abs(moved.flat[place]))
            width.append(float(moved.flat[place]))
            sums.append(float(value(*(tf.constant(moved) if j == i else t for j, t in enumerate(tensors)))))
        expected = (sums[0] - sums[1]) / (width[0] - width[1])
        one = float(found.flat[place])
        if not abs(one - expected) <= tolerance * max(1.0, abs(expected)):  # also where one of them is not a number
            where = [int(n) for n in np.unravel_index(place, at.shape)]
            raise AssertionError(
                f"argument {i} at {where}: the gradient is {one:.9g}, differences say {expected:.9g} "
                f"(tolerance {tolerance:g})"
            )


def _weights(shape: tf.Tensor, seed: int) -> tf.Tensor:
    return tf.random.stateless_uniform(shape, [7, seed], 0.5, 1.5, tf.float64)
