"""The Prefect flow of `headway predict --spans`: the champion over each new span, once.

prefect deployment run 'predict/flights'
"""

from prefect import flow
from prefect.states import State

from flows.config.pipeline import LoadedPipeline
from flows.orchestration.flow_body import Ending, PipelinePath, flow_body
from flows.orchestration.run_log import RunLog
from flows.pipeline.predict import predict_spans
from headway.messages import counted, some


@flow(name="predict", persist_result=False, log_prints=True)
def predict(pipeline: PipelinePath, model: str = "champion", since: str = "") -> State[None]:
    """Predict each complete span that has no predictions yet; the folder of a span's predictions appears whole.

    Args:
        pipeline: a pipeline.yaml or its folder; relative to the flow run's working directory.
        model: a version: its number, champion, previous or an alias.
        since: leave out spans before this one; "": none.
    """

    def work(loaded: LoadedPipeline, report: RunLog) -> Ending:
        result = predict_spans(
            loaded,
            report,
            model=model,
            since=since,
            on_row=lambda rows: report.table(
                "predictions", "spans predicted by this run", [r.model_dump() for r in rows]
            ),
        )
        spans, rows = [row.span for row in result.spans], sum(row.rows for row in result.spans)
        if not spans:
            return Ending(f"nothing to predict: {counted(result.there, 'span')} done before", "nothing new")
        message = f"predicted {counted(rows, 'row')} of {some(spans, 5)} by version {result.spans[-1].version}"
        return Ending(message, f"{counted(len(spans), 'span')}")

    return flow_body(pipeline, work)
