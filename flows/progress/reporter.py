"""What listens to a run: the terminal, the log file, the JSON log, traces and metrics, Prefect. Each is a `Reporter`.

    report = Reporter([Lines(), telemetry])              # all of them are told the same
    of_run = report.run(record)                          # those that tell one run from another keep it in mind
    with of_run.stage(steps):                            # a stage runs; what it raises is passed on
        monitor = of_run.monitor("train")                # its progress and its lines
        of_run.output(output)                            # a step's output is there, or was already
    of_run.happened(Event("headway.model.kept", "flights", "the champion stays", {}))     # docs/observability.md
    of_run.run_ended(record, registry)

Steps report from several threads.
"""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flows.dag.step import Output, Step
from flows.progress.step_progress import Pace, Progress
from flows.records import RunRecord
from headway.monitor import Monitor
from headway.registry.registry import Registry

Level = Literal["info", "warning"]


@dataclass(frozen=True)
class Event:
    """Something that other programs may act on; docs/observability.md lists all of them."""

    name: str
    """headway.<subject>.<verb>"""
    pipeline: str
    said: str
    """What happened, in words."""
    facts: Mapping[str, Any]
    """JSON values."""
    run: str | None = None

    @property
    def message(self) -> str:
        return f"{self.pipeline}: {self.said}"


class Reporter(contextlib.AbstractContextManager["Reporter"]):
    """The base class: passes on what it is told to `listeners`, if it has some."""

    seconds = float("inf")
    """How much time lies at least between two reports of a step's progress."""
    at_once = False
    """The first of them comes at once, not after this time."""

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

    def happened(self, event: Event) -> None:
        """An event that other programs may act on."""
        for each in self._listeners:
            each.happened(event)


class _StepMonitor(Monitor):
    def __init__(self, reporter: Reporter, title: str):
        super().__init__(reporter.stop)
        self._reporter, self._title, self._pace = reporter, title, Pace()
        self._reported = float("-inf") if reporter.at_once else time.monotonic()

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
