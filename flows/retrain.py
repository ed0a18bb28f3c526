"""The Prefect flow that retrains: the same DAG as `headway run`, each step a Prefect task.

    prefect deployment run 'retrain/flights' --watch -p until=2013-12

Prefect decides when and where; the store's fingerprints decide what has to run. Where `queues` names another queue, the flow run
prepares the window and starts a second one there, which trains on it (`flows.orchestration.second_half`). How a flow run ends,
and what it is called then, stands in `flows.orchestration.flow_body`.
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
from flows.orchestration.flow_body import Ending, PipelinePath, Seconds, Seed, Settings, Window, flow_body
from flows.orchestration.run_log import RunLog
from flows.orchestration.task_steps import Tasks
from flows.pipeline.context import Context
from flows.pipeline.prepared import PREPARE, leave, needs_training, prepared_by
from flows.pipeline.run import execute
from flows.records import RunRecord, State
from flows.tell.ending import ending_of
from headway.messages import window_text


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

    def work(loaded: LoadedPipeline, report: RunLog) -> Ending:
        context, queue = spec(loaded), loaded.pipeline.train_queue
        run = functools.partial(execute, wrap=functools.partial(Tasks, report=report), wait_seconds=wait)
        if queue is not None and prepared is None and needs_training(context):
            record = run(replace(context, last=PREPARE), report)
            leave(context, record)
            return Ending(second_half.begin(loaded, record, queue, report), "prepared")
        return ended(run(context, report))

    return flow_body(second_half.here(pipeline) if prepared else pipeline, work, set=set, about=about)


ALARMS: dict[State, Alarm] = {
    State.REJECTED: "rejected",
    State.ROLLED_BACK: "rejected",
    **dict.fromkeys((State.HELD, State.SHADOW, State.NOT_COMPARABLE, State.INCOMPATIBLE), "held"),
}
"""That a run raises by its state."""


def ended(record: RunRecord) -> Ending:
    """How a run ended: its state's message, and the word in its name."""
    ending = ending_of(record)
    promoted = f" {record.version}" if record.state == "promoted" else ""
    return Ending(ending.line, f"{ending.word}{promoted}", ALARMS.get(record.state))
