"""Names steps where an error names their folders in the store, whose fingerprints tell a person nothing.

with naming_steps(store, {("ingest", "3f2a..."): "ingest 2024-01"}, running="train"):
    ...            # ".../stages/ingest/3f2a.../a.tfrecord: cut off" -> "a.tfrecord of ingest 2024-01: cut off"
"""

import contextlib
import re
import shlex
from collections.abc import Iterator, Mapping

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
    """Name the steps in an error, and say how to find the first of their folders."""
    found: list[str] = []

    def words(match: re.Match[str]) -> str:
        folder, name, file = match["folder"], match["name"], match["file"]
        if folder == store.checkpoints.name:
            title = f"the checkpoints of {running}"
        elif match["stage"] == store.staging.name:
            title = running if file else f"the output of {running}"
        else:
            title = titles.get((match["stage"], name), match["stage"])
            found.append(title)
            title = title if file else f"the output of {title}"
        return f"{file} of {title}" if file else title

    root = re.escape(str(store.root))
    place = re.compile(
        rf"{root}/(?P<folder>stages/(?P<stage>[^/\s]+)|checkpoints)/(?P<name>[^/\s:;,'\"]+)(?:/(?P<file>[^\s:;,'\"]+))?"
    )
    texts = [None if text is None else place.sub(words, text) for text in (error.problem, error.where, error.fix)]
    assert texts[0] is not None
    error.problem, error.where, error.fix = texts[0], texts[1], texts[2]
    error.args = (error.problem, *error.args[1:])
    if found:
        find = f"headway why {shlex.quote(found[0])} prints its folder"
        error.fix = f"{error.fix}; {find}" if error.fix else find
