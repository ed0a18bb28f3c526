"""Heavy packages imported without the garbage collector.

    with uncollected():
        import tensorflow

Such an import makes half a million objects that stay. The collector looks through them again and again as they grow in
number, and once more when the process ends, and finds nothing: half of the time that TensorFlow takes to import.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import threading
from collections.abc import Iterator
from functools import cache

_FREEZING = threading.Lock()


@contextlib.contextmanager
def uncollected(*, keep: bool = False) -> Iterator[None]:
    """The collector waits meanwhile, and does not look at anything when the process ends.

    Args:
        keep: nor looks at what is there by then ever again; for a process that lives for what it imports.
    """
    _end_uncollected()
    before = gc.isenabled()
    gc.disable()
    try:
        yield
        with _FREEZING:
            if keep:
                gc.freeze()
            elif not gc.get_freeze_count():
                # among what is old already: as young objects the next small collection would look through all of them
                gc.freeze()
                gc.unfreeze()
    finally:
        if before:
            gc.enable()


@cache
def _end_uncollected() -> None:
    atexit.register(gc.freeze)
