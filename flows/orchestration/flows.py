"""The Prefect flows: the work of `headway run`, `backfill`, `predict --spans` and `monitor` as flow runs.

    prefect deployment run 'retrain/flights' --watch -p until=2013-12
    prefect deployment run 'backfill/flights' -p first=2013-01 -p last=2013-06
    prefect deployment run 'predict/flights'
    prefect deployment run 'monitor/flights' -p retrain=true

They are ordinary flows: any worker runs them, and so does `retrain.serve(...)`. Prefect decides when and where; the store's
fingerprints decide what has to run, so Prefect's own caching and result storage are off. Each step of the DAG is a task.

How a flow run ends:

    Completed   the message says what came of it; the state's name is Held, Rejected or Drifting where `alarms` tell of that
    Failed      a user's mistake or broken data, in the words that the command line prints
    Cancelled   it was cancelled or deleted, or its process or its worker got SIGTERM: what was done is kept
    Crashed     its process died

The flow run is named after the pipeline, what it is about, and how it ended: "flights 2013-01 to 2013-06: promoted 3".
"""

import contextlib
import functools
import os
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

from flows.orchestration import ENVIRONMENT

os.environ.update(ENVIRONMENT | dict(os.environ))  # before what reads it is imported

from prefect import Task, flow
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Cancelled as CancelledState
from prefect.states import Completed, Failed
from prefect.states import State as FlowState
from pydantic import Field

from flows.config.pipeline import LoadedPipeline, read_pipeline
from flows.config.production import Alarm
from flows.orchestration import second_half
from flows.orchestration.outages import go_on_without_lease, outlive_reader
from flows.orchestration.requested_stops import StopRequests
from flows.orchestration.run_log import RunLog, say_once
from flows.orchestration.server import start_run
from flows.pipeline.backfill import Upto
from flows.pipeline.backfill import backfill as run_backfill
from flows.pipeline.context import Context
from flows.pipeline.dag import Executor
from flows.pipeline.listeners import Reporter, stop_on_signals
from flows.pipeline.monitor import Monitoring, check_champion
from flows.pipeline.predict import predict_spans
from flows.pipeline.prepared import PREPARE, leave, needs_training, prepared_by
from flows.pipeline.run import execute
from flows.records import RunRecord, State
from flows.report.verdict import ending_of
from headway.errors import Cancelled, ConfigError, HeadwayError
from headway.messages import counted, some, window_text
from headway.redaction import protect, redact, scrub
from headway.stages.step import Output, Step

WAIT_SECONDS = 60.0
"""How long a run waits for another one of its pipeline: one that the server has called Crashed while it was cut off, and that
lives, saves and ends when it learns of that."""
SAME_STOP_SECONDS = 10.0
"""Signals that come this soon after the first are the same stop: a supervisor sends its own to each process, and the
worker passes on the one it got."""


PipelinePath = Annotated[str, Field(min_length=1)]
Window = Annotated[int, Field(ge=1)] | Annotated[str, Field(pattern=r"^(\d+[hdwmy]|all)$")] | None
Seed = Annotated[int, Field(ge=0, lt=2**31)] | None
Seconds = Annotated[float, Field(ge=0)]
Settings = dict[str, Any] | None


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


go_on_without_lease()
if "PREFECT__FLOW_RUN_ID" in os.environ:  # a flow run's process: its engine prints before the flow's body begins
    outlive_reader()


@flow(name="retrain", persist_result=False, log_prints=True, on_completion=[second_half.release])
def retrain(
    pipeline: PipelinePath = "examples/flights",
    window: Window = None,
    until: str = "latest",
    seed: Seed = None,
    force: bool = False,
    wait: Seconds = WAIT_SECONDS,
    set: Settings = None,
    prepared: Annotated[str, Field(pattern=r"^[0-9A-Za-z-]+$")] | None = None,
) -> FlowState[None]:
    """Train on a window of spans, and promote the model if the gate lets it through.

    Where `queues` names another queue, the flow run prepares the window and starts a second one there, which trains on it
    (`flows.orchestration.second_half`).

    Args:
        pipeline: a pipeline.yaml or its folder; relative to the flow run's working directory.
        window: how many spans, or how much time up to the last one ("30d", "12m"), or "all"; none: as pipeline.yaml says.
        until: the last span, or "latest".
        seed: instead of the pipeline's.
        force: promote whatever the gate says.
        wait: seconds to wait for another run of the pipeline to end.
        set: keys of the pipeline and other values for them, as in {"training.epochs": 3}.
        prepared: the run that has prepared the window, with which this one goes on; a flow run gives it to its second half.
    """

    def spec(loaded: LoadedPipeline) -> Context:
        store = loaded.open_store()
        context = Context(loaded, store, window, until, seed, force)
        return context if prepared is None else prepared_by(context, prepared)

    def about(loaded: LoadedPipeline) -> str:
        place = f" on {loaded.pipeline.train_queue}" if prepared else ""
        return window_text(spec(loaded).spans) + place

    def work(loaded: LoadedPipeline, log: RunLog) -> Ending:
        context, queue = spec(loaded), loaded.pipeline.train_queue
        run = functools.partial(execute, wrap=functools.partial(Tasks, report=log.report), wait_seconds=wait)
        if queue is not None and prepared is None and needs_training(context):
            record = run(replace(context, last=PREPARE), log.report)
            leave(context, record)
            return Ending(second_half.begin(loaded, record, queue, log), "prepared")
        return ended(run(context, log.report))

    return flow_body(second_half.here(pipeline) if prepared else pipeline, work, set=set, about=about)


