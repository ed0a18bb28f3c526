"""What listens to runs while they go on, and the reporter that tells it: the terminal, the log file, JSON, MLflow, Prefect.

    report = Reporter([Lines()])                         # all listeners are told the same
    of_run = report.of(run, log)                         # of one run, and to its log too
    with of_run.step("train") as monitor:                # a step runs; the monitor takes its progress and its lines
        monitor.progress(50, 200, "steps", loss=0.31)
    of_run.output(output)                                # a step's output is there, or was already

Steps report from several threads. A listener that fails costs a note to the others, never the run.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from flows.records import RunRecord
from headway.messages import amount, duration, number
from headway.monitor import Monitor
from headway.redaction import redact
from headway.stages.step import Output

Level = Literal["info", "warning"]


@dataclass(frozen=True)
class Scope:
    """Which run is told of, and which window, where several run at the same time."""

    run: str | None = None
    until: str | None = None
    """The window's last span."""

    def named(self, line: str) -> str:
        """A line without secrets, which names its window."""
        return redact(line if self.until is None else f"  {self.until}: {line.strip()}")


class Progress(BaseModel):
    """How far a step is: as numbers for runs/<run>.progress, in words for people."""

    model_config = ConfigDict(frozen=True)

    step: str
    """Its title."""
    done: float = 0.0
    total: float | None = None
    unit: str = ""
    """Empty until the step has said how much there is to do."""
    per_second: float | None = None
    seconds_left: float | None = None
    """This and the speed are None until they can be estimated."""
    facts: dict[str, Any] = {}
    """JSON values, such as the loss."""

    @property
    def amount(self) -> str:
        return amount(self.done, self.total, self.unit)

    def words(self, amount: str | None = None, *, brief: bool = False) -> str:
        """All of it, the amount first; `brief` has first what a narrow terminal should not cut."""
        rate, left = self.per_second, "" if self.seconds_left is None else f"{duration(self.seconds_left)} left"
        speed = "" if rate is None else f"{rate:,.0f} {self.unit}/s" if rate >= 10 else f"{rate:.2g} {self.unit}/s"
        facts = [
            f"{name.replace('_', ' ')} {number(value)}"
            for name, value in self.facts.items()
            if isinstance(value, int | float) and not name.endswith("_per_second")  # the speed stands beside it
        ][:2]
        rest = [left, speed, *facts] if brief else [speed, *facts, left]
        return ", ".join(word for word in (amount or self.amount, *rest) if word)


class Listener:
    """Hears of runs. Each of its five methods does nothing here; they are called from several threads."""

    name = "a listener"
    """As a note calls it when it fails."""
    seconds = float("inf")
    """How much time lies at least between two reports of a step's progress."""

    def run(self, scope: Scope, record: RunRecord) -> None:
        """A run has begun, or has ended: its `state` says which."""

    def step(self, scope: Scope, title: str, *, runs: bool) -> None:
        """A step begins to run, or no longer does: it is done, or has failed. Several that run as one have one title."""

    def progress(self, scope: Scope, progress: Progress) -> None:
        """A running step is so far."""

    def line(self, scope: Scope, text: str, level: Level = "info", step: str = "") -> None:
        """One line for a person; `step` is the title of the step that says it."""

    def output(self, scope: Scope, output: Output[Any]) -> None:
        """A step's output is there, or was already."""


