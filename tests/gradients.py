"""Asserts a gradient against finite differences."""

from collections.abc import Callable
from typing import Any, NoReturn

import ml_dtypes
import numpy as np
import tensorflow as tf

from tfcore.graph.python_errors import python_errors

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
    """Raise AssertionError unless the tape's gradient of `function` agrees with central differences.

    The outputs (float, any number and structure) are summed with fixed random weights, and that sum is differentiated
    by each float argument. Differences are taken a cube root of the dtype's precision wide, so float64 arguments give
    the sharper test; choose arguments that wide of a kink.

    Args:
        arguments: tensors or arrays; those that are not float are passed as they are.
        tolerance: of |difference| / the argument's largest |gradient|; 1e-6 for float64, 1e-2 for float32. What the
            outputs' rounding does to the differences comes on top.
        graph: differentiate within a tf.function; otherwise eagerly.

    Raises:
        AssertionError: there is no gradient, it is not finite, or differs: argument, place, both values. Or all of an
            argument's gradient is so small beside the outputs that their rounding hides it.
    """
    tensors = [tf.convert_to_tensor(argument) for argument in arguments]
    floating = [i for i, tensor in enumerate(tensors) if tensor.dtype in TOLERANCE]
    if not floating:
        raise AssertionError("no argument is float32 or float64: there is nothing to differentiate by")

    precisions: set[float] = set()

    def weighted(*values: tf.Tensor) -> tf.Tensor:
        outputs = [o for o in tf.nest.flatten(function(*values)) if tf.as_dtype(o.dtype).is_floating]
        if not outputs:
            raise AssertionError("no output is float: there is nothing to differentiate")
        precisions.update(float(ml_dtypes.finfo(o.dtype.as_numpy_dtype).eps) for o in outputs)
        flat = [
            tf.reshape(tf.cast(o, tf.float64) * _weights(tf.shape(o), seed), [-1]) for seed, o in enumerate(outputs)
        ]
        return tf.concat(flat, 0)

    def differentiated(*values: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([values[i] for i in floating])
            total = tf.reduce_sum(weighted(*values))
        return tape.gradient(total, [values[i] for i in floating])

    run = tf.function if graph else (lambda f: f)
    with python_errors():
        gradients = run(differentiated)(*tensors)
        value = run(weighted)
        for i, gradient in zip(floating, gradients, strict=True):
            if gradient is None:
                raise AssertionError(f"argument {i}: there is no gradient")
            limit = tolerance or TOLERANCE[tensors[i].dtype]
            differences = _Differences(i, tensors, value, max(precisions))
            _compare(i, tf.convert_to_tensor(gradient).numpy(), differences, limit, coordinates)


class _Differences:
    """Central differences of the summed outputs by one argument, element by element."""

    def __init__(self, i: int, tensors: list[tf.Tensor], value: Callable[..., Any], precision: float):
        self.i, self.at, self._tensors, self._value = i, tensors[i].numpy(), tensors, value
        self._step = np.cbrt(np.finfo(self.at.dtype).eps)
        self._precision = max(precision, float(np.finfo(self.at.dtype).eps))

    def __call__(self, place: int) -> tuple[float, float]:
        """The difference, and the part of it that may be rounding of the outputs."""
        outputs, ends = [], []
        for sign in (1, -1):
            moved = np.array(self.at)
            moved.flat[place] += sign * self._step * max(1.0, abs(moved.flat[place]))
            ends.append(float(moved.flat[place]))
            arguments = [tf.constant(moved) if j == self.i else t for j, t in enumerate(self._tensors)]
            outputs.append(self._value(*arguments).numpy())
        if outputs[0].shape != outputs[1].shape:
            raise AssertionError(f"argument {self.i} at {self.where(place)}: the outputs' size changes with it")
        changes, width = outputs[0] - outputs[1], ends[0] - ends[1]
        # what does not depend on this place is rounded alike, and cancels; where nothing changes, rounding may be why
        moving = outputs[0][changes != 0] if changes.any() else outputs[0]
        return float(changes.sum()) / width, 4 * self._precision * float(np.linalg.norm(moving)) / width

    def where(self, place: int) -> list[int]:
        return [int(n) for n in np.unravel_index(place, self.at.shape)]


def _compare(
    i: int, gradient: np.ndarray[Any, Any], differences: _Differences, tolerance: float, coordinates: int
) -> None:
    """Compare the gradient of one argument, element by element."""
    at = differences.at
    if gradient.shape != at.shape:
        raise AssertionError(f"argument {i}: the gradient has the shape {gradient.shape}, the argument {at.shape}")
    places = np.arange(at.size)
    if at.size > coordinates:
        places = np.sort(np.random.default_rng(0).choice(places, coordinates, replace=False))
    if not len(places):
        return
    expected, noise = np.array([differences(int(place)) for place in places]).T
    largest = np.abs(expected, where=np.isfinite(expected), out=np.zeros_like(expected)).max()
    for place, computed, difference, rounding in zip(places, gradient.ravel()[places], expected, noise, strict=True):
        unmoved = difference == 0
        allowed = tolerance * largest + (0.0 if unmoved else rounding)
        if abs(computed - difference) <= allowed:
            continue
        if unmoved and abs(computed) <= rounding:
            _hidden(i, abs(computed), rounding)
        raise AssertionError(  # also where one of them is not a number
            f"argument {i} at {differences.where(place)}: the gradient is {computed:.9g}, differences say {difference:.9g} "
            f"(tolerance {tolerance:g})"
        )
    rounding = noise[expected != 0]
    if len(rounding) and largest <= rounding.max():  # a gradient of zeros would have passed
        _hidden(i, largest, rounding.max())


def _hidden(i: int, size: float, noise: float) -> NoReturn:
    raise AssertionError(
        f"argument {i}: finite differences cannot check a gradient of {size:.3g}, since rounding of the outputs alone "
        f"makes up to {noise:.3g}; give float64 arguments, or smaller outputs"
    )


def _weights(shape: tf.Tensor, seed: int) -> tf.Tensor:
    return tf.random.stateless_uniform(shape, [7, seed], 0.5, 1.5, tf.float64)
