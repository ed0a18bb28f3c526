"""Numbered models, and which of them is the champion.

    registry = Registry(store, "flights")
    version = registry.publish(saved_model, facts={"run": "...", "train": fingerprint})
    registry.promote(version, reason="no worse than version 3")
    registry.rollback()                       # to the champion before

Layout: models/<name>/<version>/ (immutable: version.json, saved_model/, manifest.json), models/<name>/champion.json (one
atomic pointer with its history), serving/<name>/<n>/ (what TensorFlow Serving watches: it always loads the highest n, so
each promotion and each rollback publishes a new, higher one).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headway import manifest as manifests
from headway.config import Frozen
from headway.errors import StoreError
from headway.locks import Lock
from headway.manifest import Manifest
from headway.store import Store, now, replace_text

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
    reason: str


class Registry:
    """The versions of one model."""

    def __init__(self, store: Store, name: str):
        self.store, self.name = store, name
        self.folder = store.root / "models" / name
        self.serving = store.root / "serving" / name

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One publication or promotion of a model at a time."""
        with Lock(self.store.locks / f"model-{self.name}.json").held(wait_seconds=_LOCK_WAIT_SECONDS):
            yield

    def versions(self) -> list[Version]:
        """All whole versions, lowest first."""
        if not self.folder.is_dir():
            return []
        numbers = sorted(int(entry.name) for entry in self.folder.iterdir() if entry.name.isdigit())
        return [version for number in numbers if (version := self._read(number)) is not None]

    def _read(self, number: int) -> Version | None:
        path = self.folder / str(number)
        manifest = manifests.read(path)
        if manifest is None or manifests.sizes_problem(path, manifest):
            return None
        return Version(number=number, path=path, created=manifest.created, facts=manifest.result)

    def version(self, number: int) -> Version:
        """One version.

        Raises:
            StoreError: it does not exist or is damaged.
        """
        found = self._read(number)
        if found is None:
            known = ", ".join(str(v.number) for v in self.versions()) or "none"
            raise StoreError(f"version {number} does not exist or is damaged", where=str(self.folder), fix=f"there is: {known}")
        return found

    def history(self) -> list[Event]:
        """Every promotion and rollback, oldest first."""
        try:
            value = json.loads((self.folder / CHAMPION).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        except ValueError:
            raise StoreError("is damaged", where=str(self.folder / CHAMPION), fix="restore it from a backup") from None
        return [Event.model_validate(event) for event in value["history"]]

    def champion(self) -> Version | None:
        """The version in production; None before the first promotion."""
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
        """Copy a SavedModel in as the next version; it is not the champion yet."""
        with self.lock():
            self.folder.mkdir(parents=True, exist_ok=True)
            # a damaged version keeps its number: numbers are never used twice
            taken = [int(entry.name) for entry in self.folder.iterdir() if entry.name.isdigit()]
            taken += [event.version for event in self.history()]
            number = max(taken, default=0) + 1
            aside = self.folder / f".{number}.{uuid.uuid4().hex[:8]}"
            try:
                shutil.copytree(saved_model, aside / SAVED_MODEL)
                manifests.write_synced(aside / FACTS, json.dumps(facts, indent=1) + "\n")
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
                aside.rename(self.folder / str(number))
                manifests.sync_path(self.folder)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
        return self.version(number)

    def promote(self, number: int, *, reason: str, kind: str = "promote") -> Event:
        """Make a version the champion and serve it.

        The serving copy is put in place first: a crash between the two leaves the new model served under a number that
        the history does not know yet, and the next promotion goes beyond it. The other order could leave a champion
        that is not served.
        """
        with self.lock():
            version = self.version(number)
            events = self.history()
            event = Event(
                time=now(),
                kind=kind,
                version=number,
                previous=events[-1].version if events else None,
                serving=self._serve(version),
                reason=reason,
            )
            history = [e.model_dump(mode="json") for e in [*events, event]]
            replace_text(
                self.folder / CHAMPION, json.dumps({"version": number, "serving": event.serving, "history": history}, indent=1) + "\n"
            )
        return event

    def rollback(self, to: int | None = None, *, reason: str = "asked for") -> Event:
        """Make an earlier version the champion again: `to`, or the champion before the present one.

        Raises:
            StoreError: there is nothing to go back to.
        """
        events = self.history()
        if not events:
            raise StoreError("there is no champion yet", where=str(self.folder), fix="headway run promotes one")
        current = events[-1].version
        if to is None:
            gone = self.rolled_back()
            earlier = [e.version for e in events if e.version != current and e.version not in gone]
            if not earlier:
                raise StoreError(f"there is no champion before version {current}", where=str(self.folder), fix="name one: --to N")
            to = earlier[-1]
        if to == current:
            raise StoreError(f"version {to} is the champion already", where=str(self.folder))
        return self.promote(to, reason=reason, kind="rollback")

    def _serve(self, version: Version) -> int:
        self.serving.mkdir(parents=True, exist_ok=True)
        taken = [int(entry.name) for entry in self.serving.iterdir() if entry.name.isdigit()]
        number = max(taken, default=0) + 1
        aside = self.serving / f".{number}.{uuid.uuid4().hex[:8]}"
        try:
            shutil.copytree(version.saved_model, aside, copy_function=_link_or_copy)
            aside.rename(self.serving / str(number))
            manifests.sync_path(self.serving)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return number

    def verify(self) -> Iterator[tuple[Path, str]]:
        """(file, problem) for everything in the registry that is not what its manifest says."""
        if not self.folder.is_dir():
            return
        for entry in sorted(self.folder.iterdir()):
            if not entry.name.isdigit():
                continue
            manifest = manifests.read(entry)
            if manifest is None:
                yield entry / manifests.NAME, "is gone or damaged"
                continue
            for name, problem in manifests.checksum_problems(entry, manifest):
                yield entry / name, problem


def _link_or_copy(source: str, target: str) -> None:
    """Versions are immutable, so a hard link is as good as a copy and costs nothing."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def names(store: Store) -> list[str]:
    """The models that have a registry."""
    folder = store.root / "models"
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
