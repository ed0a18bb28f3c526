"""The Prefect flow of a queue's worker: makes the stages that another flow run of the pipeline asks for.

A flow whose pipeline has `queues: {tensorflow: gpu}` starts it, and talks to it by the store (`flows.execution.elsewhere`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Annotated

from prefect import flow
from prefect.states import State
from pydantic import Field

from flows.config.pipeline import LoadedPipeline
from flows.execution.elsewhere.exchange import Exchange
from flows.execution.elsewhere.server import serve
from flows.orchestration.flow_body import Ending, PipelinePath, Settings, flow_body
from flows.orchestration.queue_slot import queue_slot
from flows.orchestration.run_log import RunLog
from flows.orchestration.stage_runs import here
from headway.messages import listed


@flow(name="stage", persist_result=False, log_prints=True)
def stage(
    pipeline: PipelinePath,
    exchange: Annotated[str, Field(min_length=1)],
    queue: Annotated[str, Field(min_length=1)],
    parent: str | None = None,
    set: Settings = None,
) -> State[None]:
    """Make the stages that another flow run of the pipeline asks for; flows start it, nobody has to.

    Args:
        pipeline: a pipeline.yaml or its folder; HEADWAY_PIPELINES names where this worker has it.
        exchange: under which name the store holds what is asked for.
        queue: the work queue; training takes a slot of its concurrency limit.
        parent: the flow run that asks, with which this one ends.
        set: keys of the pipeline and other values for them.
    """

    def work(loaded: LoadedPipeline, report: RunLog) -> Ending:
        with contextlib.ExitStack() as held:

            def ready(say: Callable[[str], None]) -> None:
                held.enter_context(queue_slot(queue, report, say))

            store = loaded.open_store()
            made = serve(store, loaded.folder, Exchange(store, exchange), report, ready=ready)
        return Ending(
            f"made {listed(made)}" if made else "nothing was left to make", ", ".join(made) or "nothing to do"
        )

    return flow_body(str(here(pipeline)), work, set=set, about=lambda loaded: f"on {queue}", parent=parent)
