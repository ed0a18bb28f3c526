"""A compiled function that is traced once, and says why when something would have it traced again.

    @graph_function(x=tf.TensorSpec([None, 3], tf.float32), scale=tf.TensorSpec([], tf.float32))
    def scaled(x, scale):
        return x * scale

    scaled(x=np.ones([2, 3], np.float32), scale=np.float32(2))
    scaled(x=np.ones([2, 3]), scale=np.float32(2))
    # SignatureError: scaled: argument 'x': expected float32 [None, 3], given float64 [2, 3]

`tf.function` retraces in silence, casts NumPy float64 in silence, and turns every other Python number into a graph of
its own. Here every argument has a spec, checked before anything is bound. With `jit="auto"` the first call tries XLA;
when XLA refuses, nothing has run yet (a program that does not compile touches no variable), the same graph is used as
it is, and `mode` says so. The body is traced once whichever it is, without AutoGraph: loops are tf.while_loop.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from headway.errors import HeadwayError
from tfcore.python_failure import reraise

Jit = Literal["auto", "on", "off"]
Spec = Any
"""A tf.TensorSpec, or a dict of them by name."""

_REFUSALS = (
    tf.errors.InvalidArgumentError,
    tf.errors.UnimplementedError,
    tf.errors.InternalError,
    tf.errors.NotFoundError,
    tf.errors.FailedPreconditionError,
)
"""What XLA raises for graphs it cannot compile, by version and by op."""


class SignatureError(HeadwayError):
    """An argument does not fit the signature: which one, what was expected, what was given."""


class RetraceError(HeadwayError):
    """The body of a graph function was about to be traced a second time."""


class GraphFunction:
    """See the module. `traces` counts how often the body was traced; `mode` is "jit" or "graph" after a call."""

    def __init__(
        self,
        body: Callable[..., Any],
        signature: Mapping[str, Spec],
        *,
        jit: Jit = "off",
        log: Callable[[str], None] | None = None,
    ):
        self.name = body.__name__.lstrip("_")
        self.signature = dict(signature)
        self.traces = 0
        self.mode: Literal["jit", "graph"] | None = None
        self._jit, self._log, self._body = jit, log or (lambda line: None), body
        self._call: Callable[..., Any] | None = None
        accepted = list(inspect.signature(body).parameters)
        if accepted != list(self.signature):
            raise TypeError(f"{self.name} takes {accepted}, its signature names {list(self.signature)}")

    def __call__(self, **arguments: Any) -> Any:
        flat = self._check(arguments)
        try:
            return self._call(*flat) if self._call else self._first_call(flat)
        except tf.errors.OpError as error:
            reraise(error)  # a Python function in the graph failed: that is the error
            raise

    def trace(self) -> tf.types.experimental.ConcreteFunction:
        """The traced body, un-jitted: for looking at its graph, or for a SavedModel. Traces it if need be."""
        if not hasattr(self, "_graph"):
            specs = [spec for _, spec in _leaves(self.signature)]
            # a body says tf.while_loop and tf.cond itself: looking for Python's own would take most of the trace's time
            traced = tf.function(self._traced, input_signature=specs, autograph=False)
            self._graph = traced.get_concrete_function()
        return self._graph

    def _traced(self, *flat: Any) -> Any:
        self.traces += 1
        if self.traces > 1:
            raise RetraceError(
                f"{self.name} was traced again with {_describe_all(flat)}",
                fix="create variables (and build the optimizer) before the first call, and call it in one context only",
            )
        leaves = iter(flat)
        return self._body(**{name: _unflatten(spec, leaves) for name, spec in self.signature.items()})

    def _first_call(self, flat: list[Any]) -> Any:
        graph = self.trace()
        if self._jit == "off":
            self.mode, self._call = "graph", graph
            return graph(*flat)
        specs = [spec for _, spec in _leaves(self.signature)]
        jitted = tf.function(lambda *leaves: graph(*leaves), input_signature=specs, jit_compile=True, autograph=False)
        try:
            result = jitted(*flat)
        except _REFUSALS as error:
            if self._jit == "on":
                raise HeadwayError(
                    f"XLA cannot compile {self.name}: {refusal(error)}", fix="set training.jit to auto or off"
                ) from error
            self._log(f"XLA cannot compile {self.name}, so it runs uncompiled: {refusal(error)}")
            self.mode, self._call = "graph", graph
            return graph(*flat)
        self.mode, self._call = "jit", jitted
        return result

    def _check(self, arguments: dict[str, Any]) -> list[Any]:
        """The leaves of `arguments` in the signature's order; SignatureError for the first that does not fit."""
        for name in arguments:
            if name not in self.signature:
                raise self._mismatch(name, "no such argument", arguments[name])
        flat: list[Any] = []
        for name, spec in self.signature.items():
            if name not in arguments:
                raise SignatureError(f"argument {name!r}: expected {_describe(spec)}, given nothing", where=self.name)
            self._collect(name, spec, arguments[name], flat)
        return flat

    def _collect(self, name: str, spec: Spec, value: Any, flat: list[Any]) -> None:
        if isinstance(spec, Mapping):
            if not isinstance(value, Mapping) or set(value) != set(spec):
                given = f"the keys {sorted(value)}" if isinstance(value, Mapping) else type(value).__name__
                raise self._mismatch(name, f"the keys {sorted(spec)}", given)
            for key, inner in spec.items():
                self._collect(f"{name}[{key!r}]", inner, value[key], flat)
            return
        dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
        # a Python number or list has no dtype: binding it would pick one, and cast in silence
        if dtype is None or shape is None:
            raise self._mismatch(name, _describe(spec), f"{type(value).__name__} {value!r:.40}")
        if tf.as_dtype(dtype) != spec.dtype or not spec.shape.is_compatible_with(shape):
            raise self._mismatch(name, _describe(spec), _describe(value))
        flat.append(value if isinstance(value, tf.Tensor) else tf.convert_to_tensor(value))

    def _mismatch(self, name: str, expected: str, given: Any) -> SignatureError:
        text = given if isinstance(given, str) else _describe(given)
        return SignatureError(f"argument {name!r}: expected {expected}, given {text}", where=self.name)


