"""What every flow does around its work: reads the pipeline, stops when it is told to, and says how it ended.

    @flow(name="retrain")
    def retrain(pipeline, ...):
        return flow_body(pipeline, work, set=set, about="2013-01 to 2013-06")

    def work(loaded, log) -> Ending: ...

How a flow run ends:

    Completed   the message says what came of it; the state's name is Held, Rejected or Drifting where `alarms` tell of that
    Failed      a user's mistake or broken data, in the words that the command line prints
    Cancelled   it was cancelled, or its process or its worker got SIGTERM: what was done is kept
    Crashed     its process died

The flow run is named after the pipeline, what it is about, and how it ended: "flights 2013-01 to 2013-06: promoted 3".
"""

import contextlib
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from prefect.client.orchestration import get_client
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Cancelled as CancelledState
from prefect.states import Completed, Failed, State
from pydantic import Field

from flows.config.pipeline import LoadedPipeline, read_pipeline
from flows.config.production import Alarm
from flows.orchestration.requested_stops import StopRequests
from flows.orchestration.run_log import RunLog, say_once
from flows.pipeline.listeners import stop_on_signals
from headway.errors import Cancelled, ConfigError, HeadwayError
from headway.redaction import protect, redact, scrub

PipelinePath = Annotated[str, Field(min_length=1)]
Window = Annotated[int, Field(ge=1)] | Annotated[str, Field(pattern=r"^(\d+[hdwmy]|all)$")] | None
Seed = Annotated[int, Field(ge=0, lt=2**31)] | None
Seconds = Annotated[float, Field(ge=0)]
Settings = dict[str, Any] | None

SAME_STOP_SECONDS = 10.0
"""Signals that come this soon after the first are the same stop: a supervisor sends its own to each process, and the
worker passes on the one it got."""


@dataclass(frozen=True)
class Ending:
    """How a flow's work ended."""

    message: str
    """A sentence, for the state."""
    word: str
    """One or two words, for the name of the run: promoted 3."""
    alarm: Alarm | None = None
    """That it raises: an automation waits for a state of that name."""


Work = Callable[[LoadedPipeline, RunLog], Ending]


def flow_body(
    pipeline: str,
    work: Work,
    *,
    set: Settings = None,
    about: Callable[[LoadedPipeline], str] = lambda loaded: "",
) -> State[None]:
    """Run a flow's work; see the module.

    Args:
        set: keys of the pipeline and other values for them.
        about: what the run is about, as its name says it: the window.
    """
    protect()
    say_once()
    stops = StopRequests(str(flow_run.id))
    log: RunLog | None = None
    name = Path(pipeline).stem
    try:
        signals = stop_on_signals(stops.stop, signal.SIGTERM, signal.SIGINT, same_seconds=SAME_STOP_SECONDS)
        with signals, stops.polling():
            loaded = _read(Path(pipeline), set)
            name = loaded.pipeline.name
            with contextlib.suppress(HeadwayError):  # the work says it
                name = f"{name} {about(loaded)}".strip()
            _rename(name)
            log = RunLog(stops, pipeline=loaded.pipeline.name)
            ending = work(loaded, log)
    except Exception as error:
        stops.wait_for_server()  # an outage must not cost the name and the state
        if log is not None:
            log.catch_up()
        if not isinstance(error, HeadwayError):
            _rename(f"{name}: failed")
            raise scrub(error) from None  # Prefect puts its words into the flow run's state
        _rename(f"{name}: {'cancelled' if isinstance(error, Cancelled) else 'failed'}")
        get_run_logger().error("%s", error)
        return unhappy(error, stops.why)
    stops.wait_for_server()
    log.catch_up()
    message = redact(ending.message)
    _rename(f"{name}: {ending.word}")
    get_run_logger().info("%s", message)
    return Completed(message=message, name=(ending.alarm or "completed").capitalize())


def _read(pipeline: Path, set: Settings) -> LoadedPipeline:
    """Read the deployment's pipeline.

    Raises:
        ConfigError: as `read_pipeline`; one that is gone says what to do about the deployment.
    """
    try:
        return read_pipeline(pipeline, set)
    except ConfigError as error:
        if pipeline.is_file() or (pipeline / "pipeline.yaml").exists():
            raise
        fix = (
            f"put it back, or let {socket.gethostname()} see it there; where it has moved, 'headway deploy' of its new "
            "folder; 'headway deploy --remove' where it is not wanted any more"
        )
        raise ConfigError(error.problem, where=error.where, fix=fix) from None


def _rename(name: str) -> None:
    """Name the flow run."""
    with contextlib.suppress(Exception), get_client(sync_client=True) as client:  # a name is not worth a failure
        client.update_flow_run(flow_run.id, name=redact(name))


def unhappy(error: HeadwayError, why: str | None = None) -> State[None]:
    """The state of a run or a task that ended with an error."""
    if not isinstance(error, Cancelled):
        return Failed(message=str(error))
    return CancelledState(message=str(error) if why in (None, error.problem) else f"{why}: {error}")
