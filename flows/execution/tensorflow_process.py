"""The parent's side of the TensorFlow process: start it, call stages in it, stop it.

    with Child(on_line=print) as child:
        child.spawn()                                     # imports TensorFlow while this process does other things
        result = child.call("tfcore.export.saved_model:export", request, out, monitor)

TensorFlow never gives memory back and does not survive a fork, so it lives in a spawned process of its own
(`tfcore.runtime.worker`), tied to this one by a pipe: however this process ends, the pipe ends, and the child with it.
A stage's HeadwayError is raised here as the same kind; any other exception as a ChildError with its traceback.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel

from headway.errors import KINDS, HeadwayError
from headway.monitor import Monitor

POLL_SECONDS = 0.1
"""How soon a stop asked of the monitor is passed on to the child."""
LAST_LINES = 20
LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_NOISE = re.compile(
    r"WARNING: All log messages before absl::InitializeLog|[IW]\d{4} \d\d:\d\d:|"
    r"E\d{4} .*(failed call to cuInit|use_unbounded_threadpool)"
)
"""Lines that TensorFlow's C++ code prints at every start whatever LOG_LEVEL says; relayed when it is 0 or 1."""


class ChildError(HeadwayError):
    """The child process died, or raised something other than a HeadwayError: a bug, or a fault in the user's module."""

    traceback: str | None = None
    """The child's traceback as text, if it could still send one."""
    exit_code_of_child: int | None = None
    """The exit code, negative for a signal, when the child died; None when it still runs."""

    def __reduce__(self):
        return *super().__reduce__(), self.__dict__


