"""The store's clock: what several machines compare, leases and ages of files, is told by whoever keeps the files.

    disk_time(store.locks)               # seconds since 1970 by the disk's clock: of this machine, or of the file server
    Offset(measure).time()               # by a clock that is costly to ask, such as a bucket's

The clocks of machines differ, by an hour where one has none that is set; a lease that one of them wrote would then be over, or
go on for ever, for another.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from headway.errors import StoreError

FRESH_SECONDS = 300.0
SAME_SECONDS = 2.0
"""Clocks that differ by less are taken for the same: buckets count in whole seconds, and a request takes its time."""
_PROBE = ".time"


def disk_time(folder: Path) -> float:
    """Seconds since 1970 by the clock of the disk that a folder lies on; by this machine's where it cannot be written."""
    with contextlib.suppress(OSError):
        probe = os.open(folder / _PROBE, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            os.utime(probe)  # without a time: who keeps the disk sets its own
            return os.fstat(probe).st_mtime
        finally:
            os.close(probe)
    return time.time()


class Offset:
    """This machine's clock, corrected by how far it is from another, which is measured now and then.

    Args:
        measure: asks the other clock: seconds since 1970. May raise OSError or StoreError: then the last measure counts.
    """

    def __init__(self, measure: Callable[[], float]):
        self._measure = measure
        self.offset = 0.0
        """Seconds by which the other clock is ahead of this machine's."""
        self._wall, self._steady = 0.0, -FRESH_SECONDS

    def time(self) -> float:
        """Seconds since 1970 by the other clock."""
        wall, steady = time.time(), time.monotonic()
        passed = steady - self._steady
        # a clock that was set, or a machine that slept: only one of the two has gone on
        if passed >= FRESH_SECONDS or abs(wall - self._wall - passed) > SAME_SECONDS:
            with contextlib.suppress(OSError, StoreError):
                there = self._measure()
                least, most = there - time.time(), there - wall  # a slow answer does not count as a difference
                if abs(most - least - (time.monotonic() - steady)) <= SAME_SECONDS:
                    self.offset = least if least > SAME_SECONDS else most if most < -SAME_SECONDS else 0.0
            self._wall, self._steady = time.time(), time.monotonic()
        return time.time() + self.offset
