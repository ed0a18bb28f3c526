"""The parent's side of the TensorFlow process: start it, call stages in it, stop it.

    with Child(on_line=print) as child:
        child.spawn()                                     # imports TensorFlow while this process does other things
        result = child.call("tfcore.export.saved_model:export", request, out, monitor)

TensorFlow never gives memory back and does not survive a fork. So it runs in a child process (`tfcore.runtime.start`), which a
pipe ties to this process (`headway.process.ChildProcess`). A stage's HeadwayError is raised here with the same class. Any other
exception is raised as a ChildError with its traceback.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import queue
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from headway.errors import KINDS, Cancelled, HeadwayError
from headway.monitor import Monitor
from headway.process import ChildProcess
from headway.stages.stage_class import Stage
from tfcore.runtime.early_start import PRELOAD, REPLAYS, WORKER, waiting

POLL_SECONDS = 0.1
"""The most seconds until a monitor's cancellation is passed on to the child."""
SILENT_SECONDS = 1.0
"""The seconds after which a call logs that it waits for TensorFlow to be imported."""
LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_NOISE = re.compile(
    r"WARNING: All log messages before absl::InitializeLog|[IW]\d{4} \d\d:\d\d:|"
    r"E\d{4} .*(failed call to cuInit|use_unbounded_threadpool|Tensor RefCount not reliable)"
)
"""Lines that TensorFlow's C++ code prints at each start whatever LOG_LEVEL is; passed on only if LOG_LEVEL is 0 or 1."""


class ChildError(HeadwayError):
    """The child process died, or raised something other than a HeadwayError: a bug, or a fault in the user's module."""

    traceback: str | None = None
    """The child's traceback as text, if it could still send one."""

    def __reduce__(self):
        return *super().__reduce__(), self.__dict__


