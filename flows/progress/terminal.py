"""Progress of a run: bars on a terminal, plain lines otherwise, nothing with --json.

    with reporter(json=False) as report:
        engine = Engine(store, child=child, monitor_for=report.monitor, on_output=report.output)

Progress goes to stderr; what a command answers goes to stdout.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from flows.dag.step import Output
from headway.messages import counted, duration, metrics_line, number
from headway.monitor import Monitor
from headway.redaction import redact


class Reporter(contextlib.AbstractContextManager["Reporter"]):
    """The base class, which reports nothing."""

    def __init__(self, stop: threading.Event | None = None):
        self.stop = stop or threading.Event()

    def __exit__(self, *exc: object) -> None: ...

    def monitor(self, title: str) -> Monitor:
        return Monitor(self.stop)

    def check(self) -> None:
        """Raise Cancelled once a stop was asked for; called before a step and before a promotion."""
        Monitor(self.stop).check()

    def output(self, output: Output) -> None:
        """Report that a step is done, or was already."""

    def note(self, line: str) -> None:
        """One line for a person."""


class Lines(Reporter):
    """Plain lines on stderr."""

    seconds = 5.0
    """How much time lies at least between two reports of a step's progress."""

    def monitor(self, title: str) -> Monitor:
        return _StepMonitor(self, title)

    def output(self, output: Output) -> None:
        self.note(line_of(output))

    def note(self, line: str) -> None:
        print(redact(line), file=sys.stderr, flush=True)

    def update(self, title: str, done: float, total: float | None, status: str) -> None:
        """A step's progress."""
        self.note(f"  {title}: {status}")


class Pace:
    """The speed of a step, from its progress so far; the time before its first report (imports, tracing) is not counted.

    `clock` is for tests.
    """

    _SECONDS, _SHARE, _LONG = 5.0, 0.01, 60.0

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._first: tuple[float, float] | None = None

    def words(self, done: float, total: float | None, unit: str) -> tuple[str, str]:
        """Return (speed, time left) as ', 120 rows/s' and ', 3 min left'; empty until they can be estimated."""
        now = self._clock()
        if self._first is None or done < self._first[1]:
            self._first = (now, done)
            return "", ""
        seconds, progressed = now - self._first[0], done - self._first[1]
        if seconds < self._SECONDS or progressed <= 0:
            return "", ""
        rate = progressed / seconds
        speed = f", {rate:,.0f} {unit}/s" if rate >= 10 else f", {rate:.2g} {unit}/s"
        steady = total and (progressed >= self._SHARE * total or seconds >= self._LONG)
        return speed, f", {duration((total - done) / rate)} left" if total and steady else ""


class _StepMonitor(Monitor):
    def __init__(self, reporter: Lines, title: str):
        super().__init__(reporter.stop)
        self._reporter, self._title, self._pace = reporter, title, Pace()
        self._reported = time.monotonic()

    def progress(self, done: float, total: float | None, unit: str, **facts: Any) -> None:
        speed, remaining = self._pace.words(done, total, unit)
        now = time.monotonic()
        if now - self._reported >= self._reporter.seconds:
            self._reported = now
            share = f" of {total:,.0f}" if total else ""
            status = f"{done:,.0f}{share} {unit}{speed}{_facts(facts)}{remaining}"
            self._reporter.update(self._title, done, total, status)

    def log(self, line: str) -> None:
        self._reporter.note(f"  {self._title}: {line}")


class Bars(Lines):
    """A bar for each running step on a terminal, and a line for each finished one."""

    seconds = 0.0

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<24}"),
            BarColumn(24),
            TextColumn("{task.fields[status]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Bars:
        self.progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.progress.stop()

    def monitor(self, title: str) -> Monitor:
        self._tasks[title] = self.progress.add_task(title, total=None, status="")
        return super().monitor(title)

    def output(self, output: Output) -> None:
        super().output(output)
        for title in [title for title in self._tasks if title == output.title or title.startswith(f"{output.stage} (")]:
            self.progress.remove_task(self._tasks.pop(title))

    def update(self, title: str, done: float, total: float | None, status: str) -> None:
        if title in self._tasks:
            self.progress.update(self._tasks[title], completed=done, total=total, status=status)

    def note(self, line: str) -> None:
        self.progress.console.print(redact(line), highlight=False, markup=False, soft_wrap=True)


def _facts(facts: dict[str, Any]) -> str:
    texts = [
        f"{name.replace('_', ' ')} {number(value)}"
        for name, value in facts.items()
        if isinstance(value, int | float) and not name.endswith("_per_second")  # the speed stands beside it
    ]
    return "".join(f", {text}" for text in texts[:2])


def reporter(*, json: bool) -> Reporter:
    """Bars on a terminal, lines otherwise, silence with --json."""
    return Reporter() if json else Bars() if sys.stderr.isatty() else Lines()


def line_of(output: Output) -> str:
    """A finished step in one line."""
    took = "cached" if output.hit else f"{output.seconds:.1f} s"
    detail = _detail(output)
    return f"  {output.title:<22} {took:>8}  {detail}".rstrip()


def _detail(output: Output) -> str:
    result = output.result or {}
    match output.stage:
        case "ingest":
            counts = result["counts"]
            extra = "".join(f", {counts[k]:,} {k}" for k in ("filtered", "quarantined") if counts[k])
            return f"{counted(counts['written'], 'row')}{extra}"
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
            return ", ".join(parts + [f"{number(speed)} steps/s"] * (speed is not None))
        case "evaluate":
            incompatible = result.get("incompatible")
            return f"cannot score these rows: {incompatible}" if incompatible else metrics_line(result["metrics"])
        case "importance":
            first = [each["column"] for each in result["columns"][:3]]
            return f"{counted(len(result['columns']), 'column')}, most important: {', '.join(first)}"
        case "measure":
            threshold, worst = result.get("threshold") or {}, (result.get("worst_slices") or {}).get("slices")
            parts = [counted(len(result["metrics"]), "metric")]
            parts += [f"threshold {number(threshold['value'])}"] if threshold.get("value") is not None else []
            parts += [f"worst slice {worst[0]['slice']} = {worst[0]['value']}"] if worst else []
            return ", ".join(parts)
        case "gate":
            return str(result["verdict"])
        case "export":
            return ", ".join(result["signatures"])
        case "replay":
            return f"{counted(result['rows'], 'row')}, largest difference {result['largest_difference']:.2g}"
    return ""
