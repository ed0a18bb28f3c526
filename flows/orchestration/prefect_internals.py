"""What Headway needs of Prefect beyond its public interface; each name stands here alone, with the fault that needs it.

    ProcessWorker._submitting_flow_run_ids      SIGTERM to the worker: a run that is just being started is waited for, too
    ProcessWorker._prefetch_seconds             a machine whose clock is wrong: its runs begin on time
    SyncPrefectClient._client                   the server away: a look for a cancellation does not wait out the outage
    flow_engine.maintain_concurrency_lease      the server away: a run goes on whose lease could not be renewed

Prefect's own process worker kills its flow runs when it is stopped: https://github.com/PrefectHQ/prefect/issues/16746 and 22528.
"""

from typing import Any
from uuid import UUID

import httpx
from prefect import flow_engine
from prefect.client.orchestration import SyncPrefectClient


def submitting(worker: Any) -> set[UUID]:
    """The flow runs that a worker has taken and not begun."""
    found: set[UUID] = worker._submitting_flow_run_ids
    return found


def prefetch(worker: Any, seconds: float) -> None:
    """Let a worker take flow runs so long before their time."""
    worker._prefetch_seconds = seconds


def ask_once(client: SyncPrefectClient, path: str) -> httpx.Response:
    """What the server answers to a GET now: Prefect's own client tries for a minute, and a setting of less is for all of a
    process.

    Raises:
        httpx.HTTPError: it does not answer.
    """
    request = client._client.build_request("GET", path, timeout=10.0)
    return httpx.Client.send(client._client, request)


def go_on_without_lease() -> None:
    """Let a flow run live when the lease of its deployment's concurrency slot cannot be renewed.

    Prefect ends such a run, so a server that is away for a few seconds at the wrong moment would end a training. The
    store's run lock keeps two runs of a pipeline apart without any server.
    """
    maintain = flow_engine.maintain_concurrency_lease

    def lenient(lease_id: Any, lease_duration: float, **options: Any) -> Any:
        return maintain(lease_id, lease_duration, **options | {"raise_on_lease_renewal_failure": False})

    flow_engine.maintain_concurrency_lease = lenient  # type: ignore[assignment]
