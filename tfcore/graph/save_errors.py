"""Errors of TensorFlow's own file writing as StoreErrors, such as a full disk.

with saving(folder, "the checkpoint of step 5"):
    tf.train.Checkpoint(v=v).write(str(folder / "v"))
# StoreError: <folder>: the checkpoint of step 5 cannot be written: no space left on device
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from headway.errors import StoreError
from headway.storage.atomic_io import FIXES
from tfcore.graph.op_errors import why

_NUMBERS = {os.strerror(number): number for number in errno.errorcode}


@contextlib.contextmanager
def saving(folder: Path, what: str = "") -> Iterator[None]:
    """Raise failures to write, Python's or TensorFlow's, as StoreErrors with the folder, `what`, reason and fix."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        if isinstance(error, OSError):
            number, reason = error.errno, error.strerror or str(error)
        else:
            # "<path>; No space left on device", or whatever else stopped it
            reason = why(error)
            last = reason.rpartition("; ")[2]
            number = _NUMBERS.get(last)
            reason = last if number else reason
        problem = f"cannot be written: {reason[:1].lower()}{reason[1:]}"
        raise StoreError(
            f"{what} {problem}" if what else problem, where=str(folder), fix=FIXES.get(number) if number else None
        ) from None
