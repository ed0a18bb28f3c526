"""The local runner: threads of this process, each of which takes the next range when it has finished one.

    run_ranges(RunnerConfig(workers=2), jobs, [(0, piece), (1, other)])

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


def run_ranges(config: RunnerConfig, jobs: Sequence[RangeJob], elements: Sequence[Element]) -> None:
    """Run the ranges and block until all are done; a stop in the work folder ends them early.

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

    # daemons: a process that was asked to end need not wait for a range whose file does not answer
    workers = config.threads(len(elements))
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


_LOCK, _RUNNING, _RESTORE = threading.Lock(), list[object](), contextlib.ExitStack()
"""The runs of this process at the moment, and what sets back the settings that the first of them made."""
_NEW_OBJECTS = 200_000
"""So many more objects than before make Python look for cycles."""


@contextlib.contextmanager
def _sharing() -> Iterator[None]:
    """Set process-wide settings that suit several worker threads.

    The workers are the parallelism: Arrow's own pool on top of them only costs memory. They leave the interpreter's
    lock for some hundred microseconds at a time, and the usual 5 ms to get it back made two workers a fifth slower.
    A batch of a wide table is thousands of objects and no cycles: looking for those after every 700 of them took a tenth
    of the time.
    """
    run = object()
    with _LOCK:
        if not _RUNNING:
            _RESTORE.callback(gc.set_threshold, *gc.get_threshold())
            _RESTORE.callback(pa.set_cpu_count, pa.cpu_count())
            _RESTORE.callback(sys.setswitchinterval, sys.getswitchinterval())
            gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
            pa.set_cpu_count(1)
            sys.setswitchinterval(min(sys.getswitchinterval(), 0.0005))
        _RUNNING.append(run)
    try:
        yield
    finally:
        with _LOCK:
            _RUNNING.remove(run)
            if not _RUNNING:
                _RESTORE.close()
