"""New spans: which of a pipeline's spans have landed and are complete.

    found = read_spans(source, arrival, now=store.clock(), after="2013-04")
    found.complete, found.waiting                 # ["2013-05"], {"2013-06": "its files changed 40 s ago, ..."}

A span is complete once its done file is there, or, without one, once its files have not changed for a while.
"""

from dataclasses import dataclass, field

from flows.config.pipeline import LoadedPipeline
from flows.config.production import ArrivalConfig
from headway.messages import duration
from headway.sources.config import SourceConfig
from headway.sources.spans import paths_of, patterns, spans
from headway.storage import filesystem


@dataclass
class SpanStatus:
    """The spans of a source: the complete ones, and {incomplete span: what it waits for}."""

    source: SourceConfig
    complete: list[str] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)


def prediction_spans(loaded: LoadedPipeline, *, now: float, after: str = "") -> SpanStatus:
    """Returns the spans to predict: those at `predictions.path`, or the source's spans if that is not set (`read_spans`)."""
    source, arrival, path = loaded.pipeline.source, loaded.pipeline.arrival, loaded.pipeline.predictions.path
    if path not in (None, source.path):
        source = source.model_copy(update={"path": path})
        arrival = arrival.model_copy(update={"done": None})  # a done file is of the source that it stands in
    return read_spans(source, arrival, now=now, after=after)


def read_spans(source: SourceConfig, arrival: ArrivalConfig, *, now: float, after: str = "") -> SpanStatus:
    """Returns the spans of a source, sorted into complete and incomplete ones.

    Args:
        now: seconds since 1970 by the store's clock, since the clocks of machines may differ.
        after: this span and earlier ones are left out; empty: none is.

    Raises:
        ConfigError: no file matches source.path.
    """
    found = SpanStatus(source)
    for span in spans(source):
        if span <= after:
            continue
        if why := _incomplete(source, arrival, span, now):
            found.waiting[span] = why
        else:
            found.complete.append(span)
    return found


def _incomplete(source: SourceConfig, arrival: ArrivalConfig, span: str, now: float) -> str:
    """Returns what a span waits for, as a sentence; empty if the span is complete."""
    if arrival.done is not None:
        marks = list(patterns(source.model_copy(update={"path": arrival.done}), span))
        return "" if any(filesystem.matches(mark) for mark in marks) else f"{marks[0]} is not there yet"
    quiet = arrival.quiet_minutes * 60
    newest = max(filesystem.size_and_time(path)[1] for path in paths_of(source, span))
    age = max(now - newest, 0)  # a clock that is ahead of ours: as if they had changed now
    waits = f"its files changed {duration(age)} ago; it is complete {duration(quiet)} after the last change"
    return "" if age >= quiet else waits
