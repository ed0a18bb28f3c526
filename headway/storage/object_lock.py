"""A lock with a lease in a bucket, built without conditional puts.

Whoever wants the lock puts a claim of its own, locks/<name>.json/<token>, and then lists all claims: alone among the
living, it holds the lock; else it takes its claim back and tries again later. Of two takers the one whose put ended later
sees the other, since S3 and Cloud Storage list what has been put; so never both hold it. A holder renews its claim from
a thread, and a claim not renewed for its lease counts for nothing.

Leases end by the bucket's clock, so those of the machines may differ. What the lock rests on: a put takes less than the lease. A
holder that stood still for longer finds its claim gone or late, renews it no more, and `check` raises.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headway.errors import StoreError
from headway.messages import now
from headway.storage.locks import LEASE_SECONDS, Lock, gone
from headway.storage.object_store import Bucket

_DUELS = 8
"""How often one that met another asker, neither holding the lock, asks again before it gives way."""


class BucketLock(Lock):
    """A lock in a bucket; used as `Lock` is.

    Args:
        path: its name as a path of the store's working copy: locks/<name>.json.
        on_taken: called when the lock was taken: what was known of the bucket may be old.
    """

    def __init__(
        self,
        bucket: Bucket,
        path: Path,
        *,
        lease_seconds: float = LEASE_SECONDS,
        facts: dict[str, Any] | None = None,
        once: bool = False,
        on_taken: Callable[[], None] = lambda: None,
    ):
        super().__init__(path, lease_seconds=lease_seconds, facts=facts, once=once)
        self._putting = threading.Lock()
        self._bucket, self._on_taken = bucket, on_taken
        self._folder = f"locks/{path.name}"

    def time(self) -> float:
        return self._bucket.time()

    def owner(self) -> dict[str, Any] | None:
        """The process that holds, asks for, or last held the lock; None when there is none."""
        claims = self._claims()
        if not claims:
            return None
        time = self.time()
        return max(claims.values(), key=lambda c: (not gone(c, time), bool(c.get("held")), str(c.get("since", ""))))

    def _claims(self) -> dict[str, dict[str, Any]]:
        """Every claim by its key."""
        claims = {}
        for key in self._bucket.listing(self._folder):
            data = self._bucket.read(key)
            if data is None:
                continue
            try:
                value = json.loads(data)
            except ValueError:
                value = None
            claims[key] = value if isinstance(value, dict) else {}
        return claims

    @property
    def _claim(self) -> str:
        return f"{self._folder}/{self._token}"

    def _others(self) -> list[dict[str, Any]]:
        """The other processes' living claims, holders first; dead ones are deleted."""
        claims = {key: claim for key, claim in self._claims().items() if key != self._claim}
        time = self.time()
        self._bucket.delete([key for key, claim in claims.items() if gone(claim, time)])
        return sorted((claim for claim in claims.values() if not gone(claim, time)), key=lambda c: not c.get("held"))

    def forget(self) -> None:
        self._bucket.delete(self._bucket.listing(self._folder))

    def check(self) -> None:
        if self._thread is not None and self.time() > self._expires:
            self._lost.set()
        super().check()

    def say(self, **facts: Any) -> None:
        with self._putting:
            self._facts = self._facts | facts
        if self.time() > self._expires or self._bucket.read(self._claim) is None:
            self._lost.set()
        else:
            self._put(held=True)
        self.check()

    def _take(self) -> dict[str, Any] | None:
        if self._once:  # nobody else asks for it
            self._since = now()
            self._put(held=True)
            self._on_taken()
            return None
        others = self._others()
        for _ in range(_DUELS):
            if others and others[0].get("held"):
                return others[0]
            self._since = now()
            self._put(held=False)
            others = self._others()
            if not others and self.time() < self._expires:
                self._put(held=True)
                self._on_taken()
                return None
            self._bucket.delete([self._claim])
            time.sleep(random.uniform(0.05, 0.5))
            others = self._others()
        return others[0] if others else {"since": self._since}

    def _put(self, *, held: bool) -> None:
        with self._putting:  # what the renewing thread puts must not be older than what was said
            expires = self.time() + self._lease
            self._bucket.write(self._claim, self._claim_text(held=held, expires=expires).encode())
            self._expires = expires

    def _renew(self) -> None:
        while not self._stop.wait(self._lease / 4):
            # a bucket that is away for a moment costs one of the beats that a lease has
            with contextlib.suppress(StoreError, OSError):
                if self.time() > self._expires or self._bucket.read(self._claim) is None:
                    self._lost.set()
                    return
                self._put(held=True)

    def _give_up(self) -> None:
        with contextlib.suppress(StoreError, OSError):  # else the lease frees it
            self._bucket.delete([self._claim])
