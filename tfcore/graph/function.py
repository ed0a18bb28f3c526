"""A compiled function that is traced once: tf.function with a signature, XLA where asked for, and readable errors.

    @graph_function(signature={"x": tf.TensorSpec([None, 3], tf.float32), "scale": tf.TensorSpec([], tf.float32)})
    def scaled(x, scale):
        return x * scale

    scaled(x=np.ones([2, 3], np.float32), scale=np.float32(2))
    scaled(x=np.ones([2, 3]), scale=np.float32(2))
    # SignatureError: scaled: argument 'x': expected float32 [None, 3], given float64 [2, 3]

`tf.function` retraces in silence, casts NumPy float64 in silence, and turns every other Python number into a graph of
its own. Here every argument has a spec, checked before anything is bound (`tfcore.graph.specs`): a Python number where a
tensor is declared is refused.

With `jit="auto"` the first call tries XLA. If XLA refuses, nothing has run yet and no variable has changed: the same graph then
runs uncompiled, and `mode` is "graph". Either way the body is traced once. AutoGraph is off unless asked for, so that a loop is
a tf.while_loop. Threads may make the first call together: one traces, the others wait. If the body raises during the trace, the
call raises the same error, and the next call traces the body again.
"""

import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal

import tensorflow as tf

from headway.errors import HeadwayError
from tfcore.graph.python_op import reraise
from tfcore.graph.retrace import Change, RetraceError
from tfcore.graph.specs import SignatureError, Spec, bind, check_specs, describe, leaves, pack, walk
from tfcore.graph.xla import compiling_intended

__all__ = ["GraphFunction", "Jit", "RetraceError", "SignatureError", "Spec", "graph_function", "refusal"]

Jit = Literal["auto", "on", "off"]

_REFUSALS = (
    tf.errors.InvalidArgumentError,
    tf.errors.UnimplementedError,
    tf.errors.InternalError,
    tf.errors.NotFoundError,
    tf.errors.FailedPreconditionError,
)
"""The errors that XLA raises for a graph it cannot compile; which of them depends on XLA's version and the op."""


