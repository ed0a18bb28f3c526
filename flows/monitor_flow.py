"""The Prefect flow of `headway monitor`: drift of new spans, the champion on labels that came since.

prefect deployment run 'monitor/flights' -p retrain=true
"""

import functools

from prefect import flow
from prefect.states import State

from flows.config.pipeline import LoadedPipeline
from flows.orchestration.deployments import start_run
from flows.orchestration.flow_body import Ending, PipelinePath, flow_body
from flows.orchestration.run_log import RunLog
from flows.orchestration.task_steps import Tasks
from flows.pipeline.context import Context
from flows.pipeline.monitor import Monitoring, check_champion
from headway.messages import counted


@flow(name="monitor", persist_result=False, log_prints=True)
def monitor(pipeline: PipelinePath, retrain: bool = False) -> State[None]:
    """Hold new spans against the champion's window, and the champion against labels that came since.

    Args:
        pipeline: a pipeline.yaml or its folder; relative to the flow run's working directory.
        retrain: start a retrain when there is an alarm.
    """

    def work(loaded: LoadedPipeline, report: RunLog) -> Ending:
        name = loaded.pipeline.name
        context = Context(loaded=loaded, store=loaded.open_store())
        result = check_champion(context, report, wrap=functools.partial(Tasks, report=report))
        for line in result.lines:
            report.note(line)
        if result.spans:
            report.table("monitor", f"spans held against version {result.champion}", _table(result))
        if not result.alarms:
            return Ending(f"{counted(len(result.spans), 'span')} checked, no alarm", "no alarm")
        started = ""
        if retrain:  # last: what it raises must not keep back the alarms, which are told once
            key = f"monitor-{result.champion}-{result.spans[-1].span}"
            started = f"; started a retrain: flow run {start_run(f'retrain/{name}', f'headway-{name}-{key}', {}).id}"
        alarms = counted(len(result.alarms), "alarm")
        return Ending(f"{alarms}: {'; '.join(result.alarms)}{started}", alarms, "drifting")

    return flow_body(pipeline, work)


def _table(result: Monitoring) -> list[dict[str, object]]:
    return [
        {"span": each.span, "rows": each.rows, "scored": each.scored, **each.metrics, "alarms": "; ".join(each.alarms)}
        for each in result.spans
    ]
