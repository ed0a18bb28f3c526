"""The Prefect flow of `headway backfill`: past windows, trained and judged.

prefect deployment run 'backfill/flights' -p first=2013-01 -p last=2013-06
"""

from typing import Annotated

from prefect import flow
from prefect.states import State
from pydantic import Field

from flows.config.pipeline import LoadedPipeline
from flows.orchestration.flow_body import Ending, PipelinePath, Seconds, Seed, Settings, Window, flow_body
from flows.orchestration.run_log import RunLog
from flows.orchestration.task_steps import Tasks
from flows.pipeline.backfill import Upto
from flows.pipeline.backfill import backfill as run_backfill
from flows.pipeline.context import Context


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
) -> State[None]:
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

    def work(loaded: LoadedPipeline, report: RunLog) -> Ending:
        result = run_backfill(
            Context(loaded, loaded.open_store(), window, seed=seed),
            report,
            first=first,
            last=last,
            upto=upto,
            promote=promote,
            parallel=parallel,
            wait_seconds=wait,
            wrap=Tasks,
            on_row=lambda rows: report.table("backfill", "windows done so far", [each.row for each in rows]),
        )
        return Ending(f"{result.first} to {result.last}: {result.counts}", result.counts)

    return flow_body(pipeline, work, set=set, about=lambda loaded: f"backfill {first} to {last}")
