"""Puts what a pipeline needs on a Prefect server, and takes it away; says what it changed.

    with connected() as (client, url):
        changes = deploy(client, loaded)           # ["made deployment retrain/flights: 0 5 2 * * UTC", ...]
        deploy(client, loaded)                     # []: nothing to change
        undeploy(client, "flights")

What is there is compared first, so a second call writes nothing. Schedules, automations and deployments of others are left
alone: Headway's schedules have its slug, its automations its prefix, its deployments its entrypoints.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.objects import BlockDocument, ConcurrencyOptions
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.events.schemas.automations import Automation, AutomationCore
from prefect.exceptions import ObjectNotFound
from prefect.utilities.callables import parameter_schema

from flows.config.pipeline import LoadedPipeline
from flows.config.production import GPU_QUEUE
from flows.orchestration.deploying.plan import (
    ENTRYPOINTS,
    OBSOLETE,
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
    blocks = {name: _notifier(client, name, f"{file}: alarms.notify") for name in loaded.pipeline.alarms.notify}
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
    for flow in OBSOLETE:
        changes += _remove(client, flow, loaded.pipeline.name)
    for flow, entry in zip(ENTRYPOINTS, listed_entries, strict=True):
        keep = flow == "retrain" and retrain is None
        ids[flow], changed = _deploy_one(client, flow, entry, keep_schedule=keep)
        changes += changed
    return changes + _automate(client, loaded.pipeline.name, automations(loaded, deployments=ids, blocks=blocks))


def undeploy(client: SyncPrefectClient, pipeline: str) -> Changes:
    """Remove a pipeline's deployments and automations; its runs, its store, the work pool with its queues and the limit
    of trainings on GPUs stay."""
    changes = _automate(client, pipeline, [])
    for flow in (*ENTRYPOINTS, *OBSOLETE):
        changes += _remove(client, flow, pipeline)
    return changes


def _remove(client: SyncPrefectClient, flow: str, pipeline: str) -> Changes:
    there = _find(client, f"{flow}/{pipeline}")
    if there is None or there.entrypoint != (ENTRYPOINTS | OBSOLETE)[flow]:
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
    flow, full, pool, limited = (
        load_flow(name),
        f"{name}/{entry['name']}",
        entry["work_pool"],
        entry["concurrency_limit"],
    )
    wanted: dict[str, Any] = {
        "version": flow.version,
        "description": entry["description"],
        "tags": entry["tags"],
        "parameters": entry["parameters"],
        "entrypoint": entry["entrypoint"],
        "job_variables": pool["job_variables"],
        "work_pool_name": pool["name"],
        "work_queue_name": pool["work_queue_name"],
        "parameter_openapi_schema": parameter_schema(flow).model_dump(exclude_unset=True),
        "enforce_parameter_schema": True,
        "pull_steps": [],
    }
    ours = [
        DeploymentScheduleCreate(
            schedule=CronSchedule(cron=schedule["cron"], timezone=schedule["timezone"]), slug=schedule["slug"]
        )
        for schedule in entry["schedules"]
    ]
    there = _find(client, full)
    changes: Changes = []
    schedules = ours
    if there is not None:
        if there.entrypoint not in (None, entry["entrypoint"]):
            fix = "give the pipeline another name, or delete that deployment"
            raise ConfigError(f"another deployment has the name {full}: it runs {there.entrypoint}", fix=fix)
        before = [
            DeploymentScheduleCreate.model_validate(
                schedule.model_dump(include={*DeploymentScheduleCreate.model_fields})
            )
            for schedule in there.schedules
        ]
        old = [schedule for schedule in before if schedule.slug == SLUG]
        if keep_schedule and not ours:
            ours = old
        elif old and ours:  # whether a person has switched it off is theirs to say
            ours = [old[0].model_copy(update={"schedule": ours[0].schedule})]
        schedules = [schedule for schedule in before if schedule.slug != SLUG] + ours
        differing = [key for key, value in wanted.items() if _plain(getattr(there, key)) != _plain(value)]
        limit, options = there.global_concurrency_limit, there.concurrency_options
        if {"limit": limit and limit.limit, "collision_strategy": options and options.collision_strategy} != limited:
            differing.append("concurrency_limit")
        if differing:
            moved, theirs = "", there.parameters.get("pipeline")
            if theirs not in (None, entry["parameters"]["pipeline"]):
                moved = f" (was of {theirs})"
            what = listed([_SAID.get(key, key) for key in differing])
            changes.append(f"renewed deployment {full}: {what}{moved}")
        changes += _rescheduled(full, [_timing(each) for each in old], [_timing(each) for each in ours])
        if not changes:
            return there.id, []
    # the server makes it, or brings the one that is there to this; schedules that are not named go
    id = client.create_deployment(
        client.create_flow_from_name(name),
        entry["name"],
        **wanted,
        concurrency_limit=limited["limit"],
        concurrency_options=ConcurrencyOptions(collision_strategy=limited["collision_strategy"]),
        schedules=schedules,
    )
    if there is None:
        changes.append(
            f"made deployment {full}: runs {listed([_timing(each) for each in ours]) or 'when it is started'}"
        )
    return id, changes


_SAID = {
    "parameter_openapi_schema": "the form of its parameters",
    "job_variables": "its job variables",
    "work_queue_name": "its work queue",
}


def _rescheduled(full: str, before: Sequence[str], now: Sequence[str]) -> Changes:
    """What becomes of Headway's schedule of a deployment."""
    if before == now:
        return []
    if not now:
        return [f"removed the schedule of {full}"]
    return [f"{'changed the schedule of' if before else 'scheduled'} {full}: {listed(now)}"]


