"""The Prefect flow that looks for new spans, and starts exactly one retrain for one that is complete.

    prefect deployment run 'watch/flights'
    prefect event emit headway.span.landed --resource-id headway.pipeline.flights     # the same, by an event

The retrain is a run of the deployment retrain/<pipeline>. Its idempotency key names the span, so that the server itself makes one
run of it, whoever asks for it and however often.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.states import State

from flows.config.pipeline import LoadedPipeline
from flows.dag.run_spec import RunSpec
from flows.observability.events import events_of_look
from flows.orchestration.flow_body import Ending, PipelinePath, flow_body, start_retrain
from flows.orchestration.run_log import RunLog
from flows.production.new_spans import Outcome, look, trained_up_to


@flow(name="watch", persist_result=False, log_prints=True)
def watch(pipeline: PipelinePath) -> State[None]:
    """Look for new spans that are complete, and start one retrain up to the newest of them.

    Args:
        pipeline: a pipeline.yaml or its folder; relative to the flow run's working directory.
    """

    def work(loaded: LoadedPipeline, report: RunLog) -> Ending:
        name = loaded.pipeline.name
        run_spec = RunSpec(loaded=loaded, store=loaded.open_store())

        def start(until: str, attempt: int) -> str:
            return start_retrain(name, f"watch-{until}-{attempt}", {"until": until})

        def outcome(id: str | None, until: str) -> Outcome:
            return "done" if trained_up_to(run_spec) >= until else "unknown" if id is None else _outcome(id)

        found = look(run_spec, start=start, outcome=outcome, note=report.note)
        for span, why in found["waiting"].items():
            report.note(f"{span} waits: {why}")
        for event in events_of_look(name, found):
            report.happened(event)
        return _ending(found)

    return flow_body(pipeline, work)


def _ending(found: dict[str, Any]) -> Ending:
    match found["state"]:
        case "started":
            return Ending(f"started a retrain up to {found['until']}: flow run {found['id']}", f"new {found['until']}")
        case "running":
            return Ending(f"the retrain up to {found['until']} goes on", "retrain goes on")
        case "busy":
            return Ending(f"another watcher is at it: {found['message']}", "busy")
    return Ending(f"nothing new after {found['until']}" if found["until"] else "nothing is complete yet", "nothing new")


def _outcome(id: str) -> Outcome:
    """How a flow run stands."""
    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(UUID(id)).state
    except ObjectNotFound:
        return "gone"
    if state is None or not state.is_final():
        return "running"
    return "done" if state.is_completed() else "failed" if state.is_failed() else "gone"
