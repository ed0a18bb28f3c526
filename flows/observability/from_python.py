"""Progress of a call from Python: to stderr, to a function, or nowhere; Ctrl-C asks for a clean stop.

with reporting(True) as report:
    execute(run_spec, report)
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from flows.observability.reporting import reporter, with_telemetry
from flows.progress.reporter import Reporter
from flows.progress.terminal import Lines
from headway.redaction import redact

Progress = bool | Callable[[str], None]
"""True: bars on a terminal, else lines, on stderr; False: nothing; a function: it gets each line."""


class _Calls(Lines):
    """Gives each line to a function."""

    def __init__(self, take: Callable[[str], None]):
        super().__init__()
        self._take = take

    def note(self, line: str) -> None:
        self._take(redact(line))


@contextlib.contextmanager
def reporting(progress: Progress) -> Iterator[Reporter]:
    """A reporter whose stop Ctrl-C, or a notebook's stop button, asks for; a second one interrupts at once."""
    with with_telemetry([_Calls(progress)]) if callable(progress) else reporter(quiet=not progress) as report:
        if threading.current_thread() is not threading.main_thread():
            yield report  # only the main thread may set a handler
            return

        def handle(number: int, frame: FrameType | None) -> None:
            if report.stop.is_set():
                raise KeyboardInterrupt
            report.stop.set()

        before = signal.signal(signal.SIGINT, handle)
        try:
            yield report
        finally:
            signal.signal(signal.SIGINT, before)
