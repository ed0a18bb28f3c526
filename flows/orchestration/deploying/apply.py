"""Puts what a pipeline needs on a Prefect server, and takes it away; says what it changed.

    with connected() as (client, url):
        changes = deploy(client, loaded)           # ["made deployment retrain/flights: 0 5 2 * * UTC", ...]
        deploy(client, loaded)                     # []: nothing to change
        undeploy(client, "flights")

What is there is compared first, so a second call writes nothing. Schedules, automations and deployments of others are left
alone: Headway's schedules have its slug, its automations its prefix, its deployments its entrypoints.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.objects import ConcurrencyOptions
from prefect.client.schemas.responses import DeploymentResponse
from prefect.events.schemas.automations import Automation, AutomationCore
from prefect.exceptions import ObjectNotFound
from prefect.utilities.callables import parameter_schema

from flows.config.pipeline import LoadedPipeline
from flows.config.production import GPU_QUEUE
from flows.orchestration.deploying.plan import (
    ENTRYPOINTS,
    POOL,
    SLUG,
    Retrain,
    automations,
    entries,
    load_flow,
    prefix,
    queues_of,
)
from flows.orchestration.deployments import create_pool, create_queues
from headway.errors import ConfigError
from headway.messages import counted, listed

Changes = list[str]


def deploy(
    client: SyncPrefectClient,
    loaded: LoadedPipeline,
    *,
    pool: str = POOL,
    retrain: Retrain = None,
    gpus: int | None = None,
) -> Changes:
    """Make what is missing, renew what differs, remove what the pipeline no longer names; returns what was changed.

    Args:
        retrain: when to retrain, instead of what the pipeline's file says; False: only when it is started; None, where the
            file says nothing: as it is on the server.
        gpus: how many trainings may be on the queue gpu at once; None: as it is on the server, or one.

    Raises:
        ConfigError: a notification or Secret block does not exist, a schedule is wrong, or another file has the pipeline's name.
    """
    file = loaded.file
    blocks = {
        name: _block(client, name, f"{file}: alarms.notify", notifies=True) for name in loaded.pipeline.alarms.notify
    }
    for variable, block in loaded.pipeline.secrets.items():
        _block(client, f"secret/{block}", f"{file}: secrets.{variable}")
    listed_entries = entries(loaded, pool=pool, retrain=retrain)
    changes: Changes = []
    if create_pool(pool):
        changes.append(f"made work pool {pool}")
    changes += [f"made work queue {name} of {pool}" for name in create_queues(pool, queues_of(loaded))]
    if gpus is not None or GPU_QUEUE in queues_of(loaded):
        changes += _limit(client, pool, gpus)
    ids = {}
    for flow, entry in zip(ENTRYPOINTS, listed_entries, strict=True):
        keep = flow == "retrain" and retrain is None
        ids[flow], changed = _deploy_one(client, flow, entry, keep_schedule=keep)
        changes += changed
    return changes + _automate(client, loaded.pipeline.name, automations(loaded, deployments=ids, blocks=blocks))


def undeploy(client: SyncPrefectClient, pipeline: str) -> Changes:
    """Remove a pipeline's deployments and automations; its runs, its store, the work pool with its queues and the limit
    of trainings on GPUs stay."""
    changes = _automate(client, pipeline, [])
    for flow in ENTRYPOINTS:
        changes += _remove(client, flow, pipeline)
    return changes


def _remove(client: SyncPrefectClient, flow: str, pipeline: str) -> Changes:
    there = _find(client, f"{flow}/{pipeline}")
    if there is None or there.entrypoint != ENTRYPOINTS[flow]:
        return []
    client.delete_deployment(there.id)
    return [f"removed deployment {flow}/{pipeline}"]


def _limit(client: SyncPrefectClient, pool: str, trainings: int | None) -> Changes:
    """Let so many runs of the queue gpu go on at once; None: as many as the queue has, at first one."""
    create_queues(pool, [GPU_QUEUE])
    queue = client.read_work_queue_by_name(GPU_QUEUE, pool)
    wanted = trainings or queue.concurrency_limit or 1
    if wanted == queue.concurrency_limit:
        return []
    client.update_work_queue(queue.id, concurrency_limit=wanted)
    return [f"limited work queue {GPU_QUEUE} to {counted(wanted, 'training')} at once"]


def _find(client: SyncPrefectClient, name: str) -> DeploymentResponse | None:
    with contextlib.suppress(ObjectNotFound):
        return client.read_deployment_by_name(name)
    return None


def _deploy_one(
    client: SyncPrefectClient, name: str, entry: Mapping[str, Any], *, keep_schedule: bool
) -> tuple[UUID, Changes]:
    full = f"{name}/{entry['name']}"
    there = _find(client, full)
    if there is not None and there.entrypoint not in (None, entry["entrypoint"]):
        fix = "give the pipeline another name, or delete that deployment"
        raise ConfigError(f"another deployment has the name {full}: it runs {there.entrypoint}", fix=fix)
    flow, pool, limit = load_flow(name), entry["work_pool"], entry["concurrency_limit"]
    wanted: dict[str, Any] = {
        **{key: entry[key] for key in ("description", "tags", "parameters", "entrypoint")},
        "version": flow.version,
        "job_variables": pool["job_variables"],
        "work_pool_name": pool["name"],
        "work_queue_name": pool["work_queue_name"],
        "parameter_openapi_schema": parameter_schema(flow).model_dump(exclude_unset=True),
        "enforce_parameter_schema": True,
        "pull_steps": [],
    }
    fields = {*DeploymentScheduleCreate.model_fields}
    before = [] if there is None else [schedule.model_dump(include=fields) for schedule in there.schedules]
    old = [schedule for schedule in before if schedule["slug"] == SLUG]
    ours = [
        {"schedule": {"cron": schedule["cron"], "timezone": schedule["timezone"]}, "slug": SLUG}
        for schedule in entry["schedules"]
    ]
    if keep_schedule and not ours:
        ours = old
    elif old and ours:  # whether a person has switched it off is theirs to say
        ours = [old[0] | {"schedule": ours[0]["schedule"]}]
    then, now = listed([_timing(each) for each in old]), listed([_timing(each) for each in ours])
    if there is None:
        changes = [f"made deployment {full}: runs {now or 'when it is started'}"]
    else:
        changes = _differences(full, there, wanted, limit) + ([] if then == now else [_rescheduled(full, then, now)])
        if not changes:
            return there.id, []
    # the server makes it, or brings the one that is there to this; schedules that are not named go
    schedules = [*(schedule for schedule in before if schedule["slug"] != SLUG), *ours]
    id = client.create_deployment(
        client.create_flow_from_name(name),
        entry["name"],
        **wanted,
        concurrency_limit=limit["limit"],
        concurrency_options=ConcurrencyOptions(collision_strategy=limit["collision_strategy"]),
        schedules=[DeploymentScheduleCreate.model_validate(schedule) for schedule in schedules],
    )
    return id, changes


_SAID = {
    "parameter_openapi_schema": "the form of its parameters",
    "job_variables": "its job variables",
    "work_queue_name": "its work queue",
}


def _differences(
    full: str, there: DeploymentResponse, wanted: Mapping[str, Any], limit: Mapping[str, Any]
) -> list[str]:
    """What of a deployment is to be renewed, as a sentence, if anything is."""
    differing = [key for key, value in wanted.items() if _plain(getattr(there, key)) != _plain(value)]
    slots, options = there.global_concurrency_limit, there.concurrency_options
    if limit != {"limit": slots and slots.limit, "collision_strategy": options and options.collision_strategy}:
        differing.append("concurrency_limit")
    if not differing:
        return []
    theirs = there.parameters.get("pipeline")
    moved = f" (was of {theirs})" if theirs not in (None, wanted["parameters"]["pipeline"]) else ""
    return [f"renewed deployment {full}: {listed([_SAID.get(key, key) for key in differing])}{moved}"]


def _rescheduled(full: str, then: str, now: str) -> str:
    if not now:
        return f"removed the schedule of {full}"
    return f"{'changed the schedule of' if then else 'scheduled'} {full}: {now}"


def _timing(schedule: Mapping[str, Any]) -> str:
    timing = schedule["schedule"]
    return f"{timing['cron']} {timing['timezone'] or 'UTC'}" if "cron" in timing else "a schedule of its own"


def _automate(client: SyncPrefectClient, pipeline: str, wanted: Sequence[AutomationCore]) -> Changes:
    there = {a.name: a for a in _read_automations(client) if a.name.startswith(prefix(pipeline))}
    changes = []
    for automation in wanted:
        before = there.pop(automation.name, None)
        if before is not None:
            if _compared(before) == _compared(automation):
                continue
            client.delete_automation(before.id)
            # whether a person has switched it off is theirs to say
            automation = automation.model_copy(update={"enabled": before.enabled})
        client.create_automation(automation)
        made = "made" if before is None else "renewed"
        changes.append(f"{made} automation {automation.name!r}: {automation.description}")
    for name, automation in there.items():
        client.delete_automation(automation.id)
        changes.append(f"removed automation {name!r}")
    return changes


def _read_automations(client: SyncPrefectClient) -> list[Automation]:
    found: list[Automation] = []
    while page := client.read_automations(limit=200, offset=len(found)):
        found += page
    return found


def _compared(automation: AutomationCore) -> Any:
    fields = automation.model_dump(mode="json", include={"name", "description", "tags", "trigger", "actions"})
    fields["trigger"] = {
        key: sorted(value) if key in ("after", "expect", "for_each") else value
        for key, value in fields["trigger"].items()
        if key != "id"
    }
    return _plain(fields)


def _plain(value: Any) -> Any:
    """A value as it would come back from the server."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json")
    return json.loads(json.dumps(value, sort_keys=True, default=str))


def _block(client: SyncPrefectClient, name: str, where: str, *, notifies: bool = False) -> UUID:
    """The id of a block by type/name.

    Raises:
        ConfigError: there is no such block, or it is to notify and does not.
    """
    kind, _, title = name.partition("/")
    try:
        block = client.read_block_document_by_name(title, kind, include_secrets=False)
    except ObjectNotFound:
        fix = f"prefect block create {kind} (names: prefect block ls; types: prefect block type ls)"
        raise ConfigError(f"the Prefect server has no block {name!r}", where=where, fix=fix) from None
    capabilities = block.block_schema.capabilities if block.block_schema else []
    if notifies and "notify" not in capabilities:
        problem = f"the block {name!r} notifies nobody: it can {', '.join(capabilities) or 'do nothing of that kind'}"
        raise ConfigError(problem, where=where, fix="name a block of a notification type, such as slack-webhook")
    return block.id
