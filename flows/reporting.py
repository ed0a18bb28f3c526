"""What a person sees while a run goes on: progress bars on a terminal, plain lines otherwise, nothing with --json.

    with reporter(json=False) as report:
        engine = Engine(store, child=child, monitor_for=report.monitor, on_output=report.output)

Progress goes to stderr; what a command answers goes to stdout.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any

from flows.steps import Output
from headway.monitor import Monitor
from headway.redaction import redact
from headway.words import counted, number

_LINE_SECONDS = 5.0
"""Without a terminal a stage says how far it is this often."""


class Reporter:
    """Says nothing; the base of those that do."""

    def __init__(self, stop: threading.Event | None = None):
        self.stop = stop or threading.Event()

    def __enter__(self) -> Reporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def monitor(self, title: str) -> Monitor:
        return Monitor(self.stop)

    def check(self) -> None:
        """Raise Cancelled once a stop was asked for; called before a step and before a promotion."""
        Monitor(self.stop).check()

    def output(self, output: Output) -> None:
        """A step is done, or was already."""

    def note(self, line: str) -> None:
        """One line for a person."""


class Lines(Reporter):
    """Plain lines on stderr."""

    seconds = _LINE_SECONDS

    def monitor(self, title: str) -> Monitor:
        return _LineMonitor(self, title)

    def output(self, output: Output) -> None:
        self.note(line_of(output))

    def note(self, line: str) -> None:
        print(redact(line), file=sys.stderr, flush=True)


class _LineMonitor(Monitor):
    def __init__(self, reporter: Lines, title: str):
        super().__init__(reporter.stop)
        self._reporter, self._title = reporter, title
        self._began = self._said = time.monotonic()

    def progress(self, done: float, total: float | None, unit: str, **facts: Any) -> None:
        now = time.monotonic()
        if now - self._said < self._reporter.seconds:
            return
        self._said = now
        share = f" of {total:,.0f}" if total else ""
        rate = done / max(now - self._began, 1e-9)
        left = f", {(total - done) / rate:,.0f} s left" if total and rate > 0 else ""
        self._reporter.note(f"  {self._title}: {done:,.0f}{share} {unit}, {rate:,.0f} {unit}/s{_facts(facts)}{left}")

    def log(self, line: str) -> None:
        self._reporter.note(f"  {self._title}: {line}")


class Bars(Reporter):
    """A bar for each running step on a terminal, and a line for each finished one."""

    def __init__(self, stop: threading.Event | None = None):
        super().__init__(stop)
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<24}"),
            BarColumn(24),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Bars:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def monitor(self, title: str) -> Monitor:
        self._tasks[title] = self.progress.add_task(title, total=None, status="")
        return _BarMonitor(self, title)

    def output(self, output: Output) -> None:
        self.note(line_of(output))
        for title in [title for title in self._tasks if title == output.title or title.startswith(f"{output.stage} (")]:
            self.progress.remove_task(self._tasks.pop(title))

    def update(self, title: str, done: float, total: float | None, status: str) -> None:
        if title in self._tasks:
            self.progress.update(self._tasks[title], completed=done, total=total, status=status)

    def note(self, line: str) -> None:
        self.progress.console.print(redact(line), highlight=False, markup=False, soft_wrap=True)


class _BarMonitor(Monitor):
    def __init__(self, reporter: Bars, title: str):
        super().__init__(reporter.stop)
        self._reporter, self._title, self._began = reporter, title, time.monotonic()

    def progress(self, done: float, total: float | None, unit: str, **facts: Any) -> None:
        rate = done / max(time.monotonic() - self._began, 1e-9)
        self._reporter.update(self._title, done, total, f"{done:,.0f} {unit}, {rate:,.0f}/s{_facts(facts)}")

    def log(self, line: str) -> None:
        self._reporter.note(f"  {self._title}: {line}")


def _facts(facts: dict[str, Any]) -> str:
    shown = [f"{name} {number(value)}" for name, value in facts.items() if isinstance(value, int | float)]
    return "".join(f", {text}" for text in shown[:2])


def reporter(*, json: bool, stop: threading.Event | None = None) -> Reporter:
    """Bars on a terminal, lines otherwise, silence with --json."""
    if json:
        return Reporter(stop)
    return Bars(stop) if sys.stderr.isatty() else Lines(stop)


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
            return "; ".join(result["says"]) if not wrong else f"{wrong} finding{'s' * (wrong != 1)}"
        case "validate":
            return f"{counted(result['errors'], 'error')}, {counted(result['warnings'], 'warning')}"
        case "analyse":
            return (
                f"{counted(result['rows'], 'row')}, gives {', '.join(column['name'] for column in result['columns'])}"
            )
        case "transform":
            parameters = result["parameters"]
            label = parameters["label"]
            return f"{counted(len(parameters['fitted']), 'column')}, {label['task']}"
        case "train":
            loss = number(result.get("final_loss"))
            return f"{counted(result['steps'], 'step')}, loss {loss}, {number(result.get('steps_per_second'))} steps/s"
        case "evaluate":
            if result.get("incompatible"):
                return f"cannot score these rows: {result['incompatible']}"
            return metrics_line(result["metrics"])
        case "gate":
            return str(result["verdict"])
        case "export":
            return ", ".join(result["signatures"])
        case "replay":
            return f"{counted(result['rows'], 'row')}, largest difference {result['largest_difference']:.2g}"
    return ""


def metrics_line(metrics: dict[str, Any] | None, baselines: dict[str, Any] | None = None) -> str:
    """The metrics that a person looks at first, with what the baselines have: `auc 0.91 (constant 0.5)`."""
    first = ("auc", "ndcg", "loss", "accuracy", "calibration", "rmse", "mae")

    def beside(name: str) -> str:
        known = {who: found[name] for who, found in (baselines or {}).items() if found.get(name) is not None}
        if not known or name == "calibration":
            return ""
        return " (" + ", ".join(f"{who} {number(value)}" for who, value in known.items()) + ")"

    values = metrics or {}
    return ", ".join(f"{name} {number(values[name])}{beside(name)}" for name in first if values.get(name) is not None)