ALARMS: dict[State, Alarm] = {
    State.REJECTED: "rejected",
    State.NEEDS_PERSON: "held",
}
"""That a run raises by its state."""


def ended(record: RunRecord) -> Ending:
    """How a run ended: its state's message, and the word in its name."""
    ending = ending_of(record)
    promoted = f" {record.version}" if record.state == "promoted" else ""
    return Ending(ending.line, f"{ending.word}{promoted}", ALARMS.get(record.state))


@flow(name="backfill", persist_result=False, log_prints=True)
def backfill(
    pipeline: PipelinePath,
    first: Annotated[str, Field(min_length=1)],
    last: str = "latest",
    window: Window = None,
    upto: Upto = "gate",
    promote: bool = False,
    parallel: Annotated[int, Field(ge=1, le=64)] = 1,
    seed: Seed = None,
    wait: Seconds = WAIT_SECONDS,
    set: Settings = None,
) -> FlowState[None]:
    """Train and judge a range of past windows, each as it would have been then; what is done is not done again.

    Args:
        pipeline: a pipeline.yaml or its folder; relative to the flow run's working directory.
        first: the last span of the first window.
        last: the last span of the last window, or "latest".
        window: how many spans each has, or how much time ("30d", "12m"), or "all"; none: as pipeline.yaml says.
        upto: the last stage of each: ingest, train or gate.
        promote: let the gate promote, the oldest window first; else nothing is promoted.
        parallel: windows at the same time, each with a TensorFlow process of its own.
        seed: instead of the pipeline's.
        wait: seconds to wait for another run of the pipeline to end.
        set: keys of the pipeline and other values for them, as in {"training.epochs": 3}.
    """

    def work(loaded: LoadedPipeline, log: RunLog) -> Ending:
        result = run_backfill(
            Context(loaded, loaded.open_store(), window, seed=seed),
            log.report,
            first=first,
            last=last,
            upto=upto,
            promote=promote,
            parallel=parallel,
            wait_seconds=wait,
            wrap=Tasks,
            on_row=lambda rows: log.table("backfill", "windows done so far", [each.row for each in rows]),
        )
        return Ending(f"{result.first} to {result.last}: {result.counts}", result.counts)

    return flow_body(pipeline, work, set=set, about=lambda loaded: f"backfill {first} to {last}")


@flow(name="predict", persist_result=False, log_prints=True)
def predict(pipeline: PipelinePath, model: str = "champion", since: str = "") -> FlowState[None]:
    """Predict each complete span that has no predictions yet; the folder of a span's predictions appears whole.

    Args:
        pipeline: a pipeline.yaml or its folder; relative to the flow run's working directory.
        model: a version: its number, champion, previous or an alias.
        since: leave out spans before this one; "": none.
    """

    def work(loaded: LoadedPipeline, log: RunLog) -> Ending:
        result = predict_spans(
            loaded,
            log.report,
            model=model,
            since=since,
            on_row=lambda rows: log.table("predictions", "spans predicted by this run", [r.model_dump() for r in rows]),
        )
        spans, rows = [row.span for row in result.spans], sum(row.rows for row in result.spans)
        if not spans:
            return Ending(f"nothing to predict: {counted(result.there, 'span')} done before", "nothing new")
        message = f"predicted {counted(rows, 'row')} of {some(spans, 5)} by version {result.spans[-1].version}"
        return Ending(message, f"{counted(len(spans), 'span')}")

    return flow_body(pipeline, work)


