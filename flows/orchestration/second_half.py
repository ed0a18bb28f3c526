"""The second half of a retrain whose pipeline has `queues: {tensorflow: gpu}`: a flow run of its own, on that queue.

The first half schedules the second one two minutes ahead, since a deployment allows one run at a time and cancels another. When
the first half is Completed, `start_second_half` starts the second. If the first half dies before, the second starts on schedule.
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
from flows.orchestration.server import POOL, has_worker, start_run, worker_command
from flows.records import RunRecord
from headway.messages import window_text

LATER_SECONDS = 120.0
_COLLISION = "Deployment concurrency limit reached."
"""Prefect's message for a second half that was cancelled, since the first half still ran after an outage of the server."""


def schedule_second_half(loaded: LoadedPipeline, record: RunRecord, queue: str, log: RunLog) -> str:
    """Schedule on `queue` a flow run that trains on the window that this run prepared; returns the text that ends this run."""
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
    return said if has_worker(pool, queue) is not False else f"{said}: start a worker, {worker_command(pool, queue)}"


def start_second_half(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Start the second half of a flow run, if there is one. A hook that Prefect calls when the flow run is Completed."""
    with get_client(sync_client=True) as client:
        second = second_half_of(client, str(flow_run.id))
        if second and second.state and (second.state.is_scheduled() or second.state.message == _COLLISION):
            client.set_flow_run_state(second.id, Scheduled(), force=True)


def second_half_of(client: SyncPrefectClient, flow_run: str) -> FlowRun | None:
    """Returns the flow run that goes on with `flow_run` on the queue for TensorFlow: its second half. None if it has none."""
    key = FlowRunFilterIdempotencyKey(any_=[_key(flow_run)])
    return next(iter(client.read_flow_runs(flow_run_filter=FlowRunFilter(idempotency_key=key))), None)


def _key(flow_run: str | None) -> str:
    return f"headway-second-half-{flow_run}"


def local_path(pipeline: str) -> str:
    """Returns a pipeline's path on this machine: below the folder in the variable HEADWAY_PIPELINES if set, else unchanged."""
    path, folder = Path(pipeline), os.environ.get("HEADWAY_PIPELINES")
    is_file = path.suffix in (".yaml", ".yml")
    return str(Path(folder).joinpath(*path.parts[-2 if is_file else -1 :])) if folder else pipeline
