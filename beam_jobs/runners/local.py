"""The local runner: threads of this process, each of which takes the next range when it is done with one.

    LocalRunner(RunnerConfig(workers=2)).run(jobs, [(0, piece), (1, other)])

It needs no Beam. Beam's own local runner deals the ranges to its workers before it begins, which costs half the time more
where one range is much longer than the others: docs/decisions/0002-local-ranges.md has the figures.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Iterator, Sequence

import pyarrow as pa

from beam_jobs.runners.config import RunnerConfig
from beam_jobs.runners.range_job import Element, RangeJob


class LocalRunner:
    """Runs ranges on threads of this process; see the module."""

    def __init__(self, config: RunnerConfig):
        self._config = config

    def run(self, jobs: Sequence[RangeJob], elements: Sequence[Element]) -> None:
        """Run the ranges and block until all are done.

        Raises:
            Exception: a range did, with an error that is not the user's; the others have stopped.
        """
        todo, failures = iter(elements), list[BaseException]()

        def work() -> None:
            try:
                for span, piece in todo:  # of one iterator: each range goes to one thread
                    if failures:
                        return
                    jobs[span].run(piece)
            except BaseException as error:  # it is raised again in the caller's thread
                failures.append(error)
                for job in jobs:
                    job.work_dir.stop()

        # daemons: a process that was told to end need not wait for a range whose file does not answer
        workers = self._config.threads(len(elements))
        threads = [threading.Thread(target=work, name=f"range-{i}", daemon=True) for i in range(workers)]
        with _sharing():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        # Arrow's allocator keeps a heap for each thread, and these threads are gone
        pa.default_memory_pool().release_unused()
        if failures:
            raise failures[0]

    def cancel(self) -> None:
        """Nothing more than the work folder's stop, which the ranges look for."""


class _Shared:
    """How many pipelines of this process run at the moment, and what was set before the first of them."""

    def __init__(self) -> None:
        self.lock, self.pipelines = threading.Lock(), 0
        self.before: tuple[int, float, tuple[int, int, int]] = (0, 0.0, (0, 0, 0))


_SHARING = _Shared()
_NEW_OBJECTS = 200_000
"""So many more objects than before make Python look for cycles."""


@contextlib.contextmanager
def _sharing() -> Iterator[None]:
    """Process-wide settings under which worker threads get on well.

    The workers are the parallelism: Arrow's own pool on top of them only costs memory. They leave the interpreter's
    lock for some hundred microseconds at a time, and the usual 5 ms to get it back made two workers a fifth slower.
    A batch of a wide table is thousands of objects and no cycles: looking for those after every 700 of them took a tenth
    of the time.
    """
    with _SHARING.lock:
        _SHARING.pipelines += 1
        if _SHARING.pipelines == 1:
            _SHARING.before = pa.cpu_count(), sys.getswitchinterval(), gc.get_threshold()
            gc.set_threshold(_NEW_OBJECTS, *_SHARING.before[2][1:])
            pa.set_cpu_count(1)
            sys.setswitchinterval(min(sys.getswitchinterval(), 0.0005))
    try:
        yield
    finally:
        with _SHARING.lock:
            _SHARING.pipelines -= 1
            if not _SHARING.pipelines:
                threads, interval, collecting = _SHARING.before
                gc.set_threshold(*collecting)
                pa.set_cpu_count(threads)
                sys.setswitchinterval(interval)
