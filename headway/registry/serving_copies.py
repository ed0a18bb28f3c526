"""The copies that TensorFlow Serving watches: serving/<name>/<n>/, the champion's SavedModel under increasing numbers.

    copies = ServingCopies(store, "flights")
    with copies.prepared(version) as aside:       # takes the time and the space
        ...                                       # the pointer moves
        store.place(aside, copies.path(4))        # one rename
    copies.repair(event, version)                 # puts the copy that a crash left out

TensorFlow Serving always loads the highest number, so each promotion and each rollback has a new, higher one.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from headway.registry.pointers import Event
from headway.registry.versions import SAVED_MODEL, Version, numbers, written_aside
from headway.storage.atomic_io import copy_tree, writing
from headway.storage.manifest import Manifest
from headway.storage.store import Store


class ServingCopies:
    """The copies of one model."""

    def __init__(self, store: Store, name: str):
        self.store, self.folder = store, store.root / "serving" / name

    def path(self, number: int | None) -> Path:
        return self.folder / str(number)

    def next_number(self, events: list[Event]) -> int:
        used = [*numbers(self.store, self.folder), *(event.serving or 0 for event in events)]
        return max(used, default=0) + 1

    @contextlib.contextmanager
    def prepared(self, version: Version) -> Iterator[Path]:
        """Yield a copy in a temporary folder, which is removed afterwards unless it was placed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with written_aside(self.folder) as aside:
            # versions are immutable, so a hard link is as good as a copy and costs nothing
            copy_tree(self.store.local(version.path) / SAVED_MODEL, aside, link=True)
            yield aside

    def repair(self, event: Event, version: Callable[[int], Version]) -> bool:
        """Place the champion's copy if it is missing; return whether it was."""
        target = self.path(event.serving)
        if self.store.placed(target):
            return False
        with writing(self.store.root), self.prepared(version(event.version)) as aside:
            self.store.place(aside, target)
        return True

    def verify(self, champion: Manifest, event: Event) -> Iterator[tuple[Path, str]]:
        """Yield (file, problem) of the champion's copy. Reads every byte."""
        served = self.path(event.serving)
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