class GraphFunction:
    """A function that is traced once and checks its arguments; see the module. `mode` is None until the first call.

    XLA compiles the program again for each new context (a device, a strategy), and for each new size of a dimension that the
    signature leaves open. That takes seconds, and TensorFlow does not report it. Each such compilation is listed in `changes`
    and counted in `traces`, so that a `RetraceGuard` reports it.
    """

    def __init__(
        self,
        body: Callable[..., Any],
        signature: Mapping[str, Spec],
        *,
        jit: Jit = "off",
        autograph: bool = False,
        log: Callable[[str], None] | None = None,
    ):
        self.name = getattr(body, "__name__", type(body).__name__).lstrip("_")
        self.signature = dict(signature)
        self.compiled: list[Any] = []
        """The tf.functions that XLA compiled."""
        self.changes: list[list[Change]] = []
        """For each further compilation by XLA: what differs from the most similar earlier call, a shape or the context."""
        self.mode: Literal["jit", "graph", "eager"] | None = None
        self.refused: str | None = None
        """Why XLA refused to compile the function with `jit="auto"`; None if it did not refuse."""
        self._jit, self._log, self._body = jit, log or (lambda line: None), body
        self._autograph, self._bodies = autograph, 0
        self._call: Callable[..., Any] | None = None
        self._graph: tf.types.experimental.ConcreteFunction | None = None
        self._first = threading.RLock()
        """The lock held during the trace and the first call; reentrant, since a body may call its own function."""
        accepted = list(inspect.signature(body).parameters)
        if accepted != list(self.signature):
            problem = f"the function takes {accepted}, its signature names {list(self.signature)}"
            fix = f"name {', '.join(accepted) or 'nothing'}, in this order"
            if accepted[:1] == ["self"]:
                fix = f"decorate the object's method, in its __init__: self.{self.name} = graph_function(...)(self._{self.name})"
            raise SignatureError(problem, where=self.name, fix=fix)
        check_specs(self.name, self.signature)
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self._parameters = inspect.Signature([inspect.Parameter(name, kind) for name in self.signature])
        self._open = {
            i: path for i, (path, spec) in enumerate(walk(self.signature)) if not spec.shape.is_fully_defined()
        }
        self._shapes: list[dict[str, str]] = []

    @property
    def traces(self) -> int:
        """The number of traces of the body, plus the number of XLA's further compilations for a new context or shape."""
        return self._bodies + len(self.changes)

    def __call__(self, /, *positional: Any, **named: Any) -> Any:
        try:
            arguments = self._parameters.bind(*positional, **named).arguments
        except TypeError as error:
            fix = f"pass {', '.join(self.signature) or 'nothing'}"
            raise SignatureError(str(error), where=self.name, fix=fix) from None
        flat = bind(self.name, self.signature, arguments)
        if tf.config.functions_run_eagerly():
            self.mode = "eager"
            return self._run(self._body, flat)
        try:
            result = self._call(*flat) if self._call else self._first_call(flat)
        except tf.errors.OpError as error:
            reraise(error)  # a Python function in the graph failed: that is the error
            raise
        if self.compiled:
            self._count(flat)
        return result

    def trace(self) -> tf.types.experimental.ConcreteFunction:
        """Returns the uncompiled concrete function, whose graph can be inspected or saved. The first call traces the body."""
        with self._first:
            if self._graph is None:
                # a body that says tf.while_loop and tf.cond itself is traced faster: looking for Python's own takes longest
                traced = tf.function(self._traced, input_signature=leaves(self.signature), autograph=False)
                try:
                    with compiling_intended(
                        self._jit != "off"
                    ):  # by then TensorFlow does not know that the graph is for XLA
                        self._graph = traced.get_concrete_function()
                except BaseException:
                    if self._bodies == 1:  # more are of a body that makes variables, which goes on making them
                        self._bodies = 0
                    raise
            return self._graph

    def _traced(self, *flat: Any) -> Any:
        self._bodies += 1
        if self._bodies > 1:
            raise RetraceError(
                f"{self.name} was traced again with {', '.join(map(describe, flat))}",
                fix="create variables (and build the optimizer) before the first call, and call it in one context only",
            )
        return self._run(tf.autograph.to_graph(self._body) if self._autograph else self._body, flat)

    def _run(self, body: Callable[..., Any], flat: Any) -> Any:
        tensors = iter(flat)
        return body(**{name: pack(spec, tensors) for name, spec in self.signature.items()})

    def _first_call(self, flat: list[Any]) -> Any:
        graph = self.trace()
        with self._first:  # others wait until it is known whether XLA takes the graph
            if self._call is None and self._jit != "off":
                specs = leaves(self.signature)
                jitted = tf.function(lambda *x: graph(*x), input_signature=specs, jit_compile=True, autograph=False)
                try:
                    result = jitted(*flat)
                except _REFUSALS as error:
                    problem = f"XLA cannot compile {self.name}: {refusal(error)}"
                    if self._jit == "on":
                        raise HeadwayError(problem, fix="set training.jit to auto or off") from error
                    self.refused = problem.replace(":", ", so it runs uncompiled:", 1)
                    self._log(self.refused)
                else:
                    self.mode, self.compiled, self._call = "jit", [jitted], jitted
                    return result
            if self._call is None:
                self.mode, self._call = "graph", graph
        return self._call(*flat)

    def _count(self, flat: list[Any]) -> None:
        """Add to `changes` the context or the shapes for which XLA compiled this call anew; within a graph no shapes."""
        contexts = sum(change[0].kind == "context" for change in self.changes) + 1
        if self.compiled[0].experimental_get_tracing_count() > contexts:
            self.changes.append([Change("", "context", "", "")])
        if self._open and tf.executing_eagerly():
            now = {path: str(flat[i].shape.as_list()) for i, path in self._open.items()}
            if now not in self._shapes:
                differences = [
                    [Change(path, "compiled", before[path], now[path]) for path in now if now[path] != before[path]]
                    for before in reversed(self._shapes)
                ]
                self.changes += [min(differences, key=len)] if differences else []
                self._shapes.append(now)


def graph_function(
    signature: Mapping[str, Spec] | None = None,
    *,
    jit: Jit = "off",
    autograph: bool = False,
    log: Callable[[str], None] | None = None,
    **specs: Spec,
) -> Callable[[Callable[..., Any]], GraphFunction]:
    """Returns a decorator that makes a GraphFunction. `signature` or keywords give each argument's spec, or a nest of specs.

    Args:
        jit: "on" compiles with XLA, "auto" compiles unless XLA refuses, "off" does not compile.
        autograph: turn the body's Python `if`, `for` and `while` over tensors into graph ops.
        log: called with a line of text when XLA refuses.
    """
    return lambda body: GraphFunction(body, {**(signature or {}), **specs}, jit=jit, autograph=autograph, log=log)


def refusal(error: BaseException) -> str:
    """Returns the informative part of the message of an error of XLA, on one line of at most 300 characters."""
    text = " ".join(str(error).split())
    start = text.find(" on XLA_")
    cut = text.find("{{", start)
    text = text[start + 4 : cut if cut > start else None] if start >= 0 else text
    return text[:300].strip()
