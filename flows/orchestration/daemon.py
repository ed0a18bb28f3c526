"""A process that outlives the command that started it, known by a file that holds its pid.

    worker = Daemon(folder, "worker")
    worker.start(command, env=env, cwd=cwd)              # its output goes to folder/worker.log
    worker.pid()                                         # None when it is dead
    worker.stop()                                        # it and all that it started; nothing else

Each daemon leads a session of its own, and what it starts stays in it: so its children are found even after it died.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from flows.orchestration.processes import read_pid, write_pid
from headway.storage.process_identity import alive


class Daemon:
    def __init__(self, folder: Path, name: str):
        self.name = name
        self.file, self.log = folder / f"{name}.pid", folder / f"{name}.log"

    def start(self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        write_pid(self.file, process.pid)

    def pid(self) -> int | None:
        """Its pid while it lives."""
        known = read_pid(self.file)
        return known[0] if known and alive(*known) else None

    def members(self) -> list[int]:
        """The living processes of its session, itself last."""
        known = read_pid(self.file)
        if known is None or (alive(known[0]) and not alive(*known)):
            return []  # another process has that pid now, which says that the whole session is gone
        leader = known[0]
        found = [pid for pid in _pids() if pid != leader and _session(pid) == leader and alive(pid)]
        return found + ([leader] if alive(*known) else [])

    def stop(self, seconds: float = 15.0) -> bool:
        """End its leader, then what is left; True if anything ran."""
        members = self.members()
        if (pid := self.pid()) is not None:
            end([pid], seconds)
        end(self.members(), 5.0)
        self.file.unlink(missing_ok=True)
        return bool(members)

    def last_words(self, lines: int = 15) -> str:
        """The end of its log."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "".join(f"\n  | {line}" for line in text.splitlines()[-lines:])


def end(pids: Sequence[int], seconds: float) -> None:
    """SIGTERM, and SIGKILL to those that live `seconds` later."""
    _signal(pids, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    _signal([pid for pid in pids if alive(pid)], signal.SIGKILL)


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _pids() -> list[int]:
    if Path("/proc/self").exists():
        return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
    asked = subprocess.run(["ps", "-axo", "pid="], capture_output=True, text=True, check=False)
    return [int(pid) for pid in asked.stdout.split()]
