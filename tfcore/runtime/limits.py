"""What a stage may cost: limits of time and memory that really stop the work.

    with limited("train", StageLimit(minutes=60), monitor, child) as watched:
        child.call("tfcore.train.stage:train", request, out, watched)      # LimitExceeded: train ran for more than 60 min

At the limit of time the stage is told to stop, as by Ctrl-C, so that a training writes a checkpoint; a process that is still in
it ten seconds later is killed, with all that it started. At the limit of memory it is killed at once. A stage that has a limit
never runs in the flow's own process, so what hangs in native code ends too.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from headway.config import Frozen
from headway.errors import Cancelled, LimitExceeded
from headway.messages import number
from headway.monitor import Monitor
from tfcore.runtime.tensorflow_process import Child

LOOK_SECONDS = 0.25
GRACE_SECONDS = 10.0
"""How long a stage that is past its time gets to write a checkpoint."""


class StageLimit(Frozen):
    """What one stage may cost before it is stopped."""

    minutes: float | None = Field(default=None, gt=0, description="wall time")
    memory_gb: float | None = Field(default=None, gt=0, description="resident memory of its process, in 1e9 bytes")


class _Watched(Monitor):
    """A stage's monitor that can be stopped without stopping the run."""

    def __init__(self, inner: Monitor):
        super().__init__(inner.stop)
        self._inner, self.past = inner, threading.Event()
        self.progress = inner.progress  # type: ignore[method-assign]
        self.log = inner.log  # type: ignore[method-assign]
        self.warn = inner.warn  # type: ignore[method-assign]

    def cancelled(self) -> bool:
        return self.past.is_set() or self._inner.cancelled()

    def check(self) -> None:
        if self.past.is_set():
            raise Cancelled("past its limit")
        self._inner.check()


@contextlib.contextmanager
def limited(
    stage: str, limit: StageLimit, monitor: Monitor, child: Child, *, grace: float = GRACE_SECONDS
) -> Iterator[Monitor]:
    """Yield the monitor that the stage is to be called with.

    Args:
        child: the process that the stage runs in.

    Raises:
        LimitExceeded: the block took longer, or more memory, than the limit.
    """
    if limit.minutes is None and limit.memory_gb is None:
        yield monitor
        return
    watched, over, reason = _Watched(monitor), threading.Event(), list[LimitExceeded]()
    began = time.monotonic()

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            seconds = time.monotonic() - began
            # a walk through /proc, so only where somebody asks for it
            used = 0 if limit.memory_gb is None else memory_of(child.pid)
            if limit.memory_gb is not None and used > limit.memory_gb * 1e9:
                reason.append(_exceeded(stage, "memory_gb", f"took {used / 1e9:.2f} GB of memory", limit.memory_gb))
            elif limit.minutes is not None and seconds > limit.minutes * 60:
                reason.append(_exceeded(stage, "minutes", f"ran for {number(seconds / 60)} min", limit.minutes))
            else:
                continue
            watched.past.set()
            waits = 0.0 if reason[0].where == f"limits.{stage}.memory_gb" else grace
            if not over.wait(waits):
                child.close(timeout=0.0)
            return

    thread = threading.Thread(target=watch, name=f"limit-{stage}", daemon=True)
    thread.start()
    try:
        yield watched
    except Exception:
        over.set()
        thread.join()
        if reason:
            raise reason[0] from None
        raise
    finally:
        over.set()


def _exceeded(stage: str, key: str, what: str, limit: float) -> LimitExceeded:
    fix = f"raise limits.{stage}.{key} in pipeline.yaml, or give the stage less to do"
    return LimitExceeded(
        f"{stage} {what}, and the limit is {number(limit)}: it was stopped", where=f"limits.{stage}.{key}", fix=fix
    )


def memory_of(pid: int | None) -> int:
    """Bytes of resident memory of a process and all that it started, what several share counted once; 0 where that is not
    known."""
    if pid is None:
        return 0
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    family, size = {pid}, 0
    while len(family) > size:
        size = len(family)
        family |= {child for child, parent in parents.items() if parent in family}
    return sum(_own_memory(member) for member in family)


def _own_memory(pid: int) -> int:
    """Bytes of resident memory of a process, with its share of what it has in common with others."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    with contextlib.suppress(OSError):  # a kernel that does not tell shares
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
