"""A lock with a lease: one process holds the lock, and the lock becomes free when that process dies.

    with Lock(store.objects, "locks/run-flights.json", facts={"run": "..."}).held(wait_seconds=30):
        ...

The lock is a small JSON object that names its holder, on a disk or in a bucket. A process takes the lock by creating that
object, or by replacing exactly the content that it read. So of several takers one wins, and a holder that slept through its
lease cannot renew a lock that another process has taken. A thread of the holder renews the lease.

A lock is taken over at once if its holder was a process of this machine and is dead. Else the lease must have ended by the
store's clock. The object must then stay unchanged for a third of the lease by the taker's own clock. A living holder would
renew the lease in that time. So a machine whose clock was set wrongly takes no lock from a living holder.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from headway.errors import Locked, StoreError
from headway.messages import now
from headway.storage.objects import ObjectData
from headway.storage.process_identity import boot_id, host_name, is_alive, is_on_this_host, start_time

if TYPE_CHECKING:
    from headway.storage.bucket import Bucket
    from headway.storage.objects import Folder

LEASE_SECONDS = 60.0
_POLL_SECONDS = 0.2
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that goes on while a laptop sleeps, and that nobody sets."""
_KNOWN = (
    *("token", "held", "host", "boot", "pid", "process_started", "since", "renewed", "expires", "lease"),
    *("beat", "uses", "removing"),
)


