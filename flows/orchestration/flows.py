"""The Prefect flows: the work of `headway run`, `backfill`, `predict --spans` and `monitor` as runs of deployments.

    prefect deployment run 'retrain/flights' --watch -p until=2013-12
    prefect deployment run 'backfill/flights' -p first=2013-01 -p last=2013-06
    prefect deployment run 'predict/flights'
    prefect deployment run 'monitor/flights' -p retrain=true

Prefect decides when and where; the store's fingerprints decide what has to run. Each step of the DAG is a Prefect task. How a
flow run ends, and what it is called then, stands in `flows.orchestration.flow_body`.
"""

import functools
from dataclasses import replace
from typing import Annotated

from prefect import flow
from prefect.states import State as FlowState
from pydantic import Field

from flows.config.pipeline import LoadedPipeline
from flows.config.production import Alarm
from flows.orchestration import second_half
from flows.orchestration.deployments import start_run
from flows.orchestration.flow_body import Ending, PipelinePath, Seconds, Seed, Settings, Window, flow_body
from flows.orchestration.run_log import RunLog
from flows.orchestration.task_steps import Tasks
from flows.pipeline.backfill import Upto
from flows.pipeline.backfill import backfill as run_backfill
from flows.pipeline.context import Context
from flows.pipeline.monitor import Monitoring, check_champion
from flows.pipeline.predict import predict_spans
from flows.pipeline.prepared import PREPARE, leave, needs_training, prepared_by
from flows.pipeline.run import execute
from flows.records import RunRecord, State
from flows.report.verdict import ending_of
from headway.messages import counted, some, window_text


@flow(name="retrain", persist_result=False, log_prints=True, on_completion=[second_half.release])
def retrain(
    pipeline: PipelinePath = "examples/flights",
    window: Window = None,
    until: str = "latest",
    seed: Seed = None,
    force: bool = False,
    wait: Seconds = 0.0,
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
        wait: seconds to wait for another run of the pipeline to end; 0: fail at once.
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
    State.ROLLED_BACK: "rejected",
    **dict.fromkeys((State.HELD, State.NOT_COMPARABLE, State.INCOMPATIBLE), "held"),
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
    wait: Seconds = 0.0,
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
        wait: seconds to wait for another run of the pipeline to end; 0: fail at once.
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
