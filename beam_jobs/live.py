"""What a running job and the workers in its process tell each other: rows read so far, errors, and a wish to stop.

live = Live.begin()
Live.find(live.token).count((span, index), rows)      # in a worker; None in another process
live.rows()
live.runs(result.cancel)                              # once the job has been handed to a cluster
live.cancel()
live.end()
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable

from headway.errors import HeadwayError

_LIVE: dict[str, Live] = {}


class Live:
    """Counters of one job. Counting by range, so that a range that is run twice counts once."""

    def __init__(self) -> None:
        self.token = uuid.uuid4().hex
        self.stop = threading.Event()
        self._rows: dict[tuple[int, int], int] = {}
        self._errors: dict[tuple[int, int], HeadwayError] = {}
        self._cancel: Callable[[], object] | None = None
        self._cancelled = False
        self._lock = threading.Lock()

    @classmethod
    def begin(cls) -> Live:
        live = cls()
        _LIVE[live.token] = live
        return live

    @staticmethod
    def find(token: str) -> Live | None:
        return _LIVE.get(token)

    def end(self) -> None:
        _LIVE.pop(self.token, None)

    def count(self, element: tuple[int, int], rows: int) -> None:
        """`rows` of the range have been read."""
        self._rows[element] = rows

    def fail(self, element: tuple[int, int], error: HeadwayError) -> None:
        """A range met a user's mistake; the others need not go on."""
        self._errors[element] = error
        self.stop.set()

    def error(self) -> HeadwayError | None:
        """The error of the first range that has one."""
        return self._errors[min(self._errors)] if self._errors else None

    def rows(self) -> int:
        return sum(list(self._rows.values()))

    def runs(self, cancel: Callable[[], object]) -> None:
        """The cluster has the job; if a stop came first, it is cancelled at once."""
        with self._lock:
            self._cancel = cancel
        if self._cancelled:
            self._send()

    def cancel(self) -> None:
        """Ask the cluster, once, to cancel the job; returns at once, as a cluster that is gone may never answer."""
        with self._lock:
            first, self._cancelled = not self._cancelled, True
        if first:
            self._send()

    def _send(self) -> None:
        with self._lock:
            cancel, self._cancel = self._cancel, None
        if cancel is not None:
            threading.Thread(target=_quietly, args=(cancel,), name="cancel", daemon=True).start()


def _quietly(cancel: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):  # the job ended by itself, or its server did
        cancel()
