"""Pointers to a model version. Each is one small file, replaced as a whole, that also holds the history of its changes.

    champion = Pointer(store, folder, "champion")
    champion.history()                        # oldest first; [] when it never pointed anywhere
    champion.number()                         # 3; None when it points nowhere
    champion.move(events, event)              # adds a change to the history `events`: one atomic write

The champion is a pointer, and so is every alias (`stable`, `shadow`, ...): models/<name>/<pointer>.json. Whoever moves one
holds the model's lock.
"""

import getpass
import json
import os
import re
from pathlib import Path
from typing import Any

from headway.config import Frozen
from headway.errors import ConfigError, Overtaken, StoreError
from headway.messages import short
from headway.storage.manifest import FORMAT, check_format
from headway.storage.process_identity import host_name
from headway.storage.store import Store

CHAMPION, PREVIOUS = "champion", "previous"
RESERVED = (CHAMPION, PREVIOUS, "latest")
NOBODY = 0
"""The value of the argument `against` if the pointer named no version when the caller decided."""
_ALIAS = re.compile(r"(?!v[0-9]+$)[a-z][a-z0-9_-]{0,39}")
"""A pattern for the names of aliases; v2 would be taken for version 2."""


class Event(Frozen):
    """One change of a pointer."""

    time: str
    kind: str
    """The kind of change: promote or rollback; for an alias, alias or remove."""
    version: int
    """The version that the pointer names from then on; for a removal, the version that it named."""
    previous: int | None
    serving: int | None = None
    """The number of the champion's serving copy, serving/<name>/<number>/; None for an alias."""
    reason: str
    by: str = ""
    """The author of the change, as user@host."""
    run: str | None = None
    """The run that decided the change; None when a person did."""
    basis: str | None = None
    """The reason why the gate promoted the version: first model, better, newer data, or forced; None: a person chose
    it."""
    anchor: bool = True
    """Whether the version becomes the anchor, with which the gate also compares candidates with newer data."""

    def says(self) -> str:
        """Returns the time, the author and the run of the change as text: "on 2026-11-23 04:14 UTC by me@host"."""
        run = f", run {self.run}" if self.run else ""
        return f"on {self.time[:16].replace('T', ' ')} UTC by {self.by or 'somebody'}{run}"


class Pointer:
    """A pointer to one version of a model: the champion, or an alias."""

    def __init__(self, store: Store, folder: Path, name: str):
        self.store, self.name, self.path = store, name, folder / f"{name}.json"
        self._key = self.path.relative_to(store.root).as_posix()

    def history(self) -> list[Event]:
        """Returns every change, oldest first.

        Raises:
            StoreError: the pointer's file is damaged.
        """
        return self._look()[0]

    def _look(self) -> tuple[list[Event], str | None]:
        """Returns every change, and the tag that identifies the file's content; [] and None when there is no file."""
        stored = self.store.objects.look(self._key)
        if stored is None:
            return [], None
        try:
            value = json.loads(stored.data)
            check_format(value, str(self.path))
            return [Event.model_validate(event) for event in value["history"]], stored.tag
        except (ValueError, KeyError, TypeError):
            fix = "restore it from a backup; the versions beside it are whole"
            if self.name != CHAMPION:
                fix = f"restore it from a backup, or delete it and set it again: headway promote --alias {self.name} --to VERSION"
            raise StoreError("is damaged", where=str(self.path), fix=fix) from None

    def number(self) -> int | None:
        """Returns the number of the version that the pointer names; None when it names none."""
        return _points_at(self.history())

    def raise_if_moved(self, events: list[Event], against: int | None, what: str, fix: str) -> None:
        """Raise Overtaken if the pointer names another version than when the caller made a decision.

        Args:
            events: the pointer's history now.
            against: the version that the pointer named at the decision, `NOBODY` for none; None: no check.
            what: what the caller decided, for the message: "version 4 was compared with version 3".

        Raises:
            Overtaken: somebody moved the pointer meanwhile; the error says who, and when.
        """
        found = _points_at(events) or NOBODY
        if against is None or found == against:
            return
        last = events[-1] if events else None
        change = (
            f"version {found} became the champion"
            if self.name == CHAMPION
            else f"{self.name} was moved to version {found}"
        )
        change = change if found else f"{self.name} was removed"
        who = f" {last.says()}: {short(last.reason, 120)}" if last else ""
        raise Overtaken(f"{what}, but {change}{who}", where=str(self.path), fix=fix)

    def move(self, events: list[Event], event: Event) -> None:
        """Append `event` to the history `events`, and point at the event's version, in one atomic write.

        Raises:
            Overtaken: `events` is not the pointer's history any more.
        """
        pointer: dict[str, Any] = {"format": FORMAT, "version": None if event.kind == "remove" else event.version}
        pointer |= {} if event.serving is None else {"serving": event.serving}
        pointer["history"] = [e.model_dump(mode="json") for e in [*events, event]]
        data = (json.dumps(pointer, indent=1) + "\n").encode()
        now, tag = self._look()
        objects = self.store.objects
        made = now == events and (
            objects.create(self._key, data) if tag is None else objects.replace(self._key, data, tag)
        )
        if not made:
            raise Overtaken("was moved by another process meanwhile", where=str(self.path), fix="try again")
        self.store.refresh()


def anchor_of(events: list[Event]) -> int | None:
    """Returns the anchor: the version of the last event whose `anchor` is true; None before the first promotion."""
    return next((event.version for event in reversed(events) if event.anchor), None)


def _points_at(events: list[Event]) -> int | None:
    return events[-1].version if events and events[-1].kind != "remove" else None


def check_alias(name: str) -> None:
    """Raise ConfigError unless `name` is allowed as the name of an alias."""
    if name in RESERVED:
        raise ConfigError(
            f"Headway itself uses the name {name!r}", where="--alias", fix="choose another: stable, shadow"
        )
    if not _ALIAS.fullmatch(name):
        fix = "a letter, then letters, digits, - and _, forty at most, all lower case: stable, shadow, eu-west; not v2, which "
        fix += "reads like a version"
        raise ConfigError(f"{name!r} is not a name for an alias", where="--alias", fix=fix)


def aliases(store: Store, folder: Path) -> list[str]:
    """Returns the names of all aliases of the model in `folder`, also of removed ones, sorted."""
    names = (name.removesuffix(".json") for name in store.children(folder) if name.endswith(".json"))
    return [name for name in names if is_alias(name)]


def is_alias(name: str) -> bool:
    """Returns whether `name` is allowed as the name of an alias, whether or not such an alias exists."""
    return name not in RESERVED and _ALIAS.fullmatch(name) is not None


def user_and_host() -> str:
    """Returns the user and the host of this process, as the author of a change: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = str(os.getuid())
    return f"{user}@{host_name()}"
