"""A guard that counts the traces of graph functions, and names the argument that caused another one.

    with RetraceGuard(step, evaluate):                    # in a test: RetraceError at the end of the block
        for batch in batches:
            step(batch, rate)
    # RetraceError: step: traced 3 times, allowed is 1
    #   trace 2: argument 'rate': Python value 0.1 -> 0.2
    #   trace 3: argument batch['x']: shape [32, 4] -> [7, 4]

    guard = RetraceGuard(step, action="warn", log=print)  # in production: guard.check() now and then, a line a retrace

It watches tf.functions, and whatever counts its own `traces`: GraphFunction, Learner, the scorers of evaluation. A
GraphFunction, which has one signature, refuses a second trace of its body by itself, and names the argument that would
have made it; what is left for the guard is a program that is compiled anew, for another context or another number of rows.
Training and evaluation warn of one, an export fails with it.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal, Self

import numpy as np
import tensorflow as tf

from headway.errors import HeadwayError
from headway.messages import counted
from tfcore.graph.specs import describe, dims
from tfcore.private_api import concrete_functions

_ADVICE = {
    "value": "pass it as a tensor (tf.constant, np.float32): each new Python value needs a new graph",
    "shape": "give it a tf.TensorSpec with None there (input_signature), or pad it to one shape",
    "dtype": "convert it before the call",
    "structure": "pass the same structure, with the same keys, in each call",
    "object": "pass tensors: objects are compared by identity, not by what they hold",
    "compiled": "pad it to one shape, or to few, or leave jit off: XLA compiles a program for each",
    "context": "call it in one context: under one strategy, device and mode",
}


class RetraceError(HeadwayError):
    """A graph function was traced more often than allowed; names the argument that changed, and how."""


@dataclass(frozen=True)
class Change:
    """The difference between two traces of a function."""

    argument: str
    """ "batch['x']", or "" where no argument differs."""
    kind: Literal["dtype", "shape", "structure", "value", "object", "compiled", "context"]
    before: str
    after: str

    def __str__(self) -> str:
        if self.kind == "context":
            return "no argument changed, so the context did (strategy, device, mode, or a variable that went away)"
        named = {"value": "Python value ", "object": "", "compiled": "compiled for shape "}.get(
            self.kind, f"{self.kind} "
        )
        argument = self.argument if "[" in self.argument else repr(self.argument)
        return f"argument {argument}: {named}{self.before} -> {self.after}"


class Shapes:
    """The shapes that a compiled program met in arguments with open dimensions: each is a compilation.

    Args:
        names: of the arguments.
        specs: theirs.
    """

    def __init__(self, names: Sequence[str], specs: Sequence[tf.TensorSpec]):
        self.open = [(i, names[i]) for i, spec in enumerate(specs) if not spec.shape.is_fully_defined()]
        self._contexts: dict[tuple[tuple[int, ...], ...], int] = {}

    @property
    def further(self) -> int:
        """The number of shapes beyond the first."""
        return max(0, len(self._contexts) - 1)

    def see(self, tensors: Sequence[tf.Tensor], function: Any) -> None:
        """Record the arguments of a call of `function`, unless another graph makes it: that one is compiled."""
        if tf.executing_eagerly():
            shapes = tuple([tuple(tensors[i].shape) for i, _ in self.open])
            if shapes not in self._contexts:
                self._contexts[shapes] = function.experimental_get_tracing_count()

    def changes(self) -> list[tuple[int, list[Change]]]:
        """For each shape after the first: the number of contexts that had a program by then, and its differences from
        the most similar earlier shape."""
        shapes_seen = list(self._contexts.items())
        changes = []
        for number, (shapes, contexts) in enumerate(shapes_seen[1:], 1):
            differences = [
                [
                    Change(name, "compiled", str(list(before)), str(list(after)))
                    for (_, name), before, after in zip(self.open, earlier, shapes, strict=True)
                    if before != after
                ]
                for earlier, _ in reversed(shapes_seen[:number])
            ]
            changes.append((contexts, min(differences, key=len)))
        return changes


class RetraceGuard:
    """Raises or warns when a graph function is traced again; see the module.

    Args:
        functions: each a tf.function, or anything with an int `traces`, whose `compiled` are tf.functions to explain it.
        allowed: traces of each; those made before the guard began are not held against it.
        action: "fail" raises RetraceError, "warn" gives `log` one line for each new trace.
        log: default: warnings.warn.

    As a context manager it checks when the block ends well.
    """

    def __init__(
        self,
        *functions: Any,
        allowed: int = 1,
        action: Literal["fail", "warn"] = "fail",
        log: Callable[[str], None] | None = None,
    ):
        for function in functions:
            if not hasattr(function, "traces") and not hasattr(function, "experimental_get_tracing_count"):
                raise TypeError(f"{function!r} counts no traces: it is neither a tf.function nor a GraphFunction")
        self.functions, self._action = functions, action
        self._log = log or (lambda line: warnings.warn(line, stacklevel=3))
        self._allowed = [max(allowed, traces(function)) for function in functions]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is None:
            self.check()

    @property
    def traces(self) -> dict[str, int]:
        """The number of traces, by the functions' names."""
        return {_name(function): traces(function) for function in self.functions}

    def check(self) -> None:
        """Compare the counts, which costs a microsecond where nothing was traced.

        Raises:
            RetraceError: with action "fail"; once for each excess of traces.
        """
        for i, function in enumerate(self.functions):
            count, allowed = traces(function), self._allowed[i]
            if count <= allowed:
                continue
            self._allowed[i] = count
            error = _error(function, count, allowed)
            if self._action == "fail":
                raise error
            self._log(str(error))


