"""The spans of a source that have landed: which are complete, and what the others wait for.

    found = landed(source, arrival, now=time.time())
    found.complete, found.waiting            # ["2013-05"], {"2013-06": "its files changed 40 s ago"}

A span is complete once its done file is there, or, without one, once its files have not changed for a while.
"""

from dataclasses import dataclass, field

from flows.config.production import ArrivalConfig
from headway.messages import duration
from headway.sources.config import SourceConfig
from headway.sources.discovery.spans import paths_of, patterns, spans
from headway.storage import filesystem


@dataclass
class Landed:
    """The spans of a source."""

    complete: list[str] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    """By span: what it waits for."""


def landed(source: SourceConfig, config: ArrivalConfig, *, now: float, after: str = "") -> Landed:
    """Sort the spans of a source into those that are complete and those that are not yet.

    Args:
        now: seconds since 1970, by the store's clock: those of the machines that look may differ.
        after: spans up to this one are left out.

    Raises:
        ConfigError: no file matches.
    """
    found = Landed()
    quiet = config.quiet_minutes * 60
    for span in spans(source):
        if span <= after:
            continue
        if config.done is not None:
            marked = source.model_copy(update={"path": config.done})
            if any(filesystem.matches(pattern) for pattern in patterns(marked, span)):
                found.complete.append(span)
            else:
                found.waiting[span] = f"{next(iter(patterns(marked, span)))} is not there yet"
            continue
        newest = max(filesystem.size_and_time(path)[1] for path in paths_of(source, span))
        age = max(now - newest, 0)  # a clock that is ahead of ours: as if they had changed now
        if age >= quiet:
            found.complete.append(span)
        else:
            found.waiting[span] = f"its files changed {duration(age)} ago, and {duration(quiet)} have to be quiet"
    return found
