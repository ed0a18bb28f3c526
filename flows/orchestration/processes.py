"""Flow runs' processes on this machine, known by files that hold their pids.

    enlist(environ)                          # first things in a flow run's process: flows.launcher
    outlive_reader()                         # nothing that it prints raises BrokenPipeError
    found = Processes(folder)
    found.lives(flow_run)                    # True, False, or None where nothing is known of it here
    found.pids()                             # {flow run: pid} of those that live

HEADWAY_FLOW_RUNS names the folder. A flow run is found by its file whichever worker started it, also after that worker died;
a file that a killed process left says that the run is over.
"""

import atexit
import contextlib
import json
import os
import re
import sys
from collections.abc import Mapping, Set
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
        self.path.parent.mkdir(parents=True, exist_ok=True)
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

    def _files(self) -> dict[str, PidFile]:
        return {path.stem: PidFile(path) for path in sorted(self.folder.glob("*.json"))}

    def lives(self, flow_run: str) -> bool | None:
        """Whether the flow run's process lives; None when it has no file, or ran where its pid means nothing here."""
        return PidFile(self.folder / f"{flow_run}.json").lives()

    def pids(self) -> dict[str, int]:
        """Return {flow run: pid} of the living processes."""
        return {name: pid for name, file in self._files().items() if (pid := file.pid()) is not None}

    def dead(self, but: Set[str]) -> list[PidFile]:
        """The files of flow runs, but of some, whose process ended without removing its own."""
        return [file for name, file in self._files().items() if name not in but and file.lives() is False]
