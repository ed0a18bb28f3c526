"""The interface by which a stage reports progress to its caller, and is asked to stop.

def stage(request, out, monitor):
    for done in range(total):
        monitor.check()                                   # raises Cancelled after a Ctrl-C
        monitor.progress(done, total, "rows", loss=0.3)
"""

from __future__ import annotations

import threading
from typing import Any

from headway.errors import Cancelled


class Monitor:
    """Silent by default; the command line, the worker and the Prefect flow each override `progress` and `log`."""

    def __init__(self, stop: threading.Event | None = None):
        self.stop = stop or threading.Event()

    def progress(self, done: float, total: float | None, unit: str, **facts: Any) -> None:
        """`done` of `total` units so far (None: unknown); `facts` are JSON values such as loss or split."""

    def log(self, line: str) -> None:
        """One line for a person."""

    def alive(self) -> None:
        """That this process still runs, for one who watches over it."""

    def cancelled(self) -> bool:
        return self.stop.is_set()

    def check(self) -> None:
        """Raise Cancelled once a stop was asked for."""
        if self.stop.is_set():
            raise Cancelled("stopped on request; what was done is kept")
