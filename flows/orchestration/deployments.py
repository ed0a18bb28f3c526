"""The work pool and the deployments on the server of PREFECT_API_URL.

    create_pool("headway"); pool_online("headway")
    notes = reconcile(Path("prefect.yaml"), Path(".headway/prefect"), deploy)

`prefect deploy` makes and renews; it removes nothing, so a deployment or a schedule that is deleted from the file would go on
firing. `reconcile` removes those: `deployed.json` in the folder remembers what was put there; deployments and schedules
that somebody else made, in the UI or by hand, are left alone.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName, FlowFilter, FlowFilterName
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound, PrefectHTTPStatusError

from headway.config import read_yaml
from headway.errors import ConfigError
from headway.storage.atomic_io import replace_text

NAME = "deployed.json"
Record = dict[str, dict[str, Any]]
"""{deployment's id: {"name": "flow/deployment", "schedules": [id, ...]}}"""


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
        there = {queue["name"] for queue in client._client.post(f"/work_pools/{pool}/queues/filter", json={}).json()}
        missing = [name for name in names if name not in there]
        for name in missing:
            client._client.post(f"/work_pools/{pool}/queues", json={"name": name}).raise_for_status()
    return missing


def start_run(deployment: str, key: str, parameters: Mapping[str, Any], **options: Any) -> FlowRun:
    """Start a run of a deployment; with the same key it is the same run.

    Args:
        deployment: "flow/deployment".
        options: of Prefect's `create_flow_run_from_deployment`.

    Raises:
        ConfigError: there is no such deployment, or an older Headway made it.
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
        answer = client._client.get(f"/work_pools/{pool}/queues/{queue}")
        return bool(answer.json()["status"] == "READY")
    return None


def worker_command(pool: str, queue: str) -> str:
    """What starts a worker of a queue."""
    return f"python -P -m flows.orchestration.worker --pool {pool} --queue {queue}"


def workers(pool: str) -> dict[str, str]:
    """The workers of a pool with their statuses."""
    with get_client(sync_client=True) as client:
        found = client._client.post(f"/work_pools/{pool}/workers/filter", json={}).json()
    return {worker["name"]: worker["status"] for worker in found}


def pool_online(name: str) -> bool:
    """Whether a worker polls the pool."""
    return "ONLINE" in workers(name).values()


def of_flow(flow: str) -> list[str]:
    """The deployments of a flow, as "flow/deployment", the oldest first; of the first 200."""
    with get_client(sync_client=True) as client:
        found = client.read_deployments(flow_filter=FlowFilter(name=FlowFilterName(any_=[flow])), limit=200)
    return [f"{flow}/{deployment.name}" for deployment in sorted(found, key=lambda deployment: str(deployment.created))]


def reconcile(file: Path, folder: Path, deploy: Callable[[], None]) -> list[str]:
    """Deploy, then remove what the file named before and names no longer.

    Returns:
        A sentence for each thing that was removed.
    """
    listed = read_yaml(file).get("deployments") or []
    if listed:
        deploy()
    record, notes = _read(folder / NAME), []
    with get_client(sync_client=True) as client:
        names = {str(item.get("name")) for item in listed} | {facts["name"].split("/")[-1] for facts in record.values()}
        deployed = client.read_deployments(
            deployment_filter=DeploymentFilter(name=DeploymentFilterName(any_=sorted(names))), limit=200
        )
        flows = {deployment.flow_id: client.read_flow(deployment.flow_id).name for deployment in deployed}
        for deployment in deployed:
            name, id = f"{flows.get(deployment.flow_id)}/{deployment.name}", str(deployment.id)
            entry = next((item for item in listed if _is(item, deployment)), None)
            if entry is not None:
                slugs, unnamed = _schedules(entry)
                recorded = set(record.get(id, {}).get("schedules", []))
                ours = {str(s.id) for s in deployment.schedules if (s.slug in slugs if s.slug else unnamed)}
                for schedule in deployment.schedules:
                    if str(schedule.id) in recorded - ours:
                        client.delete_deployment_schedule(deployment.id, schedule.id)
                        which = f"schedule {schedule.slug!r}" if schedule.slug else "a schedule"
                        notes.append(f"removed {which} of {name}: {file.name} no longer names it")
                record[id] = {"name": name, "schedules": sorted(ours)}
            elif id in record and not any("{{" in str(item.get("name")) for item in listed):
                client.delete_deployment(deployment.id)
                notes.append(f"removed deployment {name}: {file.name} no longer names it")
                del record[id]
    ids = {str(deployment.id) for deployment in deployed}
    replace_text(folder / NAME, json.dumps({id: facts for id, facts in record.items() if id in ids}, indent=1) + "\n")
    return notes


def _is(entry: Any, deployment: Any) -> bool:
    return isinstance(entry, dict) and (entry.get("name"), entry.get("entrypoint")) == (
        deployment.name,
        deployment.entrypoint,
    )


def _schedules(entry: dict[str, Any]) -> tuple[set[str], bool]:
    """The slugs of a deployment's schedules, and whether it has one without."""
    listed = entry.get("schedules") or ([entry["schedule"]] if entry.get("schedule") else [])
    slugs = [schedule.get("slug") for schedule in listed if isinstance(schedule, dict)]
    return {slug for slug in slugs if slug}, any(not slug for slug in slugs)


def _read(path: Path) -> Record:
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
