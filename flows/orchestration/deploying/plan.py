"""What a pipeline needs on a Prefect server, as plain values: its deployments and its automations.

    entries(loaded, pool="headway")          # as prefect.yaml lists them under `deployments:`
    automations(loaded, deployments={...}, blocks={...})

`headway deploy` puts them there, and `prefect deploy --all` of a prefect.yaml with the same entries gives the same.
"""

import importlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

from prefect import Flow
from prefect.events.actions import ActionTypes, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

from flows.config.pipeline import LoadedPipeline
from flows.config.production import DATA_QUEUE, FLOWS, ScheduleConfig

POOL = "headway"
TAG = "headway"
SLUG = "headway"
"""The slug of the schedule that a pipeline's file or the command line gives; schedules with other slugs are a person's own."""
COMMAND = "python -P -m flows.launcher prefect.engine"
"""Prefect's own puts the working directory first on the import path: a flows/ folder there would be taken for Headway's."""
ENTRYPOINTS = {name: f"flows.orchestration.flows.{name}" for name in FLOWS}

Retrain = ScheduleConfig | Literal[False] | None


def load_flow(name: str) -> Flow[..., Any]:
    """Import a flow by its name."""
    module, _, function = ENTRYPOINTS[name].rpartition(".")
    flow: Flow[..., Any] = getattr(importlib.import_module(module), function)
    return flow


def queues_of(loaded: LoadedPipeline) -> list[str]:
    """The work queues that a pipeline's runs are in."""
    queue = loaded.pipeline.train_queue
    return [DATA_QUEUE] if queue is None else [DATA_QUEUE, queue]


def entries(loaded: LoadedPipeline, *, pool: str = POOL, retrain: Retrain = None) -> list[dict[str, Any]]:
    """Return the pipeline's deployments as entries of prefect.yaml.

    Args:
        retrain: when to retrain, instead of what the pipeline's file says; False: only when it is started.
    """
    found = []
    for name in ENTRYPOINTS:
        flow = load_flow(name)
        schedule = loaded.pipeline.schedule
        if name == "retrain" and retrain is not None:
            schedule = retrain or ScheduleConfig()
        cron = schedule.of(name)
        timing = {"cron": cron, "timezone": schedule.timezone, "slug": SLUG, "active": True}
        job_variables: dict[str, Any] = {"command": COMMAND, "working_dir": str(loaded.folder)}
        if secrets := loaded.pipeline.secrets:  # the worker asks the server for them when it starts a flow run
            job_variables["env"] = {name: f"{{{{ prefect.blocks.secret.{block} }}}}" for name, block in secrets.items()}
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
    """Return the pipeline's automations.

    Args:
        deployments: ids by the flow's name.
        blocks: ids of the notification blocks in `alarms.notify`, by type/name.
    """
    pipeline, alarms = loaded.pipeline, loaded.pipeline.alarms
    ids = [f"prefect.deployment.{id}" for id in sorted(map(str, deployments.values()))]
    every: dict[str, str | list[str]] = {"prefect.resource.role": "deployment", "prefect.resource.id": ids}
    each = {"prefect.resource.id"}
    found = []

    def add(alarm: str, about: str, trigger: EventTrigger, actions: list[ActionTypes]) -> None:
        name = prefix(pipeline.name) + alarm
        tags = [TAG, pipeline.name]
        found.append(AutomationCore(name=name, description=about, trigger=trigger, actions=actions, tags=tags))

    for alarm in alarms.when if blocks else ():
        if alarm == "late":
            trigger = EventTrigger(
                after={"prefect.flow-run.Late"},
                expect={"prefect.flow-run.Running", "prefect.flow-run.Cancelled"},
                match_related=every,
                for_each=each,
                posture=Posture.Proactive,
                within=timedelta(minutes=alarms.late_minutes),
            )
        else:
            states = ("Failed", "Crashed", "TimedOut") if alarm == "failed" else (alarm.capitalize(),)
            expect = {f"prefect.flow-run.{state}" for state in states}
            trigger = EventTrigger(expect=expect, match_related=every, for_each=each)
        actions: list[ActionTypes] = [
            SendNotification(block_document_id=id, subject=f"headway: {pipeline.name} {alarm}", body=_BODY)
            for _, id in sorted(blocks.items())
        ]
        add(alarm, f"tell {', '.join(sorted(blocks))}", trigger, actions)
    return found


_BODY = "{{ flow.name }} {{ flow_run.name }}: {{ flow_run.state.message }}"


def prefix(pipeline: str) -> str:
    """Return the words with which the names of a pipeline's automations begin."""
    return f"headway {pipeline}: "
