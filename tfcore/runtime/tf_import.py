"""Imports TensorFlow without the lines that its C++ code prints at every start.

with startup():
    import tensorflow as tf
"""

import contextlib
import os
import sys
from collections.abc import Iterator

from headway.process import gc_paused, is_own_process
from headway.user_code.quiet_stderr import filtered_stderr


@contextlib.contextmanager
def startup() -> Iterator[None]:
    """Hide the lines that TensorFlow itself writes to stderr while it is imported and looks for devices.

    With TF_CPP_MIN_LOG_LEVEL at 0 or 1, with TensorFlow imported already, or in a process that is not Headway's own,
    nothing is changed.
    """
    if not is_own_process():
        yield
        return
    if "tensorflow" in sys.modules or os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2") in ("0", "1"):
        yield
        return
    with filtered_stderr(), gc_paused():
        yield
        if "tensorflow" in sys.modules:  # a user's module may do without
            sys.modules["tensorflow"].config.list_physical_devices()