def traces(function: Any) -> int:
    """The number of traces of a tf.function, or of an object that counts its own `traces`."""
    own = getattr(function, "traces", None)
    return own if isinstance(own, int) else int(function.experimental_get_tracing_count())


def changes(function: Any) -> list[list[Change]]:
    """For each trace of a tf.function after the first: its differences from the most similar earlier trace.

    TensorFlow forgets the traces of what was collected as garbage, so there may be fewer than were counted.
    """
    signatures = [_arguments(concrete) for concrete in concrete_functions(function)]
    by_trace = []
    for i, signature in enumerate(signatures[1:], 1):
        differences = [_compare_all(earlier, signature) for earlier in reversed(signatures[:i])]
        by_trace.append(min(differences, key=len) or [Change("", "context", "", "")])
    return by_trace


def _error(function: Any, count: int, allowed: int) -> RetraceError:
    lines: list[str] = []
    advice: dict[str, None] = {}
    shapes = getattr(function, "shapes", None)
    compiled = shapes.changes() if isinstance(shapes, Shapes) else []
    for watched in getattr(function, "compiled", [function]):
        traced = changes(watched) if hasattr(watched, "_list_all_concrete_functions") else []
        # in the order they came in: a context before the shapes that were met in it
        traces = [trace for _, trace in sorted([*enumerate(traced, 2), *compiled], key=itemgetter(0))]
        for number, differences in list(enumerate(traces, 2))[max(0, allowed - 1) :][:8]:
            lines.append(f"  trace {number}: " + "; ".join(str(change) for change in differences))
            advice.update({_ADVICE[change.kind]: None for change in differences})
    problem = f"traced {counted(count, 'time')}, allowed is {allowed}"
    return RetraceError("\n".join([problem, *lines]), where=_name(function), fix="; ".join(advice) or None)


def _name(function: Any) -> str:
    function = getattr(function, "python_function", function)
    return str(getattr(function, "name", None) or getattr(function, "__name__", type(function).__name__))


def _arguments(concrete: Any) -> dict[str, Any]:
    """The arguments of a trace by name: TensorSpecs in their structure, and Python values."""
    positional, named = concrete.structured_input_signature
    names = [name for name in concrete.function_type.parameters if name not in named]
    names += [str(i) for i in range(len(names), len(positional))]
    return dict(zip(names, positional, strict=False)) | named


def _compare_all(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    missing = object()
    return [
        change
        for name in dict.fromkeys([*before, *after])
        for change in _compare(name, before.get(name, missing), after.get(name, missing), missing)
    ]


def _compare(path: str, before: Any, after: Any, missing: Any) -> list[Change]:
    if before is missing or after is missing:
        return [Change(path, "structure", *("absent" if v is missing else _text(v) for v in (before, after)))]
    if isinstance(before, Mapping) and isinstance(after, Mapping) and set(before) == set(after):
        return [c for key in before for c in _compare(f"{path}[{key!r}]", before[key], after[key], missing)]
    both = [isinstance(value, list | tuple) for value in (before, after)]
    if all(both) and type(before) is type(after) and len(before) == len(after):
        return [
            c
            for i, (a, b) in enumerate(zip(before, after, strict=True))
            for c in _compare(f"{path}[{i}]", a, b, missing)
        ]
    if isinstance(before, tf.TensorSpec) and isinstance(after, tf.TensorSpec):
        changes = []
        if before.dtype != after.dtype:
            changes.append(Change(path, "dtype", before.dtype.name, after.dtype.name))
        if dims(before.shape) != dims(after.shape):
            changes.append(Change(path, "shape", dims(before.shape), dims(after.shape)))
        return changes
    if _plain(before) and _plain(after):
        same = type(before) is type(after) and before == after
        return [] if same else [Change(path, "value", repr(before), repr(after))]
    if _opaque(before) and _opaque(after):
        return [Change(path, "object", "an object", "another")]
    if _plain(before) or _plain(after):
        return [Change(path, "value", _text(before), _text(after))]
    return [] if before == after else [Change(path, "structure", _text(before), _text(after))]


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic)


def _opaque(value: Any) -> bool:
    return type(value).__name__ == "UnknownArgument"  # what TensorFlow keeps of an object


def _text(value: Any) -> str:
    if isinstance(value, tf.TensorSpec):
        return describe(value)
    if isinstance(value, Mapping):
        return f"the keys {sorted(value)}"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return "an object" if _opaque(value) else repr(value)
