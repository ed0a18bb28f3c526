"""Tunes Headway's own processes: imports without garbage collection, freed memory returned to the system.

    with uncollected():
        import tensorflow
    collect_rarely()       # a command: most of the objects that it makes stay until it ends
    give_back()

An import of a heavy package makes half a million objects that stay. The collector looks through them again and again as
they grow in number, and once more when the process ends, and finds nothing: half of the time that TensorFlow takes to import.

Arrow's pool and the C library keep what was freed for the next allocation, each thread in a heap of its own: after a wide
Parquet footer, or a range of a wide table, that is a hundred megabytes which no other thread will ever use.
"""

import atexit
import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

NEW_OBJECTS = 200_000
"""A process that makes many objects and few cycles looks for garbage after so many new ones, instead of 700."""
_FREEZING = threading.Lock()
_kept = False
"""Whether `uncollected` has kept what was there, and nothing may be unfrozen."""
_MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD of malloc.h."""


@contextlib.contextmanager
def uncollected(*, keep: bool = False) -> Iterator[None]:
    """Pause the garbage collector within the block, and skip its collection when the process ends.

    Args:
        keep: nor looks at what is there by then ever again; for a process that lives for what it imports.
    """
    global _kept
    _end_uncollected()
    before = gc.isenabled()
    gc.disable()
    try:
        yield
        with _FREEZING:
            if keep:
                gc.freeze()
                _kept = True
            elif not _kept and not gc.get_freeze_count():  # which takes a look at each: 40 ms where TensorFlow is kept
                # among what is old already: as young objects the next small collection would look through all of them
                gc.freeze()
                gc.unfreeze()
    finally:
        if before:
            gc.enable()


def for_all_threads(
    setting: Callable[[], contextlib.AbstractContextManager[object]],
) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Make a setting of the process one for blocks in several threads: the first block makes it, the last one unmakes it."""
    lock, made, blocks = threading.Lock(), contextlib.ExitStack(), 0

    @contextlib.contextmanager
    def block() -> Iterator[None]:
        nonlocal blocks
        with lock:
            if not blocks:
                made.enter_context(setting())
            blocks += 1
        try:
            yield
        finally:
            with lock:
                blocks -= 1
                if not blocks:
                    made.close()

    return block


def collect_rarely() -> None:
    """Run the collector after 200,000 new objects, and not at the end of the process: it took an eighth of a run that finds
    everything done. Not for a server, whose garbage may hold what its clients sent."""
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
    _end_uncollected()


@cache
def _end_uncollected() -> None:
    atexit.register(gc.freeze)


def give_back() -> None:
    """Return freed memory to the system. Costs milliseconds, and page faults later: for the end of long work only."""
    import pyarrow as pa  # here: the command line imports this module for the other half

    pa.default_memory_pool().release_unused()
    if (trim := _of_glibc("malloc_trim")) is not None:
        trim(0)


def give_back_large(least: int = 1 << 20) -> None:
    """Let all memory of at least so many bytes return to the system when it is freed, from now on. Else glibc keeps what is
    as large as something that was freed before: a server would keep several times its largest request."""
    if (mallopt := _of_glibc("mallopt")) is not None:
        mallopt(_MMAP_THRESHOLD, least)


@cache
def _of_glibc(name: str) -> Any:
    """A function of glibc; None where there is none."""
    import ctypes

    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None
