"""Machines of a cluster on this one: each has a network and a file system of its own, in namespaces, which takes root.

    with Network(hidden=[folder]) as network:             # network.address: this machine, as the others reach it
        machine = network.machine(keep=[site], env={})    # machine.address
        process = machine.start(["python", "-m", ...], log)
        process.kill()                                    # and all that it started

A machine sees an empty folder in place of each hidden one, but for what it keeps, which it cannot write to. It keeps this
Python's environment.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

TOOLS = ("ip", "nsenter", "unshare", "mount", "setpriv")
_ASIDE = "/mnt"
"""Where a machine keeps folders while those around them are hidden."""
_SEPARATE = """
set -e
mount -t tmpfs tmpfs {aside}
number=0
for path in $KEPT; do
  number=$((number + 1)); mkdir {aside}/$number; mount --bind "$path" {aside}/$number
done
for path in $HIDDEN; do if [ -d "$path" ]; then mount -t tmpfs tmpfs "$path"; fi; done
number=0
for path in $KEPT; do
  number=$((number + 1)); mkdir -p "$path"; mount --bind {aside}/$number "$path"; mount -o remount,bind,ro "$path"
done
umount -l {aside}
cd /
exec "$@"
""".replace("{aside}", _ASIDE)


class NoMachines(Exception):
    """Namespaces cannot be made here."""


class Network:
    """A bridge, and the machines at it; see the module.

    Args:
        hidden: folders that no machine sees; this machine's temporary files are hidden as well.

    Raises:
        NoMachines: the tools are missing, or this user may not.
    """

    def __init__(self, hidden: Sequence[Path] = ()):
        self._hidden = [Path(tempfile.gettempdir()), *hidden]
        self._name = f"hw{os.getpid() % 1_000_000}"
        self._machines = itertools.count(2)
        self._ends = contextlib.ExitStack()

    def __enter__(self) -> Network:
        if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
            raise NoMachines(f"there is no {missing[0]}")
        with contextlib.ExitStack() as ends:
            _ip("link", "add", self._name, "type", "bridge")
            ends.callback(_ip, "link", "del", self._name)
            self._subnet = next(_free_subnets())
            self.address = f"{self._subnet}.1"
            _ip("addr", "add", f"{self.address}/24", "dev", self._name)
            _ip("link", "set", self._name, "up")
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ends.close()

    def machine(self, keep: Sequence[Path], env: Mapping[str, str]) -> Machine:
        """Another machine.

        Args:
            keep: folders that it sees although they lie in hidden ones.
            env: besides this process's environment.
        """
        number = next(self._machines)
        name, end = f"{self._name}-{number}", f"{self._name}v{number}"
        _ip("netns", "add", name)
        self._ends.callback(_ip, "netns", "del", name)
        _ip("link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", end, "master", self._name, "up")
        _ip("-n", name, "addr", "add", f"{self._subnet}.{number}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", name, "link", "set", device, "up")
        machine = Machine(name, f"{self._subnet}.{number}", self._hidden, [Path(sys.prefix), *keep], env)
        self._ends.callback(machine.stop)
        return machine


class Machine:
    """Starts processes in the namespaces of one machine."""

    def __init__(self, name: str, address: str, hidden: Sequence[Path], kept: Sequence[Path], env: Mapping[str, str]):
        self.address = address
        # what a process started ends with it, as it is the first one of its namespace
        self._command = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/run/netns/{name}", "unshare", "--mount"]
        self._command += ["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", _SEPARATE, "sh"]
        folders = {"KEPT": kept, "HIDDEN": hidden}
        self._env = os.environ | {"HOME": tempfile.gettempdir()} | dict(env)
        self._env |= {what: " ".join(map(str, paths)) for what, paths in folders.items()}
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, command: Sequence[object], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            line = [*self._command, *map(str, command)]
            process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self._env)
        self._started.append(process)
        return process

    def stop(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoMachines(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _free_subnets() -> Iterator[str]:
    taken = _ip("-brief", "address")
    for number in range(os.getpid() % 200, 256):
        if f"10.211.{number}." not in taken:
            yield f"10.211.{number}"
    raise NoMachines("no addresses are free")
