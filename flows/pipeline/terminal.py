"""Progress of runs on stderr: one line per step with a live bar on a terminal, plain lines otherwise, nothing with --quiet.

    with reporter() as report:
        engine = Engine(store, child=child, report=report)

What a command answers goes to stdout. `flows.pipeline.log_file` keeps all of it.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from flows.pipeline.listeners import Level, Listener, Progress, Reporter, Scope
from flows.pipeline.step_lines import TITLE_WIDTH, line_of, line_of_spans
from headway.redaction import redact
from headway.stages.step import Output

_NARROW = 80
"""Columns of a terminal below which bars are short, and a share stands for the numbers."""


@contextlib.contextmanager
def reporter(*, quiet: bool = False, verbose: bool = False) -> Iterator[Reporter]:
    """Bars on a terminal, lines otherwise, all lines with `verbose`, silence with `quiet`."""
    if quiet:
        yield Reporter()
    elif verbose:
        yield Reporter([Lines()])
    else:
        with Bars() if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else Brief() as shown:
            yield Reporter([shown])


class Lines(Listener):
    """Plain lines on stderr."""

    name = "the terminal"
    seconds = 5.0

    def progress(self, scope: Scope, progress: Progress) -> None:
        self.write(scope, f"  {progress.step}: {progress.words()}")

    def line(self, scope: Scope, text: str, level: Level = "info", step: str = "") -> None:
        self.write(scope, f"  {step}: {_worded(text, level)}" if step else text)

    def output(self, scope: Scope, output: Output[Any]) -> None:
        self.write(scope, line_of(output))

    def write(self, scope: Scope, line: str) -> None:
        print(scope.named(line), file=sys.stderr, flush=True)


class Brief(Lines):
    """Lines for a person who asked for no more: one for all spans, none for a proof that holds or for what a step says on its
    way, unless that is a warning."""

    seconds = 15.0
    title_width = TITLE_WIDTH

    def __init__(self) -> None:
        self._spans: dict[Scope, list[Output[Any]]] = {}
        """That were ingested, or found so, until another step ends."""

    def __enter__(self) -> "Brief":
        return self

    def __exit__(self, *exc: object) -> None:
        for scope in [*self._spans]:
            self._say_spans(scope)

    def line(self, scope: Scope, text: str, level: Level = "info", step: str = "") -> None:
        if not step or level == "warning":
            super().line(scope, text, level, step)

    def output(self, scope: Scope, output: Output[Any]) -> None:
        if output.stage == "ingest":
            self._spans.setdefault(scope, []).append(output)
            return
        self._say_spans(scope)
        if output.stage != "splits" or output.get()["anomalies"]:
            self.write_result(scope, line_of(output, self.title_width))

    def _say_spans(self, scope: Scope) -> None:
        if spans := self._spans.pop(scope, []):
            self.write_result(scope, line_of_spans(spans, self.title_width))

    def write_result(self, scope: Scope, line: str) -> None:
        """Write a line about a step that has ended."""
        self.write(scope, line)


class Bars(Brief):
    """A live line for each running step on a terminal, which its result replaces; no line is longer than the terminal."""

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

    def __enter__(self) -> "Bars":
        self.live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__()
        self.live.stop()

    def step(self, scope: Scope, title: str, *, runs: bool) -> None:
        if (task := self._tasks.pop((scope, title), None)) is not None:
            self.live.remove_task(task)
        if runs:
            self._tasks[scope, title] = self.live.add_task(scope.named(title).strip(), total=None, status="")

    def progress(self, scope: Scope, progress: Progress) -> None:
        done, total = progress.done, progress.total
        amount = f"{done / total:.0%}" if total and self._narrow else progress.amount
        self._update(scope, progress.step, progress.words(amount, brief=self._narrow), completed=done, total=total)

    def line(self, scope: Scope, text: str, level: Level = "info", step: str = "") -> None:
        """Show a step's line while the step runs: `headway show --log` has it afterwards, and the summary has the warnings."""
        if step:
            self._update(scope, step, redact(_worded(text, level)))
        else:
            super().line(scope, text, level)

    def _update(self, scope: Scope, step: str, status: str, **amount: Any) -> None:
        """Cut a status so that some columns stay free: the ^C that a terminal shows must not begin a line."""
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
