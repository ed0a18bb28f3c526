"""Processes that train together: each runs one call, and when one fails, all end with one error.

    results = run_together("tfcore.train.member:member", requests, out, monitor, environments)

Each is a `tfcore.runtime.worker` on two pipes of its own: however this process ends, the pipes end, and the members with it.
Progress and log lines are those of the first, which is the chief; a stop is told to it alone, and it agrees with the
others when. One of which nothing is heard any more is frozen, which ends all as a death does.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from headway.errors import KINDS, Cancelled, HeadwayError
from headway.monitor import Monitor
from tfcore.distribute.heartbeat import HeartbeatMonitor

POLL_SECONDS = 0.1
GRACE_SECONDS = 2.0
"""After the first bad news, how long to listen for what caused it: the others fail because one did."""
START_SECONDS = 600.0
"""How long a process may take to import TensorFlow and find the others, before its pulse is to be heard."""
SUSPECT_SECONDS = 4.0
"""Of silence: when others fail, such a one is the cause."""
LAST_LINES = 20


class Member:
    """One process, by its number; what it says comes into `news` as (number, answer), None for its end."""

    def __init__(
        self, number: int, environment: Mapping[str, str], news: queue.Queue[tuple[int, dict[str, Any] | None]]
    ):
        self.number = number
        self.messages = 0
        self.lines: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
        reads, we_write = os.pipe()
        we_read, writes = os.pipe()
        try:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-u",
                    "-m",
                    "tfcore.runtime.worker",
                    f"--requests={reads}",
                    f"--answers={writes}",
                ],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(reads, writes),
            )
        except BaseException:
            os.close(we_write)
            os.close(we_read)
            raise
        finally:
            os.close(reads)
            os.close(writes)
        self.lifeline = reads
        """The descriptor of its requests, in the process itself."""
        self._requests: IO[bytes] | None = os.fdopen(we_write, "wb")
        assert self.process.stdout is not None
        self._printer = threading.Thread(target=self._relay, args=(self.process.stdout,), daemon=True)
        self._printer.start()
        threading.Thread(target=self._receive, args=(os.fdopen(we_read, "rb"), news), daemon=True).start()

    def _relay(self, stream: IO[bytes]) -> None:
        with stream:
            for raw in stream:
                line = raw.decode("utf-8", "replace").rstrip("\r\n")
                self.lines.append(line)
                if self.number == 0:  # the others would say the same
                    print(line, flush=True)

    def _receive(self, stream: IO[bytes], news: queue.Queue[tuple[int, dict[str, Any] | None]]) -> None:
        with stream, contextlib.suppress(ValueError):  # cut off in the middle of a line: it died
            for raw in stream:
                self.messages += 1
                news.put((self.number, json.loads(raw)))
        news.put((self.number, None))

    def send(self, **message: Any) -> None:
        if self._requests is not None:
            with contextlib.suppress(BrokenPipeError, ValueError):  # its end is told by the answers' end
                self._requests.write(json.dumps(message).encode() + b"\n")
                self._requests.flush()

    def close(self) -> None:
        """Let it go: without the pipe it ends at once."""
        if self._requests is not None:
            with contextlib.suppress(OSError, ValueError):
                self._requests.close()
            self._requests = None

    def end(self) -> None:
        try:
            self.process.wait(1.0)
        except subprocess.TimeoutExpired:  # frozen, or stuck in native code
            self.process.kill()
            self.process.wait()

    def fate(self) -> str:
        """How it ended, for a person."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        self._printer.join(1.0)
        code = self.process.poll()
        if code is None:
            return "closed its pipe"
        return f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"


def run_together(
    call: str,
    requests: Sequence[Mapping[str, Any]],
    out: Path,
    monitor: Monitor,
    environments: Sequence[Mapping[str, str]],
    *,
    first: int = 0,
    of: int | None = None,
    remedy: Callable[[], str] = lambda: "run again",
    timeout: float = 30.0,
) -> dict[str, Any]:
    """Run "module:function"(request, out, monitor) once in each of some new processes, all at the same time.

    Args:
        requests: one for each process; its "lifeline" is put in, for `ending_with`.
        first, of: the number of the first of these members among all, where others run elsewhere.
        remedy: what to do when one has died; asked then.
        timeout: seconds of silence after which one whose pulse was heard is taken for frozen.

    Returns:
        What the first one returned.

    Raises:
        HeadwayError: one of them failed, died or is frozen; which one, how, and what it said. None of them lives then.
        Cancelled: on request, when the first one has raised it.
    """
    news: queue.Queue[tuple[int, dict[str, Any] | None]] = queue.Queue()
    members: list[Member] = []
    try:
        for number, environment in enumerate(environments):
            members.append(Member(number, environment, news))
        calls = [
            {"id": 1, "call": call, "request": {**request, "lifeline": member.lifeline}, "out": str(out), "runtime": {}}
            for member, request in zip(members, requests, strict=True)
        ]
        names = [f"worker {first + member.number} of {of or len(members)}" for member in members]
        # members elsewhere may come up at any time, and these wait for them
        start = START_SECONDS if of in (None, len(members)) else math.inf
        return _Watch(members, names, calls, news, monitor, remedy, timeout=timeout, start=start).result()
    finally:
        for member in members:
            member.close()
        for member in members:
            member.end()


