"""What a pipeline needs on a Prefect server: work pool, deployments, schedules and automations.

    with connected() as (client, url):
        changes = deploy(client, loaded)           # ["made deployment retrain/flights: 0 5 2 * * UTC", ...]
        deploy(client, loaded)                     # []: nothing to change
        undeploy(client, "flights")
    yaml_entries(loaded, pool="headway")           # the deployments as prefect.yaml lists them, for `prefect deploy --all`

The server's state is compared first, so that a second call writes nothing. Only what Headway made is changed: schedules with
Headway's slug, automations with its name prefix, deployments with its entrypoints.
"""

import contextlib
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

import httpx
from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate, WorkPoolCreate
from prefect.client.schemas.objects import ConcurrencyOptions, StateType
from prefect.client.schemas.responses import DeploymentResponse
from prefect.events.actions import ActionTypes, ChangeFlowRunState, SendNotification
from prefect.events.schemas.automations import Automation, AutomationCore, EventTrigger, Posture
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.utilities.callables import parameter_schema

from flows.config.pipeline import LoadedPipeline
from flows.config.production import DATA_QUEUE, FLOWS, GPU_QUEUE, ScheduleConfig
from flows.orchestration import HEARTBEAT, flows
from flows.orchestration.server import POOL, create_queues
from headway.errors import ConfigError
from headway.messages import counted, listed

Changes = list[str]
TAG = SLUG = "headway"
"""SLUG marks the schedule that Headway sets; schedules with other slugs were made by a person."""
COMMAND = (
    'python -P -W ignore::RuntimeWarning:runpy -c "import runpy, flows.orchestration.flows; '
    "runpy.run_module('prefect.engine', run_name='__main__')\""
)
"""The command of a flow run. Prefect's own command puts the working directory first on the import path, where a flows/ folder
would hide Headway's package. The ignored warning says that the engine is imported already."""
ENTRYPOINTS = {name: f"flows.orchestration.flows.{name}" for name in FLOWS}

Retrain = ScheduleConfig | Literal[False] | None


def deploy(
    client: SyncPrefectClient,
    loaded: LoadedPipeline,
    *,
    pool: str = POOL,
    retrain: Retrain = None,
    gpus: int | None = None,
) -> Changes:
    """Bring a pipeline's queues, deployments and automations on the server up to date; returns a line of text for each change.

    Args:
        retrain: the schedule of the flow retrain; False: no schedule; None: the schedule in pipeline.yaml, or, if there is none,
            the schedule on the server.
        gpus: the number of trainings that may run at once on the queue gpu; None: the queue's limit on the server, else one.

    Raises:
        ConfigError: a block does not exist or cannot notify, or another program's deployment has the pipeline's name.
    """
    file = loaded.file
    blocks = {
        name: _block(client, name, f"{file}: alarms.notify", notifies=True) for name in loaded.pipeline.alarms.notify
    }
    for variable, block in loaded.pipeline.secrets.items():
        _block(client, f"secret/{block}", f"{file}: secrets.{variable}")
    changes = [f"made work pool {pool}"] if create_pool(client, pool) else []
    changes += [f"made work queue {name} of {pool}" for name in create_queues(client, pool, queues_of(loaded))]
    if gpus is not None or GPU_QUEUE in queues_of(loaded):
        changes += _limit(client, pool, gpus)
    ids = {}
    for flow, entry in zip(ENTRYPOINTS, yaml_entries(loaded, pool=pool, retrain=retrain), strict=True):
        ids[flow], changed = _deploy_one(client, flow, entry, keep_schedule=flow == "retrain" and retrain is None)
        changes += changed
    return changes + _automate(client, loaded.pipeline.name, automations(loaded, deployments=ids, blocks=blocks))


def undeploy(client: SyncPrefectClient, pipeline: str) -> Changes:
    """Remove a pipeline's deployments and automations; its runs, its store, the work pool and its queues stay."""
    changes = _automate(client, pipeline, [])
    for flow, entrypoint in ENTRYPOINTS.items():
        there = _find(client, f"{flow}/{pipeline}")
        if there is not None and there.entrypoint == entrypoint:
            client.delete_deployment(there.id)
            changes.append(f"removed deployment {flow}/{pipeline}")
    return changes


def lost_run_problems(client: SyncPrefectClient, pipeline: str) -> list[str]:
    """Returns why the server would not end flow runs whose process and worker died: automations that are off, no triggers."""
    names = {f"headway {pipeline}: {name}" for name in LOST}
    off = [each.name for each in _read_automations(client) if each.name in names and not each.enabled]
    found = [f"automation {name!r} is switched off: lost flow runs stay as they are" for name in off]
    with contextlib.suppress(httpx.HTTPStatusError, KeyError):  # Prefect Cloud does not say
        services = client.request("GET", "/admin/settings").json()["server"]["services"]
        if not services["triggers"]["enabled"]:
            setting = "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED"
            found.append(f"{setting} is false on the server: no automation works, and lost flow runs stay as they are")
    return found


