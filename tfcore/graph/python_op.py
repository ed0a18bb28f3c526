"""A Python function as an op of a graph: its result is declared and checked, and its gradient is given or refused.

    rank = numpy_op(lambda scores: scores.argsort().argsort().astype(np.int32), tf.TensorSpec([None], tf.int32))
    dataset.batch(4096).map(lambda row: {**row, "rank": rank(row["score"])})

    cube = python_op(lambda x: x**3, tf.TensorSpec([None], tf.float32), gradient="traced")

`numpy_op` gives the function NumPy arrays, which are read-only; `python_op` gives it eager tensors. They wrap tf.numpy_function
and tf.py_function. Both of these cast a wrong dtype in silence, forget shapes, and bring an exception back as text. The first
has no gradient; the gradient of the second is 0.0 where the function uses NumPy.

`gradient` is one of
    "refuse"    (default) asking for it raises NoGradientError, where TensorFlow would give None or 0.0
    "stop"      the gradient is None on purpose, as after tf.stop_gradient
    "traced"    python_op only: the function, made of TensorFlow ops, runs again under a tape. It may be called in loops
                and from threads, and differentiated twice; py_function's own gradient fails in each of these cases
    a function  gradient(upstream, *arguments) -> one gradient per floating argument; those of other arguments are None or
                left out. It runs as the op's function does. With several outputs, upstream has their structure

With "traced", a floating argument that has no gradient, such as a mask, is an error: pass a mask as bool.

A tape outside of the op sees only the op's arguments. So under a tape a python_op that reads trainable variables itself raises
NoGradientError, unless its gradient is "stop": pass variables that are to learn as arguments. Without a tape (input pipelines,
evaluation) the op may read them. The trace decides: if a tf.function is traced without a tape and differentiated later, the
gradients of these variables are None.

A lock allows one call of the function or its gradient at a time. `thread_safe=True` lets calls run in parallel, which helps
only if NumPy or the function releases Python's lock. A call costs some 80 to 170 microseconds whatever its arguments
(bench/graph_functions.py), so batch the dataset before the op, not after. Neither XLA nor another process can run such an op,
and an export refuses it.

    with python_errors():
        for batch in dataset.map(op):            # op is one of these
            step(batch)
    # PythonOpError: features:lookup (features.py:3): raised KeyError: 'JFK' ... caused by the KeyError

TensorFlow hands an exception on as text within an UnknownError, together with frames of its own, from whatever thread
and op it came. So a failing op keeps the exception here under a number, and only the number travels in that text.
`GraphFunction` and Headway's own input pipelines look it up already; `python_errors()` does for any other code.
"""

import contextlib
import functools
import itertools
import re
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import tensorflow as tf

from headway.errors import HeadwayError
from tfcore.graph.specs import Misfit, Spec, check_specs, leaves_or_misfits, pack, walk
from tfcore.private_api import python_function_of, tape_is_active, watching_variables

__all__ = [
    "Gradient",
    "NoGradientError",
    "PythonOp",
    "PythonOpError",
    "numpy_op",
    "python_errors",
    "python_functions",
    "python_op",
]

Gradient = Literal["refuse", "stop", "traced"] | Callable[..., Any]


