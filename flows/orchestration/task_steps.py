"""The steps of the DAG as Prefect tasks.

    execute(context, report, wrap=functools.partial(Tasks, report=report))

The store's fingerprints decide what has to run, so Prefect's own caching and result storage are off.
"""

from collections.abc import Sequence

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger
from prefect.states import Completed, State

from flows.orchestration.flow_body import unhappy
from flows.pipeline.dag import Executor
from flows.pipeline.listeners import Reporter
from headway.errors import HeadwayError
from headway.redaction import scrub
from headway.stages.step import Output, Step


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
                return unhappy(error)
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
