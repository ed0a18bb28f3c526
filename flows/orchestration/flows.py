"""The Prefect flows: the work of `headway run`, `backfill`, `predict --spans` and `monitor` as flow runs.

    prefect deployment run 'retrain/flights' --watch -p until=2013-12
    prefect deployment run 'backfill/flights' -p first=2013-01 -p last=2013-06
    prefect deployment run 'predict/flights'
    prefect deployment run 'monitor/flights' -p retrain=true

They are ordinary flows: any worker runs them, and so does `retrain.serve(...)`. Prefect decides when and where; the store's
fingerprints decide what has to run, so Prefect's own caching and result storage are off. Each step of the DAG is a task.

A flow run's name tells its pipeline, its spans, and how it ended: "flights 2013-01 to 2013-06: promoted 3". After a mistake of
the user or with broken data, the state's message has the words that the command line prints; docs/prefect.md lists the states.
"""

import contextlib
import functools
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

from flows.orchestration import ENVIRONMENT

os.environ.update(ENVIRONMENT | dict(os.environ))  # before what reads it is imported

from prefect import Task, flow, flow_engine
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.exceptions import CancelledRun, FailedRun
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Cancelled as CancelledState
from prefect.states import Completed, Failed
from prefect.states import State as FlowState
from pydantic import Field

from flows.config.pipeline import LoadedPipeline, read_pipeline
from flows.config.production import Alarm
from flows.orchestration import second_half
from flows.orchestration.run_log import RunLog
from flows.orchestration.server import StopRequests, start_run
from flows.pipeline.backfill import Upto
from flows.pipeline.backfill import backfill as run_backfill
from flows.pipeline.context import Context
from flows.pipeline.dag import Executor
from flows.pipeline.listeners import Reporter, stop_on_signals
from flows.pipeline.monitor import check_champion
from flows.pipeline.predict import predict_spans
from flows.pipeline.prepared import PREPARE, load_prepared, needs_training, write_prepared
from flows.pipeline.run import execute
from flows.records import RunRecord, State
from flows.report.verdict import ending_of
from headway.errors import Cancelled, ConfigError, HeadwayError
from headway.messages import counted, some, window_text
from headway.redaction import protect, redact, scrub
from headway.stages.step import Output, Step

WAIT_SECONDS = 60.0
"""The seconds that a run waits for an earlier run of its pipeline to end, such as a stopped run that is still saving."""
SAME_STOP_SECONDS = 10.0
"""Signals this soon after the first count as the same stop: a flow run may get one each from supervisor and worker."""

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
    """One or two words, for the name of the flow run: promoted 3."""
    alarm: Alarm | None = None
    """The alarm to raise; None: no alarm. The flow run's state gets the alarm's name, for which an automation waits."""


Work = Callable[[LoadedPipeline, RunLog], Ending]


@flow(name="retrain", persist_result=False, log_prints=True, on_completion=[second_half.start_second_half])
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
        return context if prepared is None else load_prepared(context, prepared)

    def about(loaded: LoadedPipeline) -> str:
        return window_text(spec(loaded).spans) + (f" on {loaded.pipeline.train_queue}" if prepared else "")

    def work(loaded: LoadedPipeline, log: RunLog) -> Ending:
        context, queue = spec(loaded), loaded.pipeline.train_queue
        run = functools.partial(execute, wrap=functools.partial(Tasks, report=log.report), wait_seconds=wait)
        if queue is not None and prepared is None and needs_training(context):
            record = run(replace(context, last=PREPARE), log.report)
            write_prepared(context, record)
            return Ending(second_half.schedule_second_half(loaded, record, queue, log), "prepared")
        return flow_ending(run(context, log.report))

    return flow_body(second_half.local_path(pipeline) if prepared else pipeline, work, set=set, about=about)


def flow_ending(record: RunRecord) -> Ending:
    """Returns a run's ending: the message for the flow run's state, the words for its name, and the alarm if there is one."""
    ending = ending_of(record)
    promoted = f" {record.version}" if record.state == "promoted" else ""
    alarms: dict[State, Alarm] = {State.REJECTED: "rejected", State.NEEDS_PERSON: "held"}
    return Ending(ending.line, f"{ending.word}{promoted}", alarms.get(record.state))


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
        result = predict_spans(loaded, log.report, model=model, since=since)
        spans, rows = [row.span for row in result.spans], sum(row.rows for row in result.spans)
        if not spans:
            return Ending(f"nothing to predict: {counted(result.there, 'span')} done before", "nothing new")
        message = f"predicted {counted(rows, 'row')} of {some(spans, 5)} by version {result.spans[-1].version}"
        return Ending(message, f"{counted(len(spans), 'span')}")

    return flow_body(pipeline, work)


