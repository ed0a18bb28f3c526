"""What a running job and the workers in its process tell each other: rows read so far, errors, and a wish to stop.

live = Live.begin()
Live.find(live.token).count((span, index), rows)      # in a worker; None in another process
live.rows()
live.end()
"""

from __future__ import annotations

import threading
import uuid

from headway.errors import HeadwayError

_LIVE: dict[str, Live] = {}


class Live:
    """Counters of one job. Counting by range, so that a range that is run twice counts once."""

    def __init__(self) -> None:
        self.token = uuid.uuid4().hex
        self.stop = threading.Event()
        self._rows: dict[tuple[int, int], int] = {}
        self._errors: dict[tuple[int, int], HeadwayError] = {}

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
