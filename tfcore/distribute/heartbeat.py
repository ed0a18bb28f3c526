"""Heartbeats of processes, twice a second; a process without one is frozen.

    with beating(monitor.alive):                # in the process: from a thread, whatever the others do
        ...
    silence = HeartbeatMonitor(2)                        # in its parent
    silence.look([7, 7])                        # messages that came of each so far -> seconds of silence: [0.0, 0.0]

A process is silent that was stopped by a signal or a debugger, that waits in the kernel for a disk that is gone, or whose
native code has taken Python's lock and never comes back. TensorFlow's own health check sees some of these.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

BEAT_SECONDS = 0.5
MOST_AT_ONCE = 1.0
"""Seconds that count at most between two looks: of a longer time it was the parent that was paused."""


@contextlib.contextmanager
def beating(alive: Callable[[], None]) -> Iterator[None]:
    """Call `alive` every BEAT_SECONDS within the block."""
    done = threading.Event()

    def beat() -> None:
        alive()
        while not done.wait(BEAT_SECONDS):
            alive()

    thread = threading.Thread(target=beat, name="pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class HeartbeatMonitor:
    """Measures how long each of `count` processes has been silent; see the module."""

    def __init__(self, count: int, *, clock: Callable[[], float] = time.monotonic):
        self.seconds = [0.0] * count
        self._messages = [0] * count
        self._clock, self._looked = clock, clock()

    def look(self, messages: Sequence[int]) -> list[float]:
        """The seconds of silence of each process, given the number of its messages so far."""
        now = self._clock()
        passed, self._looked = min(now - self._looked, MOST_AT_ONCE), now
        for number, count in enumerate(messages):
            heard = count != self._messages[number]
            self.seconds[number] = 0.0 if heard else self.seconds[number] + passed
        self._messages = list(messages)
        return self.seconds
