"""The program of a child process that runs stage functions for its parent, with or without TensorFlow imported.

    python -P -u tfcore/runtime/start.py tensorflow keras      # the modules to import before the first request

Requests come on stdin and answers go to stdout, JSON lines both; whatever else prints to stdout goes to stderr. In:

    {"id": 1, "call": "tfcore.train.stage:train", "request": {...}, "out": "/path", "runtime": {}}
    {"id": 2, "call": "beam_jobs.ingest.stage:ingest_many", "request": [{...}, {...}], "out": ["/a", "/b"]}
    {"stop": true}                          the running call's monitor.check() raises Cancelled

Out: {"event": "ready"} once everything is imported, then for each call any number of
{"id": 1, "event": "progress" | "log" | "warn", ...} and one {"id": 1, "result": {...}} or
{"id": 1, "error": {...}}.

The process lives exactly as long as its stdin: when the parent closes it, or dies of anything, the reader
thread sees its end and leaves at once, whatever the main thread is doing. Ctrl-C and SIGTERM are the parent's business.
"""

import contextlib
import faulthandler
import importlib
import inspect
import json
import linecache
import os
import queue
import sys
import sysconfig
import threading
import time
import traceback
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from headway.config import load
from headway.errors import KINDS, HeadwayError
from headway.monitor import Monitor
from headway.process import exit_now, gc_paused, mark_own_process, quiet_libraries
from headway.storage.atomic_io import storage_error

PROGRESS_SECONDS = 0.1
"""The least seconds between two progress messages; a call's last progress is always passed on."""
OURS = tuple(str(Path(__file__).parents[2] / package) + "/" for package in ("headway", "beam_jobs", "tfcore", "flows"))
LIBRARIES = tuple(sysconfig.get_path(name) + "/" for name in ("stdlib", "purelib", "platlib"))
FROM_OUTSIDE = {"UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError"}
"""Errors of a lost worker or a cancelled call: the user's code is not to blame, though the traceback may name a line of it."""


class Answers:
    """Writes JSON lines to the parent. Each line stays whole, even if several threads write at once."""

    def __init__(self, descriptor: int):
        self._file = os.fdopen(descriptor, "wb")
        self._lock = threading.Lock()

    def send(self, **answer: Any) -> None:
        line = json.dumps(answer, default=_plain).encode() + b"\n"
        with self._lock:
            try:
                self._file.write(line)
                self._file.flush()
            except BrokenPipeError:
                exit_now(1)  # nobody is left to answer to


def _plain(value: Any) -> Any:
    """Returns NumPy and TensorFlow scalars, arrays and paths as JSON values."""
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "numpy"):
        value = value.numpy()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, bool | int | float | str | list):
        return value
    raise TypeError(f"a stage's answer holds a {type(value).__name__}, which JSON cannot hold")


class RelayMonitor(Monitor):
    """Sends a stage's progress and log lines to the parent's monitor."""

    def __init__(self, answers: Answers, call: int, stop: threading.Event):
        super().__init__(stop)
        self._answers, self._call, self._last = answers, call, 0.0

    def progress(self, done: float, total: float | None, unit: str, **facts: Any) -> None:
        now = time.monotonic()
        if now - self._last >= PROGRESS_SECONDS or (total is not None and done >= total):
            self._last = now
            self._answers.send(id=self._call, event="progress", done=done, total=total, unit=unit, facts=facts)

    def log(self, line: str) -> None:
        self._answers.send(id=self._call, event="log", line=line)

    def warn(self, line: str) -> None:
        self._answers.send(id=self._call, event="warn", line=line)


class Requests:
    """The thread that reads requests. It queues calls, stops the newest one on request, ends the process when the pipe closes."""

    def __init__(self, descriptor: int):
        self.queue: queue.Queue[tuple[dict[str, Any], threading.Event]] = queue.Queue()
        self._file = os.fdopen(descriptor, "rb")
        threading.Thread(target=self._read, name="requests", daemon=True).start()

    def _read(self) -> None:
        stop = threading.Event()
        with contextlib.suppress(OSError, ValueError):
            for line in self._file:
                request = json.loads(line)
                if request.get("stop"):
                    stop.set()
                else:
                    stop = threading.Event()
                    self.queue.put((request, stop))
        exit_now(0)


def resolve(call: str) -> Callable[..., Any]:
    """Returns the function that "package.module:function" names; HeadwayError when it does not exist."""
    module, _, name = call.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        raise HeadwayError(f"module {module} has no function {name!r}", where=call) from None
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(error.name + ".")):
            raise HeadwayError(f"there is no module {error.name}", where=call) from None
        raise


