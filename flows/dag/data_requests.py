"""The requests of the data stages, from raw files to a fitted transform."""

from collections.abc import Mapping

from beam_jobs.ingest.request import NOTES, IngestRequest
from beam_jobs.splits_request import SpanOutput, SplitsRequest
from flows.config.columns import new_columns
from flows.dag.resolved_window import Window
from flows.dag.step import Output
from headway.registry.registry import Version
from headway.schema.columns import named_for
from headway.stages.ingested import Ingested
from headway.stages.refs import Part, Ref
from headway.statistics.stage import StatisticsRequest
from headway.statistics.summary import WindowStatistics
from headway.storage.store import Store
from headway.validation.anomaly import SplitProof
from headway.validation.stage import ChampionFacts, SpanFacts, ValidateRequest
from headway.validation.torn_units import sample_of
from tfcore.preprocess.request import Analysed, AnalyseRequest
from tfcore.transform.config import DerivedParameters
from tfcore.transform.parameters import TransformRequest

Spans = Mapping[str, Output[Ingested]]
"""What ingest left of each span, in the window's order."""


def ingest_requests(window: Window) -> dict[str, IngestRequest]:
    """Return the request of each span's ingest, by span."""
    pipeline, columns = window.pipeline, window.columns
    return {
        span: IngestRequest(
            span=span,
            files=window.run_spec.files(span),
            source=pipeline.source,
            read=columns.read,
            stored=columns.stored,
            label=pipeline.label,
            split=pipeline.split,
            hashed=columns.hashed,
            by_place=columns.by_place,
        )
        for span in window.spans
    }


def statistics_request(window: Window, ingested: Spans) -> StatisticsRequest:
    def part(span: str, split: str) -> Part:
        of = ingested[span]
        return Part(fingerprint=of.fingerprint, path=of.path / of.value.splits[split].statistics, split=split)

    return StatisticsRequest(
        columns=ingested[window.spans[0]].value.columns,
        splits={name: tuple(part(*each) for each in parts) for name, parts in window.parts.items() if parts},
    )


def splits_request(window: Window, requests: Mapping[str, IngestRequest], ingested: Spans) -> SplitsRequest:
    """Return the request of the stage that proves that the window's splits keep keys, rows and times apart."""
    return SplitsRequest(
        split=window.pipeline.split,
        parts={name: parts for name, parts in window.parts.items() if parts},
        spans=tuple(SpanOutput(request=requests[span], notes=out.ref(NOTES)) for span, out in ingested.items()),
    )


def validate_request(
    window: Window,
    ingested: Spans,
    statistics: Output[WindowStatistics],
    proof: Output[SplitProof],
    reference: dict[str, str | None] | None,
) -> ValidateRequest:
    run_spec, pipeline, columns = window.run_spec, window.pipeline, window.columns
    features = tuple(column for column in columns.read if column.is_feature)
    serving = run_spec.loaded.serving_file
    if (prepared := run_spec.prepared) is not None:
        unread, served = prepared.unread, prepared.serving
    else:
        newest = {window.spans[-1]: run_spec.files(window.spans[-1])}
        unread = tuple(column.name for column in new_columns(run_spec.loaded, columns.schema, newest))
        served = None
        if serving:
            from headway.validation.serving import checksum  # and the readers of its formats

            served = checksum(serving)
    # by time units may have rows on both sides
    by_time = pipeline.split.mode == "time" or pipeline.split.eval_from is not None
    return ValidateRequest(
        config=pipeline.validation,
        served=served,
        schema=columns.schema,
        task=pipeline.task,
        columns=features,
        champion=None if reference is None else _champion_facts(reference, run_spec.store),
        split=pipeline.split,
        unread=unread,
        statistics=statistics.ref(),
        proof=proof.ref(),
        spans=tuple(
            SpanFacts(span=span, ingested=out.fingerprint, **out.get()["counts"]) for span, out in ingested.items()
        ),
        splits=tuple(name for name, parts in window.parts.items() if parts),
        stored=columns.stored,
        weight=named_for(columns.read, "weight"),
        features=tuple(column.name for column in features),
        auto=columns.chosen(pipeline.column_configs()),
        serving=serving,
        filters=pipeline.source.where is not None,
        rows=None if by_time else sample_of({split: window.examples(split, ingested) for split in window.parts}),
    )


def reference_of(champion: Version | None, statistics: str) -> dict[str, str | None] | None:
    """The reference for drift, the statistics of the champion's train split: the name of a model, and a fingerprint.

    The window that made the champion is held against what it was held against then, so that nothing runs anew.
    """
    if champion is None:
        return None
    trained_on = champion.facts.get("statistics")
    if trained_on == statistics:
        return champion.facts.get("reference")
    spans = champion.facts.get("train_parts") or [["?"]]
    first, last = spans[0][0], spans[-1][0]
    name = f"version {champion.number} ({first if first == last else f'{first} to {last}'})"
    return {"name": name, "statistics": trained_on}


def _champion_facts(reference: dict[str, str | None], store: Store) -> ChampionFacts:
    stage, trained_on, found = StatisticsRequest.name, reference["statistics"], None
    if trained_on:
        found = Ref[WindowStatistics](stage=stage, fingerprint=trained_on, path=store.output(stage, trained_on))
    return ChampionFacts(name=str(reference["name"]), statistics=found)


def analyse_request(window: Window, ingested: Spans) -> AnalyseRequest | None:
    """None without a preprocess function."""
    config, file = window.pipeline.preprocess, window.run_spec.loaded.user_files.get("preprocess")
    if config is None or file is None:
        return None
    return AnalyseRequest(function=config.function, file=file, examples=window.examples("train", ingested))


def transform_request(
    window: Window, ingested: Spans, statistics: Output[WindowStatistics], analysed: Output[Analysed] | None
) -> TransformRequest:
    pipeline, columns = window.pipeline, window.columns
    transforms = columns.transforms(pipeline.column_configs())
    read = tuple(c for c in columns.read if c.name in columns.stored)
    request = TransformRequest(
        transforms=transforms,
        columns=read,
        task=pipeline.task,
        task_file=window.run_spec.loaded.user_files.get("task"),
        statistics=statistics.ref("train"),
        weighted=window.examples("train", ingested) if named_for(read, "weight") is not None else (),
        bins=pipeline.model.quantile_bins,
        recurring=pipeline.model.recurring_numbers,
        counted=pipeline.training.counted(pipeline.model.item),
        item=next(iter(pipeline.model.item), None),
    )
    derived = pipeline.preprocess
    if derived is None or analysed is None:
        return request
    found = analysed.value
    own = {
        "derived_statistics": analysed.ref("train"),
        "derived_transforms": derived.columns,
        "derived": DerivedParameters(function=derived.function, reads=found.reads, columns=found.columns),
    }
    return request.model_copy(update=own)
