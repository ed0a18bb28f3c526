"""Finds damage in the store: files that are missing or whose bytes changed.

    for (stage, fingerprint), (file, problem) in damaged_inputs(store, stage).items():
        file, problem            # .../train-00000-of-00004.tfrecord, "has crc32c ... : its bytes changed"

A stored output is reused if its files have the right sizes. Bytes are compared with checksums only after a step has
failed, and by `headway verify`. With `--repair`, `headway verify` deletes what the next run can make again:

    units = damaged_units(store, [*store.verify(), *registry.verify()])     # each with its path, problem and fix
    remove_outputs(store, units)                 # deletes the outputs of steps among them, nothing of a model
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import Cancelled, ConfigError, Locked, Rejected
from headway.messages import counted
from headway.registry.gc import removal_lock
from headway.stages.stage_class import Stage
from headway.storage.store import Store

NEVER = (Cancelled, ConfigError, Locked, Rejected)
"""Errors that no damaged byte causes."""


def damaged_inputs(store: Store, stage: Stage[Any]) -> dict[tuple[str, str], tuple[Path, str]]:
    """Returns {(stage, fingerprint): (first damaged file, problem)} for the damaged outputs among a stage's inputs.
    Reads all bytes of the inputs."""
    named = {(ref.stage, ref.fingerprint) for ref in stage.inputs() if ref.stage and ref.fingerprint}
    problems = {key: next(store.output_problems(key[0], store.output(*key)), None) for key in sorted(named)}
    return {key: problem for key, problem in problems.items() if problem is not None}


@dataclass(frozen=True)
class DamagedUnit:
    """Something with damaged files: the output of a step, a version of a model, a served copy, or a single file."""

    path: Path
    problem: str
    """The problem of the first damaged file, and the number of others."""
    fix: str
    output: bool
    """Whether it is the output of a step, which a run can make again."""


def damaged_units(store: Store, problems: Iterable[tuple[Path, str]]) -> list[DamagedUnit]:
    """Returns the problems of `Store.verify` and `Registry.verify`, grouped by output, version and served copy."""
    problems_of: dict[Path, list[str]] = {}
    for file, problem in problems:
        parts = file.relative_to(store.root).parts
        folder = store.root.joinpath(*parts[:3]) if len(parts) > 3 else file
        inside = str(file.relative_to(folder))
        problems_of.setdefault(folder, []).append(problem if inside == "." else f"{inside} {problem}")
    return [_unit(store, path, damage) for path, damage in problems_of.items()]


def _unit(store: Store, path: Path, problems: Sequence[str]) -> DamagedUnit:
    area, *names = path.relative_to(store.root).parts
    others = f", and {counted(len(problems) - 1, 'file')} more" if len(problems) > 1 else ""
    fix = {
        "stages": "headway verify --repair removes it, and the next run that needs it makes it anew",
        "runs": "delete the file: it is needed only for the list of runs",
        "models": "restore it from a backup of models/, or make another version the champion: headway promote --to VERSION",
        "serving": "once version and champion.json are whole, delete what is left of the copy: the next run serves it again",
    }.get(area, "restore it from a backup")
    if area == "models" and len(names) == 2 and not names[1].isdigit():  # champion.json
        fix = "restore it from a backup of models/"
    return DamagedUnit(path, problems[0] + others, fix, output=area == "stages")


def remove_outputs(store: Store, damaged: Sequence[DamagedUnit]) -> list[DamagedUnit]:
    """Delete the outputs of steps that are still damaged, and return them.

    Raises:
        Locked: a run is active, or another process deletes from the store.
    """
    outputs = [place for place in damaged if place.output]
    if not outputs:
        return []
    removed = []
    with removal_lock(store, "verify --repair") as remover:
        for place in outputs:
            remover.lock.check()
            stage = place.path.parent.name
            # a run may have made it anew since it was looked at
            if next(store.output_problems(stage, place.path), None) is not None:
                store.discard(place.path)
                removed.append(place)
    return removed
