"""The automation that ends flow runs whose process is gone: Prefect has none built in, they stay Running for ever.

    install(within=90)                                   # on the server that PREFECT_API_URL names

A flow run sends a heartbeat every 30 s (prefect.yaml). When neither the next one nor an end follows in time, its state
becomes Crashed, which also frees its place in the deployment's concurrency limit.
"""

from __future__ import annotations

from datetime import timedelta

from prefect.automations import Automation
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import EventTrigger, Posture

NAME = "headway: crash flow runs without a heartbeat"
_ENDS = ("Completed", "Failed", "Cancelled", "Crashed", "TimedOut", "Paused", "Suspended", "AwaitingRetry")
"""Names of states in which no heartbeat is due. Events carry a state's name, not its type: a flow that ends in a state
with a name of its own has to be added here, else it would be crashed after its end."""


def automation(within: int = 90) -> Automation:
    beat = "prefect.flow-run.heartbeat"
    trigger = EventTrigger(
        after={beat},
        expect={beat} | {f"prefect.flow-run.{name}" for name in _ENDS},
        match={"prefect.resource.id": ["prefect.flow-run.*"]},
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=within),
    )
    message = f"no heartbeat for {within} s: its process is gone"
    return Automation(
        name=NAME,
        trigger=trigger,
        actions=[ChangeFlowRunState(state=StateType.CRASHED, name=None, message=message, force=False)],
    )


def install(within: int = 90) -> None:
    """Make the automation, or renew one that differs."""
    wanted = automation(within)
    try:
        found = Automation.read(name=NAME)
    except ValueError:
        wanted.create()
        return
    assert isinstance(found, Automation)
    if (found.trigger.expect, found.trigger.within) != (wanted.trigger.expect, wanted.trigger.within):  # type: ignore[union-attr]
        found.delete()
        wanted.create()
