"""Recovers the exception of a Python function that a graph calls from the text that TensorFlow makes of it.

    with python_errors():
        for batch in dataset.map(op):            # op is a tfcore.graph.python_op
            step(batch)
    # PythonOpError: features:lookup (features.py:3): raised KeyError: 'JFK' ... caused by the KeyError

TensorFlow hands an exception on as text within an UnknownError, together with frames of its own, from whatever thread
and op it came. So a failing op keeps the exception here under a number, and only the number travels in that text.
`GraphFunction` and Headway's own input pipelines look it up already; `python_errors()` does for any other code.
"""

import functools
import itertools
import re
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import tensorflow as tf

from headway.errors import HeadwayError
from tfcore.private_api import python_function_of

PYTHON_NODES = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
"""The ops by which a graph calls a Python function of its process."""

_KEPT = 16
"""Failures nobody asked for are forgotten beyond this many: each holds the frames, and so the arrays, of its call."""
_NUMBER = re.compile(r"\[python failure (\d+)\]")


class PythonOpError(HeadwayError):
    """A Python function in a graph raised (see `__cause__`), or returned a value unlike its declaration."""


class NoGradientError(PythonOpError):
    """A gradient was asked of a Python op that declares none."""


class Failures:
    """Keeps exceptions while TensorFlow passes only their text on."""

    def __init__(self) -> None:
        self._failures: OrderedDict[int, HeadwayError] = OrderedDict()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def send(self, error: HeadwayError) -> NoReturn:
        """Raise what TensorFlow may turn into text: a RuntimeError, as it maps StopIteration to an end of data."""
        with self._lock:
            number = next(self._numbers)
            self._failures[number] = error
            while len(self._failures) > _KEPT:
                self._failures.popitem(last=False)
        raise RuntimeError(f"[python failure {number}] {error}") from None

    def receive(self, error: BaseException) -> HeadwayError | None:
        """The kept exception that a TensorFlow error refers to, once; None if it refers to none."""
        match = _NUMBER.search(str(error))
        with self._lock:
            return self._failures.pop(int(match[1]), None) if match else None


FAILURES = Failures()


@contextmanager
def python_errors() -> Iterator[None]:
    """Within the block a failing python_op or numpy_op raises PythonOpError from the function's own exception, or the
    function's own HeadwayError."""
    try:
        yield
    except tf.errors.OpError as error:
        reraise(error)
        raise


def reraise(error: tf.errors.OpError) -> None:
    """Raise the kept exception that `error` refers to, if there is one."""
    failure = FAILURES.receive(error)
    if failure is not None:
        raise failure from failure.__cause__


def failed(function: Callable[..., Any], error: Exception, *, skip: str) -> HeadwayError:
    """The error that a user sees for `error` of `function`: with the function's frames, without those of `skip`."""
    if isinstance(error, HeadwayError):
        return error
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != skip]
    stack = "".join(traceback.format_list(frames)).rstrip()
    message = "".join(traceback.format_exception_only(error)).strip()
    problem = PythonOpError("\n".join(filter(None, [f"raised {message}", stack])), where=name_of(function))
    problem.__cause__ = error
    return problem


def python_text(error: tf.errors.OpError) -> str | None:
    """The text "ValueError: ..." of an exception in a plain tf.py_function or tf.numpy_function; else None."""
    before, trace, after = str(error.message).partition("Traceback (most recent call last)")
    if not trace:
        return None
    lines = [line.strip() for line in after.splitlines() if line.strip()]
    exception = re.search(r"(\w[\w.]*(?:Error|Exception|Interrupt|Iteration)\b.*)", before)
    files = [line for line in lines if line.startswith("File ") and "/tensorflow/python/" not in line]
    return " in ".join([(exception[1] if exception else before).strip(), *files[-1:]])


def name_of(function: Callable[..., Any]) -> str:
    """The name "module:qualname (file.py:12)" of a function, a method, a partial or a callable object."""
    inner: Any = function
    while isinstance(inner, functools.partial) or hasattr(inner, "__wrapped__"):
        inner = inner.func if isinstance(inner, functools.partial) else inner.__wrapped__
    code = getattr(inner, "__code__", None) or getattr(vars(type(inner)).get("__call__"), "__code__", None)
    qualname = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    module = getattr(inner, "__module__", None) or type(inner).__module__
    if code is None:
        return f"{module}:{qualname}"
    if module.startswith("_headway_user_"):  # a file loaded by path has a made-up name
        module = Path(code.co_filename).stem
    return f"{module}:{qualname} ({Path(code.co_filename).name}:{code.co_firstlineno})"


def python_functions(graph: Any) -> list[str]:
    """The names (see `name_of`) of the Python functions that a GraphDef and its library's functions call."""
    return sorted({_name_of_node(node) for node in all_nodes(graph) if node.op in PYTHON_NODES})


def all_nodes(graph: Any) -> list[Any]:
    """The NodeDefs of a GraphDef and of its library's functions, each function once."""
    return [*graph.node, *(node for function in graph.library.function for node in function.node_def)]


def _name_of_node(node: Any) -> str:
    """The name of the Python function of a node, as far as TensorFlow's registry still has it."""
    token = node.attr["token"].s.decode()
    try:
        return name_of(python_function_of(token))
    except Exception:  # a private registry, only asked to make the message better
        return f"{node.op} node {node.name!r} ({token})"