def run(request: dict[str, Any], monitor: Monitor) -> Any:
    """Call the stage that a request names, with its JSON validated into the function's parameter types."""
    function = resolve(request["call"])
    hints, out, value = typing.get_type_hints(function), request["out"], request.get("request")
    model = hints.get(next(iter(inspect.signature(function).parameters)))
    if isinstance(model, type) and issubclass(model, BaseModel):
        value = load(model, value, where=request["call"])
    elif isinstance(value, list) and model is not None:
        value = TypeAdapter(model).validate_python(value)
    runtime = {
        name: TypeAdapter(hints[name]).validate_python(argument) if name in hints else argument
        for name, argument in (request.get("runtime") or {}).items()
    }
    return function(value, [Path(each) for each in out] if isinstance(out, list) else Path(out), monitor, **runtime)


def error_as_json(error: BaseException) -> dict[str, Any]:
    """Returns an exception as JSON. A HeadwayError keeps its kind; another exception becomes one line and a traceback. If an op
    fails that a line of the user's code created, a HeadwayError names the line. A full disk becomes a StoreError."""
    reason = None
    error = storage_error(error) or error
    if (tf := sys.modules.get("tensorflow")) is not None and isinstance(error, tf.errors.OpError):
        reason, error = explain_error(error)
    if isinstance(error, HeadwayError):
        kind = next(c.__name__ for c in type(error).__mro__ if c.__name__ in KINDS)
        facts = {"problem": error.problem, "where": error.where, "fix": error.fix}
        return {"kind": kind, **facts, "traceback": None}
    first = reason or (str(error).strip().splitlines() or ["no message"])[0]
    text = "".join(traceback.format_exception(error))
    return {"kind": None, "problem": f"{type(error).__name__}: {first}", "where": None, "fix": None, "traceback": text}


def explain_error(error: Any) -> tuple[str, BaseException]:
    """Returns the reason of a TensorFlow error, with its op, and an error that names the line of the user's code. The second is
    `error` itself if no such line leads to the op, or if the cause is outside, such as a lost worker."""
    from tfcore.graph.op_errors import FRAME, MADE_AT, op_of, why

    op = op_of(error)
    reason = f"{why(error)} (op {op})" if op else why(error)
    if type(error).__name__ in FROM_OUTSIDE:
        return reason, error
    made_at = MADE_AT.split(str(error.message))[2:3]  # where the first op was made
    made = [(file, int(line), function) for text in made_at for file, line, function in FRAME.findall(text)]
    called = [(f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(error.__traceback__)]
    theirs = [frame for frame in made if _users(frame[0])] or [frame for frame in called if _users(frame[0])]
    if not theirs:
        return reason, error
    file, line, function = theirs[-1]
    source = linecache.getline(file, line).strip()
    problem = f"{type(error).__name__}{f' in op {op}' if op else ''}: {why(error)}"
    if source:
        problem += f"\n    {source}"
    explanation = HeadwayError(problem, where=f"{file}:{line}, in {function}")
    explanation.__cause__ = error
    return reason, explanation


def _users(file: str) -> bool:
    """Returns whether a source file is the user's own: neither Headway's nor a library's."""
    return Path(file).is_file() and not file.startswith((*OURS, *LIBRARIES)) and "/site-packages/" not in file


def preload(modules: list[str]) -> dict[str, Any] | None:
    """Import `modules`. Returns None, or, if the import fails, the error as JSON, with which every call is then answered."""
    try:
        with gc_paused():
            for module in modules:
                importlib.import_module(module)
            if "tensorflow" in sys.modules:
                _prepare_tensorflow()
    except Exception as error:
        failure = error_as_json(error)
        failure["problem"] = f"the TensorFlow process cannot import what it needs: {failure['problem']}"
        failure["fix"] = "run 'headway doctor'"
        return failure
    return None


def _prepare_tensorflow() -> None:
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        # without it TensorFlow takes the whole card, and a second run on the machine fails
        with contextlib.suppress(RuntimeError):
            tf.config.experimental.set_memory_growth(gpu, True)


def main() -> None:
    # descriptors of their own: what the user's code reads and prints is none of them, and no grandchild holds them open
    requests_fd, answers_fd = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a descriptor is wanted
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    mark_own_process(requests_fd)
    quiet_libraries()
    faulthandler.enable()  # a crash in native code then prints where Python was
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["KERAS_BACKEND"] = "tensorflow"  # whatever the user's ~/.keras/keras.json prefers
    requests, answers = Requests(requests_fd), Answers(answers_fd)

    broken = preload(sys.argv[1:])
    answers.send(event="ready")
    while True:
        request, stop = requests.queue.get()
        call = request["id"]
        if broken:
            answers.send(id=call, error=broken)
            continue
        try:
            answers.send(id=call, result=run(request, RelayMonitor(answers, call, stop)))
        except BaseException as error:  # also SystemExit: a stage must not end the process
            answers.send(id=call, error=error_as_json(error))