class Lock:
    """One lock, held by one process at a time.

    Args:
        key: the lock's object, locks/<name>.json.
        lease_seconds: how long after its last renewal a holder on another host counts as gone.
        facts: further entries of the lock's object that describe the holder, such as the run.
        once: nobody else ever takes a lock of this name, so `release` always deletes the object.
        on_taken: called after the lock was taken, to drop cached listings of the store that may be out of date.
    """

    def __init__(
        self,
        objects: Folder | Bucket,
        key: str,
        *,
        lease_seconds: float = LEASE_SECONDS,
        facts: dict[str, Any] | None = None,
        once: bool = False,
        on_taken: Callable[[], None] = lambda: None,
    ):
        self.objects, self.key, self.path = objects, key, objects.address(key)
        self._lease, self._facts, self._once, self._on_taken = lease_seconds, facts or {}, once, on_taken
        self._token = uuid.uuid4().hex
        self._since, self._tag, self._ends = "", "", 0.0
        self._writing = threading.Lock()
        self._stop, self._lost = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def held(self, *, wait_seconds: float = 0.0, on_wait: Callable[[str], None] = lambda who: None) -> Iterator[None]:
        """Hold the lock within the block. If that has to wait, `on_wait` is called once with a text about the present holder.

        Raises:
            Locked: another process still holds the lock after `wait_seconds`; the error says which, where and since when.
        """
        self.acquire(wait_seconds=wait_seconds, on_wait=on_wait)
        try:
            yield
        finally:
            self.release()

    def acquire(self, *, wait_seconds: float = 0.0, on_wait: Callable[[str], None] = lambda who: None) -> None:
        """Take the lock, and keep it until `release`. Waiting and errors are those of `held`."""
        fix = "wait for it (--wait SECONDS), or end that process; its lock is then taken over"
        wait_while(self._take, self.path, lambda owner: fix, wait_seconds=wait_seconds, on_wait=on_wait)
        self._on_taken()
        self._stop.clear()
        self._lost.clear()
        self._thread = threading.Thread(target=self._renew, name=f"lease-{self.key}", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Release the lock; does nothing when this process does not hold it, or has lost it."""
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        self._thread = None
        with contextlib.suppress(OSError, StoreError):  # else the lease or our death frees it
            # nobody took it who did not watch it for a third of the lease since our last beat: no delete has a condition
            if self._once or (not self._lost.is_set() and _steady() < self._ends - self._lease * 2 / 3):
                self.forget()
            else:
                self.objects.replace(self.key, b"{}", self._tag)

    def forget(self) -> None:
        """Delete the lock's object, whoever holds the lock. Call this only for a name that nobody will take again."""
        self.objects.delete([self.key])

    def add_facts(self, **facts: Any) -> None:
        """Add facts about the holder to the lock's object, for everybody who reads it.

        Raises:
            Locked: another process has taken over the lock.
        """
        with self._writing:
            self._facts = self._facts | facts
        self._beat()
        self.check()

    def check(self) -> None:
        """Raise Locked if another process has taken over the lock, because this process paused for longer than the lease."""
        if self._thread is not None and not self._lost.is_set() and _steady() > self._ends:
            # the next beat of the thread may be a quarter of a lease away
            with contextlib.suppress(OSError, StoreError):
                self._beat()
        if self._lost.is_set():
            who = describe(self.owner() or {})
            raise Locked(
                f"was taken over by {who}: this process paused longer than the {self._lease:g} s lease", where=self.path
            )

    def store_time(self) -> float:
        """Returns the present time by the store's clock, in seconds since 1970; leases end by this clock."""
        return self.objects.time()

    def owner(self) -> dict[str, Any] | None:
        """Returns the lock's object as a dict: facts about its holder, dead or alive. None when nobody holds the lock."""
        stored = self.objects.look(self.key)
        return None if stored is None or stored.data.strip() == b"{}" else _owner(stored)

    def _take(self) -> dict[str, Any] | None:
        """Try to take the lock. Returns None on success, else the facts about the present holder."""
        self._since = now()
        stored = self.objects.look(self.key)
        if stored is not None and not self._is_free(stored):
            return _owner(stored)
        with self._writing:
            ends, text = _steady() + self._lease, self._text()
            if stored is None:
                tag = self.objects.create(self.key, text)
            else:
                tag = self.objects.replace(self.key, text, stored.tag)
            if tag is not None:
                self._tag, self._ends = tag, ends
                return None
        return self.owner() or {"since": self._since}

    def _is_free(self, stored: ObjectData) -> bool:
        """Returns whether the holder is dead, or its lease has ended and is not renewed while this waits a third of a lease."""
        owner = _owner(stored)
        if not is_gone(owner, self.store_time()):
            return False
        if is_gone(owner, 0.0):  # whatever the time
            return True
        lease = owner.get("lease")
        ends = time.monotonic() + (lease if isinstance(lease, int | float) else LEASE_SECONDS) / 3
        while (remaining := ends - time.monotonic()) > 0:
            time.sleep(min(remaining, _POLL_SECONDS))
            if self.objects.look(self.key) != stored:
                return False
        return True

    def _text(self) -> bytes:
        """Returns new JSON for the lock's object: the holder, since when, and when the lease ends. No two results are equal."""
        facts = {
            "token": self._token,
            "host": host_name(),
            "boot": boot_id(),
            "pid": os.getpid(),
            "process_started": start_time(os.getpid()),
            "since": self._since,
            "renewed": now(),
            "expires": self.store_time() + self._lease,
            "lease": self._lease,
            "beat": uuid.uuid4().hex[:8],
        }
        return (json.dumps(self._facts | facts, indent=1) + "\n").encode()

    def _renew(self) -> None:
        while not self._stop.wait(self._lease / 4):
            # a disk that is full, or a bucket that is away, for a moment costs one of the beats that a lease has
            with contextlib.suppress(OSError, StoreError):
                self._beat()
            if self._lost.is_set():
                return

    def _beat(self) -> None:
        """Renew the lease, or record that another process has taken over the lock."""
        with self._writing:
            ends = _steady() + self._lease
            tag = self.objects.replace(self.key, self._text(), self._tag)
            if tag is None:
                self._lost.set()
            else:
                self._tag, self._ends = tag, ends


def wait_while(
    holder: Callable[[], dict[str, Any] | None],
    where: str,
    fix: Callable[[dict[str, Any]], str],
    *,
    wait_seconds: float,
    on_wait: Callable[[str], None],
) -> None:
    """Wait until a lock is free, when `holder()` returns None instead of facts. Calls `on_wait` once with the holder as text.

    Raises:
        Locked: the lock still has a holder after `wait_seconds`; the error shows `where` and the fix `fix(facts)`.
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


def is_gone(owner: dict[str, Any], time: float) -> bool:
    """Returns whether the lock's holder `owner` is dead, or its lease has ended at `time`, which is the store's time.

    Also True when the facts in `owner` are incomplete, as those of an unreadable lock.
    """
    pid, expires = owner.get("pid"), owner.get("expires")
    if not isinstance(pid, int) or not isinstance(expires, int | float):
        return True
    if is_on_this_host(owner) and not is_alive(pid, str(owner.get("process_started", ""))):
        return True
    return time > expires


def is_held(owner: dict[str, Any], time: float) -> bool:
    """Returns whether the lock's holder `owner` counts as alive: on this host while it lives, else until its lease ends."""
    return not is_gone(owner, time) or (
        is_on_this_host(owner) and is_alive(owner.get("pid", 0), str(owner.get("process_started", "")))
    )


def describe(owner: dict[str, Any]) -> str:
    """Returns a lock's holder as text: its process, host and facts, when it took the lock, and when it last renewed it."""
    extra = ", ".join(f"{name} {value}" for name, value in owner.items() if name not in _KNOWN)
    who = f"process {owner.get('pid', '?')} on {owner.get('host', '?')}{f' ({extra})' if extra else ''}"
    return f"{who} since {owner.get('since', '?')}, last heard of {owner.get('renewed', '?')}"


def _owner(stored: ObjectData) -> dict[str, Any]:
    try:
        value = json.loads(stored.data)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}


def _steady() -> float:
    return time.clock_gettime(_CLOCK)
