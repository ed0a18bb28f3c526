"""The work pool, its queues and workers, and the deployments on the server of PREFECT_API_URL.

create_pool("headway"); workers_online("headway")
start_run("retrain/flights", "a key", {"until": "2013-12"})
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound, PrefectHTTPStatusError

from headway.errors import ConfigError


def create_pool(name: str) -> bool:
    """Create a pool of local processes; False: it exists."""
    from prefect.workers.process import ProcessWorker

    template = ProcessWorker.get_default_base_job_template()
    pool = WorkPoolCreate(name=name, type="process", base_job_template=template, description="Headway")
    with get_client(sync_client=True) as client:
        try:
            client.create_work_pool(pool)
        except ObjectAlreadyExists:
            return False
    return True


def create_queues(pool: str, names: Sequence[str]) -> list[str]:
    """Make the work queues that a pool lacks; returns those."""
    with get_client(sync_client=True) as client:
        there = {queue.name for queue in client.read_work_queues(pool)}
        missing = [name for name in names if name not in there]
        for name in missing:
            client.create_work_queue(name, work_pool_name=pool)
    return missing


def start_run(deployment: str, key: str, parameters: Mapping[str, Any], **options: Any) -> FlowRun:
    """Start a run of a deployment; with the same key it is the same run.

    Args:
        deployment: "flow/deployment".
        options: of Prefect's `create_flow_run_from_deployment`.

    Raises:
        ConfigError: there is no such deployment, or it does not take a parameter.
    """
    with get_client(sync_client=True) as client:
        try:
            id = client.read_deployment_by_name(deployment).id
            return client.create_flow_run_from_deployment(
                id, parameters=dict(parameters), idempotency_key=key, **options
            )
        except ObjectNotFound:
            problem = f"there is no deployment {deployment}"
            raise ConfigError(problem, where="Prefect server", fix="headway deploy makes it") from None
        except PrefectHTTPStatusError as error:
            if error.response.status_code not in (409, 422):
                raise
            problem = f"the deployment {deployment} does not take {', '.join(parameters)}"
            raise ConfigError(problem, where="Prefect server", fix="headway deploy renews it") from None


def polled(pool: str, queue: str) -> bool | None:
    """Whether a worker polls a queue; None where nobody can say."""
    with contextlib.suppress(Exception), get_client(sync_client=True) as client:
        return client.read_work_queue_by_name(queue, pool).status == "READY"
    return None


def worker_command(pool: str, queue: str) -> str:
    """What starts a worker of a queue."""
    return f"python -P -m flows.orchestration.worker --pool {pool} --queue {queue}"


def workers_online(pool: str) -> set[str]:
    """The names of the workers that poll a pool."""
    with get_client(sync_client=True) as client:
        return {worker.name for worker in client.read_workers_for_work_pool(pool) if worker.status == "ONLINE"}