class PythonOp:
    """An op that calls a Python function; see the module. It takes nests of tensors and returns a nest of them.

    Args:
        arrays: the function gets NumPy arrays (of bytes objects for strings), not eager tensors.
        stateful: False for a pure function of arrays: TensorFlow may then drop or merge its calls.

    Raises:
        SignatureError: a leaf of `output_signature` is not a tf.TensorSpec.
        PythonOpError: the options contradict each other, or an argument is not a dense tensor. When the op runs: the function
            raised, or its result differs from `output_signature` in structure, dtype or shape.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        output_signature: Spec,
        *,
        gradient: Gradient = "refuse",
        thread_safe: bool = False,
        arrays: bool = False,
        stateful: bool = True,
    ):
        self.function, self.output_signature, self.gradient = function, output_signature, gradient
        self.name = name_of(function)
        self._lock: Any = contextlib.nullcontext() if thread_safe else threading.RLock()
        self._arrays, self._stateful = arrays, stateful
        check_specs(self.name, {"output": output_signature})
        self._specs = [spec for _, spec in walk(output_signature)]
        impossible = {
            f"there is no gradient {gradient!r}": not callable(gradient)
            and gradient not in ("refuse", "stop", "traced"),
            "a python_op is stateful: use numpy_op for a pure function": not (stateful or arrays),
            "NumPy leaves no trace to differentiate: give the gradient as a function": gradient == "traced" and arrays,
        }
        for problem, wrong in impossible.items():
            if wrong:
                raise PythonOpError(problem, where=self.name)

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *arguments: Any) -> Any:
        flat = [self._dense(leaf) for leaf in tf.nest.flatten(arguments)]
        floating = [i for i, leaf in enumerate(flat) if leaf.dtype.is_floating or leaf.dtype.is_complex]

        # of what the function reads by itself no tape outside of it learns, if it runs in a graph
        watched = not self._arrays and self.gradient != "stop" and tape_is_active()

        def function(*leaves: Any) -> list[Any]:
            packed = tf.nest.pack_sequence_as(arguments, list(leaves))
            with watching_variables() as watcher:
                result = self.function(*packed)
            if watched:
                self._refuse(watcher.watched_variables())
            return _checked(self.name, self.output_signature, result)

        results = self._run(self.function, function, flat, self._specs)
        if self.gradient == "stop":
            results = [tf.stop_gradient(result) for result in results]
        elif floating and results:
            results = self._differentiable(arguments, flat, results, floating)
        return pack(self.output_signature, iter(results))

    def _dense(self, argument: Any) -> tf.Tensor:
        if isinstance(argument, tf.RaggedTensor | tf.SparseTensor):
            raise PythonOpError(
                f"an argument is a {type(argument).__name__}",
                where=self.name,
                fix="pass its parts: values and row_lengths(), or values, indices and dense_shape",
            )
        return tf.convert_to_tensor(argument)

    def _run(
        self,
        named: Callable[..., Any],
        call: Callable[..., list[Any]],
        flat: Sequence[tf.Tensor],
        specs: Sequence[tf.TensorSpec],
    ) -> list[tf.Tensor]:
        """Returns the results of `call` on the tensors `flat`; `specs` are the results' specs. In an error's message the
        function at fault is `named`, the user's function that `call` calls."""

        def guarded(*leaves: Any) -> list[Any]:
            if self._arrays:
                _lend(leaves)
            try:
                with self._lock:
                    returned = call(*leaves)
                    if (
                        self._arrays and not eager
                    ):  # TensorFlow may take an array's memory, to which the function may write again
                        returned = [leaf if leaf.dtype == object else np.array(leaf) for leaf in returned]
                    return returned
            except Exception as error:
                problem = user_error(named, error, skip=__file__)
                if self._arrays and isinstance(error, ValueError) and "read-only" in str(error):
                    problem.fix = "its arguments are TensorFlow's own memory: copy one before writing, x = x.copy()"
                if eager:
                    raise problem from problem.__cause__
                FAILURES.send(problem)

        guarded.__wrapped__ = named  # type: ignore[attr-defined]  # so that an export can say whose it is
        eager = tf.executing_eagerly()
        dtypes = [spec.dtype for spec in specs]
        if eager:
            leaves = [tensor.numpy() for tensor in flat] if self._arrays else flat
            return [tf.convert_to_tensor(r, d) for r, d in zip(guarded(*leaves), dtypes, strict=True)]
        if self._arrays:
            results = tf.numpy_function(guarded, flat, dtypes, stateful=self._stateful)
        else:
            results = tf.py_function(guarded, flat, dtypes)
        if not specs:
            return []  # the op itself, which runs for its effects
        for result, spec in zip(results, specs, strict=True):
            result.set_shape(spec.shape)  # true, since it is checked when it runs
        return list(results)

    def _differentiable(
        self, arguments: Any, flat: list[tf.Tensor], results: list[tf.Tensor], floating: list[int]
    ) -> list[tf.Tensor]:
        """Returns `results` with this op's own gradient. `floating`: which of `flat`, the leaves of `arguments`, are floats."""

        @tf.custom_gradient
        def attached(*flat: tf.Tensor) -> Any:
            def backward(*upstream: tf.Tensor | None) -> list[tf.Tensor | None]:
                if self.gradient == "refuse":
                    raise NoGradientError(
                        "its gradient is needed, and it has none",
                        where=self.name,
                        fix='pass gradient=..., or gradient="stop" if it is to have none',
                    )
                upstream_leaves = [
                    tf.zeros_like(r) if u is None else tf.convert_to_tensor(u)
                    for u, r in zip(upstream, results, strict=True)
                ]
                specs = [tf.TensorSpec(flat[i].shape, flat[i].dtype) for i in floating]
                run = self._traced if self.gradient == "traced" else self._users
                named = self.gradient if callable(self.gradient) else self.function

                def function(*leaves: Any) -> list[Any]:
                    return run(arguments, leaves[: len(flat)], leaves[len(flat) :], floating)

                computed = self._run(named, function, [*flat, *upstream_leaves], specs)
                gradients: list[tf.Tensor | None] = [None] * len(flat)
                for i, gradient in zip(floating, computed, strict=True):
                    gradients[i] = gradient
                return gradients

            return [tf.identity(result) for result in results], backward

        return list(tf.nest.flatten(attached(*flat)))

    def _refuse(self, variables: Sequence[tf.Variable]) -> None:
        """Raise NoGradientError if the function read any trainable `variables`: they would get no gradient through it."""
        if variables:
            names = sorted({f"{variable.name.removesuffix(':0')} {variable.shape.as_list()}" for variable in variables})
            raise NoGradientError(
                f"it reads the trainable variables {', '.join(names)}, which get no gradient through it",
                where=self.name,
                fix='pass them as arguments; or pass gradient="stop" if they are not to learn from it',
            )

    def _traced(self, arguments: Any, leaves: Sequence[Any], upstream: Sequence[Any], floating: list[int]) -> list[Any]:
        """Returns the gradients with respect to the floating arguments: calls the function once more, under a tape."""
        inputs = [leaves[i] for i in floating]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            results = _checked(
                self.name, self.output_signature, self.function(*tf.nest.pack_sequence_as(arguments, list(leaves)))
            )
        self._refuse(tape.watched_variables())
        pairs = [(r, u) for r, u in zip(results, upstream, strict=True) if tf.as_dtype(r.dtype).is_floating]
        gradients = tape.gradient(
            [tf.convert_to_tensor(r) for r, _ in pairs], inputs, output_gradients=[u for _, u in pairs]
        )
        for i, gradient in zip(floating, gradients, strict=True):
            if gradient is None:
                raise NoGradientError(
                    f"no TensorFlow op leads from its argument {i} to what it returns",
                    where=self.name,
                    fix="use TensorFlow ops throughout (no .numpy()), or give the gradient as a function; a mask, which has "
                    "none, is to be bool",
                )
        return [tf.convert_to_tensor(gradient) for gradient in gradients]

    def _users(self, arguments: Any, leaves: Sequence[Any], upstream: Sequence[Any], floating: list[int]) -> list[Any]:
        """Returns the gradients from the user's gradient function: for each floating argument one of its dtype and shape."""
        assert callable(self.gradient)
        packed = tf.nest.pack_sequence_as(arguments, list(leaves))
        returned = self.gradient(pack(self.output_signature, iter(upstream)), *packed)
        gradients = list(returned) if isinstance(returned, list | tuple) else [returned]
        if len(gradients) == len(leaves):
            gradients = [gradients[i] for i in floating]
        if len(gradients) != len(floating):
            raise PythonOpError(
                f"returned {len(gradients)} gradients for {len(floating)} floating arguments",
                where=name_of(self.gradient),
            )
        dense = [tf.convert_to_tensor(one) if isinstance(one, tf.IndexedSlices) else one for one in gradients]
        named = {f"the gradient of argument {i}": tf.TensorSpec(leaves[i].shape, leaves[i].dtype) for i in floating}
        found = [
            _checked(name_of(self.gradient), named[what], one, what) for what, one in zip(named, dense, strict=True)
        ]
        return [leaf for (leaf,) in found]


