"""Identifies the process that owns a lock, an unfinished folder or a flow run, and tells whether it is alive.

    process_name(4711)                        # "laptop@4711.88213.6f1d0c2e"
    name = temporary_name("ingest-3f2a")      # "ingest-3f2a@laptop@4711.88213.6f1d0c2e@9c01d2ee"
    is_abandoned(folder / name)               # False while this process lives

A pid alone is not enough. Pids are used again. A killed child stays as a zombie until its parent waits for it. Containers and
machines may share a host's name, but they do not share its pids.
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
"""Linux's name for the pid namespace of the machine itself, outside of any container."""


@functools.cache
def _namespace() -> str:
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
    return "" if namespace == _FIRST_NAMESPACE else "+" + namespace.strip("pid:[]")


def host_name() -> str:
    """Returns the host's name; in a container, followed by its pid namespace, since pids are valid within one namespace."""
    return socket.gethostname() + _namespace()


@functools.cache
def boot_id() -> str:
    """Returns the kernel's random id of this boot of the machine; "" when there is none. It tells two machines with the same
    host name apart."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def is_on_this_host(owner: Mapping[str, Any]) -> bool:
    """Returns whether a lock's holder, a dict with "host" and "boot", belongs to this host (and container) and this boot."""
    return owner.get("host") == host_name() and owner.get("boot") == boot_id()


def start_time(pid: int) -> str:
    """Returns the start time of a process on this host, in the kernel's clock ticks as text; "" when it is dead or unknown.

    Pid and start time together identify a process: the kernel may give the pid to another one later.
    """
    state, began = _state(pid)
    return "" if state in ("Z", "X") else began


def _state(pid: int) -> tuple[str, str]:
    """Returns the state letter and the start time of a process; both are "" without such a process, or without /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "", ""
    # the name in parentheses may itself hold spaces and parentheses
    fields = text.rpartition(")")[2].split()
    return fields[0], fields[19]


def is_alive(pid: int, began: str = "") -> bool:
    """Returns whether a process with this pid is alive on this host. Its start time, if known, must be `began` (if given)."""
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
    """Returns the unique name of a process of this host, from host, pid, start time and boot:
    "laptop@4711.88213.6f1d0c2e"."""
    return f"{host_name()}@{pid}.{start_time(pid)}.{boot_id()[:8]}"


def is_alive_by_name(name: str) -> bool | None:
    """Returns whether the process with this `process_name` is alive; None (unknown) if its host or boot is another one."""
    where, _, process = name.rpartition("@")
    pid, began, booted = [*process.split("."), "", ""][:3]
    if where != host_name() or booted not in ("", boot_id()[:8]):
        return None
    return pid.isdigit() and is_alive(int(pid), began)


def temporary_name(label: str) -> str:
    """Returns a new unique name for a temporary file or folder: `label`, then the name of this process, its writer."""
    return f"{label}@{process_name(os.getpid())}@{uuid.uuid4().hex[:8]}"


def is_abandoned(path: Path) -> bool:
    """Returns whether a folder named by `temporary_name` has lost its writer, since that process is dead. If the process
    belongs to another host or boot, returns whether the folder has not changed for a day."""
    parts = path.name.split("@")
    if len(parts) == 4 and (known := is_alive_by_name("@".join(parts[1:3]))) is not None:
        return not known
    try:
        changed = max(p.lstat().st_mtime for p in [path, *path.rglob("*")])
    except OSError:  # being written, or removed, right now
        return False
    return time.time() - changed > _FOREIGN_SECONDS
