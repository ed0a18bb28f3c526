"""Starts the TensorFlow process at the very beginning of a command, before the command imports anything else.

with early_process():
    ...                  # a `tfcore.runtime.tensorflow_process.Child` takes the process, else it ends with the block
"""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from headway.process import ChildProcess, Scratch, start

WORKER = ("-P", "-u", str(Path(__file__).with_name("start.py")))
"""The arguments of Python that start a TensorFlow process. -P: ignore a flows/ or tfcore/ folder in the working directory;
-u: printed lines arrive at once."""
REPLAYS, PRELOAD = "--replay", ("tensorflow", "keras")
waiting: list[tuple[subprocess.Popen[bytes], Scratch]] = []
"""The started process that no `Child` has taken yet, with its folder; until then its pipes hold what it prints."""


@contextlib.contextmanager
def early_process() -> Iterator[None]:
    """Start the TensorFlow process; kill it at the end of the block if no `Child` has taken it."""
    with contextlib.suppress(OSError):  # who needs it starts another, or fails with the reason
        waiting.append(start([*WORKER, REPLAYS, *PRELOAD]))
    try:
        yield
    finally:
        while waiting:
            ChildProcess((), lambda answer: None, process=waiting.pop()).close(0.0)
