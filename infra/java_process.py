"""Java processes of a local Flink or Spark, which end with the process that started them, and a Beam job server.

with job_server("flink", {"flink_master": "[local]"}, jars()) as (address, log):
    tail(log)                               # the last lines it wrote
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_START_SECONDS = 90.0
OPENS = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        *(f"java.{name}" for name in ("lang", "lang.invoke", "util", "util.concurrent", "nio", "time", "net", "io")),
        "sun.nio.ch",
    )
]
"""What Flink and Spark reach into under Java 17."""
_MASTERS = {"flink": "flink_master", "spark": "spark_master_url"}


def free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])


def tail(path: Path, characters: int = 2000) -> str:
    """The end of a log."""
    return path.read_text(errors="replace")[-characters:].strip() if path.exists() else ""


@contextlib.contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command for the block; it ends with this process, however that ends."""
    with log.open("wb") as out:
        # a session of its own: a Ctrl-C is for the driver, which cancels its job first
        tied = [sys.executable, __file__, *command]
        process = subprocess.Popen(tied, stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True)
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


@contextlib.contextmanager
def job_server(name: str, options: Mapping[str, Any], jars: Path) -> Iterator[tuple[str, Path]]:
    """A job server of flink or spark for the block: its address, and its log.

    Args:
        options: Beam's; of them the master's address is the server's.
        jars: the folder of its jars.

    Raises:
        RuntimeError: it does not come up.
    """
    port, master = free_port(), _MASTERS[name]
    with tempfile.TemporaryDirectory(prefix="headway-jobs-", ignore_cleanup_errors=True) as scratch:
        log = Path(scratch) / "log"
        command = ["java", f"-Djava.io.tmpdir={scratch}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", *OPENS]
        command += ["-cp", f"{jars}/*", f"org.apache.beam.runners.{name}.{name.title()}JobServerDriver"]
        command += [f"--{master.replace('_', '-')}", str(options[master]), "--job-host", "localhost"]
        command += ["--job-port", str(port), "--artifact-port", str(free_port()), "--expansion-port", "0"]
        with running([*command, "--artifacts-dir", f"{scratch}/staged"], log) as process:
            until = time.monotonic() + _START_SECONDS
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"the job server does not come up:\n{tail(log)}")
                time.sleep(0.1)
            yield f"localhost:{port}", log


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("localhost", port), 1):
        return True
    return False


def main(command: list[str]) -> int:
    """Run a command that ends when this process's stdin closes, as it does when its parent ends."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def tied() -> None:
        os.read(0, 1)  # nothing is ever written there
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()

    threading.Thread(target=tied, daemon=True).start()
    return child.wait()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
