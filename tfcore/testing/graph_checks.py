"""Asserts on graph functions: the number of traces, and their inputs and outputs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfcore.graph.function import GraphFunction
from tfcore.graph.retrace import RetraceError, RetraceGuard
from tfcore.graph.specs import dims, side_by_side


@contextmanager
def assert_no_retrace(*functions: Any, allowed: int = 1) -> Iterator[RetraceGuard]:
    """Raise AssertionError when one of `functions` is traced more than `allowed` times within the block.

    Args:
        functions: tf.functions, or what counts its own `traces` (GraphFunction, Learner).
        allowed: traces of each, those before the block included, unless there were more already. With jit a
            GraphFunction's count those of new contexts and shapes, which XLA compiles anew.
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
        signature: of a SavedModel.

    Raises:
        AssertionError: every tensor that differs, expected and found side by side; or there is no such folder, or no one
            signature to compare.
    """
    concrete = _concrete(function, signature)
    positional, named = concrete.structured_input_signature
    arguments = dict(named)
    if positional:
        names = [name for name in concrete.function_type.parameters if name not in named]
        arguments |= dict(zip(names, positional, strict=False))
    if isinstance(function, GraphFunction):  # its graph takes the leaves
        arguments = function.signature
    results = concrete.structured_outputs
    rows: list[tuple[str, str, str]] = []
    if inputs is not None:
        rows += _differences("input", _flat(arguments), _flat(inputs))
    if outputs is not None:
        rows += _differences("output", _flat_outputs(results), _flat(outputs))
    if rows:
        rows.insert(0, ("tensor", "expected", "found"))
        raise AssertionError(f"another signature:\n{side_by_side(rows)}")


def _concrete(function: Any, signature: str) -> Any:
    if isinstance(function, str | Path):
        if not tf.saved_model.contains_saved_model(str(function)):
            raise AssertionError(f"{function}: expected a SavedModel's folder, there is no saved_model.pb in it")
        signatures = tf.saved_model.load(str(function)).signatures
        if signature not in signatures:
            raise AssertionError(f"{function} has no signature {signature!r}; it has {sorted(signatures)}")
        return signatures[signature]
    if isinstance(function, GraphFunction):
        return function.trace()
    if hasattr(function, "structured_outputs"):
        return function
    name = getattr(function, "__name__", type(function).__name__)
    if not hasattr(function, "get_concrete_function"):
        raise AssertionError(
            f"{name} has no signature: it is neither a tf.function nor a GraphFunction nor a SavedModel"
        )
    try:
        return function.get_concrete_function()
    except TypeError as error:
        if getattr(function, "input_signature", None) is not None:
            raise
        raise AssertionError(
            f"{name} has no signature of its own ({str(error).splitlines()[0]}): give it an input_signature, or make it a "
            "graph_function"
        ) from error


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
