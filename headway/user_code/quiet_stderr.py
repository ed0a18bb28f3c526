"""Hides what TensorFlow's C++ code prints to stderr while TensorFlow is imported, and nothing else.

with startup():
    import tensorflow as tf
"""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator

from headway.process import gc_paused, is_own_process

_LINES = r"^(([0-9-]+ [0-9:. ]+: )?[IWEF][0-9]{4} [0-9:. ]+|[0-9-]+ [0-9:. ]+: [IWEF] ).*\.cc:[0-9]+\]"
_OTHERS = "^(WARNING: All log messages before absl|To enable the following instructions: )"
_AT_ONCE = "-u" if sys.platform == "linux" else "-l"
"""The options of GNU's and of BSD's `sed` that pass on each line at once."""
_SECONDS = 2.0
"""The longest wait for the filter, since a process that a module left behind may hold the pipe."""
_REDIRECTED = threading.RLock()
"""A lock, since file descriptor 2 belongs to the process: two threads that redirect it would give it back in the wrong
order."""


@contextlib.contextmanager
def startup() -> Iterator[None]:
    """Hides the lines that TensorFlow itself writes to stderr while it is imported and looks for devices.

    Nothing is hidden if TF_CPP_MIN_LOG_LEVEL is 0 or 1, if TensorFlow is imported already, or in a process that is not Headway's
    own."""
    elsewhere = not is_own_process() or "tensorflow" in sys.modules
    if elsewhere or os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2") in ("0", "1"):
        yield
        return
    with filtered_stderr(), gc_paused():
        yield
        if "tensorflow" in sys.modules:  # a user's module may do without
            sys.modules["tensorflow"].config.list_physical_devices()


@contextlib.contextmanager
def filtered_stderr() -> Iterator[None]:
    """Passes file descriptor 2 through a filter while the block runs. The filter is a separate process: it passes on each line at
    once, also the last words of a process that dies in the block. Without the program `sed`, nothing is filtered."""
    if (sed := shutil.which("sed")) is None:
        yield
        return
    with _REDIRECTED:
        sys.stderr.flush()
        stderr = os.dup(2)
        command, plain = [sed, _AT_ONCE, "-E", f"/{_LINES}/d;/{_OTHERS}/d"], {"LC_ALL": "C"}
        relay = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stderr, env=plain, start_new_session=True)
        assert relay.stdin is not None
        os.dup2(relay.stdin.fileno(), 2)
        relay.stdin.close()
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            with contextlib.suppress(subprocess.TimeoutExpired):
                relay.wait(_SECONDS)
