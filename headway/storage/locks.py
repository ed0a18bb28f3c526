"""A lock with a lease: one process holds it, and it is free when that process dies.

    with Lock(store.locks / "run-flights.json", facts={"run": "..."}).held(wait_seconds=30):
        ...

The lock is a small JSON file that says who holds it; the holder renews it from a thread. It is taken over when its
holder is dead (on this host) or has not renewed it for the length of the lease, by the store's clock, whatever the clocks of
the machines say. Every look-and-change happens under an
flock of a file beside it, which the kernel drops with the process: of several takers of a stale lock one wins, and a
holder that slept through its lease cannot renew what is no longer its own.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headway.errors import Locked, StoreError
from headway.messages import now
from headway.storage.atomic_io import replace_text, writing
from headway.storage.clock import disk_time
from headway.storage.process_identity import alive, place, started

LEASE_SECONDS = 60.0
_POLL_SECONDS = 0.2
_KNOWN = ("token", "held", "host", "pid", "process_started", "since", "renewed", "expires", "uses", "removing")


class Lock:
    """One lock, held by one process at a time.

    Args:
        path: the lock's file; its folder is made when it is taken.
        lease_seconds: how long after its last sign of life a holder on another host counts as gone.
        facts: what else its file says of the holder, such as the run.
        once: the name is this holder's alone, so that nobody has to be kept from taking it.
    """

    def __init__(
        self,
        path: Path,
        *,
        lease_seconds: float = LEASE_SECONDS,
        facts: dict[str, Any] | None = None,
        once: bool = False,
    ):
        self.path, self._lease, self._facts, self._once = path, lease_seconds, facts or {}, once
        self._token = uuid.uuid4().hex
        self._since, self._expires = "", 0.0
        self._stop, self._lost = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def held(self, *, wait_seconds: float = 0.0, on_wait: Callable[[str], None] = lambda who: None) -> Iterator[None]:
        """Hold the lock within the block; `on_wait` is called once with the current holder.

        Raises:
            Locked: somebody else still has it after `wait_seconds`; says who, where and since when.
        """
        self.acquire(wait_seconds=wait_seconds, on_wait=on_wait)
        try:
            yield
        finally:
            self.release()

    def acquire(self, *, wait_seconds: float = 0.0, on_wait: Callable[[str], None] = lambda who: None) -> None:
        """Take the lock as `held` does, until `release`."""
        fix = "wait for it (--wait SECONDS), or end that process; its lock is then taken over"
        wait_while(self._take, str(self.path), lambda owner: fix, wait_seconds=wait_seconds, on_wait=on_wait)
        self._stop.clear()
        self._lost.clear()
        self._thread = threading.Thread(target=self._renew, name=f"lease-{self.path.stem}", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Release the lock; nothing happens when it is not held, or no longer."""
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        self._thread = None
        self._give_up()

    def _give_up(self) -> None:
        with contextlib.suppress(OSError, StoreError), self._guard():  # else the lease or our death frees it
            if (owner := self.owner()) is not None and owner.get("token") == self._token:
                self.path.unlink(missing_ok=True)

    def forget(self) -> None:
        """Remove what a holder that is gone left of a name that is not taken again."""
        self.path.unlink(missing_ok=True)

    def say(self, **facts: Any) -> None:
        """Have its file say more of the holder; every look from then on sees it.

        Raises:
            Locked: somebody took the lock over.
        """
        with self._guard():
            self._facts = self._facts | facts
            if (self.owner() or {}).get("token") != self._token:
                self._lost.set()
            else:
                self._write()
        self.check()

    def check(self) -> None:
        """Raise Locked when another process took the lock over, as it may when this one paused longer than the lease."""
        if self._thread is not None and not self._lost.is_set() and self.time() > self._expires:
            with contextlib.suppress(
                OSError, StoreError
            ):  # the next beat of the thread may be a quarter of a lease away
                self._beat()
        if self._lost.is_set():
            who = describe(self.owner() or {})
            raise Locked(
                f"was taken over by {who}: this process paused longer than the {self._lease:g} s lease",
                where=str(self.path),
            )

    def time(self) -> float:
        """Seconds since 1970 by the store's clock, in which leases end."""
        return disk_time(self.path.parent)

    def owner(self) -> dict[str, Any] | None:
        """The process that holds, or last held, the lock, from its file; None when there is none."""
        try:
            value = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError:
            value = None
        return value if isinstance(value, dict) else {}

    def holder(self) -> dict[str, Any] | None:
        """The process that holds the lock now; None when there is none, or it is gone."""
        owner = self.owner()
        return None if owner is None or gone(owner, self.time()) else owner

    def _take(self) -> dict[str, Any] | None:
        """Try to take the lock: None on success, else its holder."""
        with self._guard():
            if (owner := self.holder()) is not None:
                return owner
            self._since = now()
            self._write()
            return None

    def _write(self) -> None:
        expires = self.time() + self._lease
        replace_text(self.path, self._claim_text(expires=expires))
        self._expires = expires

    def _claim_text(self, *, expires: float, **fields: Any) -> str:
        """The text of the lock's file: the holder, since when, and when the lease expires."""
        facts = {
            "token": self._token,
            "host": place(),
            "pid": os.getpid(),
            "process_started": started(os.getpid()),
            "since": self._since,
            "renewed": now(),
            "expires": expires,
        }
        return json.dumps(self._facts | facts | fields, indent=1) + "\n"

    def _renew(self) -> None:
        while not self._stop.wait(self._lease / 4):
            # a disk that is full for a moment costs one of the beats that a lease has
            with contextlib.suppress(OSError, StoreError):
                self._beat()
            if self._lost.is_set():
                return

    def _beat(self) -> None:
        """Renew the lease, or find that somebody else has the lock."""
        with self._guard():
            owner = self.owner()
            if owner is not None and owner.get("token") != self._token:
                self._lost.set()
            else:
                self._write()

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        if self._once:
            yield
            return
        guard = self.path.with_name(f".{self.path.name}.guard")
        with writing(self.path.parent):
            guard.parent.mkdir(parents=True, exist_ok=True)
            # never removed: two processes could hold an flock of two files of one name
            handle = os.open(guard, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
                    raise
                problem = "this file system has no locks"
                raise StoreError(problem, where=str(guard), fix="put the store on a local disk") from None
            yield
        finally:
            os.close(handle)


def wait_while(
    holder: Callable[[], dict[str, Any] | None],
    where: str,
    fix: Callable[[dict[str, Any]], str],
    *,
    wait_seconds: float,
    on_wait: Callable[[str], None],
) -> None:
    """Wait until there is no holder; `on_wait` is called once with the holder.

    Raises:
        Locked: somebody still is after `wait_seconds`.
    """
    deadline, announced = time.monotonic() + wait_seconds, False
    while (owner := holder()) is not None:
        if not announced:
            announced = True
            on_wait(describe(owner))
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise Locked(f"held by {describe(owner)}", where=where, fix=fix(owner))
        time.sleep(min(remaining, _POLL_SECONDS))


def gone(owner: dict[str, Any], time: float) -> bool:
    """Whether a holder is dead or silent for too long; also true for an unreadable claim.

    Args:
        time: of the store's clock (`Lock.time`).
    """
    pid, expires = owner.get("pid"), owner.get("expires")
    if not isinstance(pid, int) or not isinstance(expires, int | float):
        return True
    if owner.get("host") == place() and not alive(pid, str(owner.get("process_started", ""))):
        return True
    return time > expires


def lives(owner: dict[str, Any], time: float) -> bool:
    """Whether a holder may go on: as `not gone`, and a process of this host also while it stands still past its lease."""
    return not gone(owner, time) or (
        owner.get("host") == place() and alive(owner.get("pid", 0), str(owner.get("process_started", "")))
    )


def describe(owner: dict[str, Any]) -> str:
    """The text of a holder: process, host, facts, since when, last heard of."""
    extra = ", ".join(f"{name} {value}" for name, value in owner.items() if name not in _KNOWN)
    who = f"process {owner.get('pid', '?')} on {owner.get('host', '?')}{f' ({extra})' if extra else ''}"
    return f"{who} since {owner.get('since', '?')}, last heard of {owner.get('renewed', '?')}"
