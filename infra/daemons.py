"""Processes that outlive the command that started them: each leads a process group of its own, and a file holds its pid.

    worker = Daemon(folder, "worker")
    worker.start(command, env=env, cwd=cwd)  # its output goes to folder/worker.log
    worker.pid()                             # None when it is dead
    worker.stop()                            # it and all that it started; nothing else

What a daemon starts stays in its group: so its children are ended even after it died.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from headway.storage.process_identity import host_name, is_alive, start_time


class PidFile:
    """A file that names a process by its pid, its start time, and the host on which the pid is valid."""

    def __init__(self, path: Path):
        self.path = path

    def write(self, pid: int) -> None:
        self.path.write_text(json.dumps({"pid": pid, "started": start_time(pid), "place": host_name()}))

    def process(self) -> tuple[int, str] | None:
        """Return (pid, start) of the process; None without a file, or if the pid is not valid here."""
        try:
            facts = json.loads(self.path.read_text())
            return (int(facts["pid"]), str(facts["started"])) if facts["place"] == host_name() else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def pid(self) -> int | None:
        """The pid while the process lives."""
        process = self.process()
        return process[0] if process is not None and is_alive(*process) else None


class Daemon:
    """A process that leads its own group; see the module."""

    def __init__(self, folder: Path, name: str):
        self.name = name
        self.file, self.log = PidFile(folder / f"{name}.pid"), folder / f"{name}.log"
        self.pid = self.file.pid
        self._began = 0
        """Where its log began, in bytes, when it was started."""

    def start(self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, umask: int = 0o077) -> None:
        """Start it.

        Args:
            umask: of what it writes; others than its user never read its log.
        """
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._began = self.log.stat().st_size if self.log.exists() else 0
        with open(self.log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
            process = subprocess.Popen(
                command,
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=umask,
            )
        self.file.write(process.pid)

    def stop(self) -> None:
        """End it, then what is left of its group."""
        process = self.file.process()
        if process is not None and (is_alive(*process) or not is_alive(process[0])):  # else the pid is another's
            end(process[:1], 15.0)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process[0], signal.SIGKILL)
        self.file.path.unlink(missing_ok=True)

    def said(self) -> str:
        """Return what stands in its log since `start`; all of it where another process started it."""
        with contextlib.suppress(OSError):
            return self.log.read_bytes()[self._began :].decode(errors="replace")
        return ""

    def last_words(self, lines: int = 15) -> str:
        """Return the end of `said`."""
        return "".join(f"\n  | {line}" for line in self.said().splitlines()[-lines:])


def end(pids: Sequence[int], seconds: float) -> None:
    """Send SIGTERM, then SIGKILL to the processes that still live `seconds` later."""
    deadline = time.monotonic() + seconds
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in filter(is_alive, pids):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        while any(map(is_alive, pids)) and time.monotonic() < deadline:
            time.sleep(0.1)
