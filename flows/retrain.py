"""The Prefect flow that retrains: the same DAG as `headway run`, each step a Prefect task.

    prefect deployment run 'retrain/flights' --watch -p until=2013-12

Prefect decides when and where; the store's fingerprints decide what has to run. How a flow run ends, and what it is called
then, stands in `flows.orchestration.flow_body`.
"""

from __future__ import annotations

import functools

from prefect import flow
from prefect.states import State

from flows.config.pipeline import LoadedPipeline
from flows.config.window import choose_window
from flows.dag.run_spec import RunSpec
from flows.execution.run import execute
from flows.orchestration.flow_body import Ending, PipelinePath, Seconds, Seed, Settings, Window, flow_body
from flows.orchestration.run_log import RunLog
from flows.orchestration.stage_runs import stage_starter
from flows.orchestration.task_steps import Tasks
from flows.records import RunRecord
from flows.tell.ending import ending_of, ending_part, failed_ending
from headway.messages import window_text


@flow(name="retrain", persist_result=False, log_prints=True)
def retrain(
    pipeline: PipelinePath = "examples/flights",
    window: Window = None,
    until: str = "latest",
    seed: Seed = None,
    force: bool = False,
    wait: Seconds = 0.0,
    set: Settings = None,
) -> State[None]:
    """Train on a window of spans, and promote the model if the gate lets it through.

    Args:
        pipeline: a pipeline.yaml or its folder; relative to the flow run's working directory.
        window: how many spans, or how much time up to the last one ("30d", "12m"), or "all"; none: as pipeline.yaml says.
        until: the last span, or "latest".
        seed: instead of the pipeline's.
        force: promote whatever the gate says.
        wait: seconds to wait for another run of the pipeline to end; 0: fail at once.
        set: keys of the pipeline and other values for them, as in {"training.epochs": 3}.
    """

    def about(loaded: LoadedPipeline) -> str:
        return window_text(choose_window(loaded, window).spans(until))

    def work(loaded: LoadedPipeline, report: RunLog) -> Ending:
        run_spec = RunSpec(
            loaded=loaded,
            store=loaded.open_store(),
            start=stage_starter(loaded, set, stop=report.stop),
            window=window,
            until=until,
            seed=seed,
            force=force,
        )
        record = execute(run_spec, report, wrap=functools.partial(Tasks, report=report), wait_seconds=wait)
        report.ended(ending_part(ending_of(record)))
        return ended(record)

    def failed(report: RunLog, error: Exception) -> None:
        report.ended(ending_part(failed_ending(error)))

    return flow_body(pipeline, work, set=set, about=about, failed=failed)


def ended(record: RunRecord) -> Ending:
    """How a run ended: its state's message, and the word in its name."""
    ending = ending_of(record)
    promoted = f" {record.version}" if record.state == "promoted" else ""
    return Ending(ending.line, f"{ending.word}{promoted}")
