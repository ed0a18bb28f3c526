"""The model registry: numbered versions, and the pointers to them, which change atomically.

    registry = Registry(store, "flights")
    version = registry.publish(saved_model, facts={"run": "...", "train": fingerprint})
    registry.promote(version.number, reason="no worse than version 3", against=3)
    registry.rollback()                       # to the champion before the present one
    registry.set_alias("shadow", version.number)
    registry.named("shadow")                  # a version by number, champion, previous, or alias

Layout: models/<name>/<version>/ (immutable: version.json, saved_model/, manifest.json), models/<name>/champion.json and
<alias>.json (each one atomic pointer with its history), serving/<name>/<n>/ (what TensorFlow Serving watches).

A promotion has three steps. It prepares the serving copy in a temporary folder, the only step that takes time or space. It
moves the pointer, which is the promotion itself. It renames the copy into place. A process that dies before the second step has
promoted nothing, and serves nothing new. If it dies after that step, the pointer names a serving copy that is missing; `repair`
(or the same promotion again) puts the copy there. Were the copy served before the pointer moves, a model could be served that
no history knows of. A rollback because of that model would go back one version too far.

A caller that moves a pointer passes `against`, the version that the pointer named when the caller decided. Of two decisions at
once, the first wins. The second is refused (`Overtaken`), since the pointer now names another version.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headway.errors import ConfigError, StoreError
from headway.messages import now
from headway.registry.pointers import (
    CHAMPION,
    NOBODY,
    PREVIOUS,
    Event,
    Pointer,
    aliases,
    anchor_of,
    check_alias,
    is_alias,
    user_and_host,
)
from headway.registry.versions import LINEAGE, SAVED_MODEL, Version, Versions, numbered_children, temporary_folder
from headway.storage import manifest as manifests
from headway.storage.atomic_io import copy_tree, writing
from headway.storage.manifest import Manifest
from headway.storage.store import Store

__all__ = ["NOBODY", "Event", "Registry", "Version", "model_names"]


class Registry(Versions):
    """The versions of one model, and the pointers to them."""

    def __init__(self, store: Store, name: str):
        super().__init__(store, name)
        self.copies = ServingCopies(store, name)
        self.serving = self.copies.folder
        self._champion = self._pointer(CHAMPION)

    def history(self) -> list[Event]:
        """Returns every promotion and rollback, oldest first.

        Raises:
            StoreError: champion.json is damaged.
        """
        return self._champion.history()

    def lineage(self, version: Version) -> dict[str, Any]:
        """Returns what a version was made from (run, code, config, spans, shards, raw files), and the events that made
        it the champion.

        The first part is read from lineage.json in the version's folder, which outlives the run's record and outputs.

        Raises:
            StoreError: lineage.json is missing or damaged, or has another format; or champion.json is damaged.
        """
        path = version.path / LINEAGE
        try:
            self.store.localize([path])
            lineage = dict(json.loads(path.read_bytes()))
        except (ValueError, OSError):
            fix = "restore it from a backup of models/"
            raise StoreError("is missing or damaged", where=str(path), fix=fix) from None
        manifests.check_format(lineage, str(path))
        events = [event.model_dump(mode="json") for event in self.history() if event.version == version.number]
        return {"model": self.name, "version": version.number, "created": version.created, **lineage, "events": events}

    def champion(self) -> Version | None:
        """Returns the champion, the version in production; None before the first promotion.

        Raises:
            StoreError: the version or champion.json is damaged.
        """
        number = self._champion.number()
        return None if number is None else self.version(number)

    def anchor(self) -> int | None:
        """Returns the number of the anchor, often an older version, with which the gate also compares candidates with newer
        data. It was the last to be promoted as the first or a better model, or chosen by a person. None before any."""
        return anchor_of(self.history())

    def champion_or_nobody(self) -> int:
        """Returns the champion's number, or NOBODY (0) without a champion: the `against` of `promote` and `rollback`."""
        return self._champion.number() or NOBODY

    def previous(self) -> int | None:
        """Returns the number of the version to which a rollback would go back; None when there is no such version."""
        return next(self._before(self.history()), None)

    def _before(self, events: list[Event]) -> Iterator[int]:
        """Yields the numbers of earlier champions, latest first. Versions that were rolled back or removed are left out."""
        gone, current = self.rolled_back(), events[-1].version if events else None
        earlier = dict.fromkeys(e.version for e in reversed(events) if e.version != current)
        there = self._numbers()
        return (number for number in earlier if number not in gone and number in there)

    def rolled_back(self) -> dict[int, str]:
        """Returns, by version number, when and why a version was rolled back, unless it was the champion again since."""
        gone: dict[int, str] = {}
        for event in self.history():
            if event.kind == "rollback" and event.previous is not None:
                gone[event.previous] = f"on {event.time[:10]}: {event.reason}"
            gone.pop(event.version, None)
        return gone

    def aliases(self) -> dict[str, int]:
        """Returns the version number that each alias points at, by the alias's name. Removed aliases are left out.

        Raises:
            StoreError: an alias's file is damaged.
        """
        found = {name: self._pointer(name).number() for name in aliases(self.store, self.folder)}
        return {name: number for name, number in found.items() if number is not None}

    def alias(self, name: str) -> int | None:
        """Returns the version number of one alias; None when there is no such alias."""
        return self._pointer(name).number() if is_alias(name) else None

    def alias_history(self, name: str) -> list[Event]:
        """Returns every change of an alias, oldest first."""
        return self._pointer(name).history()

    def named(self, name: str) -> Version:
        """Returns the version that a number, `champion`, `previous` or an alias names.

        Raises:
            StoreError: there is no such version, or it is damaged.
            ConfigError: no alias has this name.
        """
        return self.version(self.number(name))

    def number(self, name: str) -> int:
        """Returns the number of the version that `name` names, without a check of that version. Otherwise raises as `named`."""
        if name.isdecimal():
            return int(name)
        if name == CHAMPION:
            number, fix = self._champion.number(), "headway run promotes one"
            problem = "there is no champion yet"
        elif name == PREVIOUS:
            number, fix = self.previous(), "headway models lists the versions"
            problem = "there is no champion before the present one"
        else:
            number = self.alias(name)
            if number is None:
                listed = ", ".join(f"{alias} (version {at})" for alias, at in self.aliases().items()) or "none"
                fix = f"name a version's number, champion, previous or an alias; aliases there are: {listed}"
                raise ConfigError(f"{name!r} names no version", where=str(self.folder), fix=fix)
        if number is None:
            raise self._refused(problem, fix)
        return number

    def promote(
        self,
        number: int,
        *,
        reason: str,
        run: str | None = None,
        basis: str | None = None,
        anchor: bool = True,
        force: bool = False,
        against: int | None = None,
    ) -> Event:
        """Make a version the champion and serve it. If it is the champion already, only ensure that it is served.

        Args:
            run, basis: the run that decided, and the gate's reason (`Event.basis`), for the history.
            anchor: whether this version becomes the anchor, with which candidates with newer data are also compared.
            force: allow a version that was rolled back.
            against: the champion with which the version was compared, `NOBODY` if there was none; None: no check.

        Raises:
            StoreError: the version does not exist, is damaged, or was rolled back.
            Overtaken: another champion than `against` is in production.
        """
        with self.lock():
            events = self.history()
            if events and events[-1].version == number:
                self.copies.repair(events[-1], self.verified)
                return events[-1]
            judged = f"against version {against}" if against else "when there was no champion"
            fix = (
                f"headway run compares with the champion of now, and headway promote --to {number} --force promotes "
                f"version {number} all the same"
            )
            self._champion.raise_if_moved(events, against, f"version {number} was to be promoted {judged}", fix)
            self._allow(number, force)
            return self._point(number, events, kind="promote", reason=reason, run=run, basis=basis, anchor=anchor)

    def rollback(
        self, to: int | None = None, *, reason: str = "asked for", force: bool = False, against: int | None = None
    ) -> Event:
        """Make an earlier version the champion again: `to`, or the latest earlier champion that was not rolled back or removed.

        Args:
            force: allow a version `to` that was itself rolled back.
            against: the champion that is to be replaced; None: whichever there is.

        Raises:
            StoreError: there is no earlier champion; or `to` never was champion, is so now, is damaged, or was rolled back.
            Overtaken: another champion than `against` is in production.
        """
        with self.lock():
            events = self.history()
            if not events:
                raise self._refused("there is no champion yet", "headway run promotes one")
            fix = "headway models shows what became of it; --force rolls back whatever is the champion now"
            self._champion.raise_if_moved(events, against, f"version {against} was to be rolled back", fix)
            current = events[-1].version
            earlier = [e.version for e in events if e.version != current]
            listed = ", ".join(str(number) for number in sorted(set(earlier))) or "none"
            if to is None:
                to = next(self._before(events), None)
                if to is None:
                    problem = f"there is no champion before version {current} to go back to"
                    raise self._refused(problem, f"name one (--to N); champions before it: {listed}")
            elif to == current:
                raise self._refused(f"version {to} is the champion already")
            elif to not in earlier:
                fix = f"headway promote makes it the champion; champions before this one: {listed}"
                raise self._refused(f"version {to} never was the champion", fix)
            self._allow(to, force)
            return self._point(to, events, kind="rollback", reason=reason)

    def set_alias(
        self, name: str, number: int, *, reason: str = "asked for", run: str | None = None, against: int | None = None
    ) -> Event:
        """Point an alias at a version; nothing changes if it points there already.

        Args:
            against: the version that the alias named when the caller decided, `NOBODY` for none; None: no check.

        Raises:
            ConfigError: the name is not allowed for an alias.
            StoreError: the version does not exist or is damaged.
            Overtaken: the alias does not point at `against` any more.
        """
        check_alias(name)
        with self.lock():
            pointer = self._pointer(name)
            fix = f"headway promote --alias {name} --to {number} --force moves it all the same"
            events = pointer.history()
            if events and events[-1].kind != "remove" and events[-1].version == number:
                return events[-1]
            pointer.raise_if_moved(events, against, f"{name} was to point at version {number}", fix)
            self.verified(number)
            return self._move(pointer, events, kind="alias", version=number, reason=reason, run=run)

    def remove_alias(self, name: str, *, reason: str = "asked for") -> Event:
        """Remove an alias; its history stays.

        Raises:
            ConfigError: there is no such alias.
        """
        check_alias(name)
        with self.lock():
            number = self.number(name)
            pointer = self._pointer(name)
            return self._move(pointer, pointer.history(), kind="remove", version=number, reason=reason)

    def _move(self, pointer: Pointer, events: list[Event], **facts: Any) -> Event:
        previous = events[-1].version if events and events[-1].kind != "remove" else None
        event = Event(time=now(), previous=previous, by=user_and_host(), **facts)
        with writing(self.store.root):
            pointer.move(events, event)
        return event

    def repair(self) -> bool:
        """Publish the champion's serving copy if it is missing, as after a crash. Returns whether the copy was missing."""
        with self.lock():
            events = self.history()
            return bool(events) and self.copies.repair(events[-1], self.verified)

    def _allow(self, number: int, force: bool) -> None:
        why = self.rolled_back().get(number)
        if why is not None and not force:
            raise self._refused(f"version {number} was rolled back {why}", "it returns only by force (--force)")

    def _point(self, number: int, events: list[Event], **facts: Any) -> Event:
        """Prepare the serving copy, move the champion's pointer, then publish the copy. The module docstring says why."""
        version = self.verified(number)
        serving = self.copies.next_number(events)
        with writing(self.store.root), self.copies.prepared(version) as aside:
            event = self._move(self._champion, events, version=number, serving=serving, **facts)
            self.store.publish(aside, self.copies.copy_path(serving))
        return event

    def verify(self) -> Iterator[tuple[Path, str]]:
        """Yields each damaged file of versions, pointers and the champion's serving copy, with the problem. Reads every byte."""
        for number in self._numbers():
            path = self.folder / str(number)
            manifest = self.store.manifest(path)
            if manifest is None:
                yield path / manifests.NAME, "is gone or damaged"
                continue
            for name, problem in self.store.checksum_problems(path, manifest):
                yield path / name, problem
        for name in (CHAMPION, *aliases(self.store, self.folder)):
            yield from self._verify_pointer(self._pointer(name))

    def _verify_pointer(self, pointer: Pointer) -> Iterator[tuple[Path, str]]:
        try:
            number = pointer.number()
        except StoreError as error:
            yield pointer.path, error.problem
            return
        if number is None:
            return
        manifest = self.store.manifest(self.folder / str(number))
        if manifest is None:
            yield pointer.path, f"points at version {number}, which is gone or damaged"
        elif pointer.name == CHAMPION:
            yield from self.copies.verify(manifest, pointer.history()[-1])


