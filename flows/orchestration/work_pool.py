"""The work pool on the server of PREFECT_API_URL: creates it, and checks whether a worker serves it.

create("headway"); online("headway")
"""

from __future__ import annotations

import contextlib

from prefect.automations import Automation
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectAlreadyExists
from prefect.workers.process import ProcessWorker

_OLD_AUTOMATION = "headway: crash flow runs without a heartbeat"


def create(name: str) -> None:
    """A pool of local processes, unless it is there."""
    pool = WorkPoolCreate(
        name=name,
        type="process",
        base_job_template=ProcessWorker.get_default_base_job_template(),
        description="Headway",
    )
    with get_client(sync_client=True) as client:
        try:
            client.create_work_pool(pool)
        except ObjectAlreadyExists:
            return


def online(name: str) -> bool:
    """Whether a worker polls the pool."""
    with get_client(sync_client=True) as client:
        answer = client._client.post(f"/work_pools/{name}/workers/filter", json={})
        return any(worker["status"] == "ONLINE" for worker in answer.json())


def remove_old_automation() -> None:
    """Remove the automation of earlier versions, which crashed live flow runs after an outage; `flows.orchestration.watch` is its
    successor."""
    with contextlib.suppress(ValueError):  # there is none
        found = Automation.read(name=_OLD_AUTOMATION)
        assert isinstance(found, Automation)
        found.delete()
