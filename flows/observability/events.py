"""Headway's events, on which other programs act; docs/observability.md says when they occur and what they carry.

    for event in events_of_output(output, record):
        report.happened(event)                   # Event("headway.span.ingested", "flights", "span 2013-05 is ingested", ...)

On a Prefect server an event is about the resource `headway.pipeline.<name>`.
"""

from collections.abc import Iterator

from beam_jobs.ingest.request import IngestRequest
from flows.dag.step import Output
from flows.progress.reporter import Event
from flows.records import NO_VERDICT, RunRecord, State
from flows.tell.ending import TOLD, ending_of
from headway.messages import counted, some
from headway.validation.stage import ValidateRequest

_HELD = (State.HELD, State.SHADOW, State.NOT_COMPARABLE, State.INCOMPATIBLE)
_OF_STATES = {State.PROMOTED: "promoted", State.KEPT: "kept", **dict.fromkeys(_HELD, "held")}
"""Of a verdict that took effect; others reject the candidate."""


def resource(pipeline: str) -> str:
    """The id by which Headway's events name a pipeline."""
    return f"headway.pipeline.{pipeline}"


def events_of_output(output: Output, record: RunRecord) -> Iterator[Event]:
    """The events of a step that has just ended.

    Args:
        record: of its run.
    """
    if output.stage == IngestRequest.name and not output.hit:
        counts, span = output.get()["counts"], output.get()["span"]
        rejected = f", {counts['quarantined']:,} quarantined" if counts["quarantined"] else ""
        said = f"span {span} is ingested, {counted(counts['written'], 'row')}{rejected}"
        facts = {"span": span, "rows": counts, "fingerprint": output.fingerprint, "seconds": round(output.seconds, 3)}
        yield Event("headway.span.ingested", record.pipeline, said, facts, record.run)
    if output.stage == ValidateRequest.name and output.value.errors:
        errors = [anomaly.message for anomaly in output.value.anomalies if anomaly.severity == "error"]
        said = f"{counted(len(errors), 'error')} in the window: {some(errors, 3, sep='; ')}"
        yield Event("headway.window.invalid", record.pipeline, said, {"errors": errors}, record.run)


def events_of_record(record: RunRecord) -> Iterator[Event]:
    """The event of a run that has ended with a verdict."""
    if record.verdict is None or record.state in (*NO_VERDICT, State.ALREADY, State.NAMED):
        return
    ending = ending_of(record)
    facts = record.model_dump(mode="json", include={"version", "state", "spans"})
    facts |= ending.model_dump(mode="json", include=TOLD) | {"reasons": record.verdict.sentences}
    name = _OF_STATES.get(record.state, "rejected")
    yield Event(f"headway.model.{name}", record.pipeline, ending.line, facts, record.run)
