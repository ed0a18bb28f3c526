"""The commands that check and clean a store, and check the machine: verify, clean, doctor."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from flows.cli.options import Count, Options, PipelinePath, answer, overrides_of, store_of
from flows.config.extras import EXTRAS, install_command, missing
from headway.errors import ConfigError, StoreError
from headway.messages import counted, size
from tfcore.ops.library import SWITCH, enabled, op_path

if TYPE_CHECKING:
    from headway.storage.store import Store

LEAST_FREE_GB = 5.0
_DEVICES = (
    "import os; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'\n"
    "import tensorflow as tf\n"
    "print('devices:', ', '.join(d.name for d in tf.config.list_physical_devices()))"
)


def verify(pipeline: PipelinePath = ".", /, *, repair: bool = False, options: Options = Options()) -> int:
    """Reads every byte of the store and compares checksums.

    Args:
        repair: Removes damaged outputs of steps, so that the next run makes them anew.
    """
    from flows.pipeline.damage import damaged_units, remove_outputs
    from headway.registry.registry import Registry, model_names

    _, store = store_of(pipeline, options)
    problems = [*store.verify()]
    for name in model_names(store):
        problems += Registry(store, name).verify()
    damaged = damaged_units(store, problems)
    remaining = [place for place in damaged if not (repair and place.output)]
    value: dict[str, object] = {"problems": [{"file": path, "problem": problem} for path, problem in problems]}
    if repair:
        removed = remove_outputs(store, damaged)
        value |= {"removed": [place.path for place in removed], "left": remaining}
        lines = [
            f"{place.path}: {place.problem}: removed; the next run that needs it makes it anew" for place in removed
        ]
        lines += [f"{place.path}: {place.problem}: left; {place.fix}" for place in remaining]
    else:
        lines = [f"{path}: {problem}" for path, problem in problems]
        lines += [f"  fix: {place.path}: {place.fix}" for place in remaining if not place.output]
        lines += [f"  fix: {place.fix}" for place in remaining if place.output][:1]
    outputs = sum(1 for _ in store.all_outputs())
    text = "\n".join(lines) or f"{counted(outputs, 'output')}: every byte is as written"
    return answer(options, value, text, StoreError.exit_code if remaining else 0)


def clean(
    pipeline: PipelinePath = ".",
    /,
    *,
    yes: bool = False,
    keep: Annotated[Count, Parameter(metavar="RUNS")] = 20,
    keep_versions: Count | None = None,
    options: Options = Options(),
) -> int:
    """Lists by kind what no kept run and no version needs, and deletes it with --yes; --json lists each path.

    Args:
        yes: Deletes what is listed; without --yes nothing is deleted.
        keep: Says how many of the newest runs of each pipeline are kept.
        keep_versions: Deletes old versions too, but for the newest N, the last ten champions and those with an alias.
    """
    from flows.report.text import text_table
    from headway.registry import gc

    _, store = store_of(pipeline, options)
    found = gc.clean(store, keep, keep_versions, dry_run=not yes)
    kinds: dict[tuple[str, str], list[int]] = {}
    for item in found.removed:
        kinds.setdefault((item.path.relative_to(store.root).parts[0], item.why), []).append(item.bytes)
    rows = [
        {"what": kind, "count": len(sizes), "size": size(sum(sizes)), "why": why}
        for (kind, why), sizes in kinds.items()
    ]
    runs = f"the newest {counted(keep, 'run')} of each pipeline" if keep else "the runs that made versions"
    versions = "every version" if keep_versions is None else "the versions that --keep-versions names"
    lines = [text_table(rows, whole=("why",)) or "nothing to delete", *found.left]
    lines.append(f"kept: {runs}, what they use, and {versions}")
    if rows and yes:
        lines.append(f"deleted {size(found.bytes)} in {store.name}")
    elif rows:
        lines.append(f"nothing was deleted; with --yes {size(found.bytes)} would be in {store.name}")
    return answer(options, found, "\n".join(lines))


def doctor(pipeline: PipelinePath = ".", /, *, options: Options = Options()) -> int:
    """Checks the optional packages, TensorFlow's devices, the native op, and whether the disk and the store can be used.

    The exit code is 1 when there is a problem.
    """
    findings = [*_extras(), _devices(), _op(), *_project(Path(pipeline), overrides_of(options))]
    lines = [f"{f.word:<8} {f.what}: {f.found}" + (f"\n         fix: {f.fix}" if f.fix else "") for f in findings]
    good = all(f.ok for f in findings)
    if not good:
        print("headway doctor: there are problems", file=sys.stderr)
    return answer(options, findings, "\n".join(lines), 0 if good else 1)


@dataclass(frozen=True)
class Finding:
    """The result of one check of doctor: what was checked, what was found, and how to fix it."""

    ok: bool
    what: str
    found: str
    fix: str | None = None
    there: bool = True
    """False: something optional is absent, which is not a problem."""

    @property
    def word(self) -> str:
        return "PROBLEM" if not self.ok else "ok" if self.there else "absent"


def _extras() -> Iterator[Finding]:
    """Yields a finding for each extra; a missing extra is not a problem."""
    for name, extra in EXTRAS.items():
        there = not missing(name)
        found = "installed" if there else f"{extra.use}; to have it: {install_command(name)}"
        yield Finding(True, f"extra {name}", found, there=there)


def _devices() -> Finding:
    """Returns the finding on TensorFlow's devices, from a child process, since an imported TensorFlow stays loaded."""
    done = subprocess.run([sys.executable, "-P", "-c", _DEVICES], capture_output=True, text=True, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("devices:")), None)
    if line is None:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        return Finding(False, "tensorflow devices", last[:200], "reinstall tensorflow")
    return Finding(True, "tensorflow devices", line.removeprefix("devices: "))


def _op() -> Finding:
    """Returns the finding on the optional native op; an op that is not built is not a problem."""
    what = "op pairwise_loss"
    if not op_path().exists():
        state = "not built: it computes the loss of training.ranking; TensorFlow's own ops do so several times slower; "
        return Finding(True, what, state + "to build it: python -m tfcore.ops.compile", there=False)
    return Finding(True, what, "built" if enabled() else f"built, and switched off by {SWITCH}", there=enabled())


def _project(pipeline: Path, overrides: Mapping[str, object]) -> Iterator[Finding]:
    """Yields the findings on a pipeline and its store."""
    from flows.config.pipeline import read_pipeline

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
    """Yields the findings on a store, and on the disk of its folder or working copy.

    Raises:
        StoreError: the store's bucket refuses access or cannot be reached.
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
