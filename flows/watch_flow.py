"""The Prefect flow that looks for new spans, and starts exactly one retrain for one that is complete.

    prefect deployment run 'watch/flights'
    prefect event emit headway.span.landed --resource-id headway.pipeline.flights     # the same, by an event

The retrain is a run of the deployment retrain/<pipeline>. Its idempotency key names the span, so that the server itself makes one
run of it, whoever asks for it and however often.
"""

from uuid import UUID

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.states import State

from flows.config.pipeline import LoadedPipeline
from flows.dag.run_spec import RunSpec
from flows.orchestration import second_half
from flows.orchestration.deployments import start_run
from flows.orchestration.flow_body import Ending, PipelinePath, flow_body
from flows.orchestration.run_log import RunLog
from flows.production.new_spans import Outcome, look


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
            key = f"headway-{name}-watch-{until}-{attempt}"
            return str(start_run(f"retrain/{name}", key, {"until": until}).id)

        def ask(id: str | None) -> Outcome:
            return "unknown" if id is None else outcome_of(id)

        found = look(run_spec, report, start=start, ask=ask)
        for line in found.waits:
            report.note(line)
        words = {"started": f"new {found.until}", "running": "retrain goes on"}
        return Ending(found.sentence, words.get(found.state, found.state))

    return flow_body(pipeline, work)


def outcome_of(id: str) -> Outcome:
    """How a flow run stands, or the second half that it has started."""
    try:
        with get_client(sync_client=True) as client:
            state = (second_half.of(client, id) or client.read_flow_run(UUID(id))).state
    except ObjectNotFound:
        return "gone"
    if state is None or not state.is_final():
        return "queued" if state is None or state.is_scheduled() or state.is_pending() else "running"
    return "done" if state.is_completed() else "failed" if state.is_failed() else "gone"
