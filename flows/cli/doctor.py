"""Checks whether this machine can run pipelines. Each finding says what was checked, the result, and the fix.

for finding in examine(Path("examples/flights"), {"store": "/tmp/store"}):
    finding.ok, finding.what, finding.found, finding.fix
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from flows.config.extras import EXTRAS, command, missing
from flows.config.pipeline import read_pipeline
from headway.errors import ConfigError, StoreError
from headway.messages import counted
from headway.storage.store import Store
from tfcore.ops.library import SWITCH, enabled, expected

LEAST_FREE_GB = 5.0
_DEVICES = (
    "import os; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'\n"
    "import tensorflow as tf\n"
    "print('devices:', ', '.join(d.name for d in tf.config.list_physical_devices()))"
)


@dataclass(frozen=True)
class Finding:
    ok: bool
    what: str
    found: str
    fix: str | None = None
    there: bool = True
    """False: it is absent, which is not a fault."""

    @property
    def word(self) -> str:
        return "PROBLEM" if not self.ok else "ok" if self.there else "absent"


def examine(pipeline: Path, overrides: Mapping[str, object]) -> list[Finding]:
    """Check everything that can be checked without changes. `overrides` change keys of the pipeline."""
    return [_python(), *_requirements(), *_extras(), _devices(), _op(), *_project(pipeline, overrides)]


def _python() -> Finding:
    version = platform.python_version()
    ok = (3, 11) <= sys.version_info[:2] < (3, 14)
    return Finding(ok, "python", f"{version} at {sys.executable}", None if ok else "use Python 3.11, 3.12 or 3.13")


def _requirements() -> Iterator[Finding]:
    """Compare each requirement of the installed package with the version that is installed."""
    for requirement in _of_extra(None):
        found, ok = _installed(requirement)
        yield Finding(ok, requirement.name, found or "not installed", None if ok else f"pip install '{requirement}'")


def _extras() -> Iterator[Finding]:
    """Tell which extras are installed; a missing one is not a fault, one of another version than wanted is."""
    for name, extra in EXTRAS.items():
        if missing(name):
            yield Finding(True, f"extra {name}", f"{extra.use}; to have it: {command(name)}", there=False)
            continue
        found = {each.name: _installed(each) for each in _of_extra(name)}
        there = ", ".join(f"{package} {version}" for package, (version, _) in found.items() if version)
        wrong = any(version and not ok for version, ok in found.values())  # else it may be there under another name
        yield Finding(not wrong, f"extra {name}", there or "installed", command(name) if wrong else None)


def _installed(requirement: Requirement) -> tuple[str | None, bool]:
    """(the version that is installed, with the wanted one where it is another; whether it is one that is wanted)."""
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return None, False
    ok = requirement.specifier.contains(version, prereleases=True)
    return version + ("" if ok else f" (wanted {requirement.specifier})"), ok


def _of_extra(name: str | None) -> list[Requirement]:
    """What the installed package requires for an extra; None: in any case."""
    requirements = [Requirement(text) for text in metadata.requires("headway") or []]
    if name is None:
        return [requirement for requirement in requirements if requirement.marker is None]
    known = [requirement for requirement in requirements if requirement.marker and "extra" in str(requirement.marker)]
    return [r for r in known if r.marker and r.marker.evaluate({"extra": name}) and r.name != "headway"]


def _devices() -> Finding:
    """List TensorFlow's devices from a child process, since TensorFlow stays loaded once it is imported."""
    done = subprocess.run([sys.executable, "-P", "-c", _DEVICES], capture_output=True, text=True, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("devices:")), None)
    if line is None:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        return Finding(False, "tensorflow devices", last[:200], "reinstall tensorflow")
    return Finding(True, "tensorflow devices", line.removeprefix("devices: "))


def _op() -> Finding:
    """Report the optional native op. An op that is not built is not a fault."""
    what = "op pairwise_loss"
    if not expected().exists():
        state = "not built: it computes the loss of training.ranking; TensorFlow's own ops do so several times slower; "
        return Finding(True, what, state + "to build it: python -m tfcore.ops.compile", there=False)
    return Finding(True, what, "built" if enabled() else f"built, and switched off by {SWITCH}", there=enabled())


def _project(pipeline: Path, overrides: Mapping[str, object]) -> Iterator[Finding]:
    try:
        loaded = read_pipeline(pipeline, overrides)
    except ConfigError as error:
        if pipeline == Path() and not Path("pipeline.yaml").exists():
            yield Finding(
                True, "pipeline", "this folder has no pipeline.yaml; name one to check its store", there=False
            )
            return
        found = f"{error.where}: {error.problem}" if error.where else error.problem
        yield Finding(False, "pipeline", found, error.fix)
        return
    yield Finding(True, "pipeline", str(loaded.file))
    store = loaded.open_store()
    try:
        yield from _store(store)
    except StoreError as error:
        yield Finding(False, "store", f"{error.where}: {error.problem}", error.fix)


def _store(store: Store) -> Iterator[Finding]:
    """Look at a store and the disk of its working copy.

    Raises:
        StoreError: the bucket refuses it or cannot be reached.
    """
    folder = next(folder for folder in (store.root, *store.root.parents) if folder.exists())
    free = shutil.disk_usage(folder).free / 1e9
    found, fix = f"{free:.0f} GB free at {folder}", None if free >= LEAST_FREE_GB else "make room: headway clean"
    if not os.access(folder, os.W_OK):
        found, fix = f"{found}, where this user cannot write", "let this user write there, or name another store"
    yield Finding(fix is None, "disk", found, fix)
    if not store.exists():
        yield Finding(True, "store", f"none yet at {store.name}", there=False)
        return
    yield Finding(True, "store", f"{counted(sum(1 for _ in store.all_outputs()), 'output')} at {store.name}")
