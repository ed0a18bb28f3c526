"""Leases: a process that reads paths of a store registers them, so that garbage collection leaves these paths alone.

    with lease(store, ["stages"], {"command": "run"}):           # any number of holders at a time
        ...
    with leased_version(registry, "champion", "predict") as version:  # nobody removes the version meanwhile
        load(version.saved_model)

A lease is a lock with a unique name, locks/use-<token>.json, that lists paths of the store. It is renewed while its holder
lives, and is ignored once the holder is dead. A remover lists in its own lock's file what it will remove (`Remover`). A reader
first writes its lease, and then looks at that list. A remover first writes the list, and then looks at the leases. So at least
one of the two sees the other, on a disk and in a bucket. The remover skips paths that a lease names. A reader that came second
waits until the list lacks its paths, or the remover is done.
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
"""How often `leased_version` tries, since the version may be removed and the pointer moved before the lease is written."""


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
        facts: entries of the lease that describe its holder to others, such as the command.

    Raises:
        Locked: some of the paths are still being removed after `wait_seconds`.
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
    """Yields the version that `name` names (a number, champion, previous, an alias), after a check of all its bytes. Holds a
    lease on the version until the block ends.

    Args:
        note: called with a message if the lease cannot be written, so that nobody knows of this reader.

    Raises:
        StoreError, ConfigError: as `Registry.named`; also if a byte of the version has changed, or it is being removed (Locked).
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
        """Returns the facts about each living holder of a lease on anything in `paths`. Deletes the leases of dead holders."""
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
        """Announce the removal of `always` and `paths`. Returns those of `paths` on which nobody holds a lease.

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
    """Returns whether a path of one list equals, lies in, or contains a path of the other list."""
    mine, theirs = [tuple(path.split("/")) for path in some], [tuple(path.split("/")) for path in others]
    return any(a[: len(b)] == b[: len(a)] for a in mine for b in theirs)
