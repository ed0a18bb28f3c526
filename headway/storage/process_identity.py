"""Identifies the process that owns a lock, an unfinished folder or a flow run, and tells whether it is alive.

    process_name(4711)                        # "laptop@4711.88213.6f1d0c2e"
    name = mark("ingest-3f2a")                # "ingest-3f2a@laptop@4711.88213.6f1d0c2e@9c01d2ee"
    abandoned(folder / name)                  # False while this process lives

A pid alone is not enough: pids are used again, a killed child stays as a zombie until it is waited for, and containers
and machines that share a host's name do not share its pids.
"""

from __future__ import annotations

import functools
import os
import socket
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FOREIGN_SECONDS = 24 * 3600
"""The seconds without a change after which a folder of another host counts as abandoned."""
_FIRST_NAMESPACE = "pid:[4026531836]"
"""Linux's name for the process ids of the machine itself, outside of any container."""


@functools.cache
def _namespace() -> str:
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
    return "" if namespace == _FIRST_NAMESPACE else "+" + namespace.strip("pid:[]")


def place() -> str:
    """Returns the host, and the container if there is one, in which this process's pid is valid."""
    return socket.gethostname() + _namespace()


@functools.cache
def boot() -> str:
    """Returns the kernel's name for this run of the machine, which tells two machines with one host name apart; "" when
    there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def here(owner: Mapping[str, Any]) -> bool:
    """Returns whether the process of a claim, {"host", "boot"}, belongs to this place."""
    return owner.get("host") == place() and owner.get("boot") == boot()


def started(pid: int) -> str:
    """Returns the start of a process of this place in the kernel's clock ticks; "" when it is dead or that is unknown.

    Pid and beginning together name a process once and for all.
    """
    state, began = _state(pid)
    return "" if state in ("Z", "X") else began


def _state(pid: int) -> tuple[str, str]:
    """Returns the state letter and the start time of a process, both "" where there is no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "", ""
    # the name in parentheses may itself hold spaces and parentheses
    fields = text.rpartition(")")[2].split()
    return fields[0], fields[19]


def alive(pid: int, began: str = "") -> bool:
    """Returns whether the process of this place with this pid, and this start if it is known, lives."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # it lives, and belongs to somebody else
    state, now = _state(pid)
    return state not in ("Z", "X") and (not began or not now or began == now)


def process_name(pid: int) -> str:
    """Returns a name of a process of this place that no other one has had or will have:
    "laptop@4711.88213.6f1d0c2e"."""
    return f"{place()}@{pid}.{started(pid)}.{boot()[:8]}"


def lives(name: str) -> bool | None:
    """Returns whether the process of such a name lives; None where this place cannot tell."""
    where, _, process = name.rpartition("@")
    pid, began, booted = [*process.split("."), "", ""][:3]
    if where != place() or booted not in ("", boot()[:8]):
        return None
    return pid.isdigit() and alive(int(pid), began)


def mark(label: str) -> str:
    """Returns a new name for a folder that this process writes."""
    return f"{label}@{process_name(os.getpid())}@{uuid.uuid4().hex[:8]}"


def abandoned(path: Path) -> bool:
    """Returns whether the writer of a folder named by `mark` is dead; for another host's writer, whether the folder is
    a day old."""
    parts = path.name.split("@")
    if len(parts) == 4 and (known := lives("@".join(parts[1:3]))) is not None:
        return not known
    try:
        changed = max(p.lstat().st_mtime for p in [path, *path.rglob("*")])
    except OSError:  # being written, or removed, right now
        return False
    return time.time() - changed > _FOREIGN_SECONDS
