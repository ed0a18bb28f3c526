"""Inputs and outputs of each layer of a Keras model, recorded while it runs eagerly.

    with watched(model) as calls:
        model(batch, training=True)
    calls[0]      # {"layer": "embeddings", "type": "OffsetEmbedding", "depth": 0, "outputs": [...], ...}

Calls are in the order in which they end, so an inner layer stands before the one that calls it, and the first that gives
something is where it comes from.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from headway.errors import HeadwayError
from tfcore.debug.summary import largest, not_finite, summarize
from tfcore.private_api import flat_layers


@contextmanager
def watched(model: keras.Model) -> Iterator[list[dict[str, Any]]]:
    """Record the calls of every layer and op of `model` within the block.

    Each is {layer, type, depth, outputs (summaries), bad_inputs (values that are not finite), largest_input, dead (share
    of the units that are 0 in every row; None where it means nothing), dead_inputs (the greatest such share of an input),
    weights (paths of its trainable variables)}.

    Raises:
        HeadwayError: a layer raised: which, given what, with the exception as its cause.
    """
    calls: list[dict[str, Any]] = []
    depth = [0]
    patched = []
    for operation in _operations(model):
        operation.__dict__["call"] = _watch(operation, operation.call, calls, depth)
        patched.append(operation)
    filtered = keras.config.is_traceback_filtering_enabled()
    keras.config.disable_traceback_filtering()  # it also writes messages anew, and drops causes
    try:
        yield calls
    finally:
        if filtered:
            keras.config.enable_traceback_filtering()
        for operation in patched:
            del operation.__dict__["call"]


def _operations(model: keras.Model) -> list[Any]:
    """The layers of a model, nested ones too, and the plain ops of functional models."""
    operations: dict[int, Any] = {}
    for layer in flat_layers(model):
        own = [] if layer is model else [layer]
        operations |= {id(operation): operation for operation in [*own, *(getattr(layer, "operations", None) or ())]}
    inputs = keras.layers.InputLayer
    return [op for op in operations.values() if not isinstance(op, inputs) and "call" not in vars(op)]


def _watch(
    operation: Any, call: Callable[..., Any], calls: list[dict[str, Any]], depth: list[int]
) -> Callable[..., Any]:
    def watching(*arguments: Any, **keywords: Any) -> Any:
        depth[0] += 1
        try:
            result = call(*arguments, **keywords)
        except HeadwayError:
            raise
        except Exception as error:
            given = _tensors((arguments, keywords))
            shapes = ", ".join(f"{tf.as_dtype(each.dtype).name} {each.shape}" for each in given) or "nothing"
            first = (str(error).strip().splitlines() or ["no message"])[0]
            raise HeadwayError(
                f"raised {type(error).__name__}: {first}", where=f"layer {operation.name!r}, given {shapes}"
            ) from error
        finally:
            depth[0] -= 1
        tensors = _tensors((arguments, keywords))
        inputs = [summarize(tensor) for tensor in tensors]
        outputs = _tensors(result)
        calls.append(
            {
                "layer": operation.name,
                "type": type(operation).__name__,
                "depth": depth[0],
                "outputs": [summarize(tensor) for tensor in outputs],
                "bad_inputs": sum(map(not_finite, inputs)),
                "largest_input": max(map(largest, inputs), default=0.0),
                "dead": _dead(outputs),
                "dead_inputs": max((_dead([tensor]) or 0.0 for tensor in tensors), default=0.0),
                "weights": [variable.path for variable in getattr(operation, "trainable_variables", ())],
            }
        )
        return result

    return watching


def _tensors(nest: Any) -> list[Any]:
    return [leaf for leaf in tf.nest.flatten(nest, expand_composites=False) if tf.is_tensor(leaf)]


def _dead(outputs: list[Any]) -> float | None:
    """The share of units in the last dimension that are 0 for every row and place."""
    if len(outputs) != 1 or not isinstance(outputs[0], tf.Tensor):
        return None
    output = outputs[0]
    if not output.dtype.is_floating or output.shape.rank is None or output.shape.rank < 2 or output.shape[0] < 2:
        return None
    values = np.asarray(output).reshape(-1, output.shape[-1])
    return float(np.mean((values == 0).all(axis=0))) if values.size else None
