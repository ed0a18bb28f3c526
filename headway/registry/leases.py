"""Leases: a reader of something in a store registers it, so that garbage collection leaves it alone.

    with lease(store, ["stages"], {"command": "run"}):           # any number of holders at a time
        ...
    with leased_version(registry, "champion", "predict") as version:  # of a version: nobody removes it meanwhile
        load(version.saved_model)

A lease is a lock of a name of its own, locks/use-<token>.json, that lists paths of the store; it is renewed while its holder
lives, and counts for nothing once the holder is dead. Who removes says in its lock's file what (`Remover`). A reader first
writes its lease and then looks at what is being removed; a remover first writes what it will remove and then looks at the
leases. So of the two at least one sees the other, on a disk and in a bucket: the remover passes over what a lease names, and
a reader that came second waits until the remover says that it was passed over, or is done.
"""

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from headway.errors import Locked, StoreError
from headway.registry.registry import Registry
from headway.registry.versions import Version
from headway.storage.locks import Lock, is_held, wait_while
from headway.storage.store import Store

REMOVER = "gc"
"""The name of the lock that a process holds while it removes something from a store."""
WAIT_SECONDS = 60.0
_LEASE = "use-"
_MOVED = 5
"""The number of tries of `leased_version` while the pointer moves on and the version that it named is removed."""


@contextlib.contextmanager
def lease(
    store: Store,
    paths: Sequence[str],
    facts: dict[str, Any],
    *,
    wait_seconds: float = WAIT_SECONDS,
    on_wait: Callable[[str], None] = lambda who: None,
) -> Iterator[Lock]:
    """Hold `paths` of the store (folders or files, relative to it), so that nothing in them is removed meanwhile.

    Args:
        facts: what the lease says of its holder, for others to read.

    Raises:
        Locked: some of them are being removed, still after `wait_seconds`.
    """
    held = store.lock(f"{_LEASE}{uuid.uuid4().hex[:12]}", facts | {"uses": list(paths)}, once=True)
    remover = store.lock(REMOVER)

    def removing() -> dict[str, Any] | None:
        owner = remover.owner()
        return (
            owner
            if owner is not None and is_held(owner, remover.store_time()) and overlap(paths, owner.get("removing", ()))
            else None
        )

    def fix(holder: dict[str, Any]) -> str:
        return f"wait until headway {holder.get('command', 'clean')} has ended"

    with held.held():
        wait_while(removing, remover.path, fix, wait_seconds=wait_seconds, on_wait=on_wait)
        yield held


@contextlib.contextmanager
def leased_version(
    registry: Registry, name: str, command: str, *, note: Callable[[str], None] = lambda text: None
) -> Iterator[Version]:
    """Check all bytes of the version that `name` names (a number, champion, previous, an alias), and hold a lease on it
    until the block ends.

    Args:
        note: called with a message if the lease cannot be written, so that nobody knows of this reader.

    Raises:
        StoreError, ConfigError: as `Registry.named`; a byte of the version has changed.
    """
    for attempt in range(_MOVED):
        number = registry.number(name)
        with contextlib.ExitStack() as stack:
            paths = [f"models/{registry.name}/{number}"]
            try:
                stack.enter_context(lease(registry.store, paths, {"command": command}))
            except Locked:
                raise
            except StoreError as error:  # who may read need not be allowed to write
                place = f"{error.where}: {error.problem}"
                note(f"headway clean does not know that version {number} is being read: {place}")
            try:
                version = registry.verified(number)
            except StoreError:
                # a pointer may have moved between our look and our lease, and what it left been removed
                if attempt + 1 == _MOVED or registry.number(name) == number:
                    raise
                continue
            yield version
            return


class Remover:
    """The holder of a store's removal lock: it announces what it will remove, and skips what a lease names."""

    def __init__(self, store: Store, lock: Lock):
        self.store, self.lock = store, lock

    def users(self, paths: Iterable[str]) -> list[dict[str, Any]]:
        """Returns the living holders of leases on anything in `paths`; deletes the leases of dead ones."""
        wanted, found = list(paths), []
        for name in self.store.children(self.store.locks):
            if not (name.startswith(_LEASE) and name.endswith(".json")):
                continue
            held = self.store.lock(Path(name).stem)
            owner = held.owner()
            if owner is not None and not is_held(owner, held.store_time()):
                held.forget()
            elif owner is not None and overlap(wanted, owner.get("uses", ())):
                found.append(owner)
        return found

    def claim(self, always: Sequence[str], paths: Iterable[str]) -> set[str]:
        """Announce the removal of `always` and `paths`; returns the part of `paths` that has no lease.

        Raises:
            Locked: the removal lock was lost, since this process paused for too long.
        """
        wanted = sorted(set(paths))
        self.lock.add_facts(removing=[*always, *wanted])
        used = [path for owner in self.users(wanted) for path in owner.get("uses", ())]
        free = [path for path in wanted if not overlap([path], used)]
        if len(free) < len(wanted):  # whoever waits for one of the others may go on
            self.lock.add_facts(removing=[*always, *free])
        return set(free)


def overlap(some: Iterable[str], others: Iterable[str]) -> bool:
    """Returns whether a path of one list is, lies in, or holds a path of the other."""
    mine, theirs = [tuple(path.split("/")) for path in some], [tuple(path.split("/")) for path in others]
    return any(a[: len(b)] == b[: len(a)] for a in mine for b in theirs)
