"""Whether a step failed because an output that it reads is damaged: a byte that a disk flipped, a file that is gone.

    for found in damaged_inputs(store, request):
        found.path, found.problem            # .../train-00000-of-00004.tfrecord, "has crc32c ... : its bytes changed"

A cached output is trusted when its files have their sizes; its bytes are read against their checksums only here, after a
failure, and by `headway verify`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import Cancelled, ConfigError, Locked, Rejected
from headway.storage.prefetch import names
from headway.storage.store import Store

NEVER = (Cancelled, ConfigError, Locked, Rejected)
"""Errors that no damaged byte causes."""


@dataclass(frozen=True)
class Damaged:
    """An output of the store that is not as it was written."""

    stage: str
    fingerprint: str
    path: Path
    """The first file of it that is damaged."""
    problem: str
    gone: bool = False
    """It is not there, or has no valid manifest, which is the same."""

    @property
    def key(self) -> tuple[str, str]:
        return self.stage, self.fingerprint


def damaged_inputs(store: Store, request: Any) -> list[Damaged]:
    """The outputs of the store that a request names and that are damaged. Reads every byte of what it names."""
    found = {}
    for text in map(str, names(request)):
        path = Path(text)
        if path.is_absolute() and path.is_relative_to(store.stages):
            stage, *more = path.relative_to(store.stages).parts
            if more and not stage.startswith("."):
                found[stage, more[0]] = store.output(stage, more[0])
    return [one for (stage, name), folder in sorted(found.items()) if (one := _damage(store, stage, name, folder))]


def _damage(store: Store, stage: str, fingerprint: str, folder: Path) -> Damaged | None:
    manifest = store.manifest(folder)
    if manifest is None:
        return Damaged(stage, fingerprint, folder, "is gone, or its manifest is damaged", gone=True)
    for name, problem in store.checksum_problems(folder, manifest):
        return Damaged(stage, fingerprint, folder / name, problem)
    return None
