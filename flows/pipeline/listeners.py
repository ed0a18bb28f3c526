"""Listeners are told of a run while it goes on: terminal, log file, JSON, MLflow, Prefect. A reporter tells them.

    with reporter() as report:                           # progress on stderr: bars, lines, or nothing
        engine = Engine(store, child=child, report=report)
    with open_log(store, run) as log:                      # a listener that writes runs/<run>.log
        of_run = report.of(run, log)                     # reports one run, and to its log too
    with of_run.step("train") as monitor:                # a step runs; the monitor takes its progress and its lines
        monitor.progress(50, 200, "steps", loss=0.31)
    of_run.output(output)                                # the output of a step, new or reused
    line_of(output)                                      # "  ingest 2013-05            4.1 s  28,796 rows, 12 quarantined"

Steps report from several threads. If a listener fails, the others get a note, and the run goes on. A command's answer
goes to stdout, the progress of a run to stderr: one line per step with a live bar on a terminal, plain lines otherwise,
nothing with --quiet. The log of a run has all lines, each with its time.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, Literal

from flows.records import RunRecord, State, log_path, progress_path
from flows.report.verdict import ending_of
from headway.config import Result
from headway.evaluation.slices import slice_text
from headway.messages import amount, counted, duration, metrics_line, now, number
from headway.monitor import Monitor
from headway.redaction import redact
from headway.stages.step import Output
from headway.storage.atomic_io import replace_text
from headway.storage.store import Store

Level = Literal["info", "warning"]


@dataclass(frozen=True)
class Scope:
    """What a report to the listeners is about: a run, and its window if several windows run at the same time."""

    run: str | None = None
    until: str | None = None
    """The window's last span."""

    def named(self, line: str) -> str:
        """Returns a line without secrets; the window's last span stands before the line if `until` is set."""
        return redact(line if self.until is None else f"  {self.until}: {line.strip()}")


class Progress(Result):
    """How far a running step is: as numbers for the file runs/<run>.progress, and in words for people."""

    step: str
    """The step's title."""
    done: float = 0.0
    total: float | None = None
    unit: str = ""
    """What `done` and `total` count, such as rows; empty until the step has reported progress."""
    per_second: float | None = None
    seconds_left: float | None = None
    """None, as the speed is, until it can be estimated."""
    facts: Mapping[str, Any] = {}
    """JSON values, such as the loss."""

    @property
    def amount(self) -> str:
        return amount(self.done, self.total, self.unit)

    def words(self, amount: str | None = None, *, brief: bool = False) -> str:
        """Returns amount, speed, facts and time left as text. With `brief` the time left is second, so that it is not cut."""
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
    """The base class of listeners, which are told of runs. Its methods do nothing; several threads call them."""

    name = "a listener"
    """Its name in the note that says that it failed."""
    seconds = float("inf")
    """The least time between two reports of a step's progress."""

    def on_run(self, scope: Scope, record: RunRecord) -> None:
        """Called when a run has started and when it has ended: `record.state` says which."""

    def on_step(self, scope: Scope, title: str, *, running: bool) -> None:
        """Called when a step starts (`running`), and when it ends or fails. Steps run in one call have one title."""

    def on_progress(self, scope: Scope, progress: Progress) -> None:
        """Called while a step runs, with how far it is."""

    def on_line(self, scope: Scope, text: str, level: Level = "info", step: str = "") -> None:
        """Called with a line for a person; `step` is the title of the step that it comes from, or empty."""

    def on_output(self, scope: Scope, output: Output[Any]) -> None:
        """Called with the output of each step, new or reused."""