class _Watch:
    """Listens to all members until the first is done or one has failed."""

    def __init__(
        self,
        members: list[Member],
        names: list[str],
        calls: list[dict[str, Any]],
        news: queue.Queue[Any],
        monitor: Monitor,
        remedy: Callable[[], str],
        *,
        timeout: float,
        start: float,
    ):
        self.members, self.names, self.news, self.monitor, self.remedy = members, names, news, monitor, remedy
        self.calls, self.ready = calls, 0
        self.results: dict[int, dict[str, Any]] = {}
        self.failures: dict[int, dict[str, Any] | None] = {}
        """By member, in the order in which they came: its error, or None where it died."""
        self.silence, self.beating = HeartbeatMonitor(len(members)), set[int]()
        self.timeout, self.start = timeout, max(start, timeout)

    def result(self) -> dict[str, Any]:
        told, deadline = False, None
        while len(self.results) + len(self.failures) < len(self.members):
            if self.monitor.cancelled() and not told:
                if self.ready < len(self.members):  # none has been called yet, and would take no notice
                    raise Cancelled("stopped on request, before the first step")
                told = True
                self.members[0].send(stop=True)
            self._take()
            if 0 in self.results:  # it has written everything: what another does now changes nothing
                return self.results[0]
            self.silence.look([member.messages for member in self.members])
            if any(
                self._silent(n, self.timeout if n in self.beating else self.start) for n in range(len(self.members))
            ):
                break
            if deadline is None and self.failures:
                deadline = time.monotonic() + GRACE_SECONDS
            if deadline is not None and time.monotonic() >= deadline:
                break
        raise self._error()

    def _take(self) -> None:
        try:
            number, answer = self.news.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return
        if number in self.results:
            return
        if answer is None:
            self.failures.setdefault(number, None)
        elif "result" in answer:
            self.results[number] = answer["result"]
        elif "error" in answer:
            self.failures.setdefault(number, answer["error"])
        elif answer.get("event") == "ready":
            self.ready += 1
            if self.ready == len(self.members):  # none waits for one that is still importing, or never will have
                for member, call in zip(self.members, self.calls, strict=True):
                    member.send(**call)
        elif answer.get("event") == "alive":
            self.beating.add(number)
        elif number == 0:
            if answer.get("event") == "progress":
                self.monitor.progress(answer["done"], answer["total"], answer["unit"], **answer["facts"])
            elif answer.get("event") == "log":
                self.monitor.log(answer["line"])

    def _silent(self, number: int, seconds: float) -> bool:
        running = number not in self.results and number not in self.failures
        return running and self.silence.seconds[number] > seconds

    def _error(self) -> HeadwayError:
        """The error of the member that failed first of its own accord: the others lost it, and failed of that."""
        failures = self.failures
        if failures and self.monitor.cancelled() and all(error is None for error in failures.values()):
            return Cancelled("stopped on request, before the first step")
        told = [n for n, error in failures.items() if error is not None and error["kind"] is not None]
        if told:
            error = failures[told[0]]
            assert error is not None
            kind = KINDS.get(error["kind"], HeadwayError)
            where = (
                error["where"] if kind is Cancelled or len(self.members) == 1 else _joined(self.names[told[0]], error)
            )
            return kind(error["problem"], where=where, fix=error["fix"])
        suspects = [n for n in self.beating if self._silent(n, min(SUSPECT_SECONDS, self.timeout))]
        suspects += [n for n in range(len(self.members)) if self._silent(n, self.start)]
        if suspects:
            number = max(suspects, key=lambda n: self.silence.seconds[n])
            seconds, pid = self.silence.seconds[number], self.members[number].process.pid
            what = f"{self.names[number]} (pid {pid}) is frozen: nothing was heard of it for {seconds:.0f} seconds"
            return HeadwayError(f"{what}; all were stopped", where="training", fix=self.remedy())
        died = [n for n, error in failures.items() if error is None]
        # TensorFlow aborts a process that has lost another, so that one is the last to be taken for the cause
        died.sort(key=lambda n: self.members[n].process.poll() in (None, -signal.SIGABRT))
        if died:
            member = self.members[died[0]]
            said = "".join(f"\n  | {line}" for line in member.lines)
            words = f"; its last lines:{said}" if said else ""
            others = "; the others were stopped" if len(self.members) > 1 else ""
            what = f"{self.names[member.number]} (pid {member.process.pid}) {member.fate()}{others}{words}"
            return HeadwayError(what, where="training", fix=self.remedy())
        number, error = next((n, e) for n, e in failures.items() if e is not None)
        failed = HeadwayError(f"{self.names[number]}: {error['problem']}", where="training", fix=self.remedy())
        failed.add_note(f"In {self.names[number]}:\n{error['traceback']}")
        return failed


@contextlib.contextmanager
def ending_with(lifeline: int | None) -> Iterator[None]:
    """Inside, the process ends by itself when the pipe of this descriptor ends or says something, even where native code
    keeps Python from running: waiting for other workers does."""
    if lifeline is None:
        yield
        return
    before = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, before | os.O_ASYNC)  # SIGIO, which nobody handles
    try:
        yield
    finally:
        fcntl.fcntl(lifeline, fcntl.F_SETFL, before)


def _joined(name: str, error: Mapping[str, Any]) -> str:
    return f"{name}, {error['where']}" if error["where"] else name


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
