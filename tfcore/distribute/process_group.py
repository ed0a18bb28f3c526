"""Processes that train together: each runs the same call, and when one fails, all end with one error.

    results = run_together("tfcore.train.member:member", requests, out, monitor, environments)

Each is a `tfcore.runtime.worker`, which ends with this process however this process ends.
Progress and log lines are those of the first, which is the chief; a stop is told to it alone, and it agrees with the
others when. One of which nothing is heard any more is frozen, which ends all as a death does.
"""

import contextlib
import fcntl
import functools
import math
import os
import queue
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.errors import KINDS, Cancelled, HeadwayError
from headway.monitor import Monitor
from headway.process import ChildProcess, lifeline
from tfcore.distribute.heartbeat import HeartbeatMonitor
from tfcore.runtime.early_start import PRELOAD, WORKER
from tfcore.runtime.tensorflow_process import relay

POLL_SECONDS = 0.1
GRACE_SECONDS = 2.0
"""After the first bad news, how long to listen for what caused it: the others fail because one did."""
START_SECONDS = 600.0
"""How long a process may take to import TensorFlow and find the others, before its pulse is to be heard."""
SUSPECT_SECONDS = 4.0
"""Of silence: when others fail, such a one is the cause."""

News = queue.Queue[tuple[int, dict[str, Any] | None]]
"""(which process, its answer); None for its end."""


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
    """Run "module:function"(request, out, monitor) once in each of several new processes, all at the same time.

    Args:
        requests: one for each process.
        first, of: the number of the first of these members among all, where others run elsewhere.
        remedy: what to do when one has died; asked then.
        timeout: seconds of silence after which one whose pulse was heard is taken for frozen.

    Returns:
        What the first one returned.

    Raises:
        HeadwayError: one of them failed, died or is frozen; which one, how, and what it said. None of them lives then.
        Cancelled: on request, when the first one has raised it.
    """
    news: News = queue.Queue()
    calls = [{"id": 1, "call": call, "request": request, "out": str(out), "runtime": {}} for request in requests]
    members: list[ChildProcess] = []
    try:
        for number, environment in enumerate(environments):
            members.append(
                ChildProcess(
                    [*WORKER, *PRELOAD],
                    functools.partial(_note, news, number),
                    # the others would say the same
                    on_line=functools.partial(print, flush=True) if number == 0 else lambda line: None,
                    environment=environment,
                )
            )
        names = [f"worker {first + number} of {of or len(members)}" for number in range(len(members))]
        # members elsewhere may come up at any time, and these wait for them
        start = START_SECONDS if of in (None, len(members)) else math.inf
        return _Watch(members, names, calls, news, monitor, remedy, timeout=timeout, start=start).result()
    finally:
        for member in members:
            member.let_go()
        for member in members:
            member.close(1.0)


def _note(news: News, number: int, answer: dict[str, Any] | None) -> None:
    news.put((number, answer))


class _Watch:
    """Listens to all members until the first is done or one has failed."""

    def __init__(
        self,
        members: list[ChildProcess],
        names: list[str],
        calls: list[dict[str, Any]],
        news: News,
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
        stopping, deadline = False, None
        while len(self.results) + len(self.failures) < len(self.members):
            if self.monitor.cancelled() and not stopping:
                if self.ready < len(self.members):  # none has been called yet, and would take no notice
                    raise Cancelled("stopped on request, before the first step")
                stopping = True
                self.members[0].send({"stop": True})
            self._take()
            if 0 in self.results:  # it has written everything: what another does now changes nothing
                return self.results[0]
            self.silence.look([member.answers for member in self.members])
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
                    member.send(call)
        elif answer.get("event") == "alive":
            self.beating.add(number)
        elif number == 0:
            relay(answer, self.monitor)

    def _silent(self, number: int, seconds: float) -> bool:
        running = number not in self.results and number not in self.failures
        return running and self.silence.seconds[number] > seconds

    def _error(self) -> HeadwayError:
        """The error of the member that failed by itself; the others failed because they lost it."""
        failures = self.failures
        if failures and self.monitor.cancelled() and all(error is None for error in failures.values()):
            return Cancelled("stopped on request, before the first step")
        reported = [n for n, error in failures.items() if error is not None and error["kind"] is not None]
        if reported:
            error = failures[reported[0]]
            assert error is not None
            kind = KINDS.get(error["kind"], HeadwayError)
            where = error["where"]
            if kind is not Cancelled and len(self.members) > 1:
                where = _joined(self.names[reported[0]], error)
            return kind(error["problem"], where=where, fix=error["fix"])
        suspects = [n for n in self.beating if self._silent(n, min(SUSPECT_SECONDS, self.timeout))]
        suspects += [n for n in range(len(self.members)) if self._silent(n, self.start)]
        if suspects:
            number = max(suspects, key=lambda n: self.silence.seconds[n])
            seconds, pid = self.silence.seconds[number], self.members[number].pid
            what = f"{self.names[number]} (pid {pid}) is frozen: it sent nothing for {seconds:.0f} seconds"
            return HeadwayError(f"{what}; all were stopped", where="training", fix=self.remedy())
        died = [n for n, error in failures.items() if error is None]
        # TensorFlow aborts a process that has lost another, so that one is the last to be taken for the cause
        died.sort(key=lambda n: self.members[n].exit_code() in (None, -signal.SIGABRT))
        if died:
            member = self.members[died[0]]
            others = "; the others were stopped" if len(self.members) > 1 else ""
            what = f"{self.names[died[0]]} (pid {member.pid}) {member.fate()}{others}{member.last_lines()}"
            return HeadwayError(what, where="training", fix=self.remedy())
        number, error = next((n, e) for n, e in failures.items() if e is not None)
        failed = HeadwayError(f"{self.names[number]}: {error['problem']}", where="training", fix=self.remedy())
        failed.add_note(f"In {self.names[number]}:\n{error['traceback']}")
        return failed


@contextlib.contextmanager
def ending_with_parent() -> Iterator[None]:
    """End this process when its parent ends or says so, even while native code keeps Python from running, as waiting
    for other workers does."""
    pipe = lifeline()
    if pipe is None:
        yield
        return
    before = fcntl.fcntl(pipe, fcntl.F_GETFL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, before | os.O_ASYNC)  # SIGIO, which nobody handles
    try:
        yield
    finally:
        fcntl.fcntl(pipe, fcntl.F_SETFL, before)


def _joined(name: str, error: Mapping[str, Any]) -> str:
    return f"{name}, {error['where']}" if error["where"] else name
