"""Assertions for a user's own tests: that nothing is retraced, that a signature is as expected, that predictions agree.

    with assert_no_retrace(step): ...                          # one trace, whatever it is called with in the block
    assert_signature(function, {"x": spec}, {"y": spec})       # what it takes and returns, exactly
    assert_same_predictions(saved_model, rows, expected)       # a SavedModel, or anything that is called with rows

Each raises AssertionError that says where, what was expected and what was found. They do not need pytest.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfcore.graph.function import GraphFunction
from tfcore.graph.retrace import RetraceError, RetraceGuard
from tfcore.graph.specs import dims, side_by_side

__all__ = ["assert_no_retrace", "assert_same_predictions", "assert_signature"]


@contextmanager
def assert_no_retrace(*functions: Any, allowed: int = 1) -> Iterator[RetraceGuard]:
    """Raise AssertionError when one of `functions` is traced more than `allowed` times within the block.

    Args:
        functions: tf.functions, or objects that count their own `traces` (GraphFunction, Learner).
        allowed: the most traces of each function, including those before the block; if there were more before, that number.
            With jit, a GraphFunction also counts new contexts and shapes, for which XLA compiles again.
    """
    guard = RetraceGuard(*functions, allowed=allowed)
    yield guard
    try:
        guard.check()
    except RetraceError as error:
        raise AssertionError(str(error)) from None


def assert_signature(
    function: Any,
    inputs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, Any] | None = None,
    *,
    signature: str = "serving_default",
) -> None:
    """Raise AssertionError unless `function` takes and returns exactly these tensors.

    Args:
        function: a SavedModel's folder, a GraphFunction, a tf.function with an input_signature, or a concrete function.
        inputs: {name: tf.TensorSpec, or (dtype, shape)}; None: not compared.
        outputs: likewise; a single output is called "output", those of a tuple "output_0" and on.
        signature: the name of the signature, if `function` is a SavedModel's folder.

    Raises:
        AssertionError: lists every tensor that differs, with expected and found side by side.
    """
    concrete = _concrete(function, signature)
    positional, named = concrete.structured_input_signature
    names = [name for name in concrete.function_type.parameters if name not in named]
    arguments = dict(named) | dict(zip(names, positional, strict=False))
    if isinstance(function, GraphFunction):  # its graph takes the leaves
        arguments = function.signature
    rows: list[tuple[str, str, str]] = []
    if inputs is not None:
        rows += _differences("input", _flat(arguments), _flat(inputs))
    if outputs is not None:
        rows += _differences("output", _flat_outputs(concrete.structured_outputs), _flat(outputs))
    if rows:
        rows.insert(0, ("tensor", "expected", "found"))
        raise AssertionError(f"another signature:\n{side_by_side(rows)}")


def assert_same_predictions(
    function: Any, rows: Mapping[str, Any], expected: Any, *, bound: float = 1e-5, signature: str = "serving_default"
) -> None:
    """Raise AssertionError unless `function` predicts `expected` for `rows`.

    Args:
        function: a SavedModel's folder, or a function of `rows`: a Keras model, a tf.function, a preprocess function.
        rows: {name: tensor or array}, one element per row.
        expected: the numbers that were predicted elsewhere, [rows, ...]; for several outputs {name: numbers}.
        bound: the largest |difference| / max(1, |expected|) that passes; 0: only equal numbers pass.

    Raises:
        AssertionError: names the worst row, its inputs and both values; or an output that is missing or has another shape.
    """
    tensors = {name: tf.convert_to_tensor(value) for name, value in rows.items()}
    if isinstance(function, str | Path):
        called = _concrete(function, signature)
        found = called(**{name: tensors[name] for name in called.structured_input_signature[1]})
    else:
        found = function(tensors)
    outputs = found if isinstance(found, Mapping) else {"output": found}
    wanted = expected if isinstance(expected, Mapping) else dict.fromkeys(outputs, expected)
    if lacking := [name for name in wanted if name not in outputs]:
        raise AssertionError(f"there is no output {lacking[0]!r}, only {sorted(outputs)}")
    for name, numbers in wanted.items():
        one, other = (np.asarray(value, np.float64) for value in (outputs[name], numbers))
        if one.shape != other.shape:
            raise AssertionError(f"{name} has the shape {list(one.shape)}, expected {list(other.shape)}")
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        with np.errstate(invalid="ignore"):
            off = np.where(same, 0.0, np.nan_to_num(abs(one - other) / np.maximum(1.0, abs(other)), nan=np.inf))
        if off.size and off.max() > bound:
            row = int(np.unravel_index(int(off.argmax()), off.shape)[0])
            values = {key: value.numpy().tolist()[row] for key, value in tensors.items()}
            raise AssertionError(
                f"{name} differs by {off.max():.3g} in row {row} (bound {bound:g}): it is {one[row]}, expected {other[row]}"
                f"\n  the row: {values}"
            )


def _concrete(function: Any, signature: str) -> Any:
    if isinstance(function, str | Path):
        return tf.saved_model.load(str(function)).signatures[signature]
    if isinstance(function, GraphFunction):
        return function.trace()
    return function if hasattr(function, "structured_outputs") else function.get_concrete_function()


def _flat_outputs(results: Any) -> dict[str, str]:
    if isinstance(results, Mapping):
        return _flat(results)
    if isinstance(results, list | tuple):
        return _flat({f"output_{i}": result for i, result in enumerate(results)})
    return _flat({"output": results})


def _flat(specs: Any, path: str = "") -> dict[str, str]:
    if isinstance(specs, Mapping):
        return {name: text for key, inner in specs.items() for name, text in _flat(inner, _below(path, key)).items()}
    if isinstance(specs, list | tuple) and not (len(specs) == 2 and isinstance(specs[0], str | tf.DType)):
        return _flat({f"[{i}]": inner for i, inner in enumerate(specs)}, path)
    dtype, shape = specs if isinstance(specs, tuple) else (specs.dtype, specs.shape)
    return {path: f"{tf.as_dtype(dtype).name} {dims(shape)}"}


def _below(path: str, key: Any) -> str:
    return f"{path}{key}" if str(key).startswith("[") else f"{path}[{key!r}]" if path else str(key)


def _differences(kind: str, actual: Mapping[str, str], expected: Mapping[str, str]) -> list[tuple[str, str, str]]:
    return [
        (f"{kind} {name!r}", expected.get(name, "nothing"), actual.get(name, "nothing"))
        for name in dict.fromkeys([*expected, *actual])
        if expected.get(name) != actual.get(name)
    ]