def _timing(schedule: DeploymentScheduleCreate) -> str:
    if not isinstance(schedule.schedule, CronSchedule):
        return "a schedule of its own"
    return f"{schedule.schedule.cron} {schedule.schedule.timezone or 'UTC'}"


def _automate(client: SyncPrefectClient, pipeline: str, wanted: Sequence[AutomationCore]) -> Changes:
    there = {a.name: a for a in _read_automations(client) if a.name.startswith(prefix(pipeline))}
    changes = []
    for automation in wanted:
        before = there.pop(automation.name, None)
        if before is None:
            client.create_automation(automation)
            changes.append(f"made automation {automation.name!r}: {automation.description}")
        elif _compared(before) != _compared(automation):
            # whether a person has switched it off is theirs to say
            renewed = automation.model_dump(mode="json", exclude_none=True) | {"enabled": before.enabled}
            # validated again, its defaults are set: the client leaves out what is not, and the server refuses the rest
            client.update_automation(before.id, AutomationCore.model_validate(renewed))
            changes.append(f"renewed automation {automation.name!r}: {automation.description}")
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
    fields["trigger"] = {key: sorted(v) if key in _SETS else v for key, v in fields["trigger"].items() if key != "id"}
    return _plain(fields)


_SETS = ("after", "expect", "for_each")


def _plain(value: Any) -> Any:
    """A value as it would come back from the server."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json")
    return json.loads(json.dumps(value, sort_keys=True, default=str))


def _block(client: SyncPrefectClient, name: str, where: str) -> BlockDocument:
    """A block by type/name, without its secrets.

    Raises:
        ConfigError: there is no such block.
    """
    kind, _, title = name.partition("/")
    try:
        return client.read_block_document_by_name(title, kind, include_secrets=False)
    except ObjectNotFound:
        raise ConfigError(
            f"the Prefect server has no block {name!r}",
            where=where,
            fix=f"prefect block create {kind} (names: prefect block ls; types: prefect block type ls)",
        ) from None


def _notifier(client: SyncPrefectClient, name: str, where: str) -> UUID:
    """The id of a notification block.

    Raises:
        ConfigError: there is no such block, or it notifies nobody.
    """
    block = _block(client, name, where)
    capabilities = block.block_schema.capabilities if block.block_schema else []
    if "notify" not in capabilities:
        raise ConfigError(
            f"the block {name!r} notifies nobody: it can {', '.join(capabilities) or 'do nothing of that kind'}",
            where=where,
            fix="name a block of a notification type, such as slack-webhook",
        )
    return block.id
