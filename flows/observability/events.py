"""Headway's events, on which other programs act: their names, when they occur, and what they carry.

    for event, facts in events_of_output(output, record):        # ("headway.span.ingested", {"span": "2013-05", ...})
        report.happened(event, facts)

Each carries `message`, a sentence that begins with the pipeline's name, and `pipeline`, the name. On a Prefect server an event is
about the resource `headway.pipeline.<name>`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flows.dag.run_spec import INGEST
from flows.dag.step import Output
from flows.records import NO_VERDICT, RunRecord, State
from flows.tell.summary import sentence
from headway.messages import counted, some

Event = tuple[str, dict[str, Any]]

EVENTS = {
    "headway.span.ingested": "a run has ingested a span that was not in the store",
    "headway.span.complete": "a watcher found a new span that is complete",
    "headway.span.predicted": "the champion's predictions of a span are there",
    "headway.window.invalid": "validation found errors in a window: its run fails",
    "headway.model.promoted": "a run has promoted its candidate",
    "headway.model.held": "the candidate waits for a person",
    "headway.model.rejected": "the gate turned the candidate down",
    "headway.model.kept": "the champion stays, as the candidate is not better",
    "headway.drift.found": "a new span, or requests, are unlike the champion's window",
    "headway.champion.decayed": "the champion is worse on new labels than at its promotion",
    "headway.backfill.failed": "windows of a backfill have failed",
}
_HELD = (State.HELD, State.SHADOW, State.NOT_COMPARABLE, State.INCOMPATIBLE)


def resource(pipeline: str) -> str:
    """The id by which Headway's events name a pipeline."""
    return f"headway.pipeline.{pipeline}"


def events_of_output(output: Output, record: RunRecord) -> Iterator[Event]:
    """The events of a step that has just ended.

    Args:
        record: of its run.
    """
    result, name, run = output.result or {}, record.pipeline, record.run
    if output.stage == INGEST.name and not output.hit:
        counts, span = result["counts"], result["span"]
        rejected = f", {counts['quarantined']:,} quarantined" if counts["quarantined"] else ""
        message = f"{name}: span {span} is ingested, {counted(counts['written'], 'row')}{rejected}"
        facts = {"span": span, "rows": counts, "fingerprint": output.fingerprint, "seconds": round(output.seconds, 3)}
        yield "headway.span.ingested", {"message": message, "pipeline": name, "run": run, **facts}
    if output.stage == "validate" and result.get("errors"):
        errors = [anomaly["message"] for anomaly in result["anomalies"] if anomaly["severity"] == "error"]
        message = f"{name}: {counted(len(errors), 'error')} in the window: {some(errors, 3, sep='; ')}"
        yield "headway.window.invalid", {"message": message, "pipeline": name, "run": run, "errors": errors}


def events_of_record(record: RunRecord) -> Iterator[Event]:
    """The event of a run that has ended with a verdict."""
    state, verdict = record.state, record.verdict
    if verdict is None or state in NO_VERDICT or state in (State.ALREADY, State.NAMED):
        return
    if state == State.PROMOTED:
        event = "headway.model.promoted"
    elif state == State.KEPT:
        event = "headway.model.kept"
    else:
        event = "headway.model.held" if state in _HELD else "headway.model.rejected"
    fields = {"pipeline", "run", "version", "state", "spans"}
    facts = {name: value for name, value in record.as_json().items() if name in fields}
    yield event, {"message": f"{record.pipeline}: {sentence(record)}", **facts, "reasons": list(verdict.reasons)}


def events_of_champion(result: Mapping[str, Any]) -> Iterator[Event]:
    """The events of what `flows.production.champion_watch.check_champion` found."""
    name, facts = result["pipeline"], {"pipeline": result["pipeline"], "champion": result["champion"]}
    decay = [f"{row['span']}: {text}" for row in result["spans"] for text in row.get("decay", [])]
    if decay:
        yield "headway.champion.decayed", {"message": f"{name}: {'; '.join(decay)}", "alarms": decay, **facts}
    drift = [f"{row['span']}: {text}" for row in result["spans"] for text in row["drift"]] + (result["skew"] or [])
    if drift:
        yield "headway.drift.found", {"message": f"{name}: {'; '.join(drift)}", "alarms": drift, **facts}


def events_of_look(pipeline: str, found: Mapping[str, Any]) -> Iterator[Event]:
    """The events of what `flows.production.new_spans.look` found."""
    for span in found["complete"]:
        message = f"{pipeline}: span {span} is complete"
        yield "headway.span.complete", {"message": message, "pipeline": pipeline, "span": span}
