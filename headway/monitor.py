"""The interface by which a stage reports progress to its caller and learns that it should stop.

def stage(request, out, monitor):
    for done in range(total):
        monitor.check()                                   # raises Cancelled after a Ctrl-C
        monitor.progress(done, total, "rows", loss=0.3)
"""

import threading
from typing import Any

from headway.errors import Cancelled


class Monitor:
    """The base monitor ignores progress and log lines; command line, worker and Prefect flow each override it."""

    def __init__(self, stop: threading.Event | None = None):
        self.stop = stop or threading.Event()

    def progress(self, done: float, total: float | None, unit: str, **facts: Any) -> None:
        """Report that `done` of `total` units are finished (`total` is None if unknown); `facts` are JSON values such
        as loss or split."""

    def log(self, line: str) -> None:
        """Report one line for a person."""

    def warn(self, line: str) -> None:
        """Report one line that a person should look at."""
        self.log(f"warning: {line}")

    def cancelled(self) -> bool:
        return self.stop.is_set()

    def check(self) -> None:
        """Raise Cancelled if a stop was requested."""
        if self.stop.is_set():
            raise Cancelled("stopped on request; what was done is kept")
