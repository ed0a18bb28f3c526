"""Checks the inputs of a failed step for damage: changed bytes, missing files.

    for (stage, fingerprint), (file, problem) in damaged_inputs(store, stage).items():
        file, problem            # .../train-00000-of-00004.tfrecord, "has crc32c ... : its bytes changed"

A cached output is trusted when its files have their sizes; its bytes are read against their checksums only here, after a
failure, and by `headway verify`, whose `--repair` removes what the next run can make anew:

    for place in places(store, [*store.verify(), *registry.verify()]):
        place.path, place.problem, place.fix
    remove_outputs(store, places)                # the steps' outputs among them; never anything of a model
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import Cancelled, ConfigError, Locked, Rejected
from headway.messages import counted
from headway.registry.gc import alone
from headway.stages.stage_class import Stage
from headway.storage.store import Store

NEVER = (Cancelled, ConfigError, Locked, Rejected)
"""Errors that no damaged byte causes."""


def damaged_inputs(store: Store, stage: Stage[Any]) -> dict[tuple[str, str], tuple[Path, str]]:
    """Returns {(stage, fingerprint): (first damaged file, problem)} of the outputs that a stage reads. Reads all
    bytes."""
    named = {(ref.stage, ref.fingerprint) for ref in stage.inputs() if ref.stage and ref.fingerprint}
    problems = {key: next(store.output_problems(key[0], store.output(*key)), None) for key in sorted(named)}
    return {key: problem for key, problem in problems.items() if problem is not None}


@dataclass(frozen=True)
class Place:
    """A unit of damage: a step's output, a model's version, a served copy, or a single file."""

    path: Path
    problem: str
    """Of its first damaged file, and how many more there are."""
    fix: str
    output: bool
    """A step's output: nothing is lost with it, since a run makes it anew."""


def places(store: Store, problems: Iterable[tuple[Path, str]]) -> list[Place]:
    """Group the problems of `Store.verify` and `Registry.verify` by output, version and served copy."""
    problems_of: dict[Path, list[str]] = {}
    for file, problem in problems:
        parts = file.relative_to(store.root).parts
        folder = store.root.joinpath(*parts[:3]) if len(parts) > 3 else file
        inside = str(file.relative_to(folder))
        problems_of.setdefault(folder, []).append(problem if inside == "." else f"{inside} {problem}")
    return [_place(store, path, damage) for path, damage in problems_of.items()]


def _place(store: Store, path: Path, problems: Sequence[str]) -> Place:
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
    return Place(path, problems[0] + others, fix, output=area == "stages")


def remove_outputs(store: Store, damaged: Sequence[Place]) -> list[Place]:
    """Remove the steps' outputs that are still damaged, while no run is active; returns the removed ones.

    Raises:
        Locked: a pipeline runs, or another process collects.
    """
    outputs = [place for place in damaged if place.output]
    if not outputs:
        return []
    removed = []
    with alone(store, "verify --repair") as remover:
        for place in outputs:
            remover.lock.check()
            stage = place.path.parent.name
            # a run may have made it anew since it was looked at
            if next(store.output_problems(stage, place.path), None) is not None:
                store.discard(place.path)
                removed.append(place)
    return removed
