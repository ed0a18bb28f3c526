"""The second half of a retrain whose pipeline has `queues: {tensorflow: gpu}`: a flow run of its own, on that queue.

Of a deployment one run goes on at a time, and a second one is cancelled, so the second half may start only when the server has
the first as Completed. It is scheduled for some time later, in case the first half's process dies at its very end.
"""

import datetime
import os
from pathlib import Path
from typing import Any

from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterIdempotencyKey
from prefect.client.schemas.objects import FlowRun
from prefect.runtime import deployment, flow_run
from prefect.states import Scheduled, State

from flows.config.pipeline import LoadedPipeline
from flows.orchestration.run_log import RunLog
from flows.orchestration.server import POOL, polled, start_run, worker_command
from flows.records import RunRecord
from headway.messages import window_text

LATER_SECONDS = 120.0
_COLLISION = "Deployment concurrency limit reached."
"""Prefect's message, where an outage of the server kept the first half longer than that."""


def begin(loaded: LoadedPipeline, record: RunRecord, queue: str, log: RunLog) -> str:
    """Schedule the second half of this flow run, which has prepared the window; returns the message of the first half."""
    window = window_text(record.spans)
    log.wait_for_server()
    log.report.check()
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=LATER_SECONDS)
    parameters = {**flow_run.parameters, "until": record.spans[-1], "prepared": record.run}
    run = start_run(
        f"retrain/{deployment.name or loaded.pipeline.name}",
        _key(flow_run.id),
        parameters,
        name=f"{loaded.pipeline.name} {window} on {queue}",
        work_queue_name=queue,
        state=Scheduled(scheduled_time=later),
    )
    said, pool = f"prepared {window}; flow run {run.name!r} trains on it, in queue {queue}", run.work_pool_name or POOL
    return said if polled(pool, queue) is not False else f"{said}: start a worker, {worker_command(pool, queue)}"


def release(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Start the second half of a flow run that has ended."""
    with get_client(sync_client=True) as client:
        second = of(client, str(flow_run.id))
        if second and second.state and (second.state.is_scheduled() or second.state.message == _COLLISION):
            client.set_flow_run_state(second.id, Scheduled(), force=True)


def of(client: SyncPrefectClient, flow_run: str) -> FlowRun | None:
    """Returns the second half of a flow run; None: it has none."""
    key = FlowRunFilterIdempotencyKey(any_=[_key(flow_run)])
    return next(iter(client.read_flow_runs(flow_run_filter=FlowRunFilter(idempotency_key=key))), None)


def _key(flow_run: str | None) -> str:
    return f"headway-second-half-{flow_run}"


def here(pipeline: str) -> str:
    """Returns where this worker has a pipeline: below HEADWAY_PIPELINES if set, else where it was deployed from."""
    path, folder = Path(pipeline), os.environ.get("HEADWAY_PIPELINES")
    is_file = path.suffix in (".yaml", ".yml")
    return str(Path(folder).joinpath(*path.parts[-2 if is_file else -1 :])) if folder else pipeline