@dataclass(frozen=True)
class Reporter:
    """Calls all listeners when something happens in a run."""

    listeners: Sequence[Listener] = ()
    stop: threading.Event = field(default_factory=threading.Event)
    """Set to ask the steps to stop."""
    ask: Callable[[], None] | None = None
    """Raises Cancelled if somebody else, such as a Prefect server, wants the run to stop."""
    scope: Scope = Scope()
    _failing: list[Listener] = field(default_factory=list)

    def of(self, run: str, *listeners: Listener) -> "Reporter":
        """Returns a reporter of one run. `listeners` hear of this run only; they are called before the other listeners."""
        return replace(self, listeners=(*listeners, *self.listeners), scope=replace(self.scope, run=run))

    def window(self, until: str) -> "Reporter":
        """Returns a reporter of one of several windows that run at the same time; `until` is the window's last span."""
        return replace(self, scope=replace(self.scope, until=until))

    def run(self, record: RunRecord) -> None:
        """Tell the listeners that a run has started or has ended: `record.state` says which."""
        self._tell(lambda each: each.on_run(self.scope, record))

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Monitor]:
        """Report a step as running while the block runs; yields the step's monitor, for its progress and lines."""
        self._tell(lambda each: each.on_step(self.scope, title, running=True))
        try:
            yield _StepMonitor(self, title)
        finally:
            self._tell(lambda each: each.on_step(self.scope, title, running=False))

    def progress(self, progress: Progress, listeners: Sequence[Listener]) -> None:
        self._tell(lambda each: each.on_progress(self.scope, progress), listeners)

    def line(self, text: str, level: Level = "info", step: str = "") -> None:
        self._tell(lambda each: each.on_line(self.scope, text, level, step))

    def note(self, text: str) -> None:
        """Report one line for a person; the line belongs to no step."""
        self.line(text)

    def relay(self, text: str) -> None:
        """Report one line that a child process printed."""
        self.line(f"  | {text}")

    def output(self, output: Output[Any]) -> None:
        self._tell(lambda each: each.on_output(self.scope, output))

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
    """Returns a line for people: the listener `name` could not record this run, because of `error`."""
    text = str(error).strip().splitlines() or [type(error).__name__]
    return redact(f"{name} did not record this run: {text[0][:300]}")


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
    """Estimates the speed of a step from its progress. The time before the first progress (imports, tracing) does not count.

    `clock` is replaced in tests.
    """

    _SECONDS, _SHARE, _LONG = 5.0, 0.01, 60.0

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._first: tuple[float, float] | None = None

    def of(self, done: float, total: float | None) -> tuple[float | None, float | None]:
        """Returns the units per second and the seconds left; each is None until it can be estimated."""
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
    """While the block runs, let a first signal ask for a clean stop, and a second one raise KeyboardInterrupt.

    Args:
        stop: set at the first signal, by another thread.
        say: called by that thread, to tell the user.
        same_seconds: a signal that comes within this time of the first counts as the same one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set a handler
        return
    times: list[float] = []

    def ask() -> None:
        stop.set()
        say()

    def handle(number: int, frame: FrameType | None) -> None:
        times.append(time.monotonic())
        if len(times) == 1:  # in another thread: this one may hold the lock of `stop`, or of what `say` writes to
            threading.Thread(target=ask, daemon=True).start()
        elif times[-1] - times[0] >= same_seconds:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, handle) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- a finished step in one line

TITLE_WIDTH = 22


def line_of(output: Output, title_width: int = TITLE_WIDTH) -> str:
    """Returns the line about a finished step: title, time and result, padded so that lines make a table."""
    took, detail = "cached" if output.hit else f"{output.seconds:.1f} s", _detail(output)
    return f"  {output.title:<{title_width}} {took:>8}  {detail}".rstrip()


def line_of_spans(outputs: Sequence[Output], title_width: int = TITLE_WIDTH) -> str:
    """Returns one line about all ingested spans of a window: how many are new, and how many rows they have."""
    new = [output for output in outputs if not output.hit]
    if len(outputs) == 1:
        return line_of(outputs[0], title_width)
    totals = Counter[str]()
    for output in outputs:
        totals.update(output.json()["counts"])
    took = f"{sum(output.seconds for output in new):.1f} s" if new else "cached"
    said = f"{len(outputs)} spans: {len(new)} new, {len(outputs) - len(new)} reused; {_counted_rows(totals)}"
    return f"  {'ingest':<{title_width}} {took:>8}  {said}"


def _counted_rows(counts: Mapping[str, int]) -> str:
    extra = "".join(f", {counts[k]:,} {k}" for k in ("filtered", "quarantined") if counts[k])
    return f"{counted(counts['written'], 'row')}{extra}"


def _detail(output: Output) -> str:
    result = output.result or {}
    match output.stage:
        case "ingest":
            long = not output.hit and output.seconds >= 1  # long enough to have a speed
            pace = f", {result['counts']['read'] / output.seconds:,.0f} rows/s" if long else ""
            return _counted_rows(result["counts"]) + pace
        case "statistics":
            return ", ".join(f"{split} {counted(rows, 'row')}" for split, rows in result["rows"].items())
        case "splits":
            wrong = len(result["anomalies"])
            return counted(wrong, "finding") if wrong else "; ".join(result["says"])
        case "validate":
            return f"{counted(result['errors'], 'error')}, {counted(result['warnings'], 'warning')}"
        case "analyse":
            names = ", ".join(column["name"] for column in result["columns"])
            return f"{counted(result['rows'], 'row')}, gives {names}"
        case "transform":
            parameters = result["parameters"]
            return f"{counted(len(parameters['fitted']), 'column')}, {parameters['label']['task']}"
        case "train":
            loss, speed = result.get("final_loss"), result.get("steps_per_second")
            parts = [counted(result["steps"], "step")] + [f"loss {number(loss)}"] * (loss is not None)
            return ", ".join(parts if speed is None else [*parts, f"{speed:,.{int(speed < 10)}f} steps/s"])
        case "evaluate":
            incompatible = result.get("incompatible")
            return f"cannot score these rows: {incompatible}" if incompatible else metrics_line(result["metrics"])
        case "measure":
            threshold, worst = result.get("threshold") or {}, (result.get("worst_slices") or {}).get("slices")
            own = {name: value for name, value in result.get("metrics", {}).items() if ":" in name}
            parts = [metrics_line(own)] if own else []
            parts += [f"threshold {number(threshold['value'])}"] if threshold.get("value") is not None else []
            parts += [f"worst slice {slice_text(worst[0]['slice'], worst[0]['value'])}"] if worst else []
            return ", ".join(parts)
        case "gate":
            return str(result["status"])
        case "export":
            return ", ".join(result["signatures"])
        case "replay":
            return f"{counted(result['rows'], 'row')}, largest difference {result['largest_difference']:.2g}"
    return ""


# --- the terminal

_NARROW = 80
"""On a terminal of fewer columns, bars are short, and a percentage takes the place of the numbers."""


@contextlib.contextmanager
def reporter(*, quiet: bool = False, verbose: bool = False) -> Iterator[Reporter]:
    """Yields a reporter that writes to stderr: bars on a terminal, else brief lines; `verbose`: all lines; `quiet`: none."""
    if quiet:
        yield Reporter()
    elif verbose:
        yield Reporter([LineWriter()])
    else:
        with ProgressBars() if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else BriefWriter() as shown:
            yield Reporter([shown])


class LineWriter(Listener):
    """Writes progress, lines and outputs of steps as plain lines on stderr."""

    name = "the terminal"
    seconds = 5.0

    def on_progress(self, scope: Scope, progress: Progress) -> None:
        self.write(scope, f"  {progress.step}: {progress.words()}")

    def on_line(self, scope: Scope, text: str, level: Level = "info", step: str = "") -> None:
        self.write(scope, f"  {step}: {_worded(text, level)}" if step else text)

    def on_output(self, scope: Scope, output: Output[Any]) -> None:
        self.write(scope, line_of(output))

    def write(self, scope: Scope, line: str) -> None:
        print(scope.named(line), file=sys.stderr, flush=True)


class BriefWriter(LineWriter):
    """Writes only the lines that a person needs, on stderr: one line for all ingested spans, and none for a leakage
    check that found nothing. While a step runs, only its progress and its warnings are written."""

    seconds = 15.0
    title_width = TITLE_WIDTH

    def __init__(self) -> None:
        self._spans: dict[Scope, list[Output[Any]]] = {}
        """Ingested spans, new or reused; kept until another step ends, then told in one line."""

    def __enter__(self) -> "BriefWriter":
        return self

    def __exit__(self, *exc: object) -> None:
        for scope in [*self._spans]:
            self._say_spans(scope)

    def on_line(self, scope: Scope, text: str, level: Level = "info", step: str = "") -> None:
        if not step or level == "warning":
            super().on_line(scope, text, level, step)

    def on_output(self, scope: Scope, output: Output[Any]) -> None:
        if output.stage == "ingest":
            self._spans.setdefault(scope, []).append(output)
            return
        self._say_spans(scope)
        if output.stage != "splits" or output.json()["anomalies"]:
            self.write_result(scope, line_of(output, self.title_width))

    def _say_spans(self, scope: Scope) -> None:
        if spans := self._spans.pop(scope, []):
            self.write_result(scope, line_of_spans(spans, self.title_width))

    def write_result(self, scope: Scope, line: str) -> None:
        """Write a line about a step that has ended."""
        self.write(scope, line)


class ProgressBars(BriefWriter):
    """Shows a live line for each running step on a terminal; the step's result replaces the line. Long lines are cut."""

    seconds = 0.0

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as LiveProgress
        from rich.table import Column

        console = Console(stderr=True)
        self._narrow = console.width < _NARROW
        self.title_width = 14 if self._narrow else TITLE_WIDTH
        self._tasks: dict[tuple[Scope, str], TaskID] = {}
        """The live line of each step that runs."""
        self.live = LiveProgress(
            SpinnerColumn(),
            TextColumn("{task.description}", table_column=Column(width=self.title_width, no_wrap=True)),
            *([] if self._narrow else [TimeElapsedColumn()]),
            BarColumn(8 if self._narrow else 24),
            TextColumn("{task.fields[status]}", table_column=Column(no_wrap=True), markup=False),
            console=console,
            transient=True,
        )

    def __enter__(self) -> "ProgressBars":
        self.live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__()
        self.live.stop()

    def on_step(self, scope: Scope, title: str, *, running: bool) -> None:
        if (task := self._tasks.pop((scope, title), None)) is not None:
            self.live.remove_task(task)
        if running:
            self._tasks[scope, title] = self.live.add_task(scope.named(title).strip(), total=None, status="")

    def on_progress(self, scope: Scope, progress: Progress) -> None:
        done, total = progress.done, progress.total
        amount = f"{done / total:.0%}" if total and self._narrow else progress.amount
        self._update(scope, progress.step, progress.words(amount, brief=self._narrow), completed=done, total=total)

    def on_line(self, scope: Scope, text: str, level: Level = "info", step: str = "") -> None:
        """Show a step's line while the step runs; a warning stays. The run's log keeps every line."""
        if step and level == "info":
            self._update(scope, step, redact(text))
        else:
            super().on_line(scope, text, level, step)

    def _update(self, scope: Scope, step: str, status: str, **amount: Any) -> None:
        """Update a live line. It is cut before the last columns, so that a ^C that the terminal shows does not wrap."""
        if (task := self._tasks.get((scope, step))) is not None:
            room = max(self.live.console.width - self.title_width - (14 if self._narrow else 38), 8)
            fitting = status if len(status) <= room else status[: room - 1] + "…"
            self.live.update(task, **amount, status=fitting)

    def write(self, scope: Scope, line: str) -> None:
        self.live.console.print(scope.named(line), highlight=False, markup=False, soft_wrap=True)

    def write_result(self, scope: Scope, line: str) -> None:
        text = scope.named(line)
        self.live.console.print(text, highlight=False, markup=False, overflow="ellipsis", no_wrap=True)


