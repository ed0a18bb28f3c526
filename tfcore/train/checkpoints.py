"""Checkpoints of a training: each is complete, or not there at all. `callbacks.Checkpointing` decides when to save one.

    checkpoints = Checkpoints(Path("checkpoints"), log=monitor.log)
    checkpoints.save(1000, learner.variables(), {"history": [...]})
    found = checkpoints.newest()                     # None, or its step and state
    checkpoints.restore(found, learner.variables())

`<folder>/<step>/` holds the variables as a TensorFlow checkpoint and `checkpoint.json`: size and crc32c of every file,
the shapes, and a small state of plain JSON. The folder is written under another name, synced, and renamed. A damaged
checkpoint is logged, and the checkpoint before it is used.
"""

import json
import re
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from headway.errors import StoreError
from headway.storage.atomic_io import sync_path, write_synced
from headway.storage.manifest import FORMAT, checksum
from tfcore.graph.op_errors import as_store_errors, why
from tfcore.graph.specs import dims

KEPT = 2
"""How many checkpoints are kept: the newest, and the one before it, to fall back on if the newest is damaged."""
MANIFEST, VARIABLES = "checkpoint.json", "variables"
Variables = Mapping[str, Sequence[tf.Variable]]


@dataclass(frozen=True)
class Found:
    """A valid checkpoint: the step it was taken after, its folder, its JSON state and the shapes of its variables."""

    step: int
    path: Path
    state: dict[str, Any]
    shapes: dict[str, list[str]]


class Checkpoints:
    """The checkpoints of one training in `folder`. Saving one deletes all but the newest `KEPT`."""

    def __init__(self, folder: Path, *, log: Callable[[str], None] | None = None):
        self.folder, self._log = folder, log or (lambda line: None)

    def save(self, step: int, variables: Variables, state: Mapping[str, Any]) -> Path:
        """Write a checkpoint of `step`, delete all but the newest `KEPT`, and return the new one's folder.

        Raises:
            StoreError: it cannot be written; the checkpoints that exist stay, and what was written is removed.
        """
        staged = self.folder / f".staged-{uuid.uuid4().hex}"
        try:
            with as_store_errors(self.folder, f"the checkpoint of step {step}"):
                self._stage(staged, step, variables, state)
        except BaseException:
            shutil.rmtree(staged, ignore_errors=True)
            raise
        for old in self._steps()[KEPT:]:
            self._discard(self.folder / str(old))
        return self.folder / str(step)

    def _stage(self, staged: Path, step: int, variables: Variables, state: Mapping[str, Any]) -> None:
        """Write the checkpoint into the folder `staged`, then rename the folder to the number of the step."""
        staged.mkdir(parents=True)
        tf.train.Checkpoint(**{name: list(group) for name, group in variables.items()}).write(str(staged / VARIABLES))
        files = {path.name: _facts(path) for path in sorted(staged.iterdir())}
        manifest = {"format": FORMAT, "step": step, "files": files, "shapes": _shapes(variables), "state": state}
        write_synced(staged / MANIFEST, json.dumps(manifest, indent=1))
        sync_path(staged)
        final = self.folder / str(step)
        self._discard(final)
        staged.rename(final)
        sync_path(self.folder)

    def newest(self) -> Found | None:
        """Returns the newest valid checkpoint; None: there is none. Logs invalid ones that are newer. Deletes the
        temporary folders that a killed process left."""
        if self.folder.is_dir():
            for leftover in [*self.folder.glob(".staged-*"), *self.folder.glob(".old-*")]:
                shutil.rmtree(leftover, ignore_errors=True)
        return next((whole for step in self._steps() if (whole := self._read(step)) is not None), None)

    def restore(self, stored: Found, variables: Variables) -> None:
        """Fill `variables` from the checkpoint `stored`. StoreError if it holds other variables or cannot be read."""
        if stored.shapes != (shapes := _shapes(variables)):
            for name in sorted({*stored.shapes, *shapes}):
                if stored.shapes.get(name) != shapes.get(name):
                    raise StoreError(
                        f"belongs to another training: {name} has {stored.shapes.get(name)}, now {shapes.get(name)}",
                        where=str(stored.path),
                        fix=f"remove {self.folder} to begin anew",
                    )
        checkpoint = tf.train.Checkpoint(**{name: list(group) for name, group in variables.items()})
        try:
            checkpoint.read(str(stored.path / VARIABLES)).assert_consumed()
        except tf.errors.OpError as error:
            raise StoreError(f"cannot be read: {why(error)}", where=str(stored.path)) from None

    def _read(self, step: int) -> Found | None:
        path = self.folder / str(step)
        try:
            return _read(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._log(f"the checkpoint {path} is skipped: {error}")
            return None

    def _steps(self) -> list[int]:
        """Returns the steps that have a checkpoint's folder, newest first."""
        if not self.folder.is_dir():
            return []
        return sorted((int(p.name) for p in self.folder.iterdir() if re.fullmatch(r"\d+", p.name)), reverse=True)

    def _discard(self, path: Path) -> None:
        # renamed first: a kill in the middle of the removal must not leave half a checkpoint under a step's name
        if path.exists():
            aside = self.folder / f".old-{uuid.uuid4().hex}"
            path.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)


def _read(path: Path) -> Found:
    manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    if manifest["format"] != FORMAT:
        raise ValueError(f"has format {manifest['format']}, and this Headway reads format {FORMAT}")
    for name, facts in manifest["files"].items():
        size, crc = checksum(path / name)
        if size != facts["bytes"]:
            raise ValueError(f"{name} has {size} bytes, not {facts['bytes']}")
        if crc != facts["crc32c"]:
            raise ValueError(f"{name} has changed (crc32c)")
    return Found(int(manifest["step"]), path, manifest["state"], manifest["shapes"])


def _shapes(variables: Variables) -> dict[str, list[str]]:
    return {name: [f"{v.dtype.name} {dims(v.shape)}" for v in group] for name, group in variables.items()}


def _facts(path: Path) -> dict[str, Any]:
    size, crc = checksum(path)
    sync_path(path)
    return {"bytes": size, "crc32c": crc}