def _limit(client: SyncPrefectClient, pool: str, trainings: int | None) -> Changes:
    """Limit the concurrent runs of the queue gpu to `trainings` (None: its present limit, else one); returns the changes."""
    create_queues(client, pool, [GPU_QUEUE])
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
    flow: Flow[..., Any] = getattr(flows, name)
    pool, limit = entry["work_pool"], entry["concurrency_limit"]
    env = {} if there is None else there.job_variables.get("env") or {}
    # a person's settings of Prefect stay, such as of retries
    env = {name: value for name, value in env.items() if name.startswith("PREFECT_")} | pool["job_variables"]["env"]
    wanted: dict[str, Any] = {
        **{key: entry[key] for key in ("description", "tags", "parameters", "entrypoint")},
        "version": flow.version,
        "job_variables": {**pool["job_variables"], "env": env},
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
        slots, options = there.global_concurrency_limit, there.concurrency_options
        limited = {"limit": slots and slots.limit, "collision_strategy": options and options.collision_strategy}
        changes = []
        if limited != limit or any(_plain(getattr(there, key)) != _plain(value) for key, value in wanted.items()):
            theirs = there.parameters.get("pipeline")
            moved = f" (was of {theirs})" if theirs not in (None, wanted["parameters"]["pipeline"]) else ""
            changes.append(f"renewed deployment {full}{moved}")
        if then != now:
            changes.append(f"set the schedule of {full}: {now}" if now else f"removed the schedule of {full}")
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


def _timing(schedule: Mapping[str, Any]) -> str:
    timing = schedule["schedule"]
    return f"{timing['cron']} {timing['timezone'] or 'UTC'}" if "cron" in timing else "a schedule of its own"


def _automate(client: SyncPrefectClient, pipeline: str, wanted: Sequence[AutomationCore]) -> Changes:
    there = {a.name: a for a in _read_automations(client) if a.name.startswith(f"headway {pipeline}: ")}
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
    return _plain(automation.model_dump(exclude={"id": True, "enabled": True, "trigger": {"id"}}))


def _plain(value: Any) -> Any:
    """Returns a value as JSON values, as the server would return it."""
    if hasattr(value, "model_dump"):
        value = value.model_dump()
    return json.loads(json.dumps(value, sort_keys=True, default=lambda v: sorted(v) if isinstance(v, set) else str(v)))


def _block(client: SyncPrefectClient, name: str, where: str, *, notifies: bool = False) -> UUID:
    """Returns the id of the Prefect block `name`, which is type/name.

    Raises:
        ConfigError: the block does not exist, or `notifies` is set and the block is of no notification type.
    """
    kind, _, title = name.partition("/")
    try:
        block = client.read_block_document_by_name(title, kind, include_secrets=False)
    except ObjectNotFound:
        fix = f"prefect block create {kind} (names: prefect block ls; types: prefect block type ls)"
        raise ConfigError(f"the Prefect server has no block {name!r}", where=where, fix=fix) from None
    capabilities = block.block_schema.capabilities if block.block_schema else []
    if notifies and "notify" not in capabilities:
        fix = "name a block of a notification type, such as slack-webhook"
        raise ConfigError(f"the block {name!r} notifies nobody", where=where, fix=fix)
    return block.id


def queues_of(loaded: LoadedPipeline) -> list[str]:
    """Returns the names of the work queues that a pipeline's runs use."""
    queue = loaded.pipeline.train_queue
    return [DATA_QUEUE] if queue is None else [DATA_QUEUE, queue]


def yaml_entries(loaded: LoadedPipeline, *, pool: str = POOL, retrain: Retrain = None) -> list[dict[str, Any]]:
    """Returns the pipeline's deployments as entries of prefect.yaml.

    Args:
        retrain: the schedule of the flow retrain; False: no schedule; None: the schedule in pipeline.yaml.
    """
    found = []
    for name in ENTRYPOINTS:
        flow: Flow[..., Any] = getattr(flows, name)
        schedule = loaded.pipeline.schedule
        if name == "retrain" and retrain is not None:
            schedule = retrain or ScheduleConfig()
        cron = schedule.of(name)
        timing = {"cron": cron, "timezone": schedule.timezone, "slug": SLUG, "active": True}
        # the worker asks the server for secrets when it starts a flow run
        secrets = {name: f"{{{{ prefect.blocks.secret.{block} }}}}" for name, block in loaded.pipeline.secrets.items()}
        env = {**HEARTBEAT, **secrets}
        job_variables = {"command": COMMAND, "working_dir": str(loaded.folder), "env": env}
        whole = loaded.file if loaded.file.name != "pipeline.yaml" else loaded.folder
        entry = {
            "name": loaded.pipeline.name,
            "entrypoint": ENTRYPOINTS[name],
            "description": (flow.description or "").partition("\n")[0],
            "tags": [TAG, loaded.pipeline.name],
            "parameters": {"pipeline": str(whole)},
            "schedules": [timing] if cron is not None else [],
            "work_pool": {"name": pool, "work_queue_name": DATA_QUEUE, "job_variables": job_variables},
            # schedules that were missed fire all at once when a worker comes back: one runs, the others are cancelled
            "concurrency_limit": {"limit": 1, "collision_strategy": "CANCEL_NEW"},
        }
        found.append(entry)
    return found


def automations(
    loaded: LoadedPipeline, *, deployments: Mapping[str, UUID], blocks: Mapping[str, UUID]
) -> list[AutomationCore]:
    """Returns the pipeline's automations.

    Args:
        deployments: {flow's name: the deployment's id}
        blocks: {type/name of a notification block in `alarms.notify`: the block's id}
    """
    pipeline, alarms = loaded.pipeline, loaded.pipeline.alarms
    ids = [f"prefect.deployment.{id}" for id in sorted(map(str, deployments.values()))]
    every: dict[str, str | list[str]] = {"prefect.resource.role": "deployment", "prefect.resource.id": ids}
    found: list[AutomationCore] = []

    def add(name: str, about: str, actions: list[ActionTypes], **trigger: Any) -> None:
        fired_by = EventTrigger(match_related=every, for_each={"prefect.resource.id"}, **trigger)
        name, tags = f"headway {pipeline.name}: {name}", [TAG, pipeline.name]
        found.append(AutomationCore(name=name, description=about, trigger=fired_by, actions=actions, tags=tags))

    def missing(after: set[str], expect: set[str], seconds: int) -> dict[str, Any]:
        """Returns the fields of a trigger that fires if no event of `expect` follows an event of `after` within `seconds`."""
        within = timedelta(seconds=seconds)
        return {"posture": Posture.Proactive, "after": _events(after), "expect": _events(expect), "within": within}

    for name, (after, goes_on, seconds, message) in LOST.items():
        crashed = ChangeFlowRunState(state=StateType.CRASHED, name="Crashed", message=message, force=False)
        add(name, f"Crashed after {seconds} s: {message}", [crashed], **missing(after, goes_on | ENDS, seconds))
    for alarm in alarms.when if blocks else ():
        if alarm == "late":
            trigger = missing({"Late"}, {*BEGUN, "Cancelled"}, 60 * alarms.late_minutes)
        else:
            names = {"Failed", "Crashed", "TimedOut"} if alarm == "failed" else {alarm.capitalize()}
            trigger = {"expect": _events(names)}
        tell: list[ActionTypes] = [
            SendNotification(block_document_id=id, subject=f"headway: {pipeline.name} {alarm}", body=_BODY)
            for _, id in sorted(blocks.items())
        ]
        add(alarm, f"tell {', '.join(sorted(blocks))}", tell, **trigger)
    return found


BEGUN = {"Running", "Retrying", "Rerunning"}
ENDS = {"Completed", "Held", "Rejected", "Drifting", "Failed", "TimedOut", "Cancelled", "Crashed"}
"""The names of the states in which a flow run ends."""
LOST: dict[str, tuple[set[str], set[str], int, str]] = {
    "not started": ({"Pending"}, {*BEGUN, "Cancelling", "Scheduled"}, 60, "it did not start: its worker is gone"),
    # longer than the outages of the server that a run outlives, as heartbeats cannot arrive meanwhile
    "silent": (
        {*BEGUN, "heartbeat"},
        {"heartbeat", "AwaitingRetry", "Paused", "Suspended"},
        900,
        "no heartbeat for 15 min: its process is gone, or it cannot reach the server",
    ),
}
"""How the server finds lost flow runs: {name: (events, later events, seconds, message)}. After one of the events, a run is lost
if it neither ends nor has one of the later events within the seconds. Workers are quicker: a living worker reports a process
that died. When Headway's worker starts, it reports the processes that died with the worker before it."""


def _events(names: Collection[str]) -> set[str]:
    return {f"prefect.flow-run.{name}" for name in names}


_BODY = "{{ flow.name }} {{ flow_run.name }}: {{ flow_run.state.message }}"


def create_pool(client: SyncPrefectClient, name: str) -> bool:
    """Create a work pool of type process; returns False if it exists already."""
    from prefect.workers.process import ProcessWorker

    template = ProcessWorker.get_default_base_job_template()
    pool = WorkPoolCreate(name=name, type="process", base_job_template=template, description="Headway")
    with contextlib.suppress(ObjectAlreadyExists):
        client.create_work_pool(pool)
        return True
    return False
