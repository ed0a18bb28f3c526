"""Times a few compiled steps and profiles them for TensorBoard.

told = profiled(lambda i: learner.run(...), steps=5, folder=Path("out/profile"))
told["files"]                   # tensorboard --logdir out/profile
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf


def profiled(step: Callable[[int], None], steps: int, folder: Path | None) -> dict[str, Any]:
    """Call `step(i)` for i in 0 .. steps - 1; with a folder, under TensorFlow's profiler.

    Returns:
        seconds of each step; folder and files of the profile.
    """
    seconds = []
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        tf.profiler.experimental.start(str(folder))
    try:
        for i in range(steps):
            began = time.perf_counter()
            with tf.profiler.experimental.Trace("train", step_num=i, _r=1):
                step(i)
            seconds.append(round(time.perf_counter() - began, 6))
    finally:
        if folder is not None:
            tf.profiler.experimental.stop()
    profile: dict[str, Any] = {"seconds": seconds}
    if folder is not None:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        profile |= {
            "folder": str(folder),
            "files": [path.relative_to(folder).as_posix() for path in files],
        }
    return profile
