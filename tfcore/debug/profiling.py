"""Times a few compiled steps and profiles them for TensorBoard.

told = profiled(lambda: learner.run(...), steps=5, folder=Path("out/profile"))
told["files"], told["top"]      # tensorboard --logdir out/profile; the ops that took longest
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

_TOP = 10
_RUNTIME = (
    *("$", "<", "_", "end: ", "train", "tf.", "TFE_", "Eager", "KernelAndDevice", "Validate", "ThreadpoolListener"),
    *(
        "ThunkExecutor",
        "ExecutorState",
        "CpuExecutable",
        "Dispatch",
        "ProcessFunction",
        "FunctionRun",
        "BlockUntilReady",
    ),
)
"""How the names of what is not an op begin: Python, and what calls ops."""


def profiled(step: Callable[[int], None], steps: int, folder: Path | None) -> dict[str, Any]:
    """Call `step(i)` for i in 0 .. steps - 1; with a folder, under TensorFlow's profiler.

    Returns:
        seconds of each step; folder and files of the profile, and top: [{op, calls, ms}] by its own time.
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
            "top": _top([path for path in files if path.name.endswith(".xplane.pb")]),
        }
    return profile


def _top(files: list[Path]) -> list[dict[str, Any]]:
    """The ops with the longest time of their own, over all threads and streams."""
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
                for name, own in _own_times(line.events, names):
                    if not name.startswith(_RUNTIME):
                        took[name] += own
                        calls[name] += 1
    return [{"op": op, "calls": calls[op], "ms": round(ps / 1e9, 3)} for op, ps in took.most_common(_TOP)]


def _own_times(events: Any, names: dict[int, str]) -> Iterator[tuple[str, int]]:
    """(name, picoseconds without those of nested events) of each event of one thread."""
    open_: list[list[Any]] = []  # name, end, own time
    for event in sorted(events, key=lambda event: (event.offset_ps, -event.duration_ps)):
        while open_ and open_[-1][1] <= event.offset_ps:
            name, _, own = open_.pop()
            yield name, own
        if open_:
            open_[-1][2] -= event.duration_ps
        open_.append([names[event.metadata_id], event.offset_ps + event.duration_ps, event.duration_ps])
    for name, _, own in open_:
        yield name, own
