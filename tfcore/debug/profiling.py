"""A few compiled steps, timed, and profiled for TensorBoard.

told = profiled(lambda: learner.run(...), steps=5, folder=Path("out/profile"))
told["files"], told["top"]      # tensorboard --logdir out/profile; the ops that took longest
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

_TOP = 10


def profiled(step: Callable[[int], None], steps: int, folder: Path | None) -> dict[str, Any]:
    """Call `step(i)` for i in 0 .. steps - 1; with a folder, under TensorFlow's profiler.

    Returns:
        seconds of each step; folder and files of the profile, and top: [{op, calls, ms}] by the time on the device's
        threads.
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
    told: dict[str, Any] = {"seconds": seconds}
    if folder is not None:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        told |= {
            "folder": str(folder),
            "files": [path.relative_to(folder).as_posix() for path in files],
            "top": _top([path for path in files if path.name.endswith(".xplane.pb")]),
        }
    return told


def _top(files: list[Path]) -> list[dict[str, Any]]:
    """The ops that took longest, of TensorFlow's compute threads and of the GPU's streams."""
    try:
        from tensorflow.tsl.profiler.protobuf import xplane_pb2
    except ImportError:  # not part of TensorFlow's public face; TensorBoard reads the files all the same
        return []
    took: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for file in files:
        space = xplane_pb2.XSpace()
        space.ParseFromString(file.read_bytes())
        for plane in space.planes:
            names = {key: value.name for key, value in plane.event_metadata.items()}
            for line in plane.lines:
                if plane.name.startswith("/host:") and line.name == "python":
                    continue
                for event in line.events:
                    name = names[event.metadata_id]
                    took[name] += event.duration_ps
                    calls[name] += 1
    return [{"op": op, "calls": calls[op], "ms": round(ps / 1e9, 3)} for op, ps in took.most_common(_TOP)]