def _worded(line: str, level: Level) -> str:
    return line if level == "info" else f"{level}: {line}"


# --- the log of a run

LINE_SECONDS = 10.0
"""The least time between two lines about a step's progress in the log."""


@contextlib.contextmanager
def open_log(store: Store, run: str) -> Iterator["LogFile"]:
    """Yield the writer of a run's log. If an error ends the run, it is the last line. At the end the log goes to the store."""
    path, log = log_path(store, run), LogFile(store, run)
    try:
        yield log
    except BaseException as error:
        with contextlib.suppress(OSError):
            log.on_line(Scope(run), f"ended by {type(error).__name__}: {error}")
        raise
    finally:
        with contextlib.suppress(OSError):  # the run matters more than its log
            progress_path(store, run).unlink(missing_ok=True)
            store.replace(path, path.read_text(encoding="utf-8"))


class LogFile(LineWriter):
    """Writes runs/<run>.log, and runs/<run>.progress with the steps that run now.

    Each line is written at once, so that the log of a killed run has its last lines. A bucket gets the log when the run
    ends; until then, and if the run is killed, the log lies in the local copy. The progress file stays on the run's
    machine. It is written when a step starts or ends, and in between at most once a second. It is removed when the run
    ends, or by the next run if this one was killed.
    """

    name, seconds = "the run's log", 1.0

    def __init__(self, store: Store, run: str):
        self._path, self._progress, self._writing = log_path(store, run), progress_path(store, run), threading.Lock()
        self._steps: dict[str, Progress] = {}
        self._lines: dict[str, float] = {}
        """{title of a step: time of its last progress line}; at first the time of its first report, without a line."""

    def on_run(self, scope: Scope, record: RunRecord) -> None:
        # of the last two `open_log` says the error
        if record.state not in (State.RUNNING, State.FAILED, State.CANCELLED):
            self.on_line(scope, ending_of(record).line)

    def on_step(self, scope: Scope, title: str, *, running: bool) -> None:
        self._keep(title, Progress(step=title) if running else None)

    def on_progress(self, scope: Scope, progress: Progress) -> None:
        self._keep(progress.step, progress)
        seconds = time.monotonic()
        if seconds - self._lines.setdefault(progress.step, seconds) >= LINE_SECONDS:
            self._lines[progress.step] = seconds
            super().on_progress(scope, progress)

    def _keep(self, title: str, step: Progress | None) -> None:
        """Write the progress file with the progress of a step; None: the step has ended, and the file leaves it out."""
        with self._writing:
            if step is None:
                self._steps.pop(title, None)
            else:
                self._steps[title] = step
            steps = [each.model_dump(mode="json") for each in self._steps.values()]
            replace_text(self._progress, redact(json.dumps(steps)))

    def write(self, scope: Scope, line: str) -> None:
        with self._writing:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{now()} {redact(line)}\n")