python_op = functools.partial(PythonOp, arrays=False)
"""An op that calls its function with eager tensors."""
numpy_op = functools.partial(PythonOp, arrays=True)
"""An op that calls its function with NumPy arrays."""


def _checked(where: str, spec: Spec, value: Any, what: str = "output") -> list[Any]:
    """Returns the leaves of `value`, a result of the function named `where`; PythonOpError if `value` does not fit `spec`."""
    if value is None and isinstance(spec, list | tuple) and not spec:
        return []  # what a function for its effects returns
    found = list(leaves_or_misfits(what, spec, value))
    for leaf in found:
        if isinstance(leaf, Misfit):
            raise PythonOpError(
                f"returned {leaf.given} for {leaf.path}, declared {leaf.expected}",
                where=where,
                fix="return an array or a tensor of that dtype and shape, or declare what it returns",
            )
    return found


def _lend(leaves: Sequence[Any]) -> None:
    """Make the arrays among `leaves` read-only. In a graph an array is the memory of a tensor, which a caller, a cache or a
    variable may read too."""
    for leaf in leaves:
        if isinstance(leaf, np.ndarray):
            leaf.flags.writeable = False


PYTHON_NODES = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
"""The ops by which a graph calls a Python function of its process."""

_KEPT = 16
"""The most failures that are kept: each holds the frames, and so the arrays, of its call."""
_NUMBER = re.compile(r"\[python failure (\d+)\]")