@flow(name="monitor", persist_result=False, log_prints=True)
def monitor(pipeline: PipelinePath, retrain: bool = False) -> FlowState[None]:
    """Hold new spans against the champion's window, and the champion against labels that came since.

    Args:
        pipeline: a pipeline.yaml or its folder; relative to the flow run's working directory.
        retrain: start a retrain when there is an alarm.
    """

    def work(loaded: LoadedPipeline, log: RunLog) -> Ending:
        name = loaded.pipeline.name
        context = Context(loaded=loaded, store=loaded.open_store())
        result = check_champion(context, log.report, wrap=functools.partial(Tasks, report=log.report))
        for line in result.lines:
            log.report.note(line)
        if result.spans:
            log.table("monitor", f"spans held against version {result.champion}", _monitored_spans(result))
        if not result.alarms:
            return Ending(f"{counted(len(result.spans), 'span')} checked, no alarm", "no alarm")
        started = ""
        if retrain:  # last: what it raises must not keep back the alarms, which are told once
            key = f"monitor-{result.champion}-{result.spans[-1].span}"
            started = f"; started a retrain: flow run {start_run(f'retrain/{name}', f'headway-{name}-{key}', {}).id}"
        alarms = counted(len(result.alarms), "alarm")
        return Ending(f"{alarms}: {'; '.join(result.alarms)}{started}", alarms, "drifting")

    return flow_body(pipeline, work)


def _monitored_spans(result: Monitoring) -> list[dict[str, object]]:
    return [
        {"span": each.span, "rows": each.rows, "scored": each.scored, **each.metrics, "alarms": "; ".join(each.alarms)}
        for each in result.spans
    ]


def flow_body(
    pipeline: str,
    work: Work,
    *,
    set: Settings = None,
    about: Callable[[LoadedPipeline], str] = lambda loaded: "",
) -> FlowState[None]:
    """Run a flow's work: read the pipeline, stop when asked to, and say how it ended.

    Args:
        set: keys of the pipeline and other values for them.
        about: what the run is about, as its name says it: the window.
    """
    protect()
    outlive_reader()
    say_once()
    stops = StopRequests(str(flow_run.id))
    log: RunLog | None = None
    name = Path(pipeline).stem
    try:
        signals = stop_on_signals(stops.stop, signal.SIGTERM, signal.SIGINT, same_seconds=SAME_STOP_SECONDS)
        with signals, stops.polling():
            loaded = _read_pipeline(Path(pipeline), set)
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
        if not isinstance(error, Cancelled) and _is_retried():
            raise scrub(error) from None  # Prefect's engine retries what is raised, and no state that is returned
        return _unhappy(error, stops.why)
    stops.wait_for_server()
    log.catch_up()
    message = redact(ending.message)
    _rename(f"{name}: {ending.word}")
    get_run_logger().info("%s", message)
    return Completed(message=message, name=(ending.alarm or "completed").capitalize())


def _read_pipeline(pipeline: Path, set: Settings) -> LoadedPipeline:
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


def _is_retried() -> bool:
    """Tells whether Prefect will run the flow again, should it fail now."""
    context = FlowRunContext.get()
    if context is not None and context.flow is not None and context.flow.retries and flow_run.id:
        with contextlib.suppress(Exception), get_client(sync_client=True) as client:
            # the context's own count is of the time before the run
            return client.read_flow_run(UUID(flow_run.id)).run_count <= context.flow.retries
    return False


def _unhappy(error: HeadwayError, why: str | None = None) -> FlowState[None]:
    """The state of a run or a task that ended with an error."""
    if not isinstance(error, Cancelled):
        return Failed(message=str(error))
    return CancelledState(message=str(error) if why in (None, error.problem) else f"{why}: {error}")


class Tasks:
    """An executor whose steps are Prefect tasks: submits each and waits until the engine has run it."""

    def __init__(self, inner: Executor, report: Reporter):
        self._inner, self._report = inner, report

    def call_many(self, steps: Sequence[Step]) -> list[Output]:
        """Run steps as one task, for a stage that can run several steps at once."""
        self._report.check()
        outputs: list[Output] = []
        errors: list[HeadwayError] = []

        def work() -> FlowState[None]:
            # Steps and outputs stay in this process: as parameters and results Prefect would walk through them
            try:
                outputs.extend(self._inner.call_many(steps))
            except HeadwayError as error:  # raised below; as a state it is a sentence, not a traceback
                errors.append(error)
                if text := getattr(error, "traceback", None):
                    get_run_logger().error("%s", text)
                return _unhappy(error)
            except Exception as error:
                raise scrub(error) from None
            cached = all(output.hit for output in outputs)
            return Completed(name="Cached" if cached else "Completed", message="cached" if cached else None)

        stage = steps[0].stage.name
        title = steps[0].title if len(steps) == 1 else f"{stage} ({len(steps)} spans)"
        task = Task(work, name=stage, task_run_name=title, cache_policy=NO_CACHE, persist_result=False, retries=0)
        future = task.submit()
        try:
            future.wait()
        except BaseException:
            self._report.stop.set()  # the task's thread sees it at its next check
            raise
        if errors:
            raise errors[0]
        if not outputs:
            future.result()  # raises what the task did: a bug
        return outputs
