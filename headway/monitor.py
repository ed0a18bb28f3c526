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
    """The base class of monitors, which ignores every report. Command line, worker and Prefect flow have subclasses."""

    def __init__(self, stop: threading.Event | None = None):
        self.stop = stop or threading.Event()

    def progress(self, done: float, total: float | None, unit: str, **facts: Any) -> None:
        """Reports that `done` of `total` units are finished (`total` is None if unknown). `facts` are further JSON values, such
        as the loss or the split."""

    def log(self, line: str) -> None:
        """Reports one line for a person to read."""

    def warn(self, line: str) -> None:
        """Reports one line with a warning, which a person should look at."""
        self.log(f"warning: {line}")

    def cancelled(self) -> bool:
        return self.stop.is_set()

    def check(self) -> None:
        """Raises Cancelled if a stop was requested."""
        if self.stop.is_set():
            raise Cancelled("stopped on request; what was done is kept")
