"""Imports TensorFlow without the lines that its C++ code prints at every start.

with startup():
    import tensorflow as tf
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from headway.process import owned
from headway.process_tuning import uncollected


@contextlib.contextmanager
def without_scikit_learn() -> Iterator[None]:
    """Import Keras within the block without its wrappers for scikit-learn, whose import takes over a second."""
    if "sklearn" in sys.modules:
        yield
        return
    sys.modules["sklearn"] = None  # type: ignore[assignment]  # importing it fails
    try:
        yield
    finally:
        del sys.modules["sklearn"]


@contextlib.contextmanager
def startup() -> Iterator[None]:
    """Send file descriptor 2 nowhere while TensorFlow is imported and looks for devices; failures are raised anyway.

    With TF_CPP_MIN_LOG_LEVEL at 0 or 1, with TensorFlow imported already, or in a process that is not Headway's own,
    nothing is changed.
    """
    if not owned():
        yield
        return
    if "tensorflow" in sys.modules or os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2") in ("0", "1"):
        yield
        return
    sys.stderr.flush()
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        with uncollected(), without_scikit_learn():
            yield
        if "tensorflow" in sys.modules:  # a user's module may do without
            sys.modules["tensorflow"].config.list_physical_devices()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)
