"""Runs of a pipeline's deployment `stage`, which a flow starts on the workers of a queue.

    RunSpec(..., start=stage_starter(loaded, set, stop=report.stop))       # flows.execution.elsewhere asks for them

Nothing but the exchange's name crosses as a parameter; what is to be made stands in the store.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run
from prefect.states import Cancelling

from flows.config.pipeline import LoadedPipeline
from flows.dag.run_spec import StageRun, StartStages
from flows.orchestration.deployments import polled, worker_command
from flows.orchestration.processes import PIPELINES_VARIABLE
from flows.orchestration.requested_stops import StopRequests
from headway.errors import Cancelled, ConfigError, HeadwayError

Answer = TypeVar("Answer")
AWAY_SECONDS, TRY_SECONDS = 600.0, 3.0
"""How long a run waits for a server that is away, as at its end; how long between two attempts."""


def stage_starter(
    loaded: LoadedPipeline, settings: dict[str, Any] | None = None, *, stop: threading.Event
) -> StartStages | None:
    """How this flow run's stages come to other workers; None: the pipeline has no queues.

    Args:
        settings: the flow's parameter `set`.
        stop: set when the flow run is not to go on.
    """
    if not loaded.pipeline.queues:
        return None
    name, parent = loaded.pipeline.name, str(flow_run.id)

    def start(queue: str, exchange: str, title: str) -> StageRun:
        return outlive(lambda: begin(queue, exchange, title), stop)

    def begin(queue: str, exchange: str, title: str) -> StageRun:
        parameters: dict[str, Any] = {"exchange": exchange, "queue": queue, "parent": parent}
        if settings:
            parameters |= {"set": settings}
        with get_client(sync_client=True) as client:
            try:
                deployment = client.read_deployment_by_name(f"stage/{name}")
            except ObjectNotFound:
                problem = f"there is no deployment stage/{name}, which makes the stages of queue {queue}"
                raise ConfigError(problem, where="Prefect server", fix="headway deploy makes it") from None
            run = client.create_flow_run_from_deployment(
                deployment.id,
                parameters=parameters,
                name=f"{name} on {queue}: {title}",
                work_queue_name=queue,
                idempotency_key=exchange,
            )
        return _Started(run.id, run.name, queue, deployment.work_pool_name or "headway")

    return start


def outlive(ask: Callable[[], Answer], stop: threading.Event) -> Answer:
    """What the server answers, also after an outage.

    Args:
        ask: asks it; may be called again.
        stop: ends the wait.

    Raises:
        Cancelled: `stop` was set while the server was away.
        HeadwayError: it was away for ten minutes.
    """
    deadline = time.monotonic() + AWAY_SECONDS
    while True:
        try:
            return ask()
        except (httpx.TransportError, httpx.HTTPStatusError) as error:
            if isinstance(error, httpx.HTTPStatusError) and error.response.status_code < 500:
                raise
            if time.monotonic() > deadline:
                fix = "start it, then the flow again: it goes on where it was"
                raise HeadwayError(f"the server does not answer: {error}", where="Prefect server", fix=fix) from None
        if stop.wait(TRY_SECONDS):
            raise Cancelled("stopped on request; what was done is kept")


class _Started:
    """A run of the deployment `stage`."""

    def __init__(self, id: UUID, name: str, queue: str, pool: str):
        self.name = f"flow run {name!r}"
        self._id, self._queue, self._pool = id, queue, pool
        self._stops = StopRequests(str(id))

    def ended(self) -> tuple[str, str] | None:
        state = self._stops.read()
        if state is None or state["type"] not in ("COMPLETED", "FAILED", "CANCELLED", "CRASHED"):
            return None
        return state["type"], state.get("message") or state["name"]

    def waits(self) -> str | None:
        state = self._stops.read()
        if state is None or state["type"] not in ("SCHEDULED", "PENDING"):
            return None
        if state["type"] == "PENDING" or polled(self._pool, self._queue) is not False:
            return f"waiting for a worker of queue {self._queue}: {self.name} is {state['name']}"
        return f"waiting, as no worker polls queue {self._queue}; start one: {worker_command(self._pool, self._queue)}"

    def stop(self) -> None:
        deadline = time.monotonic() + 10.0
        while self.ended() is None and time.monotonic() < deadline:
            with contextlib.suppress(httpx.HTTPError, OSError), get_client(sync_client=True) as client:
                client.set_flow_run_state(self._id, Cancelling(message="the flow that asked for it was stopped"))
                return
            time.sleep(1.0)


def here(pipeline: str) -> Path:
    """Where this worker has a pipeline: below HEADWAY_PIPELINES, if that is set; else where it was deployed from."""
    path, folder = Path(pipeline), os.environ.get(PIPELINES_VARIABLE)
    if not folder:
        return path
    is_file = path.suffix in (".yaml", ".yml")
    return Path(folder).joinpath(*path.parts[-2 if is_file else -1 :])
