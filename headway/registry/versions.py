"""The versions of a model: models/<name>/<number>/, immutable, each with the facts that its publisher gave.

versions = Versions(store, "flights")
version = versions.publish(saved_model, facts={"run": "...", "train": fingerprint})
versions.version(3).saved_model           # a folder that TensorFlow loads
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headway.config import Frozen
from headway.errors import StoreError
from headway.messages import now
from headway.registry.pointers import CHAMPION, Pointer, aliases
from headway.storage import manifest as manifests
from headway.storage.atomic_io import copy_tree, remove, write_synced, writing
from headway.storage.manifest import UNREADABLE, Manifest
from headway.storage.process_identity import temporary_name
from headway.storage.store import Store

SAVED_MODEL, FACTS, LINEAGE = "saved_model", "version.json", "lineage.json"
_RESTORE = "restore it from a backup, or name another version; headway models lists them"
_LOCK_WAIT_SECONDS = 30.0


class Version(Frozen):
    number: int
    path: Path
    created: str
    facts: dict[str, Any]
    """The facts that the publisher gave: run, fingerprints, spans, metrics, signatures."""

    @property
    def saved_model(self) -> Path:
        return self.path / SAVED_MODEL


class Versions:
    """The versions of one model."""

    def __init__(self, store: Store, name: str):
        self.store, self.name = store, name
        self.folder = store.root / "models" / name

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the model's lock in the block: one publication or promotion at a time. Raises Locked after 30 s."""
        with self.store.lock(f"model-{self.name}").held(wait_seconds=_LOCK_WAIT_SECONDS):
            yield

    def versions(self) -> list[Version]:
        """Returns the undamaged versions (by manifest and file sizes), lowest number first."""
        return [found for number in self._numbers() if isinstance(found := self._read(number), Version)]

    def damaged(self) -> dict[int, str]:
        """Returns the problem of each version that cannot be used, by version number. Checks manifests and file sizes, but
        not the files' bytes."""
        return {n: found.problem for n in self._numbers() if isinstance(found := self._read(n), StoreError)}

    def _numbers(self) -> list[int]:
        return numbered_children(self.store, self.folder)

    def _read(self, number: int) -> Version | StoreError:
        """Returns a version, or the error that says why it cannot be used; raises nothing."""
        path = self.folder / str(number)
        try:
            manifest = self.store.manifest(path)
        except StoreError as error:
            return error
        if manifest is None:
            return self._refused(f"version {number} is damaged: its {manifests.NAME} is gone or damaged", _RESTORE)
        problem = self.store.sizes_problem(path, manifest)
        if problem is not None:
            return self._damaged(number, problem)
        return Version(number=number, path=path, created=manifest.created, facts=manifest.result)

    def version(self, number: int) -> Version:
        """Returns one version.

        Raises:
            StoreError: the version does not exist, or is damaged.
        """
        if number not in self._numbers():
            numbers = ", ".join(str(v.number) for v in self.versions()) or "none"
            raise self._refused(f"version {number} does not exist", f"there is: {numbers}")
        found = self._read(number)
        if isinstance(found, StoreError):
            raise found
        return found

    def verified(self, number: int) -> Version:
        """Returns one version after a check of all of its bytes.

        Raises:
            StoreError: the version does not exist, or is damaged.
        """
        version = self.version(number)
        manifest = self.store.manifest(version.path)
        if manifest is not None:
            for name, problem in self.store.checksum_problems(version.path, manifest):
                raise self._damaged(number, f"{name} {problem}")
        return version

    def _damaged(self, number: int, problem: str) -> StoreError:
        if UNREADABLE in problem:
            return self._refused(f"version {number}: {problem}", "let this user read it")
        return self._refused(f"version {number} is damaged: {problem}", _RESTORE)

    def _refused(self, problem: str, fix: str | None = None) -> StoreError:
        return StoreError(problem, where=str(self.folder), fix=fix)

    def find(self, key: str, value: Any) -> Version | None:
        """Returns the newest undamaged version whose facts hold `value` under `key`; None when no version does."""
        return next((v for v in reversed(self.versions()) if v.facts.get(key) == value), None)

    def publish(self, saved_model: Path, facts: dict[str, Any], lineage: dict[str, Any] | None = None) -> Version:
        """Copy a SavedModel into the registry as the next version, which is not the champion yet.

        Args:
            facts: JSON; what later runs and people need to know of the version.
            lineage: JSON; what the version was made from (`Registry.lineage`); None: it is not stored.
        """
        with self.lock(), writing(self.store.root):
            self.folder.mkdir(parents=True, exist_ok=True)
            # a damaged version keeps its number: numbers are never used twice
            number = max([*self._numbers(), *self._pointed_at()], default=0) + 1
            with temporary_folder(self.folder) as aside:
                copy_tree(saved_model, aside / SAVED_MODEL)
                write_synced(aside / FACTS, json.dumps(facts, indent=1) + "\n")
                if lineage is not None:
                    write_synced(aside / LINEAGE, json.dumps(lineage, indent=1) + "\n")
                manifest = Manifest(
                    stage="version",
                    fingerprint=str(number),
                    key={"model": self.name, "version": number},
                    files=manifests.entries(aside),
                    created=now(),
                    seconds=0.0,
                    tools=manifests.tools(),
                    result=facts,
                )
                manifests.write(aside, manifest)
                self.store.publish(aside, self.folder / str(number))
        return self.version(number)

    def _pointed_at(self) -> Iterator[int]:
        """Yields the number of every version that the champion's pointer or an alias has ever named."""
        for name in (CHAMPION, *aliases(self.store, self.folder)):
            with contextlib.suppress(*([] if name == CHAMPION else [StoreError])):  # an alias is `verify`'s to name
                yield from (event.version for event in self._pointer(name).history())

    def _pointer(self, name: str) -> Pointer:
        return Pointer(self.store, self.folder, name)


@contextlib.contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """Yields a new hidden folder in `parent`, and deletes it at the end unless the caller has renamed it."""
    aside = parent / temporary_name(".aside")
    aside.mkdir()
    try:
        yield aside
    finally:
        remove(aside)


def numbered_children(store: Store, folder: Path) -> list[int]:
    """Returns as integers, ascending, the names in `folder` that are numbers: of versions, or of serving copies."""
    return sorted(int(name) for name in store.children(folder) if name.isdigit())
