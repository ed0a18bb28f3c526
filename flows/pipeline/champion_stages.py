"""The champion on one span that it has not seen: ingest of the span, and the champion's predictions of its rows.

window = Window.of(replace(run_spec, window=1, until="2013-05", last="ingest"))
scored = score(window, engine, champion, transform)     # None where no row has a label yet
"""

from flows.dag.data_requests import ingest_requests
from flows.dag.judging import Judge
from flows.dag.resolved_window import Window, examples_of
from flows.dag.run_spec import Executor
from flows.dag.step import Output, Step
from headway.registry.registry import Version
from headway.stages.refs import Ref
from tfcore.evaluation.request import EvaluateRequest
from tfcore.evaluation.results import Evaluated
from tfcore.transform.parameters import Transformed, TransformParameters


def score(
    window: Window, executor: Executor, champion: Version, transform: Output[Transformed]
) -> Output[Evaluated] | None:
    """Ingest the span and predict its rows, whatever split they are in: the champion was trained on none of them.

    Args:
        window: of the one span.
        transform: the output of the transform that the champion was trained with, which says what the label is.
    """
    pipeline, ((span, request),) = window.pipeline, ingest_requests(window).items()
    step = Step(request, f"{request.name} {span}", {"runner": pipeline.runner})
    ingested = executor.call_many([step])[0]
    parts = [part for part, facts in ingested.value.splits.items() if facts.rows]
    if not parts:
        return None
    named = [name for name in (window.group, pipeline.evaluation.item) if name]
    evaluate = EvaluateRequest(
        batch_size=pipeline.evaluation.batch_size,
        # those that metrics, slices of thresholds and groups are made of
        columns=tuple(sorted({*named, *pipeline.judged_columns} & set(window.columns.stored))),
        model=Judge("champion", champion).model,
        transform=Ref[TransformParameters](
            stage=transform.stage, fingerprint=transform.fingerprint, answer=transform.value.parameters
        ),
        examples=tuple(examples_of(ingested, part) for part in parts),
    )
    return executor.call_many([Step(evaluate, f"evaluate champion {champion.number} on {span}")])[0]
