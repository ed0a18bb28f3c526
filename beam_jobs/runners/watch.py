"""The state that the driver shares with workers in its process: rows read, a stop, an error; without Beam.

    with Watch() as watch:                 # Watch.find_here(watch.name): the Watch in this process, None in another
        watch.stop()                       # ranges end after their batch

Workers of a cluster find no Watch: there Beam's metrics count the rows, and a stop cancels the job.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Sequence

from headway.sources.base import Range

_WATCHES: dict[str, Watch] = {}


class Watch(contextlib.AbstractContextManager["Watch"]):
    """The state of one job that its driver and its workers share.

    Attributes:
        stopping: an event that is set once the job is to stop.
        rows_read: the rows that have been read, by (span, index of the range).
        failures: errors for the driver to raise.
    """

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex
        self.failures = list[BaseException]()
        self.stopping, self._lock = threading.Event(), threading.Lock()
        self._cancel: Callable[[], object] | None = None
        self.rows_read = dict[tuple[int, int], int]()
        self._totals = dict[int, int | None]()

    def __enter__(self) -> Watch:
        _WATCHES[self.name] = self
        return self

    def __exit__(self, *_: object) -> None:
        del _WATCHES[self.name]

    @staticmethod
    def find_here(name: str) -> Watch | None:
        return _WATCHES.get(name)

    def stop(self) -> None:
        """Stop the job. Returns at once, as a cluster that is gone may never answer."""
        self.stopping.set()
        with self._lock:
            cancel, self._cancel = self._cancel, None
        if cancel is not None:
            threading.Thread(target=cancel, name="cancel", daemon=True).start()

    def on_stop(self, cancel: Callable[[], object]) -> None:
        """Set the function that cancels the job. A stop calls it once; if the job is stopped already, it is called now."""
        with self._lock:
            self._cancel = cancel
        if self.stopping.is_set():
            self.stop()

    def fail(self, error: BaseException) -> None:
        """Keep an error for the driver to raise, and stop the job."""
        self.failures.append(error)
        self.stop()

    def any_span_cut(self) -> bool:
        """Returns whether a worker in this process has cut a span into ranges."""
        return bool(self._totals)

    def set_ranges(self, span: int, pieces: Sequence[Range]) -> None:
        """Note how many rows the ranges of a span have, if the ranges say so. `span` is the span's index."""
        rows = [piece.facts.get("rows") for piece in pieces]
        self._totals[span] = None if None in rows else sum(rows)  # type: ignore[arg-type]

    def rows(self) -> int:
        return sum([*self.rows_read.values()])

    def total(self, spans: int) -> int | None:
        """Returns the number of rows of all `spans` spans; None while the number of some span is unknown."""
        totals = [*self._totals.values()]
        return None if len(totals) < spans or None in totals else sum(totals)  # type: ignore[arg-type]
