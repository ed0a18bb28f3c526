"""A lock with a lease: held by one process, given up when that process dies.

    with Lock(store.locks / "run-flights.json", facts={"run": "..."}).held(wait_seconds=30):
        ...

The holder refreshes its lease from a thread. A lock whose holder is dead on this host, or whose lease ran out, is taken
over: the file is renamed away first, and only one of several takers can do that.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headway.errors import Locked
from headway.manifest import write_synced
from headway.store import alive, now, replace_text

LEASE_SECONDS = 60.0
_POLL_SECONDS = 0.2


class Lock:
    def __init__(self, path: Path, *, lease_seconds: float = LEASE_SECONDS, facts: dict[str, Any] | None = None):
        self.path, self._lease, self._facts = path, lease_seconds, facts or {}
        self._token = uuid.uuid4().hex
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def held(self, *, wait_seconds: float = 0.0, on_wait: Callable[[str], None] = lambda who: None) -> Iterator[None]:
        """Hold the lock; `on_wait` hears once who has it.

        Raises:
            Locked: somebody else still has it after `wait_seconds`; says who, where and since when.
        """
        self.acquire(wait_seconds=wait_seconds, on_wait=on_wait)
        try:
            yield
        finally:
            self.release()

    def acquire(self, *, wait_seconds: float = 0.0, on_wait: Callable[[str], None] = lambda who: None) -> None:
        deadline, told = time.monotonic() + wait_seconds, False
        while not self._try():
            owner = self.owner()
            if owner is None or self._stale(owner):
                self._clear()
                continue
            if not told:
                told = True
                on_wait(describe(owner))
            if time.monotonic() >= deadline:
                raise Locked(
                    f"held by {describe(owner)}",
                    where=str(self.path),
                    fix="wait for it (--wait SECONDS), or end that process; its lock is then taken over",
                )
            time.sleep(_POLL_SECONDS)
        self._stop.clear()
        self._thread = threading.Thread(target=self._refresh, name=f"lease-{self.path.stem}", daemon=True)
        self._thread.start()

    def release(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if (owner := self.owner()) is not None and owner.get("token") == self._token:
            self.path.unlink(missing_ok=True)

    def owner(self) -> dict[str, Any] | None:
        """Who holds it, as its file says; None when nobody does."""
        try:
            return json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            return {"expires": 0.0}

    def _record(self) -> str:
        facts = {"token": self._token, "host": socket.gethostname(), "pid": os.getpid(), "renewed": now()}
        return json.dumps(facts | {"expires": time.time() + self._lease} | self._facts, indent=1) + "\n"

    def _try(self) -> bool:
        """Link a complete file into place: a lock file is never seen half-written."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        aside = self.path.with_name(f".{self.path.name}.{self._token}")
        write_synced(aside, self._record())
        try:
            os.link(aside, self.path)
            return True
        except FileExistsError:
            return False
        finally:
            aside.unlink(missing_ok=True)

    def _stale(self, owner: dict[str, Any]) -> bool:
        if owner.get("host") == socket.gethostname() and not alive(int(owner.get("pid", 0))):
            return True
        return time.time() > float(owner.get("expires", 0.0))

    def _clear(self) -> None:
        """Take a stale lock file away. Of several takers one wins the rename; a fresh file caught by it is put back."""
        aside = self.path.with_name(f".{self.path.name}.stale.{uuid.uuid4().hex}")
        try:
            self.path.rename(aside)
        except FileNotFoundError:
            return
        try:
            owner = json.loads(aside.read_text(encoding="utf-8"))
        except ValueError:
            owner = {}
        if owner and not self._stale(owner):
            with contextlib.suppress(FileExistsError):
                os.link(aside, self.path)
        aside.unlink(missing_ok=True)

    def _refresh(self) -> None:
        while not self._stop.wait(self._lease / 4):
            owner = self.owner()
            if owner is None or owner.get("token") != self._token:
                return  # taken over: a stop of longer than the lease
            replace_text(self.path, self._record())


def describe(owner: dict[str, Any]) -> str:
    extra = ", ".join(f"{k} {v}" for k, v in owner.items() if k not in ("token", "host", "pid", "renewed", "expires"))
    return f"process {owner.get('pid', '?')} on {owner.get('host', '?')}{f' ({extra})' if extra else ''}, last heard of {owner.get('renewed', '?')}"