class Child:
    """A child process that runs `tfcore.runtime.worker`. Calls from several threads run one after the other.

    Args:
        on_line: called from a thread of its own with each line the child prints (stdout and stderr), but TensorFlow's noise.
        preload: modules the child imports right after its start.
        environment: variables set for the child on top of this process's.
    """

    def __init__(
        self,
        *,
        on_line: Callable[[str], None] | None = None,
        preload: Sequence[str] = PRELOAD,
        environment: Mapping[str, str] | None = None,
    ):
        self._on_line = on_line or (lambda line: print(line, file=sys.stderr, flush=True))
        self._preload, self._environment = tuple(preload), dict(environment or {})
        self._quiet = {**os.environ, **self._environment}.get(LOG_LEVEL, "2") not in ("0", "1")
        self._calls = itertools.count(1)
        self._one_call, self._state = threading.RLock(), threading.RLock()
        self._process: ChildProcess | None = None
        self._importing = False
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def alive(self) -> bool:
        return self._process is not None and self._process.exit_code() is None

    def spawn(self) -> None:
        """Start the process if it is not running; returns at once."""
        with self._state:
            if self.alive():
                return
            self._end(5.0)
            self._answers, self._importing = queue.Queue(), bool(self._preload)
            usual = self._preload == PRELOAD and not self._environment
            self._process = ChildProcess(
                [*WORKER, REPLAYS, *self._preload],
                self._answers.put,
                on_line=self._on_line,
                ignore=_NOISE if self._quiet else None,
                environment=self._environment,
                process=waiting.pop() if usual and waiting else None,
            )

    def call(
        self,
        function: str,
        request: BaseModel | Mapping[str, Any] | Sequence[BaseModel | Mapping[str, Any]],
        out: Path | Sequence[Path],
        monitor: Monitor | None = None,
        **runtime: Any,
    ) -> Any:
        """Call `function`, named "module:function", with (request, out, monitor, **runtime) in the child; return its result.

        `request` is sent as JSON, and the child validates it into the type of the function's first parameter. A function of
        several requests and output folders gets both as lists. When `monitor` is cancelled, the child is told to stop, and
        the stage raises Cancelled when it next checks its monitor.
        """
        monitor = monitor or Monitor()
        with self._one_call, self._own_process(request):
            monitor.check()
            self.spawn()
            process = self._process
            if process is None:  # another thread has closed it since
                raise ChildError("the TensorFlow process was closed before this call", where=_dotted(function))
            value = [_json(each) for each in request] if isinstance(request, Sequence) else _json(request)
            number = next(self._calls)
            outs = str(out) if isinstance(out, Path) else [str(folder) for folder in out]
            message = {"id": number, "call": function, "request": value, "out": outs, "runtime": runtime}
            process.send(message, default=_plain)
            stopping, silent_until = False, time.monotonic() + SILENT_SECONDS
            while True:
                try:
                    answer = self._answers.get(timeout=POLL_SECONDS)
                except queue.Empty:
                    answer = {}
                if answer is None:
                    raise self._death(process, function, stopping=stopping)
                if not stopping and monitor.cancelled():
                    stopping = True
                    process.send({"stop": True})
                if answer.get("event") == "ready":
                    self._importing = False
                if self._importing and time.monotonic() > silent_until:
                    monitor.log(f"importing {', '.join(self._preload)}")
                    silent_until = math.inf
                if answer.get("id") != number:
                    continue  # nothing yet, or a call that its caller gave up
                if "result" in answer:
                    return answer["result"]
                if "error" in answer:
                    raise error_of(answer["error"], function)
                match answer.get("event"):
                    case "progress":
                        monitor.progress(answer["done"], answer["total"], answer["unit"], **answer["facts"])
                    case "log":
                        monitor.log(answer["line"])
                    case "warn":
                        monitor.warn(answer["line"])

    def let_go(self) -> None:
        """Let the child end by itself, and return at once; `close` waits for its end."""
        if (process := self._process) is not None:
            process.close_stdin()

    def close(self, timeout: float = 5.0) -> None:
        """Let the child end, and kill it after `timeout` seconds. A child that was never called is killed at once, since
        that child may still be importing TensorFlow."""
        self._end(0.0 if self._importing else timeout)

    def _end(self, timeout: float) -> None:
        with self._state:
            process, self._process = self._process, None
        if process is not None:
            process.close(timeout)

    @contextlib.contextmanager
    def _own_process(self, request: object) -> Iterator[None]:
        """Within the block, a stage whose `own_process` is set has a new process, which ends with the block."""
        own = isinstance(request, Stage) and request.own_process
        if own:
            self._end(0.0 if self._importing else 5.0)
        try:
            yield
        finally:
            if own:
                self._end(5.0)

    def _death(self, process: ChildProcess, function: str, *, stopping: bool) -> HeadwayError:
        """Returns the error for a child that ended in the middle of a call: its exit status and last output lines."""
        how, fix = process.exit_text(), None
        if stopping and process.exit_code() == -signal.SIGIO:  # the stop itself, as `tfcore.train.strategy` has it
            self._end(0.1)
            return Cancelled("stopped on request, while it waited for other workers")
        if process.exit_code() == -signal.SIGKILL:
            fix = "the system kills a process when memory runs out: look in the kernel's log, lower the batch size"
        what = f"the TensorFlow process (pid {process.pid}) {how} during this call{process.last_lines()}"
        self._end(0.1)
        return ChildError(what, where=_dotted(function), fix=fix)


def _dotted(function: str) -> str:
    """Returns module:function as module.function, since consoles show the :train: in module:train: as an emoji."""
    return function.replace(":", ".")


def _json(request: Any) -> dict[str, Any]:
    return request.model_dump(mode="json", by_alias=True) if isinstance(request, BaseModel) else dict(request)


def _plain(value: Any) -> Any:
    """Returns a runtime argument as a JSON value. The child validates it into the type of the function's parameter."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"an argument of type {type(value).__name__} cannot be sent to the TensorFlow process")


def error_of(error: dict[str, Any], function: str) -> HeadwayError:
    """Returns the error that a stage raised in the process, from its JSON (`tfcore.runtime.worker.error_as_json`)."""
    kind = error["kind"]
    if kind is not None:
        where = _dotted(function) if error["where"] == function else error["where"]
        return KINDS.get(kind, HeadwayError)(error["problem"], where=where, fix=error["fix"])
    unexpected = ChildError(error["problem"], where=error["where"] or _dotted(function), fix=error["fix"])
    unexpected.traceback = error["traceback"]
    if unexpected.traceback:
        unexpected.add_note(f"In the TensorFlow process:\n{unexpected.traceback}")
    return unexpected
