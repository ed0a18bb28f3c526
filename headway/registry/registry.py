"""The model registry: numbered versions, and the pointer to the champion, which changes atomically.

    registry = Registry(store, "flights")
    version = registry.publish(saved_model, facts={"run": "...", "train": fingerprint})
    registry.promote(version, reason="no worse than version 3")
    registry.rollback()                       # to the champion before

Layout: models/<name>/<version>/ (immutable: version.json, saved_model/, manifest.json), models/<name>/champion.json (one
atomic pointer with its history), serving/<name>/<n>/ (what TensorFlow Serving watches: it always loads the highest n, so
each promotion and each rollback publishes a new, higher one).

A promotion prepares the serving copy aside, which is all that takes time or space; then moves the pointer, which is the
promotion; then renames the copy into place. A process that dies before the pointer moved has promoted nothing and
serves nothing new; one that dies after it leaves a pointer that names the serving number that is missing, and `repair`
(or the same promotion again) puts it there. The other order would serve a model that no history knows of, and a
rollback, asked for because of it, would go back one version too far.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headway.config import Frozen
from headway.errors import StoreError
from headway.messages import now
from headway.storage import manifest as manifests
from headway.storage.atomic_io import copy_tree, remove, write_synced, writing
from headway.storage.manifest import Manifest
from headway.storage.process_identity import mark, place
from headway.storage.store import Store

SAVED_MODEL, FACTS, CHAMPION = "saved_model", "version.json", "champion.json"
_LOCK_WAIT_SECONDS = 30.0


class Version(Frozen):
    number: int
    path: Path
    created: str
    facts: dict[str, Any]
    """What the publisher said of it: run, fingerprints, spans, metrics, signatures."""

    @property
    def saved_model(self) -> Path:
        return self.path / SAVED_MODEL


class Event(Frozen):
    """One change of the champion."""

    time: str
    kind: str
    """promote or rollback."""
    version: int
    previous: int | None
    serving: int
    """Its number under serving/<name>/."""
    reason: str
    by: str = ""
    """user@host"""
    run: str | None = None
    """The run that decided it; None when a person did."""
    verdict: str | None = None


class Registry:
    """The versions of one model."""

    def __init__(self, store: Store, name: str):
        self.store, self.name = store, name
        self.folder = store.root / "models" / name
        self.serving = store.root / "serving" / name

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One publication or promotion of a model at a time."""
        with self.store.lock(f"model-{self.name}").held(wait_seconds=_LOCK_WAIT_SECONDS):
            yield

    def versions(self) -> list[Version]:
        """All whole versions, lowest first."""
        return [version for number in self._numbers(self.folder) if (version := self._read(number)) is not None]

    def _numbers(self, folder: Path) -> list[int]:
        """The numbers that name something in `folder`, lowest first."""
        return sorted(int(name) for name in self.store.children(folder) if name.isdigit())

    def _read(self, number: int) -> Version | None:
        path = self.folder / str(number)
        manifest = self.store.manifest(path)
        if manifest is None or self.store.sizes_problem(path, manifest):
            return None
        return Version(number=number, path=path, created=manifest.created, facts=manifest.result)

    def version(self, number: int) -> Version:
        """One version.

        Raises:
            StoreError: it does not exist or is damaged.
        """
        version = self._read(number)
        if version is None:
            numbers = ", ".join(str(v.number) for v in self.versions()) or "none"
            raise self._refused(f"version {number} does not exist or is damaged", f"there is: {numbers}")
        return version

    def _refused(self, problem: str, fix: str | None = None) -> StoreError:
        return StoreError(problem, where=str(self.folder), fix=fix)

    def history(self) -> list[Event]:
        """Every promotion and rollback, oldest first.

        Raises:
            StoreError: champion.json is damaged.
        """
        path = self.folder / CHAMPION
        try:
            return [Event.model_validate(event) for event in json.loads(self.store.read(path))["history"]]
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError):
            fix = "restore it from a backup; the versions beside it are whole"
            raise StoreError("is damaged", where=str(path), fix=fix) from None

    def champion(self) -> Version | None:
        """The version in production; None before the first promotion.

        Raises:
            StoreError: it is damaged.
        """
        events = self.history()
        return self.version(events[-1].version) if events else None

    def rolled_back(self) -> dict[int, str]:
        """Versions that were rolled back and not promoted again since, with when and why."""
        gone: dict[int, str] = {}
        for event in self.history():
            if event.kind == "rollback" and event.previous is not None:
                gone[event.previous] = f"on {event.time[:10]}: {event.reason}"
            gone.pop(event.version, None)
        return gone

    def find(self, key: str, value: Any) -> Version | None:
        """The newest version whose facts hold `value` under `key`."""
        return next((v for v in reversed(self.versions()) if v.facts.get(key) == value), None)

    def publish(self, saved_model: Path, facts: dict[str, Any]) -> Version:
        """Copy a SavedModel in as the next version; it is not the champion yet.

        Args:
            facts: JSON; what later runs and people need to know of it.
        """
        with self.lock(), writing(self.store.root):
            self.folder.mkdir(parents=True, exist_ok=True)
            # a damaged version keeps its number: numbers are never used twice
            number = max([*self._numbers(self.folder), *(event.version for event in self.history())], default=0) + 1
            with _aside(self.folder) as aside:
                copy_tree(saved_model, aside / SAVED_MODEL)
                write_synced(aside / FACTS, json.dumps(facts, indent=1) + "\n")
                manifest = Manifest(
                    stage="version",
                    fingerprint=str(number),
                    key={"model": self.name, "version": number},
                    files=manifests.entries(aside, sync=True),
                    created=now(),
                    seconds=0.0,
                    tools=manifests.tools(),
                    result=facts,
                )
                manifests.write(aside, manifest)
                self.store.place(aside, self.folder / str(number))
        return self.version(number)

    def promote(
        self, number: int, *, reason: str, run: str | None = None, verdict: str | None = None, force: bool = False
    ) -> Event:
        """Make a version the champion and serve it. Of the champion itself: only see to it that it is served.

        Args:
            run, verdict: who decided; kept in the history.
            force: let a version return that was rolled back.

        Raises:
            StoreError: it does not exist, is damaged, or was rolled back.
        """
        with self.lock():
            events = self.history()
            if events and events[-1].version == number:
                self._repair(events[-1])
                return events[-1]
            self._allow(number, force)
            return self._point(number, events, kind="promote", reason=reason, run=run, verdict=verdict)

    def rollback(self, to: int | None = None, *, reason: str = "asked for", force: bool = False) -> Event:
        """Make an earlier version the champion again: `to`, or the champion before the present one.

        Args:
            force: let `to` be a version that was itself rolled back.

        Raises:
            StoreError: there is nothing to go back to.
        """
        with self.lock():
            events = self.history()
            if not events:
                raise self._refused("there is no champion yet", "headway run promotes one")
            current, gone = events[-1].version, self.rolled_back()
            earlier = [e.version for e in events if e.version != current]
            whole = [number for number in earlier if number not in gone and self._read(number) is not None]
            listed = ", ".join(str(number) for number in sorted(set(earlier))) or "none"
            if to is None:
                if not whole:
                    problem = f"there is no champion before version {current} to go back to"
                    raise self._refused(problem, f"name one (--to N); champions before it: {listed}")
                to = whole[-1]
            elif to == current:
                raise self._refused(f"version {to} is the champion already")
            elif to not in earlier:
                fix = f"headway promote makes it the champion; champions before this one: {listed}"
                raise self._refused(f"version {to} never was the champion", fix)
            self._allow(to, force)
            return self._point(to, events, kind="rollback", reason=reason)

    def repair(self) -> bool:
        """Serve the champion if a crash in the middle of its promotion, or a hand, left it unserved; whether it had to."""
        with self.lock():
            events = self.history()
            return bool(events) and self._repair(events[-1])

    def _repair(self, event: Event) -> bool:
        target = self.serving / str(event.serving)
        if self.store.placed(target):
            return False
        with writing(self.store.root), self._serving_copy(self.version(event.version)) as aside:
            self.store.place(aside, target)
        return True

    def _allow(self, number: int, force: bool) -> None:
        why = self.rolled_back().get(number)
        if why is not None and not force:
            raise self._refused(f"version {number} was rolled back {why}", "it returns only by force (--force)")

    def _point(self, number: int, events: list[Event], **facts: Any) -> Event:
        """The three steps of the module's docstring, in their order."""
        version = self.version(number)
        event = Event(
            time=now(),
            version=number,
            previous=events[-1].version if events else None,
            serving=max([*self._numbers(self.serving), *(e.serving for e in events)], default=0) + 1,
            by=_me(),
            **facts,
        )
        history = [e.model_dump(mode="json") for e in [*events, event]]
        pointer = {"version": number, "serving": event.serving, "history": history}
        with writing(self.store.root), self._serving_copy(version) as aside:
            self.store.replace(self.folder / CHAMPION, json.dumps(pointer, indent=1) + "\n")
            self.store.place(aside, self.serving / str(event.serving))
        return event

    @contextlib.contextmanager
    def _serving_copy(self, version: Version) -> Iterator[Path]:
        self.serving.mkdir(parents=True, exist_ok=True)
        with _aside(self.serving) as aside:
            # versions are immutable, so a hard link is as good as a copy and costs nothing
            copy_tree(self.store.local(version.path) / SAVED_MODEL, aside, link=True)
            yield aside

    def verify(self) -> Iterator[tuple[Path, str]]:
        """(file, problem) for everything in the registry that is not as it was written. Reads every byte."""
        for number in self._numbers(self.folder):
            path = self.folder / str(number)
            manifest = self.store.manifest(path)
            if manifest is None:
                yield path / manifests.NAME, "is gone or damaged"
                continue
            for name, problem in self.store.checksum_problems(path, manifest):
                yield path / name, problem
        try:
            events = self.history()
        except StoreError as error:
            yield self.folder / CHAMPION, error.problem
            return
        if not events:
            return
        champion = self.store.manifest(self.folder / str(events[-1].version))
        if champion is None:
            yield self.folder / CHAMPION, f"points at version {events[-1].version}, which is gone or damaged"
            return
        yield from self._verify_served(champion, events[-1])

    def _verify_served(self, champion: Manifest, event: Event) -> Iterator[tuple[Path, str]]:
        served = self.serving / str(event.serving)
        if not self.store.placed(served):
            yield served, f"is gone: version {event.version} is the champion and not served; promote it again"
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


@contextlib.contextmanager
def _aside(parent: Path) -> Iterator[Path]:
    """A hidden folder beside its target, so that the rename stays on one disk; `Store.sweep` knows its name."""
    aside = parent / mark(".aside")
    aside.mkdir()
    try:
        yield aside
    finally:
        remove(aside)


def _me() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = str(os.getuid())
    return f"{user}@{place()}"


def names(store: Store) -> list[str]:
    """The models that have a registry."""
    return [name for name in store.children(store.root / "models") if not name.startswith(".")]
