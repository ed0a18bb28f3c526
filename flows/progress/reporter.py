"""What listens to a run: the terminal, the log file, the JSON log, Prefect. Each is a `Reporter`.

    report = Reporter([Lines(), log])                    # all of them are told the same
    of_run = report.run(record)                          # those that tell one run from another keep it in mind
    with of_run.stage(steps):                            # a stage runs; what it raises is passed on
        monitor = of_run.monitor("train")                # its progress and its lines
        of_run.output(output)                            # a step's output is there, or was already
    of_run.run_ended(record, registry)

Steps report from several threads.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, Literal

from flows.progress.step_progress import Pace, Progress
from flows.records import RunRecord
from headway.monitor import Monitor
from headway.registry.registry import Registry
from headway.stages.step import Output, Step

Level = Literal["info", "warning"]


class Reporter(contextlib.AbstractContextManager["Reporter"]):
    """The base class: passes on what it is told to `listeners`, if it has some."""

    seconds = float("inf")
    """How much time lies at least between two reports of a step's progress."""

    def __init__(self, listeners: "Sequence[Reporter]" = (), *, stop: threading.Event | None = None):
        self._listeners, self._entered = tuple(listeners), contextlib.ExitStack()
        self.stop: threading.Event = stop or (listeners[0].stop if listeners else threading.Event())
        """Asks the steps to stop."""

    def __enter__(self) -> "Reporter":
        for each in self._listeners:
            self._entered.enter_context(each)
        return self

    def __exit__(self, *exc: object) -> None:
        self._entered.close()

    def run(self, record: RunRecord) -> "Reporter":
        """A run begins; return what reports it.

        Args:
            record: so far.
        """
        return Reporter([each.run(record) for each in self._listeners]) if self._listeners else self

    def window(self, until: str) -> "Reporter":
        """Return what reports one of several windows that run at the same time, named by its last span."""
        return Reporter([each.window(until) for each in self._listeners]) if self._listeners else self

    def run_ended(self, record: RunRecord, registry: Registry) -> None:
        """The run has ended, whichever way: its `state` says so."""
        for each in self._listeners:
            each.run_ended(record, registry)

    @contextlib.contextmanager
    def stage(self, steps: Sequence[Step]) -> Iterator[None]:
        """A stage runs for as long as the block; an exception is its failure."""
        with contextlib.ExitStack() as stages:
            for each in self._listeners:
                stages.enter_context(each.stage(steps))
            yield

    def monitor(self, title: str) -> Monitor:
        """Return the monitor of a step: it reports to `progressed` and `logged`."""
        if not self._listeners:
            return _StepMonitor(self, title)
        return _Monitors(self.stop, [each.monitor(title) for each in self._listeners])

    def progressed(self, progress: Progress) -> None:
        """Report how far a step is; called every `seconds` at most."""

    def logged(self, title: str, line: str, level: Level = "info") -> None:
        """One line for a person, which a step logged."""

    def check(self) -> None:
        """Raise Cancelled once a stop was asked for; called before a step and before a promotion."""
        for each in self._listeners:
            each.check()
        Monitor(self.stop).check()

    def output(self, output: Output) -> None:
        """Report that a step is done, or was already."""
        for each in self._listeners:
            each.output(output)

    def note(self, line: str) -> None:
        """One line for a person."""
        for each in self._listeners:
            each.note(line)

    def relay(self, line: str) -> None:
        """One line that a child process printed."""
        if not self._listeners:
            self.note(f"  | {line}")
        for each in self._listeners:
            each.relay(line)


class _StepMonitor(Monitor):
    def __init__(self, reporter: Reporter, title: str):
        super().__init__(reporter.stop)
        self._reporter, self._title, self._pace = reporter, title, Pace()
        self._reported = time.monotonic()

    def progress(self, done: float, total: float | None, unit: str, **facts: Any) -> None:
        (rate, left), now = self._pace.of(done, total), time.monotonic()
        if now - self._reported >= self._reporter.seconds:
            self._reported = now
            amount: dict[str, Any] = {"step": self._title, "done": done, "total": total, "unit": unit}
            self._reporter.progressed(Progress(**amount, per_second=rate, seconds_left=left, facts=facts))

    def log(self, line: str) -> None:
        self._reporter.logged(self._title, line)

    def warn(self, line: str) -> None:
        self._reporter.logged(self._title, line, "warning")


class _Monitors(Monitor):
    def __init__(self, stop: threading.Event, monitors: Sequence[Monitor]):
        super().__init__(stop)
        self._monitors = tuple(monitors)

    def progress(self, done: float, total: float | None, unit: str, **facts: Any) -> None:
        for monitor in self._monitors:
            monitor.progress(done, total, unit, **facts)

    def log(self, line: str) -> None:
        for monitor in self._monitors:
            monitor.log(line)

    def warn(self, line: str) -> None:
        for monitor in self._monitors:
            monitor.warn(line)


@contextlib.contextmanager
def stop_on_signals(
    stop: threading.Event, *signals: signal.Signals, say: Callable[[], None] = lambda: None, same_seconds: float = 0.0
) -> Iterator[None]:
    """The signals ask for a clean stop while the block runs; a second one interrupts at once.

    Args:
        stop: set at the first.
        say: tells of it.
        same_seconds: a signal that comes this soon after the first is of the same stop.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set a handler
        return
    first: list[float] = []

    def handle(number: int, frame: FrameType | None) -> None:
        first.append(time.monotonic())
        if len(first) > 1 and first[-1] - first[0] >= same_seconds:
            raise KeyboardInterrupt
        stop.set()
        if len(first) == 1:
            say()

    before = {number: signal.signal(number, handle) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
