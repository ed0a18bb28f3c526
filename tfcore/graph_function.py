"""A compiled function that is traced once, and says why when something would have it traced again.

    @graph_function(signature={"x": tf.TensorSpec([None, 3], tf.float32), "scale": tf.TensorSpec([], tf.float32)})
    def scaled(x, scale):
        return x * scale

    scaled(x=np.ones([2, 3], np.float32), scale=np.float32(2))
    scaled(x=np.ones([2, 3]), scale=np.float32(2))
    # SignatureError: scaled: argument 'x': expected float32 [None, 3], given float64 [2, 3]

`tf.function` retraces in silence, casts NumPy float64 in silence, and turns every other Python number into a graph of
its own. Here every argument has a spec, checked before anything is bound. A Python number where a tensor is declared is
refused with what it would cost, or, with `scalars="convert"`, becomes a tensor where that loses nothing.

With `jit="auto"` the first call tries XLA; when XLA refuses, nothing has run yet (a program that does not compile
touches no variable), the same graph is used as it is, and `mode` says so. The body is traced once whichever it is,
without AutoGraph unless asked for: loops are tf.while_loop. Threads may make the first call together: one traces, the others
wait. A body that raises while it is traced raises that, and the next call traces it again.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from headway.errors import HeadwayError
from tfcore.python_failure import reraise
from tfcore.retrace import RetraceError
from tfcore.xla import intended

__all__ = ["GraphFunction", "Jit", "RetraceError", "SignatureError", "Spec", "graph_function", "refusal"]

Jit = Literal["auto", "on", "off"]
Scalars = Literal["refuse", "convert"]
Spec = Any
"""A tf.TensorSpec, or a dict of them by name, or a list or tuple of them."""

_REFUSALS = (
    tf.errors.InvalidArgumentError,
    tf.errors.UnimplementedError,
    tf.errors.InternalError,
    tf.errors.NotFoundError,
    tf.errors.FailedPreconditionError,
)
"""What XLA raises for graphs it cannot compile, by version and by op."""


class SignatureError(HeadwayError):
    """Arguments do not fit the signature: which ones, what was expected, what was given."""


class GraphFunction:
    """See the module. `trace_seconds` is how long tracing took; `mode` is "jit" or "graph" after a call.

    Under XLA a call in another context (a device, a strategy) compiles the program once more, which takes seconds, and
    TensorFlow says nothing: that counts as a trace, and a `RetraceGuard` tells of it.
    """

    def __init__(
        self,
        body: Callable[..., Any],
        signature: Mapping[str, Spec],
        *,
        jit: Jit = "off",
        scalars: Scalars = "refuse",
        autograph: bool = False,
        log: Callable[[str], None] | None = None,
    ):
        self.name = body.__name__.lstrip("_")
        self.signature = dict(signature)
        self._bodies = 0
        self.compiled: list[Any] = []
        """The tf.functions that XLA compiled: what a `RetraceGuard` reads the reason of a second trace from."""
        self.mode: Literal["jit", "graph"] | None = None
        self.trace_seconds = 0.0
        self._jit, self._log, self._body = jit, log or (lambda line: None), body
        self._scalars, self._autograph = scalars, autograph
        self._call: Callable[..., Any] | None = None
        self._graph: tf.types.experimental.ConcreteFunction | None = None
        self._first = threading.RLock()
        """Held until there is a graph and a way to call it; a body that calls its own function finds it open."""
        accepted = list(inspect.signature(body).parameters)
        if accepted != list(self.signature):
            raise TypeError(f"{self.name} takes {accepted}, its signature names {list(self.signature)}")

    @property
    def traces(self) -> int:
        """How often the body was traced, or compiled for another context."""
        return max([self._bodies, *(function.experimental_get_tracing_count() for function in self.compiled)])

    def __call__(self, **arguments: Any) -> Any:
        flat = self._check(arguments)
        try:
            return self._call(*flat) if self._call else self._first_call(flat)
        except tf.errors.OpError as error:
            reraise(error)  # a Python function in the graph failed: that is the error
            raise

    def trace(self) -> tf.types.experimental.ConcreteFunction:
        """The traced body, un-jitted: for looking at its graph, or for a SavedModel. Traces it if need be."""
        with self._first:
            if self._graph is None:
                specs = [spec for _, spec in _leaves(self.signature)]
                # a body that says tf.while_loop and tf.cond itself is traced faster: looking for Python's own takes longest
                traced = tf.function(self._traced, input_signature=specs, autograph=False)
                began = time.perf_counter()
                try:
                    with intended(self._jit != "off"):  # by then TensorFlow does not know that the graph is for XLA
                        self._graph = traced.get_concrete_function()
                except BaseException:
                    if self._bodies == 1:  # more are of a body that makes variables, which goes on making them
                        self._bodies = 0
                    raise
                self.trace_seconds = time.perf_counter() - began
            return self._graph

    def _traced(self, *flat: Any) -> Any:
        self._bodies += 1
        if self._bodies > 1:
            raise RetraceError(
                f"{self.name} was traced again with {_describe_all(flat)}",
                fix="create variables (and build the optimizer) before the first call, and call it in one context only",
            )
        leaves = iter(flat)
        body = tf.autograph.to_graph(self._body) if self._autograph else self._body
        return body(**{name: _unflatten(spec, leaves) for name, spec in self.signature.items()})

    def _first_call(self, flat: list[Any]) -> Any:
        graph = self.trace()
        if self._jit == "off":
            self.mode, self._call = "graph", graph
        else:
            with self._first:  # others wait until it is known whether XLA takes the graph
                if self._call is None and (results := self._first_jitted(graph, flat)):
                    return results[0]
        return (self._call or graph)(*flat)

    def _first_jitted(self, graph: Callable[..., Any], flat: list[Any]) -> list[Any]:
        """What the call gave; nothing where XLA refuses."""
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
            return []
        self.mode, self.compiled, self._call = "jit", [jitted], jitted
        return [result]

    def _check(self, arguments: dict[str, Any]) -> list[Any]:
        """The leaves of `arguments` in the signature's order; SignatureError for those that do not fit."""
        flat: list[Any] = []
        unknown = [name for name in arguments if name not in self.signature]
        wrong = [Misfit(name, "no such argument", _given(arguments[name])) for name in unknown]
        for name, spec in self.signature.items():
            if name in arguments:
                self._collect(name, spec, arguments[name], flat, wrong)
            else:
                wrong.append(Misfit(name, _describe(spec), "nothing"))
        if wrong:
            raise _misfits(self.name, wrong)
        return flat

    def _collect(self, path: str, spec: Spec, value: Any, flat: list[Any], wrong: list[Misfit]) -> None:
        if isinstance(spec, Mapping):
            if not isinstance(value, Mapping) or set(value) != set(spec):
                given = f"the keys {sorted(value)}" if isinstance(value, Mapping) else _given(value)
                wrong.append(Misfit(path, f"the keys {sorted(spec)}", given))
                return
            for key, inner in spec.items():
                self._collect(f"{path}[{key!r}]", inner, value[key], flat, wrong)
            return
        if isinstance(spec, list | tuple):
            if not isinstance(value, list | tuple) or len(value) != len(spec):
                given = f"{len(value)} values" if isinstance(value, list | tuple) else _given(value)
                wrong.append(Misfit(path, f"{len(spec)} values", given))
                return
            for i, (inner, one) in enumerate(zip(spec, value, strict=True)):
                self._collect(f"{path}[{i}]", inner, one, flat, wrong)
            return
        scalar = isinstance(value, bool | int | float) and not isinstance(value, np.generic)
        if scalar and self._scalars == "convert" and _exact(value, spec):
            value = np.asarray(value, spec.dtype.as_numpy_dtype)
        dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
        # a Python number or list has no dtype: binding it would pick one, and cast in silence
        if dtype is None or shape is None:
            wrong.append(Misfit(path, _describe(spec), _given(value), self._cost(value, spec) if scalar else None))
        elif tf.as_dtype(dtype) != spec.dtype or not spec.shape.is_compatible_with(shape):
            wrong.append(Misfit(path, _describe(spec), _describe(value)))
        else:
            flat.append(value if isinstance(value, tf.Tensor) else tf.convert_to_tensor(value))

    def _cost(self, value: Any, spec: tf.TensorSpec) -> str:
        """What a Python number in the place of a tensor would cost in a plain tf.function."""
        took = f" ({self.trace_seconds:.2g} s here)" if self.trace_seconds else ""
        return f"np.{spec.dtype.name}({value!r}): a tf.function would trace a graph anew for each value it gets{took}"


