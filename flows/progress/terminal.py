"""Progress of a run: one line per step with a live bar on a terminal, plain lines otherwise, nothing with --quiet or --json.

    with reporter() as report:
        engine = Engine(store, child=child, monitor_for=report.monitor, on_output=report.output)

Progress goes to stderr; what a command answers goes to stdout. `flows.progress.log_file` keeps all of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from flows.dag.step import Output
from flows.progress.reporter import Reporter
from flows.progress.step_progress import Progress
from headway.messages import counted, metrics_line, number
from headway.monitor import Monitor
from headway.redaction import redact

_TITLE = 22
"""The width of a step's title."""
_NARROW = 80
"""Columns of a terminal below which bars are short, and a share stands for the numbers."""


class Lines(Reporter):
    """Plain lines on stderr."""

    seconds = 5.0

    def output(self, output: Output) -> None:
        self.note(line_of(output))

    def note(self, line: str) -> None:
        print(redact(line), file=sys.stderr, flush=True)

    def progressed(self, progress: Progress) -> None:
        self.note(f"  {progress.step}: {progress.words()}")

    def logged(self, title: str, line: str) -> None:
        self.note(f"  {title}: {line}")


class Bars(Lines):
    """A live line for each running step on a terminal, which its result replaces; no line is longer than the terminal."""

    seconds = 0.0

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as LiveProgress
        from rich.table import Column

        console = Console(stderr=True)
        self._narrow = console.width < _NARROW
        self._title_width = 14 if self._narrow else _TITLE
        self.live = LiveProgress(
            SpinnerColumn(),
            TextColumn("{task.description}", table_column=Column(width=self._title_width, no_wrap=True)),
            *([] if self._narrow else [TimeElapsedColumn()]),
            BarColumn(8 if self._narrow else 24),
            TextColumn("{task.fields[status]}", table_column=Column(no_wrap=True), markup=False),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Bars:
        self.live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.live.stop()

    def monitor(self, title: str) -> Monitor:
        if (before := self._tasks.get(title)) is not None:  # a step that is tried again
            self.live.remove_task(before)
        self._tasks[title] = self.live.add_task(title, total=None, status="")
        return super().monitor(title)

    def output(self, output: Output) -> None:
        line = redact(line_of(output, self._title_width))
        self.live.console.print(line, highlight=False, markup=False, overflow="ellipsis", no_wrap=True)
        for title in ended_by(output, self._tasks):
            self.live.remove_task(self._tasks.pop(title))

    def progressed(self, progress: Progress) -> None:
        if (task := self._tasks.get(progress.step)) is not None:
            done, total = progress.done, progress.total
            amount = f"{done / total:.0%}" if total and self._narrow else progress.amount
            status = progress.words(amount, brief=self._narrow)
            self.live.update(task, completed=done, total=total, status=self._fitting(status))

    def logged(self, title: str, line: str) -> None:
        """Show a step's line while the step runs: `headway logs` has it afterwards, and the summary has the warnings."""
        if title in self._tasks:
            self.live.update(self._tasks[title], status=self._fitting(redact(line)))

    def _fitting(self, status: str) -> str:
        """Cut a status so that some columns stay free: the ^C that a terminal shows must not begin a line."""
        room = max(self.live.console.width - self._title_width - (14 if self._narrow else 38), 8)
        return status if len(status) <= room else status[: room - 1] + "…"

    def note(self, line: str) -> None:
        self.live.console.print(redact(line), highlight=False, markup=False, soft_wrap=True)


def ended_by(output: Output, titles: Iterable[str]) -> list[str]:
    """Those of the titles that an output has ended: its own, and that of several steps of its stage that ran as one."""
    return [title for title in titles if title == output.title or title.startswith(f"{output.stage} (")]


def reporter(*, quiet: bool = False) -> Reporter:
    """Bars on a terminal, lines otherwise, silence with `quiet`."""
    if quiet:
        return Reporter()
    return Bars() if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else Lines()


def line_of(output: Output, title_width: int = _TITLE) -> str:
    """A finished step in one line."""
    took = "cached" if output.hit else f"{output.seconds:.1f} s"
    return f"  {output.title:<{title_width}} {took:>8}  {_detail(output)}".rstrip()


def _detail(output: Output) -> str:
    result = output.result or {}
    match output.stage:
        case "ingest":
            counts = result["counts"]
            extra = "".join(f", {counts[k]:,} {k}" for k in ("filtered", "quarantined") if counts[k])
            return f"{counted(counts['written'], 'row')}{extra}{_speed(counts['read'], output)}"
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
            label = parameters["label"]
            further = [f"{of['name']} {of['task']}" for of in label.get("further", ())]
            return ", ".join([counted(len(parameters["fitted"]), "column"), label["task"], *further])
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


def _speed(rows: int, output: Output) -> str:
    """The rows per second of a step that took long enough to have a speed."""
    return "" if output.hit or output.seconds < 1 else f", {rows / output.seconds:,.0f} rows/s"
