"""Starts the TensorFlow process at the very beginning of a command, before the command imports anything else.

with begun():
    ...                                    # a `tfcore.runtime.tensorflow_process.Child` takes it, or it ends with the block
"""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from headway.process import ChildProcess, Scratch, start

WORKER = ("-P", "-u", str(Path(__file__).with_name("start.py")))
"""How such a process is started. -P: a flows/ or tfcore/ folder in the working directory is not ours; -u: lines arrive
at once."""
REPLAYS, PRELOAD = "--replay", ("tensorflow", "keras")
waiting: list[tuple[subprocess.Popen[bytes], Scratch]] = []
"""The process that was begun and that nobody has taken; its pipes hold what it says."""


@contextlib.contextmanager
def begun() -> Iterator[None]:
    """Start the process; kill it at the end of the block if it was not taken."""
    with contextlib.suppress(OSError):  # who needs it starts another, or fails with the reason
        waiting.append(start([*WORKER, REPLAYS, *PRELOAD]))
    try:
        yield
    finally:
        while waiting:
            ChildProcess((), lambda answer: None, process=waiting.pop()).close(0.0)