class PythonOpError(HeadwayError):
    """A Python function in a graph raised (see `__cause__`), or returned a value unlike its declaration."""


class NoGradientError(PythonOpError):
    """Raised when the gradient of a Python op is needed, but the op has none."""


class Failures:
    """Keeps the exceptions of failing Python ops by number, since TensorFlow passes on only the text of an exception."""

    def __init__(self) -> None:
        self._failures: OrderedDict[int, HeadwayError] = OrderedDict()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def send(self, error: HeadwayError) -> NoReturn:
        """Keep `error` under a number, and raise a RuntimeError whose text has this number; TensorFlow passes the text on."""
        with self._lock:
            number = next(self._numbers)
            self._failures[number] = error
            while len(self._failures) > _KEPT:
                self._failures.popitem(last=False)
        raise RuntimeError(f"[python failure {number}] {error}") from None

    def pop_cause(self, error: BaseException) -> HeadwayError | None:
        """Removes and returns the kept exception that a TensorFlow error refers to; None if it refers to none."""
        match = _NUMBER.search(str(error))
        with self._lock:
            return self._failures.pop(int(match[1]), None) if match else None


FAILURES = Failures()


@contextmanager
def python_errors() -> Iterator[None]:
    """Within the block, a failing python_op or numpy_op raises a PythonOpError, whose cause is the exception of the op's
    function. A HeadwayError of the function is raised itself."""
    try:
        yield
    except tf.errors.OpError as error:
        reraise(error)
        raise


def reraise(error: tf.errors.OpError) -> None:
    """Raise the kept exception that `error` refers to; if there is none, return."""
    failure = FAILURES.pop_cause(error)
    if failure is not None:
        raise failure from failure.__cause__


def user_error(function: Callable[..., Any], error: Exception, *, skip: str) -> HeadwayError:
    """Returns the error to show for `error`, which `function` raised. That is `error` itself if it is a HeadwayError, else a
    PythonOpError with its traceback, without the frames of the file `skip`."""
    if isinstance(error, HeadwayError):
        return error
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != skip]
    stack = "".join(traceback.format_list(frames)).rstrip()
    message = "".join(traceback.format_exception_only(error)).strip()
    problem = PythonOpError("\n".join(filter(None, [f"raised {message}", stack])), where=name_of(function))
    problem.__cause__ = error
    return problem


def python_text(error: tf.errors.OpError) -> str | None:
    """Returns "ValueError: ... in File ..." for an exception in a plain tf.py_function or tf.numpy_function; else None."""
    before, trace, after = str(error.message).partition("Traceback (most recent call last)")
    if not trace:
        return None
    lines = [line.strip() for line in after.splitlines() if line.strip()]
    exception = re.search(r"(\w[\w.]*(?:Error|Exception|Interrupt|Iteration)\b.*)", before)
    files = [line for line in lines if line.startswith("File ") and "/tensorflow/python/" not in line]
    return " in ".join([(exception[1] if exception else before).strip(), *files[-1:]])


def name_of(function: Callable[..., Any]) -> str:
    """Returns the name "module:qualname (file.py:12)" of a function, a method, a partial or a callable object."""
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
    """Returns the names (see `name_of`) of the Python functions that a GraphDef and its library's functions call."""
    return sorted({_name_of_node(node) for node in all_nodes(graph) if node.op in PYTHON_NODES})


def all_nodes(graph: Any) -> list[Any]:
    """Returns the NodeDefs of a GraphDef and of its library's functions, each function once."""
    return [*graph.node, *(node for function in graph.library.function for node in function.node_def)]


def _name_of_node(node: Any) -> str:
    """Returns the name of a node's Python function; the node's name if TensorFlow has lost the function."""
    token = node.attr["token"].s.decode()
    try:
        return name_of(python_function_of(token))
    except Exception:  # a private registry, only asked to make the message better
        return f"{node.op} node {node.name!r} ({token})"
