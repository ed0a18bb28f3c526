"""A guard that counts the traces of graph functions, and names the argument that caused another one.

    with RetraceGuard(step, evaluate):                    # in a test: RetraceError at the end of the block
        for batch in batches:
            step(batch, rate)
    # RetraceError: step: traced 3 times, allowed is 1
    #   trace 2: argument 'rate': Python value 0.1 -> 0.2
    #   trace 3: argument batch['x']: shape [32, 4] -> [7, 4]

    guard = RetraceGuard(step, action="warn", log=print)  # in production: guard.check() now and then logs each retrace

The guard watches tf.functions, and objects that count their own `traces`: GraphFunction, Learner, the scorers of evaluation.
A GraphFunction has one signature and itself refuses a second trace of its body. For it the guard counts only the times that
XLA compiles the program again, for another context or another number of rows. On a retrace, training and evaluation warn, and
an export fails.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import tensorflow as tf

from headway.errors import HeadwayError
from headway.messages import counted
from tfcore.graph.specs import dims
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
_LISTED = 8


class RetraceError(HeadwayError):
    """The error of a graph function that was traced too often; it names the argument that changed, and how."""


@dataclass(frozen=True)
class Change:
    """A difference between two traces of a function."""

    argument: str
    """The argument that differs, such as "batch['x']"; "" if none does."""
    kind: Literal["dtype", "shape", "structure", "value", "object", "compiled", "context"]
    before: str
    after: str

    def __str__(self) -> str:
        if self.kind == "context":
            return "no argument changed, so the context did (strategy, device, mode, or a variable that went away)"
        named = {"value": "Python value ", "object": "", "compiled": "compiled for shape "}
        argument = self.argument if "[" in self.argument else repr(self.argument)
        return f"argument {argument}: {named.get(self.kind, f'{self.kind} ')}{self.before} -> {self.after}"


class RetraceGuard:
    """Raises or warns when a graph function is traced again; see the module.

    Args:
        functions: each a tf.function or an object with an int `traces`; `changes` or `compiled` of an object explain a retrace.
        allowed: the most traces of each function; if it has more when the guard is made, that number is allowed.
        action: "fail" raises RetraceError, "warn" calls `log` with a text that explains the new traces.
        log: called with the text; default: warnings.warn.

    As a context manager, it calls `check` at the end of the block, unless the block raised.
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

    def check(self) -> None:
        """Raise or log if a function has more traces than allowed; takes a microsecond if nothing was traced.

        Raises:
            RetraceError: with action "fail", if a function has too many traces. The next check allows their present number.
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
    """Returns the number of traces of a tf.function, or of an object that counts its own `traces`."""
    own = getattr(function, "traces", None)
    return own if isinstance(own, int) else int(function.experimental_get_tracing_count())


def changes(function: Any) -> list[list[Change]]:
    """Returns a list for each trace of a tf.function after the first: its differences from the most similar earlier trace.

    TensorFlow forgets a trace when an object in its arguments is garbage-collected, so traces may be missing.
    """
    signatures = [dict(_leaves("", _arguments(concrete))) for concrete in concrete_functions(function)]
    by_trace = []
    for i, after in enumerate(signatures[1:], 1):
        differences = [
            [change for path in after if path in before for change in _compare(path, before[path], after[path])]
            for before in reversed(signatures[:i])
        ]
        by_trace.append(min(differences, key=len) or [Change("", "context", "", "")])
    return by_trace


def _error(function: Any, count: int, allowed: int) -> RetraceError:
    watched = [] if hasattr(function, "changes") else getattr(function, "compiled", [function])
    found = [*getattr(function, "changes", [])]
    found += [change for each in watched if hasattr(each, "_list_all_concrete_functions") for change in changes(each)]
    lines: list[str] = []
    advice: dict[str, None] = {}
    for number, differences in list(enumerate(found, 2))[max(0, allowed - 1) :][:_LISTED]:
        lines.append(f"  trace {number}: " + "; ".join(str(change) for change in differences))
        advice.update({_ADVICE[change.kind]: None for change in differences})
    problem = f"traced {counted(count, 'time')}, allowed is {allowed}"
    return RetraceError("\n".join([problem, *lines]), where=_name(function), fix="; ".join(advice) or None)


def _name(function: Any) -> str:
    function = getattr(function, "python_function", function)
    return str(getattr(function, "name", None) or getattr(function, "__name__", type(function).__name__))


def _arguments(concrete: Any) -> dict[str, Any]:
    """Returns the arguments of a trace by name; each is a Python value or a nest of TensorSpecs."""
    positional, named = concrete.structured_input_signature
    names = [name for name in concrete.function_type.parameters if name not in named]
    names += [str(i) for i in range(len(names), len(positional))]
    return dict(zip(names, positional, strict=False)) | named


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yields the path of each value in a trace's arguments, and {kind: text} for what TensorFlow compares, such as its dtype."""
    inside: Any = ()
    if isinstance(value, Mapping):
        inside = value.items()
        yield path, {"structure": f"the keys {sorted(map(str, value))}"}
    elif isinstance(value, list | tuple):
        inside = enumerate(value)
        yield path, {"structure": f"a {type(value).__name__} of {len(value)}"}
    elif isinstance(value, tf.TensorSpec):
        yield path, {"dtype": value.dtype.name, "shape": dims(value.shape)}
    elif type(value).__name__ == "UnknownArgument":  # what TensorFlow keeps of an object
        yield path, {"object": "an object"}
    else:
        yield path, {"value": repr(value)}
    for key, inner in inside:
        yield from _leaves(f"{path}[{key!r}]" if path else str(key), inner)


def _compare(path: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    if before.keys() != after.keys():
        kind: Any = "structure" if "structure" in {*before, *after} else "value"
        yield Change(path, kind, " ".join(before.values()), " ".join(after.values()))
        return
    if "object" in after:
        yield Change(path, "object", "an object", "another")
    for kind in ("dtype", "shape", "structure", "value"):
        if before.get(kind) != after.get(kind):
            yield Change(path, kind, before[kind], after[kind])
