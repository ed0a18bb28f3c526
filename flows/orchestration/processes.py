"""Processes of this machine that outlive the command that started them, known by files that hold their pids.

    enlist(environ)                          # first things in a flow run's process: flows.launcher
    outlive_reader()                         # nothing that it prints raises BrokenPipeError
    found = Processes(folder)
    found.lives(flow_run)                    # True, False, or None where nothing is known of it here
    found.pids()                             # {flow run: pid} of those that live

    worker = Daemon(folder, "worker")
    worker.start(command, env=env, cwd=cwd)  # its output goes to folder/worker.log
    worker.pid()                             # None when it is dead
    worker.stop()                            # it and all that it started; nothing else

`make up` names the folder of flow runs in HEADWAY_FLOW_RUNS. A flow run is found by its file whichever worker started it,
also after that worker died; a file that a killed process left says that the run is over. Each daemon leads a session of
its own, and what it starts stays in it: so its children are found even after it died.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from headway.errors import StoreError
from headway.redaction import redact
from headway.storage.atomic_io import replace_text
from headway.storage.process_identity import alive, place, started

FOLDER_VARIABLE = "HEADWAY_FLOW_RUNS"
PIPELINES_VARIABLE = "HEADWAY_PIPELINES"
"""The folder that holds the pipelines' folders on a worker, where it is another than where they were deployed from."""
FLOW_RUN_VARIABLE = "PREFECT__FLOW_RUN_ID"
_NAME = re.compile(r"[0-9a-fA-F-]{1,64}")


@dataclass(frozen=True)
class PidFile:
    """A file that names a process by its pid, its start time, and the host on which the pid is valid."""

    path: Path

    def write(self, pid: int) -> None:
        replace_text(self.path, json.dumps({"pid": pid, "started": started(pid), "place": place()}))

    def process(self) -> tuple[int, str] | None:
        """Return (pid, start) of the process; None without a file, or if the pid is not valid here."""
        try:
            facts = json.loads(self.path.read_text())
            return (int(facts["pid"]), str(facts["started"])) if facts["place"] == place() else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def lives(self) -> bool | None:
        """Whether the process lives; None where that is not known."""
        process = self.process()
        return None if process is None else alive(*process)

    def pid(self) -> int | None:
        """The pid while the process lives."""
        process = self.process()
        return process[0] if process is not None and alive(*process) else None


def enlist(environ: Mapping[str, str]) -> None:
    """Write this process down, until it ends by itself; nothing when no folder or no flow run is named."""
    folder, flow_run = environ.get(FOLDER_VARIABLE), environ.get(FLOW_RUN_VARIABLE, "")
    if not folder or not _NAME.fullmatch(flow_run):
        return
    file, pid = Path(folder) / f"{flow_run}.json", os.getpid()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        PidFile(file).write(pid)
    except (OSError, StoreError):
        return  # a run without a file is judged by its heartbeats

    def leave() -> None:
        if os.getpid() == pid:  # not in a fork
            with contextlib.suppress(OSError):
                file.unlink()

    atexit.register(leave)


class Outliving:
    """A text stream whose writes hide secrets, and do not fail once its reader is gone: the text is dropped.

    A flow run prints into a pipe that its worker reads. When the worker dies the pipe breaks, and the next line printed
    would end the run: rich, which Prefect prints with, raises SystemExit. The log on Prefect's server still gets every line.
    """

    def __init__(self, inner: TextIO):
        self._inner = inner

    def write(self, text: str) -> int:
        try:
            self._inner.write(redact(text))
        except BrokenPipeError:
            self._let_go()
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self._inner.flush()
        except BrokenPipeError:
            self._let_go()

    def _let_go(self) -> None:
        """Redirect the descriptor to /dev/null, for buffered text and for other code that prints to it."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._inner.fileno())
        os.close(nothing)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def outlive_reader() -> None:
    """Stop this process's prints from raising BrokenPipeError."""
    sys.stdout, sys.stderr = Outliving(sys.stdout), Outliving(sys.stderr)


class Processes:
    """The flow run processes that the pid files in a folder name."""

    def __init__(self, folder: Path):
        self.folder = folder

    def _file(self, flow_run: str) -> PidFile:
        return PidFile(self.folder / f"{flow_run}.json")

    def _names(self) -> list[str]:
        return sorted(file.stem for file in self.folder.glob("*.json"))

    def lives(self, flow_run: str) -> bool | None:
        """Whether the flow run's process lives; None when it has no file, or ran where its pid means nothing here."""
        return self._file(flow_run).lives()

    def pids(self) -> dict[str, int]:
        """Return {flow run: pid} of the living processes."""
        return {name: pid for name in self._names() if (pid := self._file(name).pid()) is not None}

    def forget(self, flow_run: str) -> None:
        """Remove the file of a process that is dead."""
        if self.lives(flow_run) is False:
            with contextlib.suppress(OSError):
                self._file(flow_run).path.unlink()

    def dead(self) -> list[str]:
        """Flow runs whose process ended without removing its file."""
        return [name for name in self._names() if self.lives(name) is False]


class Daemon:
    """A process that leads its own session; see the module."""

    def __init__(self, folder: Path, name: str):
        self.name = name
        self.file, self.log = PidFile(folder / f"{name}.pid"), folder / f"{name}.log"
        self.pid = self.file.pid

    def start(self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, umask: int = 0o077) -> None:
        """Start it.

        Args:
            umask: of what it writes; others than its user never read its log.
        """
        self.log.parent.mkdir(parents=True, exist_ok=True)
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

    def _members(self) -> list[int]:
        """Return the living processes of the daemon's session."""
        process = self.file.process()
        if process is None or (alive(process[0]) and not alive(*process)):
            return []  # another process has that pid now, which says that the whole session is gone
        return [pid for pid in _pids() if _session(pid) == process[0] and alive(pid)]

    def stop(self) -> None:
        """End the session's leader, then its remaining processes."""
        if (pid := self.pid()) is not None:
            end([pid], 15.0)
        end(self._members(), 5.0)
        self.file.path.unlink(missing_ok=True)

    def last_words(self, lines: int = 15) -> str:
        """Return the end of the daemon's log."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "".join(f"\n  | {line}" for line in text.splitlines()[-lines:])


def end(pids: Sequence[int], seconds: float) -> None:
    """Send SIGTERM, then SIGKILL to the processes that still live `seconds` later."""
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
    listing = subprocess.run(["ps", "-axo", "pid="], capture_output=True, text=True, check=False)
    return [int(pid) for pid in listing.stdout.split()]
