"""What a running job and the workers in its process tell each other: what there is to do, rows read so far, errors, and
a wish to stop.

live = JobState.begin(todo)
mine = JobState.find(live.token)                          # in a worker; None in another process
for span, piece in mine.claims(): ...                 # the next range that nobody has claimed
mine.count((span, index), rows)
live.done.wait(seconds)
live.runs(result.cancel)                              # once the job has been handed to a cluster
live.cancel()
live.end()
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence

from headway.errors import HeadwayError
from headway.sources.discovery.formats_table import Range

Tick = Callable[[int], None]
"""Called after each batch with how many rows of the range have been read; may raise to stop."""
_LIVE: dict[str, JobState] = {}


class JobState:
    """Counters of one job. Counting by range, so that a range that is run twice counts once.

    Attributes:
        done: set once every range has been worked on, or the job has ended without.
        deals: whether ranges are claimed here; a runner that is not of this process deals out its own.
    """

    def __init__(self, todo: Sequence[tuple[int, Range]] = ()) -> None:
        self.token = uuid.uuid4().hex
        self.done = threading.Event()
        self.deals = bool(todo)
        self._unclaimed, self._left = iter(todo), len(todo)
        self.stop = threading.Event()
        self._rows: dict[tuple[int, int], int] = {}
        self._errors: dict[tuple[int, int], HeadwayError] = {}
        self._cancel: Callable[[], object] | None = None
        self._cancelled = False
        self._lock = threading.Lock()

    @classmethod
    def begin(cls, todo: Sequence[tuple[int, Range]] = ()) -> JobState:
        """Of a job with these (span, range) to do."""
        job_state = cls(todo)
        _LIVE[job_state.token] = job_state
        return job_state

    @staticmethod
    def find(token: str) -> JobState | None:
        return _LIVE.get(token)

    def end(self) -> None:
        _LIVE.pop(self.token, None)

    def claims(self) -> Iterator[tuple[int, Range]]:
        """Ranges to work on, each given to one worker only, for as long as there are any.

        Dealt out beforehand, a worker with slow ones would leave the others idle.
        """
        while True:
            with self._lock:
                mine = next(self._unclaimed, None)
            if mine is None:
                return
            yield mine
            with self._lock:
                self._left -= 1
                if not self._left:
                    self.done.set()

    def count(self, element: tuple[int, int], rows: int) -> None:
        """`rows` of the range have been read."""
        self._rows[element] = rows

    def fail(self, element: tuple[int, int], error: HeadwayError) -> None:
        """A range met a user's mistake; the others need not go on."""
        # its frames hold the range's batches and sketches, which would stay until the process ends
        error.__traceback__ = error.__context__ = None
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
