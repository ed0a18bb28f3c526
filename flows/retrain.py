"""The Prefect flow: the same DAG as `headway run`, each step a Prefect task.

    prefect deployment run 'retrain/flights' --watch -p until=2013-12

Prefect decides when and where; the store's fingerprints decide what has to run, so its caching and its result storage
are off. How a flow run ends:

    Completed   the message says what became of the candidate: promoted, already the champion, or turned down and why.
                The state's name stays "Completed": automations and `--watch` go by it.
    Failed      a user's mistake or broken data, in the words that `headway run` prints
    Cancelled   it was cancelled, or its process or its worker got SIGTERM: training has written a checkpoint, the next
                run goes on from there
    Crashed     its process died
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from prefect import Task, flow
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Cancelled as CancelledState
from prefect.states import Completed, Failed, State

from flows.config.pipeline import read_pipeline
from flows.dag.run_spec import Executor, RunSpec
from flows.dag.step import Output, Step
from flows.execution.run import execute
from flows.orchestration import access
from flows.orchestration.requested_stops import StopRequests
from flows.orchestration.run_log import RunLog, without_tracebacks
from flows.progress.terminal import Reporter
from headway.errors import Cancelled, HeadwayError
from headway.messages import metrics_line
from headway.redaction import protect, remember, scrub


@flow(name="retrain", persist_result=False, log_prints=True)
def retrain(
    pipeline: str = "examples/flights",
    window: int | str | None = None,
    until: str = "latest",
    seed: int | None = None,
    force: bool = False,
) -> State[None]:
    """Train on a window of spans, and promote the model if the gate lets it through.

    Args:
        pipeline: a pipeline.yaml or its folder; relative to the flow run's working directory.
        window: how many spans, or how much time up to the last one ("30d", "12m"); none: all of them.
        until: the last span, or "latest".
        seed: instead of the pipeline's.
        force: promote whatever the gate says.
    """
    protect()
    remember(access.CLIENT, os.environ.get(access.CLIENT, ""))
    stops = StopRequests(str(flow_run.id), threading.Event())
    report: RunLog | None = None
    try:
        with _stop_on_signals(stops.stop), stops.polling():
            loaded = read_pipeline(Path(pipeline))
            store = loaded.open_store()
            run_spec = RunSpec(loaded=loaded, store=store, window=window, until=until, seed=seed, force=force)
            report = RunLog(stops, pipeline=loaded.pipeline.name)
            record = execute(run_spec, report, wrap=functools.partial(Tasks, report=report))
    except Exception as error:
        if report is not None:
            report.ended(f"The candidate is **not** promoted: {error}")
        if not isinstance(error, HeadwayError):
            raise scrub(error) from None  # Prefect puts its words into the flow run's state
        get_run_logger().error("%s", error)
        without_tracebacks()
        return _unhappy(error, stops.why)
    message = ending(record)
    if record["state"] == "promoted":
        report.ended(f"The candidate is promoted: it is version {record['version']}.")
    get_run_logger().info("run %s: %s", record["run"], message)
    stops.wait_for_server()
    return Completed(message=message)


class Tasks:
    """An executor whose steps are Prefect tasks: submits each and waits until the engine has run it."""

    def __init__(self, inner: Executor, report: Reporter):
        self._inner, self._report = inner, report

    def call_many(self, steps: Sequence[Step]) -> list[Output]:
        """Run steps as one task, for a stage that can run several steps at once."""
        self._report.check()
        outputs: list[Output] = []
        errors: list[HeadwayError] = []

        def work() -> State[None]:
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


def ending(record: dict[str, Any]) -> str:
    """How a run ended, in one sentence."""
    reasons = "; ".join(record.get("verdict", {}).get("reasons", []))
    metrics = metrics_line(record.get("metrics"))
    tail = f" ({metrics})" if metrics else ""
    match record["state"]:
        case "promoted":
            return f"promoted version {record['version']}: {record['verdict']['verdict']}{tail}"
        case "already champion":
            return f"version {record['version']} is the champion already; nothing to promote{tail}"
        case "done":
            return "done"
    return f"not promoted: {record['state']}: {reasons}{tail}"


def _unhappy(error: HeadwayError, why: str | None = None) -> State[None]:
    if not isinstance(error, Cancelled):
        return Failed(message=str(error))
    return CancelledState(message=str(error) if why is None or why in str(error) else f"{why}: {error}")


SAME_STOP_SECONDS = 10.0
"""Signals that come this soon after the first are the same stop: a supervisor sends its own to each process, and the
worker passes on the one it got."""


@contextlib.contextmanager
def _stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT ask for a clean stop; a later one is Prefect's, which ends the run at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set a handler
        return
    first: list[float] = []

    def handle(number: int, frame: FrameType | None) -> None:
        first.append(time.monotonic())
        stop.set()
        if first[-1] - first[0] > SAME_STOP_SECONDS:
            signal.signal(number, before[signal.Signals(number)])
            os.kill(os.getpid(), number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
