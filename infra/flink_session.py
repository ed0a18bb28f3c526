"""A Flink as clusters run it: a job manager and a task manager with two slots, processes of their own, on this machine.

    with session(jars()) as rest:          # localhost:38081, for flink_master
        jobs(rest)                         # {"headway-0f3c...": "FINISHED"}
    configure(folder, settings)            # or each process by itself, as on several machines
    command(jars(), "taskmanager", folder)

There is no Flink distribution in it: the jars that Maven fetched for the job server hold all that it takes.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from java_process import OPENS, free_port, running, tail

from beam_jobs.runners.flink_rest import call_rest

_ENTRY = {
    "jobmanager": "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint",
    "taskmanager": "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
}
# Flink's own start scripts work the memory out; without them every part of it has to be named
_MEMORY = {
    "jobmanager.memory.heap.size": "512m",
    "jobmanager.memory.off-heap.size": "128m",
    "jobmanager.memory.jvm-metaspace.size": "256m",
    "jobmanager.memory.jvm-overhead.min": "128m",
    "jobmanager.memory.jvm-overhead.max": "128m",
    "taskmanager.cpu.cores": "2",
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.framework.off-heap.size": "128m",
    "taskmanager.memory.task.heap.size": "512m",
    "taskmanager.memory.task.off-heap.size": "128m",
    "taskmanager.memory.network.min": "128m",
    "taskmanager.memory.network.max": "128m",
    "taskmanager.memory.managed.size": "128m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "128m",
    "taskmanager.memory.jvm-overhead.max": "128m",
}
_START_SECONDS = 90.0


@contextlib.contextmanager
def session(jars: Path, slots: int = 2) -> Iterator[str]:
    """A Flink while the block runs; yields the address of its REST interface.

    Raises:
        RuntimeError: it does not come up.
    """
    with tempfile.TemporaryDirectory(prefix="headway-flink-", ignore_cleanup_errors=True) as folder:
        scratch, rest = Path(folder), free_port()
        settings = {"jobmanager.rpc.address": "localhost", "jobmanager.rpc.port": free_port()}
        settings |= {"rest.address": "localhost", "rest.port": rest, "taskmanager.numberOfTaskSlots": slots}
        configure(scratch, settings)
        logs = [scratch / f"{name}.log" for name in _ENTRY]
        with contextlib.ExitStack() as stack:
            commands = zip((command(jars, name, scratch) for name in _ENTRY), logs, strict=True)
            started = [stack.enter_context(running(*each)) for each in commands]
            await_slots(f"localhost:{rest}", slots, started, logs)
            yield f"localhost:{rest}"


def configure(folder: Path, settings: Mapping[str, object]) -> None:
    """Write the settings of a Flink process into a folder, which it takes for temporary files unless they name another."""
    settings = _MEMORY | {"io.tmp.dirs": str(folder)} | settings
    (folder / "flink-conf.yaml").write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))


def command(jars: Path, name: str, folder: Path, *, temporary: Path | None = None) -> list[str]:
    """The command line of a jobmanager or a taskmanager whose settings are in the folder."""
    java = ["java", "-Xmx900m", f"-Djava.io.tmpdir={temporary or folder}", *OPENS, "-cp", f"{jars}/*"]
    return [*java, _ENTRY[name], "--configDir", str(folder)]


def await_slots(rest: str, slots: int, started: Sequence[subprocess.Popen[bytes]], logs: Sequence[Path]) -> None:
    """Wait until the task managers have registered with so many slots.

    Raises:
        RuntimeError: they do not, or one of the processes ended.
    """
    until = time.monotonic() + _START_SECONDS
    while _slots(rest) < slots:
        if time.monotonic() > until or any(process.poll() is not None for process in started):
            raise RuntimeError("Flink does not come up:\n" + "\n".join(map(tail, logs)))
        time.sleep(0.2)


def jobs(rest: str) -> dict[str, str]:
    """The state of each job that Flink knows, by its name."""
    return {job["name"]: job["state"] for job in call_rest(rest, "jobs/overview")["jobs"]}


def _slots(rest: str) -> int:
    try:
        return int(call_rest(rest, "overview")["slots-total"])
    except (OSError, ValueError, KeyError):
        return 0
