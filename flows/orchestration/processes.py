"""The flow run processes of this machine: each writes its pid to a file of its own while it lives.

    enlist(environ)                          # first thing in a flow run's process: flows.launcher
    found = Processes(folder)
    found.lives(flow_run)                    # True, False, or None where nothing is known of it here
    found.pids()                             # {flow run: pid} of those that live

`make up` names the folder in HEADWAY_FLOW_RUNS. A flow run is found by its file whichever worker started it, also after
that worker died; a file that a killed process left says that the run is over.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from headway.errors import StoreError
from headway.storage.atomic_io import replace_text
from headway.storage.process_identity import alive, place, started

FOLDER_VARIABLE = "HEADWAY_FLOW_RUNS"
FLOW_RUN_VARIABLE = "PREFECT__FLOW_RUN_ID"
_NAME = re.compile(r"[0-9a-fA-F-]{1,64}")


def enlist(environ: Mapping[str, str]) -> None:
    """Write this process down, until it ends by itself; nothing when no folder or no flow run is named."""
    folder, flow_run = environ.get(FOLDER_VARIABLE), environ.get(FLOW_RUN_VARIABLE, "")
    if not folder or not _NAME.fullmatch(flow_run):
        return
    file = _file(Path(folder), flow_run)
    pid = os.getpid()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_pid(file, pid)
    except (OSError, StoreError):
        return  # a run without a file is judged by its heartbeats

    def leave() -> None:
        if os.getpid() == pid:  # not in a fork
            with contextlib.suppress(OSError):
                file.unlink()

    atexit.register(leave)


def write_pid(file: Path, pid: int) -> None:
    replace_text(file, json.dumps({"pid": pid, "started": started(pid), "place": place()}))


def read_pid(file: Path) -> tuple[int, str] | None:
    """(pid, start) of the process in a pid file; None without one, or where the pid means nothing here."""
    try:
        facts = json.loads(file.read_text())
        return (int(facts["pid"]), str(facts["started"])) if facts["place"] == place() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


class Processes:
    """The flow run processes that the pid files in a folder name."""

    def __init__(self, folder: Path):
        self.folder = folder

    def lives(self, flow_run: str) -> bool | None:
        """Whether the flow run's process lives; None when it has no file, or ran where its pid means nothing here."""
        known = read_pid(_file(self.folder, flow_run))
        return None if known is None else alive(*known)

    def pids(self) -> dict[str, int]:
        """{flow run: pid} of the processes that live."""
        found = {}
        for file in sorted(self.folder.glob("*.json")):
            known = read_pid(file)
            if known is not None and alive(*known):
                found[file.stem] = known[0]
        return found

    def forget(self, flow_run: str) -> None:
        """Remove the file of a process that is dead."""
        if self.lives(flow_run) is False:
            with contextlib.suppress(OSError):
                _file(self.folder, flow_run).unlink()

    def dead(self) -> list[str]:
        """Flow runs whose process ended without removing its file."""
        return [file.stem for file in sorted(self.folder.glob("*.json")) if self.lives(file.stem) is False]


def _file(folder: Path, flow_run: str) -> Path:
    return folder / f"{flow_run}.json"
