"""Progress of a run: one line per step with a live bar on a terminal, plain lines otherwise, nothing with --quiet or --json.

    with reporter() as report:
        engine = Engine(store, child=child, report=report)

Progress goes to stderr; what a command answers goes to stdout. `flows.progress.log_file` keeps all of it.
"""

import contextlib
import copy
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from flows.progress.reporter import Level, Reporter
from flows.progress.step_progress import Progress
from flows.tell.step_line import TITLE_WIDTH, line_of, line_of_spans
from headway.monitor import Monitor
from headway.redaction import redact
from headway.stages.step import Output, Step, title_of

_NARROW = 80
"""Columns of a terminal below which bars are short, and a share stands for the numbers."""


class Lines(Reporter):
    """Plain lines on stderr."""

    seconds = 5.0
    title_width = TITLE_WIDTH
    until: str | None = None
    """The last span of the window that is reported, where several run at the same time."""

    def __init__(self, *, stop: threading.Event | None = None):
        super().__init__(stop=stop)
        self.steps: dict[str, Any] = {}
        """What is shown of each step that runs, by its title."""
        self.spans: list[Output] = []
        """That were ingested, or found so, until another step ends."""
        self._together: dict[str, str] = {}
        """By stage: the title of its steps that run as one."""

    @contextlib.contextmanager
    def stage(self, steps: Sequence[Step]) -> Iterator[None]:
        self._together[steps[0].stage.name] = title_of(steps)
        yield

    def ended(self, output: Output) -> set[str]:
        """The titles of steps that an output has ended: its own, and that of several that ran as one."""
        return self.steps.keys() & {output.title, self._together.get(output.stage, "")}

    def window(self, until: str) -> "Lines":
        bound = copy.copy(self)
        bound.until, bound.steps, bound.spans, bound._together = until, {}, [], {}
        return bound

    def told(self, line: str) -> str:
        """A line without secrets, which names its window."""
        return redact(line if self.until is None else f"  {self.until}: {line.strip()}")

    def output(self, output: Output) -> None:
        self.note(line_of(output))

    def note(self, line: str) -> None:
        print(self.told(line), file=sys.stderr, flush=True)

    def progressed(self, progress: Progress) -> None:
        self.note(f"  {progress.step}: {progress.words()}")

    def logged(self, title: str, line: str, level: Level = "info") -> None:
        self.note(f"  {title}: {_worded(line, level)}")


class Brief(Lines):
    """Lines for a person who asked for no more: one for all spans, none for a proof that holds or for what a step says on its
    way, unless that is a warning."""

    seconds = 15.0

    def __exit__(self, *exc: object) -> None:
        self._say_spans()

    def output(self, output: Output) -> None:
        if output.stage == "ingest":
            self.spans.append(output)
            return
        self._say_spans()
        if output.stage != "splits" or output.get()["anomalies"]:
            self.line(line_of(output, self.title_width))

    def _say_spans(self) -> None:
        if self.spans:
            self.line(line_of_spans(self.spans, self.title_width))
            self.spans = []

    def line(self, line: str) -> None:
        """A line about a step that has ended."""
        self.note(line)

    def logged(self, title: str, line: str, level: Level = "info") -> None:
        if level == "warning":
            super().logged(title, line, level)


class Bars(Brief):
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
        self.title_width = 14 if self._narrow else TITLE_WIDTH
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

    def monitor(self, title: str) -> Monitor:
        if (before := self.steps.get(title)) is not None:  # a step that is tried again
            self.live.remove_task(before)
        self.steps[title] = self.live.add_task(self.told(title).strip(), total=None, status="")
        return super().monitor(title)

    def line(self, line: str) -> None:
        self.live.console.print(self.told(line), highlight=False, markup=False, overflow="ellipsis", no_wrap=True)

    def output(self, output: Output) -> None:
        super().output(output)
        for title in self.ended(output):
            self.live.remove_task(self.steps.pop(title))

    def progressed(self, progress: Progress) -> None:
        if (task := self.steps.get(progress.step)) is not None:
            done, total = progress.done, progress.total
            amount = f"{done / total:.0%}" if total and self._narrow else progress.amount
            status = progress.words(amount, brief=self._narrow)
            self.live.update(task, completed=done, total=total, status=self._fitting(status))

    def logged(self, title: str, line: str, level: Level = "info") -> None:
        """Show a step's line while the step runs: `headway show --log` has it afterwards, and the summary has the warnings."""
        if title in self.steps:
            self.live.update(self.steps[title], status=self._fitting(redact(_worded(line, level))))

    def _fitting(self, status: str) -> str:
        """Cut a status so that some columns stay free: the ^C that a terminal shows must not begin a line."""
        room = max(self.live.console.width - self.title_width - (14 if self._narrow else 38), 8)
        return status if len(status) <= room else status[: room - 1] + "…"

    def note(self, line: str) -> None:
        self.live.console.print(self.told(line), highlight=False, markup=False, soft_wrap=True)


def _worded(line: str, level: Level) -> str:
    return line if level == "info" else f"{level}: {line}"


def reporter(*, quiet: bool = False, verbose: bool = False) -> Reporter:
    """Bars on a terminal, lines otherwise, all lines with `verbose`, silence with `quiet`."""
    if quiet:
        return Reporter()
    if verbose:
        return Lines()
    return Bars() if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else Brief()