@flow(name="monitor", persist_result=False, log_prints=True)
def monitor(pipeline: PipelinePath, retrain: bool = False) -> FlowState[None]:
    """Check new spans for drift from the champion's window, and the champion's metrics on labels that came since.

    Args:
        pipeline: a pipeline.yaml or its folder; relative to the flow run's working directory.
        retrain: start a retrain when there is an alarm.
    """

    def work(loaded: LoadedPipeline, log: RunLog) -> Ending:
        name, context = loaded.pipeline.name, Context(loaded=loaded, store=loaded.open_store())
        result = check_champion(context, log.report, wrap=functools.partial(Tasks, report=log.report))
        for line in result.lines:
            log.report.note(line)
        if not result.alarms:
            return Ending(f"{counted(len(result.spans), 'span')} checked, no alarm", "no alarm")
        started = ""
        if retrain:  # last: what it raises must not keep back the alarms, which are told once
            key = f"monitor-{result.champion}-{result.spans[-1].span}"
            started = f"; started a retrain: flow run {start_run(f'retrain/{name}', f'headway-{name}-{key}', {}).id}"
        alarms = counted(len(result.alarms), "alarm")
        return Ending(f"{alarms}: {'; '.join(result.alarms)}{started}", alarms, "drifting")

    return flow_body(pipeline, work)


def flow_body(
    pipeline: str, work: Work, *, set: Settings = None, about: Callable[[LoadedPipeline], str] = lambda loaded: ""
) -> FlowState[None]:
    """Run a flow's work: read the pipeline, stop when asked to, name the flow run, and return its final state.

    Args:
        set: keys of the pipeline and other values for them.
        about: returns the part of the flow run's name that tells what the flow run works on, such as the window.
    """
    protect()
    outlive_reader()
    stops = StopRequests(str(flow_run.id))
    name = Path(pipeline).stem
    try:
        signals = stop_on_signals(stops.stop, signal.SIGTERM, signal.SIGINT, same_seconds=SAME_STOP_SECONDS)
        with signals, stops.polling():
            loaded = read_pipeline(Path(pipeline), set)
            name = loaded.pipeline.name
            with contextlib.suppress(HeadwayError):  # the work says it
                name = f"{name} {about(loaded)}".strip()
            _rename(name)
            ending = work(loaded, RunLog(stops, pipeline=loaded.pipeline.name))
    except Exception as error:
        if isinstance(error, ConfigError) and not any(
            map(Path.is_file, (Path(pipeline), Path(pipeline, "pipeline.yaml")))
        ):
            error.fix = f"put it back on {socket.gethostname()}, or type 'headway deploy' with its new folder"
        stops.wait_for_server()  # an outage must not cost the name and the state
        cancelled = isinstance(error, Cancelled)
        _rename(f"{name}: {'cancelled' if cancelled else 'failed'}")
        if not isinstance(error, HeadwayError) or (not cancelled and _is_retried()):
            raise scrub(error) from None  # Prefect puts its words into the state, and retries what is raised
        get_run_logger().error("%s", error)
        return _unhappy(error, stops.why)
    stops.wait_for_server()
    _rename(f"{name}: {ending.word}")
    return Completed(message=redact(ending.message), name=(ending.alarm or "completed").capitalize())


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
    """Returns the state of a flow run or task that ended with `error`: Cancelled, with the reason `why` if given, or Failed."""
    if not isinstance(error, Cancelled):
        return Failed(message=str(error))
    return CancelledState(message=str(error) if why in (None, error.problem) else f"{why}: {error}")


class Tasks:
    """An executor that runs the steps of another executor as Prefect tasks."""

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
        state = task(return_state=True)
        if errors:
            raise errors[0]
        if not outputs:
            state.result()  # raises what the task did: a bug
        return outputs


@functools.cache  # once in a process
def outlive_reader() -> None:
    """Make stdout and stderr of this process redact secrets, and drop text instead of failing once nobody reads it.

    A flow run prints into a pipe that its worker reads. When the worker dies, the pipe breaks, and the next line printed would
    end the run: the library rich, with which Prefect prints, raises SystemExit. The log on Prefect's server still gets all lines.
    Prefect's log handlers hold the stream objects already, so the streams are changed in place.
    """
    for stream in (sys.stdout, sys.stderr):
        _outlive_reader_of(stream)


def _outlive_reader_of(stream: Any) -> None:
    write_text, flush_text = stream.write, stream.flush

    def outlive(call: Callable[..., Any], *text: str) -> None:
        try:
            call(*text)
        except BrokenPipeError:  # the descriptor itself, for buffered text and for other code that prints to it
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, stream.fileno())
            os.close(nothing)

    def write(text: str) -> int:
        outlive(write_text, redact(text))
        return len(text)

    stream.write, stream.flush = write, lambda: outlive(flush_text)


def go_on_without_lease() -> None:
    """Let flow runs go on if the lease of their deployment's concurrency slot cannot be renewed.

    Prefect itself ends such a run, so an outage of a few seconds at the wrong moment would end a training. The store's run lock
    keeps two runs of a pipeline apart without any server. Patches a private name of Prefect's engine.
    """
    maintain = flow_engine.maintain_concurrency_lease

    def lenient(lease_id: Any, lease_duration: float, **options: Any) -> Any:
        return maintain(lease_id, lease_duration, **options | {"raise_on_lease_renewal_failure": False})

    flow_engine.maintain_concurrency_lease = lenient  # type: ignore[assignment]


def _is_no_state(record: logging.LogRecord) -> bool:
    """Returns whether to keep a log record: not Prefect's traceback of a failed or cancelled state, which the flow has logged."""
    return not (record.exc_info and isinstance(record.exc_info[1], FailedRun | CancelledRun))


go_on_without_lease()
logging.getLogger("prefect.flow_runs").addFilter(_is_no_state)
if "PREFECT__FLOW_RUN_ID" in os.environ:  # a flow run's process: its engine prints before the flow's body begins
    outlive_reader()