@dataclass(frozen=True)
class Misfit:
    """An argument beside what it should have been."""

    path: str
    expected: str
    given: str
    fix: str | None = None

    @property
    def argument(self) -> str:
        return self.path if "[" in self.path else repr(self.path)


def _misfits(where: str, wrong: list[Misfit]) -> SignatureError:
    fixes = "; ".join(dict.fromkeys(one.fix for one in wrong if one.fix)) or None
    if len(wrong) == 1:
        (one,) = wrong
        problem = f"argument {one.argument}: expected {one.expected}, given {one.given}"
        return SignatureError(problem, where=where, fix=fixes)
    rows = [("argument", "expected", "given"), *((one.argument, one.expected, one.given) for one in wrong)]
    first, second = (max(len(row[i]) for row in rows) for i in range(2))
    lines = [f"  {name:<{first}}  {expected:<{second}}  {given}" for name, expected, given in rows]
    return SignatureError("\n".join([f"{len(wrong)} arguments do not fit", *lines]), where=where, fix=fixes)


def _exact(value: bool | int | float, spec: tf.TensorSpec) -> bool:
    """Whether a Python number becomes a tensor of `spec` and stays what it is, but for a float's rounding."""
    dtype = spec.dtype
    if spec.shape.rank not in (0, None) or isinstance(value, bool) or dtype.is_bool:
        return spec.shape.rank in (0, None) and isinstance(value, bool) and dtype.is_bool
    if isinstance(value, int):
        exact = dtype.is_floating and abs(value) <= 2 ** np.finfo(dtype.as_numpy_dtype).nmant
        return exact or (dtype.is_integer and dtype.min <= value <= dtype.max)
    return bool(dtype.is_floating) and (not np.isfinite(value) or abs(value) <= float(dtype.max))


