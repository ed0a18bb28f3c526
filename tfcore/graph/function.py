"""A compiled function that is traced once, and says why when something would have it traced again.

    @graph_function(signature={"x": tf.TensorSpec([None, 3], tf.float32), "scale": tf.TensorSpec([], tf.float32)})
    def scaled(x, scale):
        return x * scale

    scaled(x=np.ones([2, 3], np.float32), scale=np.float32(2))
    scaled(x=np.ones([2, 3]), scale=np.float32(2))
    # SignatureError: scaled: argument 'x': expected float32 [None, 3], given float64 [2, 3]

`tf.function` retraces in silence, casts NumPy float64 in silence, and turns every other Python number into a graph of
its own. Here every argument has a spec, checked before anything is bound (`tfcore.graph.signature`). A Python number where a
tensor is declared is refused with what it would cost, or, with `scalars="convert"`, becomes a tensor where that loses
nothing.

With `jit="auto"` the first call tries XLA; when XLA refuses, nothing has run yet (a program that does not compile
touches no variable), the same graph is used as it is, and `mode` says so. The body is traced once whichever it is,
without AutoGraph unless asked for: loops are tf.while_loop. Threads may make the first call together: one traces, the others
wait. A body that raises while it is traced raises that, and the next call traces it again.
"""

import inspect
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import tensorflow as tf

from headway.errors import HeadwayError
from tfcore.graph.python_errors import reraise
from tfcore.graph.retrace import RetraceError, Shapes
from tfcore.graph.signature import Binder, Scalars, SignatureError, check_specs, leaves, misfits, paths
from tfcore.graph.specs import Misfit, Spec, describe, pack
from tfcore.graph.xla import intended

__all__ = ["GraphFunction", "Jit", "RetraceError", "SignatureError", "Spec", "graph_function", "refusal"]

Jit = Literal["auto", "on", "off"]

_REFUSALS = (
    tf.errors.InvalidArgumentError,
    tf.errors.UnimplementedError,
    tf.errors.InternalError,
    tf.errors.NotFoundError,
    tf.errors.FailedPreconditionError,
)
"""What XLA raises for graphs it cannot compile, by version and by op."""


