"""What listens to a run: the terminal, the log file, the JSON log, traces and metrics, Prefect. Each is a `Reporter`.

    report = Several([Lines(), telemetry])               # all of them are told the same
    of_run = report.run(record)                          # those that tell one run from another keep it in mind
    with of_run.stage(steps):                            # a stage runs; what it raises is passed on
        monitor = of_run.monitor("train")                # its progress and its lines
        of_run.output(output)                            # a step's output is there, or was already
    of_run.happened("headway.model.promoted", {...})     # an event for other programs: docs/observability.md
    of_run.run_ended(record, registry)

Steps report from several threads.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flows.dag.step import Output, Step
from flows.progress.step_progress import Pace, Progress
from flows.records import RunRecord
from headway.monitor import Monitor
from headway.registry.registry import Registry


class Reporter(contextlib.AbstractContextManager["Reporter"]):
    """The base class, which reports nothing."""

    seconds = float("inf")
    """How much time lies at least between two reports of a step's progress."""
    at_once = False
    """The first of them comes at once, not after this time."""

    def __init__(self, stop: threading.Event | None = None):
        self.stop = stop or threading.Event()

    def __exit__(self, *exc: object) -> None: ...

    def run(self, record: RunRecord) -> Reporter:
        """A run begins; return what reports it.

        Args:
            record: so far.
        """
        return self

    def run_ended(self, record: RunRecord, registry: Registry) -> None:
        """The run has ended, whichever way: its `state` says so."""

    @contextlib.contextmanager
    def stage(self, steps: Sequence[Step]) -> Iterator[None]:
        """A stage runs for as long as the block; an exception is its failure."""
        yield

    def monitor(self, title: str) -> Monitor:
        """Return the monitor of a step: it reports to `progressed`, `logged` and `part`."""
        return _StepMonitor(self, title)

    def progressed(self, progress: Progress) -> None:
        """Report how far a step is; called every `seconds` at most."""

    def logged(self, title: str, line: str) -> None:
        """One line for a person, which a step logged."""

    def part(self, title: str, name: str, facts: Mapping[str, Any]) -> None:
        """Report a part of a step that has ended, as `Monitor.part` has it."""

    def check(self) -> None:
        """Raise Cancelled once a stop was asked for; called before a step and before a promotion."""
        Monitor(self.stop).check()

    def output(self, output: Output) -> None:
        """Report that a step is done, or was already."""

    def drawn(self, place: str) -> None:
        """Report where the page of the run is, a path or a bucket's URL."""

    def note(self, line: str) -> None:
        """One line for a person."""

    def relay(self, line: str) -> None:
        """One line that a child process printed."""
        self.note(f"  | {line}")

    def happened(self, event: str, facts: Mapping[str, Any]) -> None:
        """An event that other programs may act on.

        Args:
            event: headway.<subject>.<verb>; all of them stand in docs/observability.md.
            facts: JSON values; `message` is a sentence.
        """


class _StepMonitor(Monitor):
    def __init__(self, reporter: Reporter, title: str):
        super().__init__(reporter.stop)
        self._reporter, self._title, self._pace = reporter, title, Pace()
        self._reported = float("-inf") if reporter.at_once else time.monotonic()

    def progress(self, done: float, total: float | None, unit: str, **facts: Any) -> None:
        speed, now = self._pace.of(done, total), time.monotonic()
        if now - self._reported >= self._reporter.seconds:
            self._reported = now
            self._reporter.progressed(
                Progress(step=self._title, done=done, total=total, unit=unit, facts=facts, **speed)
            )

    def log(self, line: str) -> None:
        self._reporter.logged(self._title, line)

    def part(self, name: str, **facts: Any) -> None:
        self._reporter.part(self._title, name, facts)


class Several(Reporter):
    """Tells the same to several; the stop is the first one's."""

    def __init__(self, reporters: Sequence[Reporter]):
        super().__init__(reporters[0].stop)
        self._reporters = tuple(reporters)
        self._entered = contextlib.ExitStack()

    def __enter__(self) -> Several:
        for reporter in self._reporters:
            self._entered.enter_context(reporter)
        return self

    def __exit__(self, *exc: object) -> None:
        self._entered.close()

    def run(self, record: RunRecord) -> Reporter:
        return Several([reporter.run(record) for reporter in self._reporters])

    def run_ended(self, record: RunRecord, registry: Registry) -> None:
        for reporter in self._reporters:
            reporter.run_ended(record, registry)

    @contextlib.contextmanager
    def stage(self, steps: Sequence[Step]) -> Iterator[None]:
        with contextlib.ExitStack() as stages:
            for reporter in self._reporters:
                stages.enter_context(reporter.stage(steps))
            yield

    def monitor(self, title: str) -> Monitor:
        return _Monitors(self.stop, [reporter.monitor(title) for reporter in self._reporters])

    def check(self) -> None:
        for reporter in self._reporters:
            reporter.check()

    def output(self, output: Output) -> None:
        for reporter in self._reporters:
            reporter.output(output)

    def drawn(self, place: str) -> None:
        for reporter in self._reporters:
            reporter.drawn(place)

    def note(self, line: str) -> None:
        for reporter in self._reporters:
            reporter.note(line)

    def relay(self, line: str) -> None:
        for reporter in self._reporters:
            reporter.relay(line)

    def happened(self, event: str, facts: Mapping[str, Any]) -> None:
        for reporter in self._reporters:
            reporter.happened(event, facts)


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

    def part(self, name: str, **facts: Any) -> None:
        for monitor in self._monitors:
            monitor.part(name, **facts)