def graph_function(
    signature: Mapping[str, Spec] | None = None,
    *,
    jit: Jit = "off",
    scalars: Scalars = "refuse",
    autograph: bool = False,
    log: Callable[[str], None] | None = None,
    **specs: Spec,
) -> Callable[[Callable[..., Any]], GraphFunction]:
    """Decorator: `signature`, or keywords, give each argument of the body, in order, its tf.TensorSpec or nest of them.

    Args:
        jit: "auto" compiles with XLA where it can.
        scalars: what becomes of a Python number where a tensor is declared.
        autograph: turn the body's Python `if`, `for` and `while` over tensors into graph ops.
        log: told when XLA refuses.
    """
    whole = {**(signature or {}), **specs}
    return lambda body: GraphFunction(body, whole, jit=jit, scalars=scalars, autograph=autograph, log=log)


def refusal(error: BaseException) -> str:
    """The telling part of XLA's message, on one line."""
    text = " ".join(str(error).split())
    start = text.find(" on XLA_")
    cut = text.find("{{", start)
    text = text[start + 4 : cut if cut > start else None] if start >= 0 else text
    return text[:300].strip()


def _leaves(spec: Spec, prefix: str = "") -> list[tuple[str, tf.TensorSpec]]:
    if isinstance(spec, Mapping | list | tuple):
        inside = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
        return [leaf for name, inner in inside for leaf in _leaves(inner, f"{prefix}_{name}" if prefix else f"{name}")]
    return [(prefix, tf.TensorSpec(spec.shape, spec.dtype, name=prefix))]


def _unflatten(spec: Spec, leaves: Any) -> Any:
    if isinstance(spec, Mapping):
        return {key: _unflatten(inner, leaves) for key, inner in spec.items()}
    if isinstance(spec, list | tuple):
        return tuple(_unflatten(inner, leaves) for inner in spec)
    return next(leaves)


def _given(value: Any) -> str:
    """A tensor or array by dtype and shape; anything else by its type and what it is."""
    described = _describe(value)
    plain = isinstance(value, bool | int | float | str | bytes) and not isinstance(value, np.generic)
    return f"{described} {value!r:.40}" if plain else described


def _describe(value: Any) -> str:
    """dtype and shape of a spec, tensor or array: "float32 [None, 3]"."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_describe(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, tuple) and value and all(isinstance(inner, tf.TensorSpec) for inner in value):
        return "(" + ", ".join(_describe(inner) for inner in value) + ")"
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype} {list(value.shape)}"
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is None or shape is None:
        return type(value).__name__
    dims = tf.TensorShape(shape)
    return f"{tf.as_dtype(dtype).name} {dims.as_list() if dims.rank is not None else '[...]'}"


def _describe_all(values: Any) -> str:
    return ", ".join(_describe(value) for value in values)