class GraphFunction:
    """A function that is traced once and checks its arguments; see the module. `trace_seconds` is how long tracing
    took; `mode` is "jit" or "graph" after a call.

    Under XLA a call in another context (a device, a strategy), or with another size where the signature leaves one open,
    compiles the program once more, which takes seconds, and TensorFlow says nothing: each counts as a trace, and a
    `RetraceGuard` tells of it.
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
        self.name = getattr(body, "__name__", type(body).__name__).lstrip("_")
        self.signature = dict(signature)
        self._bodies = 0
        self.compiled: list[Any] = []
        """The tf.functions that XLA compiled: what a `RetraceGuard` reads the reason of a second trace from."""
        self.mode: Literal["jit", "graph", "eager"] | None = None
        self.refused: str | None = None
        """Why it runs uncompiled with `jit="auto"`."""
        self._jit, self._log, self._body = jit, log or (lambda line: None), body
        self._autograph = autograph
        self._call: Callable[..., Any] | None = None
        self._graph: tf.types.experimental.ConcreteFunction | None = None
        self._first = threading.RLock()
        """Held until there is a graph and a way to call it; a body that calls its own function finds it open."""
        _check_names(self.name, list(inspect.signature(body).parameters), list(self.signature))
        check_specs(self.name, self.signature)
        self._binder = Binder(self.name, self.signature, scalars)
        self.shapes = Shapes(paths(self.signature), leaves(self.signature))
        """Those that XLA compiled, of the arguments whose shape is open."""

    @property
    def trace_seconds(self) -> float:
        return self._binder.trace_seconds

    @property
    def traces(self) -> int:
        """The number of times that the body was traced, or compiled for another context or another shape."""
        contexts = (function.experimental_get_tracing_count() for function in self.compiled)
        return max([self._bodies, *contexts]) + self.shapes.further

    def __call__(self, /, *positional: Any, **named: Any) -> Any:
        flat = self._binder.bind(self._by_name(positional, named) if positional else named)
        if tf.config.functions_run_eagerly():
            self.mode, tensors = "eager", iter(flat)
            return self._body(**{name: pack(spec, tensors) for name, spec in self.signature.items()})
        try:
            result = self._call(*flat) if self._call else self._first_call(flat)
        except tf.errors.OpError as error:
            reraise(error)  # a Python function in the graph failed: that is the error
            raise
        if self.compiled and self.shapes.open:
            self.shapes.see(flat, self.compiled[0])
        return result

    def _by_name(self, positional: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        names = list(self.signature)
        if len(positional) > len(names):
            values = f"{len(positional)} positional arguments"
            raise SignatureError(f"expected {', '.join(names) or 'no argument'}, given {values}", where=self.name)
        both = [name for name in names[: len(positional)] if name in named]
        if both:
            wrong = [Misfit(name, describe(self.signature[name]), "by its place and by its name") for name in both]
            raise misfits(self.name, wrong)
        return dict(zip(names, positional, strict=False)) | named

    def trace(self) -> tf.types.experimental.ConcreteFunction:
        """The traced function, un-jitted, to look at its graph or to save it. Traces it if need be."""
        with self._first:
            if self._graph is None:
                specs = leaves(self.signature)
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
                self._binder.trace_seconds = time.perf_counter() - began
            return self._graph

    def _traced(self, *flat: Any) -> Any:
        self._bodies += 1
        if self._bodies > 1:
            raise RetraceError(
                f"{self.name} was traced again with {', '.join(map(describe, flat))}",
                fix="create variables (and build the optimizer) before the first call, and call it in one context only",
            )
        tensors = iter(flat)
        body = tf.autograph.to_graph(self._body) if self._autograph else self._body
        return body(**{name: pack(spec, tensors) for name, spec in self.signature.items()})

    def _first_call(self, flat: list[Any]) -> Any:
        graph = self.trace()
        if self._jit == "off":
            self.mode, self._call = "graph", graph
        else:
            with self._first:  # others wait until it is known whether XLA takes the graph
                results = self._first_jitted(graph, flat) if self._call is None else []
                if results:
                    return results[0]
        return (self._call or graph)(*flat)

    def _first_jitted(self, graph: Callable[..., Any], flat: list[Any]) -> list[Any]:
        """The result of the first compiled call; nothing where XLA refuses."""
        specs = leaves(self.signature)
        jitted = tf.function(lambda *tensors: graph(*tensors), input_signature=specs, jit_compile=True, autograph=False)
        try:
            result = jitted(*flat)
        except _REFUSALS as error:
            if self._jit == "on":
                raise HeadwayError(
                    f"XLA cannot compile {self.name}: {refusal(error)}", fix="set training.jit to auto or off"
                ) from error
            self.refused = f"XLA cannot compile {self.name}, so it runs uncompiled: {refusal(error)}"
            self._log(self.refused)
            self.mode, self._call = "graph", graph
            return []
        self.mode, self.compiled, self._call = "jit", [jitted], jitted
        return [result]


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


def _check_names(name: str, accepted: list[str], signed: list[str]) -> None:
    """Raise SignatureError unless the body takes exactly the names of the signature, in its order."""
    if accepted == signed:
        return
    fix = f"name {', '.join(accepted) or 'nothing'}, in this order"
    if accepted[:1] == ["self"] and accepted[1:] == signed:
        fix = f"decorate the method of an object, in its __init__: self.{name} = graph_function(...)(self._{name})"
    raise SignatureError(f"the function takes {accepted}, its signature names {signed}", where=name, fix=fix)


def refusal(error: BaseException) -> str:
    """The informative part of XLA's message, on one line."""
    text = " ".join(str(error).split())
    start = text.find(" on XLA_")
    cut = text.find("{{", start)
    text = text[start + 4 : cut if cut > start else None] if start >= 0 else text
    return text[:300].strip()