def graph_function(
    *, jit: Jit = "off", log: Callable[[str], None] | None = None, **signature: Spec
) -> Callable[[Callable[..., Any]], GraphFunction]:
    """Decorator: `signature` gives each argument of the body, in order, its tf.TensorSpec (or a dict of them)."""
    return lambda body: GraphFunction(body, signature, jit=jit, log=log)


def refusal(error: BaseException) -> str:
    """The telling part of XLA's message, on one line."""
    text = " ".join(str(error).split())
    start = text.find(" on XLA_")
    cut = text.find("{{", start)
    text = text[start + 4 : cut if cut > start else None] if start >= 0 else text
    return text[:300].strip()


def _leaves(spec: Mapping[str, Spec], prefix: str = "") -> list[tuple[str, tf.TensorSpec]]:
    found: list[tuple[str, tf.TensorSpec]] = []
    for name, inner in spec.items():
        path = f"{prefix}{name}"
        if isinstance(inner, Mapping):
            found += _leaves(inner, f"{path}_")
        else:
            found.append((path, tf.TensorSpec(inner.shape, inner.dtype, name=path)))
    return found


def _unflatten(spec: Spec, leaves: Any) -> Any:
    if isinstance(spec, Mapping):
        return {key: _unflatten(inner, leaves) for key, inner in spec.items()}
    return next(leaves)


def _describe(value: Any) -> str:
    """dtype and shape of a spec, tensor or array: "float32 [None, 3]"."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_describe(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype} {list(value.shape)}"
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is None or shape is None:
        return type(value).__name__
    dims = tf.TensorShape(shape)
    return f"{tf.as_dtype(dtype).name} {dims.as_list() if dims.rank is not None else '[...]'}"


def _describe_all(values: Any) -> str:
    return ", ".join(_describe(value) for value in values)