class Child:
    """One `tfcore.runtime.worker` process. Calls from several threads run one after the other.

    Args:
        on_line: called with each line the child prints (stdout and stderr), from a thread of its own.
        preload: modules the child imports right after its start.
        environment: variables set for the child on top of this process's.
    """

    def __init__(
        self,
        *,
        on_line: Callable[[str], None] | None = None,
        preload: Sequence[str] = ("tensorflow", "keras"),
        environment: Mapping[str, str] | None = None,
    ):
        self._on_line = on_line or (lambda line: print(line, file=sys.stderr, flush=True))
        self._preload, self._environment = tuple(preload), dict(environment or {})
        self._quiet = {**os.environ, **self._environment}.get(LOG_LEVEL, "2") not in ("0", "1")
        self._calls = itertools.count(1)
        self._one_call, self._state = threading.RLock(), threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._clear()

    def _clear(self) -> None:
        self._requests: IO[bytes] | None = None
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._lines: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
        self._printer: threading.Thread | None = None
        self._ready = threading.Event()
        self.facts: dict[str, Any] = {}
        """Seconds the imports took, devices and pid, once the child is ready."""

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def spawn(self) -> None:
        """Start the process if it is not running; returns at once."""
        with self._state:
            if self.alive():
                return
            self.close()
            self._clear()
            child_reads, we_write = os.pipe()
            we_read, child_writes = os.pipe()
            options = [f"--requests={child_reads}", f"--answers={child_writes}", f"--preload={','.join(self._preload)}"]
            try:
                self._process = subprocess.Popen(
                    # -P: a flows/ or tfcore/ folder in the working directory is not ours; -u: lines arrive at once
                    [sys.executable, "-P", "-u", "-m", "tfcore.runtime.worker", *options],
                    env={**os.environ, **self._environment},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=(child_reads, child_writes),
                    process_group=0,  # a terminal's Ctrl-C goes to this process, which decides
                )
            except BaseException:
                os.close(we_write)
                os.close(we_read)
                raise
            finally:
                os.close(child_reads)
                os.close(child_writes)
            self._requests = os.fdopen(we_write, "wb")
            self._printer = threading.Thread(
                target=self._relay, args=(self._process.stdout, self._lines), name="child-lines", daemon=True
            )
            self._printer.start()
            threading.Thread(
                target=self._receive, args=(os.fdopen(we_read, "rb"), self._answers), name="child-answers", daemon=True
            ).start()

    def _relay(self, stream: IO[bytes], lines: collections.deque[str]) -> None:
        for raw in stream:
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            if self._quiet and _NOISE.match(line):
                continue
            lines.append(line)
            with contextlib.suppress(Exception):  # a broken listener must not block the child's output
                self._on_line(line)
        stream.close()

    def _receive(self, stream: IO[bytes], answers: queue.Queue[dict[str, Any] | None]) -> None:
        with stream:
            for raw in stream:
                try:
                    answer = json.loads(raw)
                except ValueError:
                    break  # cut off in the middle of a line: the child died
                if answer.get("event") == "ready":
                    self.facts = {key: value for key, value in answer.items() if key != "event"}
                    self._ready.set()
                else:
                    answers.put(answer)
        answers.put(None)
        self._ready.set()

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until the child has imported its modules (or died); False after `timeout` seconds."""
        return self._ready.wait(timeout)

    def call(
        self,
        function: str,
        request: BaseModel | Mapping[str, Any],
        out: Path,
        monitor: Monitor | None = None,
        **runtime: Any,
    ) -> dict[str, Any]:
        """Run "module:function"(request, out, monitor, **runtime) in the child and return its result.

        `request` crosses as JSON and is validated there into the type the function's first parameter is annotated
        with. Once `monitor` is cancelled the child is told to stop; the stage then raises Cancelled in its own time.
        """
        monitor = monitor or Monitor()
        with self._one_call:
            monitor.check()
            self.spawn()
            value = request.model_dump(mode="json", by_alias=True) if isinstance(request, BaseModel) else dict(request)
            number = next(self._calls)
            self._send({"id": number, "call": function, "request": value, "out": str(out), "runtime": runtime})
            told = False
            while True:
                try:
                    answer = self._answers.get(timeout=POLL_SECONDS)
                except queue.Empty:
                    answer = {}
                if answer is None:
                    raise self._death(function)
                if not told and monitor.cancelled():
                    told = True
                    self.stop()
                if answer.get("id") != number:
                    continue  # nothing yet, or a call that its caller gave up
                if "result" in answer:
                    return answer["result"]
                if "error" in answer:
                    raise _error(answer["error"], function)
                self._tell(monitor, answer)

    @staticmethod
    def _tell(monitor: Monitor, answer: dict[str, Any]) -> None:
        if answer["event"] == "progress":
            monitor.progress(answer["done"], answer["total"], answer["unit"], **answer["facts"])
        elif answer["event"] == "log":
            monitor.log(answer["line"])

    def _send(self, message: dict[str, Any]) -> None:
        with self._state:
            if self._requests is None:
                return
            with contextlib.suppress(BrokenPipeError, ValueError):  # its death is told by the answers' end
                self._requests.write(json.dumps(message, default=_plain).encode() + b"\n")
                self._requests.flush()

    def stop(self) -> None:
        """Ask the running call to stop at its next check."""
        self._send({"stop": True})

    def close(self, timeout: float = 5.0) -> None:
        """Let the child go: its pipe is closed, and it is killed when that does not end it in `timeout` seconds."""
        with self._state:
            process, self._process = self._process, None
            if self._requests is not None:
                with contextlib.suppress(OSError, ValueError):
                    self._requests.close()
                self._requests = None
        if process is None:
            return
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._printer is not None:
            self._printer.join(1.0)

    def _death(self, function: str) -> ChildError:
        """What is known about a child that ended in the middle of a call."""
        process, code = self._process, None
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(5.0)
        if self._printer is not None:
            self._printer.join(1.0)  # its last words
        fix = None
        if code is None:
            how = "closed its pipe"
        elif code < 0:
            how = f"was ended by {_signal_name(-code)}"
            if -code == signal.SIGKILL:
                fix = "the system kills a process when memory runs out: look in the kernel's log, lower the batch size"
        else:
            how = f"ended with exit code {code}"
        lines = "".join(f"\n  | {line}" for line in self._lines)
        words = f"; its last lines:{lines}" if lines else "; it printed nothing"
        pid = process.pid if process else "?"
        error = ChildError(f"the TensorFlow process (pid {pid}) {how} during this call{words}", where=function, fix=fix)
        error.exit_code_of_child = code
        self.close(timeout=0.1)
        return error


def _plain(value: Any) -> Any:
    """Runtime arguments as JSON; the child validates them into the types its function asks for."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"an argument of type {type(value).__name__} cannot be sent to the TensorFlow process")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _error(error: dict[str, Any], function: str) -> HeadwayError:
    kind = error["kind"]
    if kind is not None:
        return KINDS.get(kind, HeadwayError)(error["problem"], where=error["where"], fix=error["fix"])
    unexpected = ChildError(error["problem"], where=error["where"] or function, fix=error["fix"])
    unexpected.traceback = error["traceback"]
    if unexpected.traceback:
        unexpected.add_note("In the TensorFlow process:\n" + unexpected.traceback)
    return unexpected
