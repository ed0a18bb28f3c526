"""Heavy packages imported without the garbage collector.

    with uncollected():
        import tensorflow

Such an import makes half a million objects that stay. The collector looks through them again and again as they grow in
number and finds nothing: a third of the time that TensorFlow takes to import, a fifth of Beam's.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected(*, keep: bool = False) -> Iterator[None]:
    """The collector waits meanwhile.

    Args:
        keep: nor looks at what is there by then ever again; for a process that lives for what it imports.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
        if keep:
            gc.freeze()
    finally:
        if before:
            gc.enable()