@dataclass(frozen=True)
class Reporter:
    """Tells all listeners what happens in a scope."""

    listeners: Sequence[Listener] = ()
    stop: threading.Event = field(default_factory=threading.Event)
    """Asks the steps to stop."""
    ask: Callable[[], None] | None = None
    """Raises Cancelled where somebody else, such as a server, wants the run to stop."""
    scope: Scope = Scope()
    _failing: list[Listener] = field(default_factory=list)

    def of(self, run: str, *listeners: Listener) -> "Reporter":
        """Return what reports one run, to listeners of its own first."""
        return replace(self, listeners=(*listeners, *self.listeners), scope=replace(self.scope, run=run))

    def window(self, until: str) -> "Reporter":
        """Return what reports one of several windows that run at the same time, named by its last span."""
        return replace(self, scope=replace(self.scope, until=until))

    def run(self, record: RunRecord) -> None:
        """Tell that a run has begun, or ended, whichever way."""
        self._tell(lambda each: each.run(self.scope, record))

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Monitor]:
        """A step runs for as long as the block; yields what takes its progress and its lines."""
        self._tell(lambda each: each.step(self.scope, title, runs=True))
        try:
            yield _StepMonitor(self, title)
        finally:
            self._tell(lambda each: each.step(self.scope, title, runs=False))

    def progress(self, progress: Progress, listeners: Sequence[Listener]) -> None:
        self._tell(lambda each: each.progress(self.scope, progress), listeners)

    def line(self, text: str, level: Level = "info", step: str = "") -> None:
        self._tell(lambda each: each.line(self.scope, text, level, step))

    def note(self, text: str) -> None:
        """Tell one line for a person, which no step says."""
        self.line(text)

    def relay(self, text: str) -> None:
        """Tell one line that a child process printed."""
        self.line(f"  | {text}")

    def output(self, output: Output[Any]) -> None:
        self._tell(lambda each: each.output(self.scope, output))

    def check(self) -> None:
        """Raise Cancelled once a stop was asked for; called before a step and before a promotion."""
        if self.ask is not None:
            self.ask()
        Monitor(self.stop).check()

    def _tell(self, tell: Callable[[Listener], None], listeners: Sequence[Listener] | None = None) -> None:
        for each in self.listeners if listeners is None else listeners:
            try:
                tell(each)
            except Exception as error:  # the run matters more than what is told of it
                if each not in self._failing:  # what fails once may fail at every line
                    self._failing.append(each)
                    others = [other for other in self.listeners if other is not each]
                    replace(self, listeners=others).note(failure(each.name, error))


def failure(name: str, error: Exception) -> str:
    """Tells in a line that a listener fails."""
    text = str(error).strip().splitlines() or [type(error).__name__]
    return redact(f"{name} was not told of this run: {text[0][:300]}")


class _StepMonitor(Monitor):
    def __init__(self, report: Reporter, title: str):
        super().__init__(report.stop)
        self._report, self._title, self._pace = report, title, Pace()
        self._told = dict.fromkeys(report.listeners, time.monotonic())

    def progress(self, done: float, total: float | None, unit: str, **facts: Any) -> None:
        (rate, left), now = self._pace.of(done, total), time.monotonic()
        if due := [each for each, told in self._told.items() if now - told >= each.seconds]:
            self._told |= dict.fromkeys(due, now)
            amount: dict[str, Any] = {"step": self._title, "done": done, "total": total, "unit": unit}
            self._report.progress(Progress(**amount, per_second=rate, seconds_left=left, facts=facts), due)

    def log(self, line: str) -> None:
        self._report.line(line, step=self._title)

    def warn(self, line: str) -> None:
        self._report.line(line, "warning", self._title)


class Pace:
    """The speed of a step, from its progress so far; the time before something is done (imports, tracing) is not counted.

    `clock` is for tests.
    """

    _SECONDS, _SHARE, _LONG = 5.0, 0.01, 60.0

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._first: tuple[float, float] | None = None

    def of(self, done: float, total: float | None) -> tuple[float | None, float | None]:
        """(Units per second, seconds left); None until they can be estimated."""
        now = self._clock()
        if not done:
            return None, None
        if self._first is None or done < self._first[1]:
            self._first = (now, done)
        seconds, progressed = now - self._first[0], done - self._first[1]
        if seconds < self._SECONDS or progressed <= 0:
            return None, None
        rate = progressed / seconds
        steady = total and (progressed >= self._SHARE * total or seconds >= self._LONG)
        return rate, (total - done) / rate if total and done < total and steady else None


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
