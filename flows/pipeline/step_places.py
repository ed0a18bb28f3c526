"""Names steps where an error names their folders in the store, whose fingerprints tell a person nothing.

with naming_steps(store, {("ingest", "3f2a..."): "ingest 2024-01"}, running="train"):
    ...            # ".../stages/ingest/3f2a.../a.tfrecord: cut off" -> "a.tfrecord of ingest 2024-01: cut off"
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from headway.errors import HeadwayError
from headway.storage.store import Store

Titles = Mapping[tuple[str, str], str]
"""{(stage, fingerprint): title} of a run's steps."""


@contextlib.contextmanager
def naming_steps(store: Store, titles: Titles, running: str) -> Iterator[None]:
    """Name the steps in a HeadwayError that the block raises.

    Args:
        running: the title of the step that runs in the block, whose folder is not in its place yet.
    """
    try:
        yield
    except HeadwayError as error:
        name_steps(error, store, titles, running)
        raise


def name_steps(error: HeadwayError, store: Store, titles: Titles, running: str) -> None:
    """Name the step in an error whose place is in the store, and say how to find its folder."""
    place = error.where
    if place is None or not Path(place).is_relative_to(store.root):
        return
    find = None
    match Path(place).relative_to(store.root).parts:
        case (store.checkpoints.name, _, *file):
            title = whole = f"the checkpoints of {running}"
        case (store.stages.name, store.staging.name, _, *file):
            title, whole = running, f"the output of {running}"
        case (store.stages.name, stage, name, *file):
            title = titles.get((stage, name), stage)
            whole, find = f"the output of {title}", "headway show latest prints its folder"
        case _:
            return
    error.where = f"{'/'.join(file)} of {title}" if file else whole
    error.problem = error.problem.replace(place, error.where)
    error.args = (error.problem, *error.args[1:])
    if find is not None:
        error.fix = f"{error.fix}; {find}" if error.fix else find