def model_names(store: Store) -> list[str]:
    """Returns the names of the models that have versions in a store, sorted."""
    return [name for name in store.children(store.root / "models") if not name.startswith(".")]


class ServingCopies:
    """The serving copies of one model: serving/<name>/<number>/, each a SavedModel that TensorFlow Serving watches."""

    def __init__(self, store: Store, name: str):
        self.store, self.folder = store, store.root / "serving" / name

    def copy_path(self, number: int | None) -> Path:
        """Returns the folder of the copy with this number. For None, it is a path at which nothing is ever published."""
        return self.folder / str(number)

    def next_number(self, events: list[Event]) -> int:
        """Returns the number for the next copy: one more than the largest number of the existing copies and in `events`."""
        used = [*numbered_children(self.store, self.folder), *(event.serving or 0 for event in events)]
        return max(used, default=0) + 1

    @contextlib.contextmanager
    def prepared(self, version: Version) -> Iterator[Path]:
        """Yields a temporary folder with a copy of the version's SavedModel, and deletes it unless it was published."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with temporary_folder(self.folder) as aside:
            # versions are immutable, so a hard link is as good as a copy and costs nothing
            copy_tree(self.store.local(version.path) / SAVED_MODEL, aside, link=True)
            yield aside

    def repair(self, event: Event, version: Callable[[int], Version]) -> bool:
        """Publish the copy that `event` names if it is missing; return whether it was missing. `version(n)` loads version n."""
        target = self.copy_path(event.serving)
        if self.store.is_published(target):
            return False
        with writing(self.store.root), self.prepared(version(event.version)) as aside:
            self.store.publish(aside, target)
        return True

    def verify(self, champion: Manifest, promotion: Event) -> Iterator[tuple[Path, str]]:
        """Yields the file and the problem for each damage to the copy that the champion's `promotion` made. Reads every byte."""
        served = self.copy_path(promotion.serving)
        if not self.store.is_published(served):
            yield served, f"is gone: version {promotion.version} is the champion and not served; promote it again"
            return
        prefix = SAVED_MODEL + "/"
        files = [
            entry.model_copy(update={"path": entry.path.removeprefix(prefix)})
            for entry in champion.files
            if entry.path.startswith(prefix)
        ]
        copy = champion.model_copy(update={"files": tuple(files)})
        for name, problem in self.store.checksum_problems(served, copy):
            yield served / name, problem
