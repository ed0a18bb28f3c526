"""The state that the driver shares with workers in its process: rows read, a stop, an error; without Beam.

    with Watch() as watch:                 # Watch.of(watch.name) finds it in this process, and None in another one
        watch.stop()                       # ranges end after their batch

On a cluster the workers find none: rows are Beam's metrics there, and a stop is the cancelling of the job.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Sequence

from headway.sources.base import Range

_WATCHES: dict[str, Watch] = {}


class Watch(contextlib.AbstractContextManager["Watch"]):
    """The state of one job that its driver and its workers share."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex
        self.failures = list[BaseException]()
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._cancel: Callable[[], object] | None = None
        self._rows = dict[tuple[int, int], int]()
        self._totals = dict[int, int | None]()

    def __enter__(self) -> Watch:
        _WATCHES[self.name] = self
        return self

    def __exit__(self, *_: object) -> None:
        del _WATCHES[self.name]

    @staticmethod
    def of(name: str) -> Watch | None:
        return _WATCHES.get(name)

    def stop(self) -> None:
        """Stop the job. Returns at once, as a cluster that is gone may never answer."""
        self._stop.set()
        with self._lock:
            cancel, self._cancel = self._cancel, None
        if cancel is not None:
            threading.Thread(target=cancel, name="cancel", daemon=True).start()

    def on_stop(self, cancel: Callable[[], object]) -> None:
        """Set the function that cancels the job, which a stop calls once; after a stop it is called now."""
        with self._lock:
            self._cancel = cancel
        if self.stopped():
            self.stop()

    def stopped(self) -> bool:
        return self._stop.is_set()

    def fail(self, error: BaseException) -> None:
        """Keep an error, which the driver raises, and stop the job."""
        self.failures.append(error)
        self.stop()

    def begun(self) -> bool:
        """Returns whether a worker in this process has begun."""
        return bool(self._totals)

    def cut(self, span: int, pieces: Sequence[Range]) -> None:
        """Note the ranges of a span."""
        rows = [piece.facts.get("rows") for piece in pieces]
        self._totals[span] = None if None in rows else sum(rows)  # type: ignore[arg-type]

    def read(self, span: int, index: int, rows: int) -> None:
        """Note how many rows of a range have been read."""
        self._rows[span, index] = rows

    def rows(self) -> int:
        return sum([*self._rows.values()])

    def total(self, spans: int) -> int | None:
        """Returns the rows of so many spans; None unless all are cut and their files tell."""
        totals = [*self._totals.values()]
        return None if len(totals) < spans or None in totals else sum(totals)  # type: ignore[arg-type]
