"""The step functions of the DAG: each makes the steps of one stage, from a run's context with the results of earlier steps.

    steps.transform(context)         # yields Step(TransformRequest(...)); nothing if the run does not need the stage

Functions such as `freeze_schema` run between two stages: they change the context by the results of the first stage.
`flows.pipeline.dag` calls all of them in order.
"""

from collections.abc import Iterator

from beam_jobs.ingest.request import NOTES, IngestRequest
from beam_jobs.splits_request import IngestedSpan, SplitsRequest
from flows.config.columns import new_columns
from flows.pipeline import champion as champions
from flows.pipeline.champion import judges_of, predictions_of
from flows.pipeline.column_table import column_table
from flows.pipeline.context import Candidate, Context, check_metrics
from flows.pipeline.warm_start import with_warm_start
from flows.records import ResolvedSettings, TestMetrics
from flows.report.verdict import explain
from headway.errors import DataError
from headway.evaluation.requests import Candidate as JudgedCandidate
from headway.evaluation.requests import GateRequest, MeasureRequest
from headway.evaluation.verdict import PROMOTED, Verdict
from headway.messages import counted
from headway.metrics.ranking import ITEM_BASELINES
from headway.schema.columns import named_for
from headway.schema.notes import Note
from headway.stages.refs import Part, Ref
from headway.stages.step import Output, Step
from headway.statistics.split_statistics import SplitStatistics
from headway.statistics.stage import StatisticsRequest
from headway.statistics.summary import WindowStatistics
from headway.validation.stage import ChampionStatistics, SpanFacts, ValidateRequest
from headway.validation.units import shards_to_sample
from tfcore.evaluation.request import Evaluated, EvaluateRequest, SavedModel, TrainedModel
from tfcore.export.model_card import CardFacts
from tfcore.export.replay import ReplayRequest
from tfcore.export.request import ExportRequest
from tfcore.preprocess.request import AnalyseRequest
from tfcore.train.auto import settings_text
from tfcore.train.request import TimeSplit, TrainRequest
from tfcore.transform.config import DerivedParameters
from tfcore.transform.fit import TransformRequest

Steps = Iterator[Step]


# --- the data


def ingest(context: Context) -> Steps:
    """Yields one step for each span of the window; the step ingests the raw files of the span."""
    for span in context.spans:
        request = _ingest_request(context, span)
        yield Step(request, f"{request.name} {span}", {"runner": context.pipeline.runner})


def _ingest_request(context: Context, span: str) -> IngestRequest:
    pipeline, columns = context.pipeline, context.columns
    return IngestRequest(
        span=span,
        files=context.files(span),
        source=pipeline.source,
        read=columns.read,
        stored=columns.stored,
        label=pipeline.label,
        split=pipeline.split,
        hashed=columns.hashed,
        by_place=columns.by_place,
    )


def statistics(context: Context) -> Steps:
    """Yields the step that merges the statistics of all spans into statistics of the window, for each split."""
    ingested = context.ingested

    def part(span: str, split: str) -> Part:
        of = ingested[span]
        return Part(fingerprint=of.fingerprint, path=of.path / of.value.splits[split].statistics, split=split)

    request = StatisticsRequest(
        columns=ingested[context.spans[0]].value.columns,
        splits={name: tuple(part(*each) for each in parts) for name, parts in context.parts.items() if parts},
    )
    yield Step(request)


def complete_schema(context: Context) -> None:
    """Complete an inferred schema by the window's statistics. Does nothing in a plan, or if the run ends with the statistics."""
    if context.columns.inferred and context.freezes and context.last != "statistics":
        folder = context.store.local(context.statistics.path)
        splits = [SplitStatistics.load(folder / split) for split in context.statistics.value.rows]
        context.columns = context.columns.completed(splits)


def splits(context: Context) -> Steps:
    """Yields the step that checks the splits for leakage: keys or equal rows in two splits, or times out of order."""
    spans = [
        IngestedSpan(request=_ingest_request(context, span), notes=out.ref(NOTES))
        for span, out in context.ingested.items()
    ]
    parts = {name: parts for name, parts in context.parts.items() if parts}
    yield Step(SplitsRequest(split=context.pipeline.split, parts=parts, spans=tuple(spans)))


def validate(context: Context) -> Steps:
    """Yields the step that compares the window with its schema and the champion's. Sets `context.champion` and `reference`."""
    loaded, pipeline, columns, ingested = context.loaded, context.pipeline, context.columns, context.ingested
    features = tuple(column for column in columns.read if column.is_feature)
    serving = loaded.serving_file
    if (prepared := context.prepared) is not None:
        unread, served = prepared.unread, prepared.serving
    else:
        newest = {context.spans[-1]: context.files(context.spans[-1])}
        unread = tuple(column.name for column in new_columns(loaded, columns.schema, newest))
        served = None
        if serving:
            from headway.validation.serving import checksum  # and the readers of its formats

            served = checksum(serving)
    context.champion = context.registry.champion()
    context.reference = _reference(context)
    # by time units may have rows on both sides
    by_time = pipeline.split.by_time
    request = ValidateRequest(
        config=pipeline.validation,
        served=served,
        schema=columns.schema,
        task=pipeline.task,
        columns=features,
        champion=_champion_facts(context),
        split=pipeline.split,
        unread=unread,
        statistics=context.statistics.ref(),
        proof=context.proof.ref(),
        spans=tuple(
            SpanFacts(span=span, ingested=out.fingerprint, **out.json()["counts"]) for span, out in ingested.items()
        ),
        splits=tuple(name for name, parts in context.parts.items() if parts),
        stored=columns.stored,
        weight=named_for(columns.read, "weight"),
        features=tuple(column.name for column in features),
        auto=columns.auto_features(pipeline),
        serving=serving,
        filters=pipeline.source.where is not None,
        rows=None if by_time else shards_to_sample({split: context.examples(split) for split in context.parts}),
    )
    yield Step(request)


def _reference(context: Context) -> dict[str, str | None] | None:
    """Returns the reference for drift, {"name", "statistics"} of the champion's train rows; None without a champion.

    If the champion was trained on this very window, its own reference is returned, so that no step runs again.
    """
    if (champion := context.champion) is None:
        return None
    trained_on = champion.facts.get("statistics")
    if trained_on == context.statistics.fingerprint:
        return champion.facts.get("reference")
    spans = champion.facts.get("train_parts") or [["?"]]
    first, last = spans[0][0], spans[-1][0]
    name = f"version {champion.number} ({first if first == last else f'{first} to {last}'})"
    return {"name": name, "statistics": trained_on}


def _champion_facts(context: Context) -> ChampionStatistics | None:
    if (reference := context.reference) is None:
        return None
    stage, trained_on, found = StatisticsRequest.name, reference["statistics"], None
    if trained_on:
        path = context.store.output(stage, trained_on)
        found = Ref[WindowStatistics](stage=stage, fingerprint=trained_on, path=path)
    return ChampionStatistics(name=str(reference["name"]), statistics=found)


def freeze_schema(context: Context) -> None:
    """Write an inferred or completed schema to its file if validation has passed. Later windows are validated against it."""
    columns, validated = context.columns, context.validated
    if (columns.inferred or columns.completes) and context.freezes and not validated.value.stopping:
        context.columns = columns.freeze(context.loaded)
        context.notes = list(context.columns.notes)


def analyse(context: Context) -> Steps:
    """Yields the step that finds the columns of the preprocess function and their statistics on the train rows."""
    _refuse_errors(context)
    function, file = context.pipeline.preprocess, context.loaded.user_files.get("preprocess")
    assert function is not None and file is not None
    yield Step(AnalyseRequest(function=function, file=file, examples=context.examples("train")))


def _refuse_errors(context: Context) -> None:
    """Set `context.anomalies`, and raise a DataError if validation found errors. Do nothing in a plan without a validation."""
    validated = context.validated
    if not validated.known:
        return
    context.anomalies = tuple(validated.value.anomalies)
    if not (wrong := validated.value.stopping):
        return
    problem = f"validation found {counted(len(wrong), 'error')}"
    if len(wrong) == 1:
        raise DataError(f"{problem}: {wrong[0].message}", where=validated.title, fix=wrong[0].fix or None)
    lines = "\n".join(f"  - {a.message}" + (f"\n    fix: {a.fix}" if a.fix else "") for a in wrong)
    raise DataError(f"{problem}:\n{lines}", where=validated.title)


def transform(context: Context) -> Steps:
    """Yields the step that fits the transform on the train rows."""
    _refuse_errors(context)
    pipeline, columns = context.pipeline, context.columns
    read = tuple(c for c in columns.read if c.name in columns.stored)
    request = TransformRequest(
        transforms=columns.transforms(pipeline.column_configs()),
        columns=read,
        task=pipeline.task,
        task_file=context.loaded.user_files.get("task"),
        statistics=context.statistics.ref("train"),
        weighted=context.examples("train") if named_for(read, "weight") is not None else (),
        bins=pipeline.model.bins,
        counted=pipeline.training.counted_column(pipeline.model.item),
        item=next(iter(pipeline.model.item), None),
    )
    if (function := pipeline.preprocess) is not None:
        analysed = context.output(AnalyseRequest.name)
        found = analysed.value
        own = {
            "derived_statistics": analysed.ref("train"),
            "derived_transforms": columns.derived(pipeline.column_configs()),
            "derived": DerivedParameters(function=function, reads=found.reads, columns=found.columns),
        }
        request = request.model_copy(update=own)
    yield Step(request)


def resolve_settings(context: Context) -> None:
    """Check metrics and champion against the label's task. Choose the settings that pipeline.yaml leaves out."""
    if context.infers:
        notes = [*context.columns.notes, *context.transform.value.notes]
        parameters = context.transform.json()["parameters"]
        context.column_table = column_table(context.columns, context.pipeline, notes, parameters)
    check_metrics(context.loaded, (context.label.task,))
    if context.champion is not None and (reason := champions.label_mismatch(context, context.champion)):
        text = f"the champion, version {context.champion.number}, cannot be compared: {reason}"
        context.notes.append(Note(text=text))
    training, model = context.resolved
    context.settings = ResolvedSettings(
        rows=context.data_facts.rows,
        says=settings_text(training, model),
        training=training.model_dump(mode="json"),
        model=model.model_dump(mode="json"),
    )
    if context.pipeline.model.name == "mlp" and not context.data_facts.images:
        text = "the model is mlp, which is quick; the default, ensemble, is what to try next: leave out the key model"
        context.notes.append(Note(text=text))


# --- the models


def train(context: Context) -> Steps:
    """Yields the step that trains the model."""
    store, files, trial = context.store, context.loaded.user_files, context.trial
    request = TrainRequest(
        model=context.model,
        training=context.training,
        seed=context.chosen_seed,
        code=context.code,
        transform=context.parameters_ref,
        examples=context.examples("train"),
        trial=trial,
        latest=TimeSplit.of(context.pipeline.split),
        group=context.group,
        module=files.get("model.name"),
        preprocess=files.get("preprocess"),
        loss=files.get("training.loss"),
    )
    request = with_warm_start(context, request)
    name = request.fingerprint
    summaries = None if trial else store.summaries / context.pipeline.name / name
    yield Step(request.model_copy(update={"checkpoints": store.checkpoints / name, "summaries": summaries}))


def evaluate(context: Context) -> Steps:
    """Yields the step that predicts the eval rows with the trained model; all metrics are computed from them."""
    yield Step(_evaluate_request(context, _trained_model(context)))


def set_candidate(context: Context) -> None:
    """Set `context.candidate` to the trained model. Adds a note if the champion was judged on eval rows drawn in another way."""
    context.candidate = Candidate(context.output(TrainRequest.name), context.output(EvaluateRequest.name))
    if context.champion is not None:
        context.notes += champions.split_change_notes(context, context.champion)


def _evaluate_request(context: Context, model: TrainedModel | SavedModel, split: str = "eval") -> EvaluateRequest:
    config, trained = context.pipeline.evaluation, isinstance(model, TrainedModel)
    # the baselines of the item are computed beside a training, not a version
    item = config.item if trained else None
    ranked = item is not None and context.pipeline.ranks_among_all_items and context.group is not None
    return EvaluateRequest(
        batch_size=config.batch_size,
        columns=context.prediction_columns,
        item=item,
        group=context.group if trained and context.group in context.columns.stored else None,
        seed=model.seed if isinstance(model, TrainedModel) else 0,
        ranks=context.pipeline.ndcg_at if ranked else None,
        code=context.code if trained else {},
        model=model,
        transform=context.parameters_ref,
        examples=context.examples(split),
        train=() if item is None else context.examples("train"),
    )


def _trained_model(context: Context) -> TrainedModel:
    files = context.loaded.user_files
    return TrainedModel(
        path=context.output(TrainRequest.name).ref(),
        config=context.model,
        seed=context.chosen_seed,
        module=files.get("model.name"),
        preprocess=files.get("preprocess"),
    )


def evaluate_champions(context: Context) -> Steps:
    """Yields a step per version that the candidate is compared with: the version predicts the eval rows. Sets the `judges`."""
    context.judges = judges_of(context)
    for judge in context.judges:
        if judge.reason is None:
            yield Step(_evaluate_request(context, champions.saved_model(judge.version)), judge.title)


def measure(context: Context) -> Steps:
    """Yields the step that computes metrics: the candidate's, and the champion's unless it was trained on eval rows."""
    beside = {
        judge.role: scored
        for judge in context.judges
        if judge.role == "champion"
        and (scored := champions.judge_predictions(context, judge)) is not None
        and not champions.trained_on_eval_rows(context, judge.version)
    }
    yield Step(_measure_request(context, _candidate(context).scored, beside))


def _measure_request(
    context: Context,
    scored: Output[Evaluated],
    beside: dict[str, Output[Evaluated]],
    *,
    split: str = "eval",
    threshold: float | None = None,
) -> MeasureRequest:
    """Returns the request that computes metrics from predictions.

    Args:
        beside: {name: another model's predictions of the same rows}.
        split: the split of the rows.
        threshold: the decision threshold, if it was chosen on other rows; None: it is chosen on these.
    """
    pipeline, config, label = context.pipeline, context.pipeline.evaluation, context.label
    return MeasureRequest(
        slice_min_rows=config.slice_min_rows,
        threshold=config.threshold,
        slices=context.slices,
        searched=context.searched,
        shown=context.shown,
        units=context.units,
        group=context.group,
        confidence=pipeline.gate.confidence,
        given_threshold=threshold,
        seed=context.chosen_seed,
        ndcg_at=pipeline.ndcg_at,
        item=config.item,
        retrieval=pipeline.ranks_among_all_items,
        metrics=context.loaded.own_metrics,
        predictions=predictions_of(scored),
        statistics=context.statistics.ref(None),
        beside={name: predictions_of(output) for name, output in beside.items()},
        baselines={name: scored.ref(file) for name, file in scored.value.baselines.items()},
        task=label.task,
        label=context.label_facts,
        classes=label.classes or (),
        spans=tuple(span for span, _ in context.parts[split]),
    )


# --- the verdict, and what it lets through


def gate(context: Context) -> Steps:
    """Yields the step that judges the candidate; nothing if the candidate is the champion."""
    if context.same_model is not None:
        return
    pipeline, training, candidate = context.pipeline, context.training, _candidate(context)
    judges, scored = context.judges, candidate.scored
    compared = {judge.role: champions.compared_champion(context, judge) for judge in judges}
    baselines = scored.value.baselines
    request = GateRequest(
        config=pipeline.gate,
        slices=context.slices,
        slices_chosen=pipeline.evaluation.slices is None,
        units=context.units,
        eval=context.parts["eval"],
        split=context.split_digest,
        force=context.force,
        own_objective=any((training.loss, training.class_weights, training.ranking, training.retrieval)),
        ndcg_at=pipeline.ndcg_at,
        item=pipeline.evaluation.item,
        retrieval=pipeline.ranks_among_all_items,
        metrics=context.loaded.own_metrics,
        candidate=JudgedCandidate(
            model=candidate.trained.fingerprint,
            predictions=predictions_of(scored),
            rolled_back=champions.rolled_back(context, candidate.trained.fingerprint),
            train=context.parts["train"],
            data=champions.data_of(context, context.parts["train"]),
        ),
        champion=compared.get("champion"),
        anchor=compared.get("anchor"),
        task=context.label.task,
        label=context.label_facts,
        baselines={name: scored.ref(file) for name, file in baselines.items()},
        to_beat=tuple(name for name in ITEM_BASELINES if name in baselines),
        group=context.group,
        seed=context.chosen_seed,
    )
    yield Step(request)


def apply_verdict(context: Context) -> None:
    """Let the run end here if the verdict promotes nothing. A run with a `context.last` goes on to that stage."""
    promoted = context.same_model is None and context.output(GateRequest.name).value.status == PROMOTED
    context.over = not promoted and context.last is None


def evaluate_test(context: Context) -> Steps:
    """Yields the step that predicts the test split; nothing if the candidate did not pass, or the test split has no rows."""
    if not _verdict(context).promote or not context.parts.get("test"):
        return
    if any(part.result["splits"][part.split]["rows"] for part in context.examples("test")):
        yield Step(_evaluate_request(context, _trained_model(context), "test"), "evaluate test")


def measure_test(context: Context) -> Steps:
    """Yields the step that computes the test split's metrics, which decide nothing, at the threshold chosen on the eval rows."""
    if context.has_output("evaluate test"):
        threshold = context.measured.value.threshold
        scored = context.output("evaluate test")
        request = _measure_request(context, scored, {}, split="test", threshold=threshold.value if threshold else None)
        yield Step(request, "measure test")


def set_test_metrics(context: Context) -> None:
    if context.has_output("measure test"):
        found = context.output("measure test").value
        context.test = TestMetrics(rows=found.rows, metrics=found.metrics)


def export(context: Context) -> Steps:
    """Yields the step that writes the SavedModel and its model card."""
    pipeline, measured, verdict = context.pipeline, context.measured.json(), _verdict(context)
    card = CardFacts(
        model=pipeline.name,
        label=pipeline.label.column or pipeline.label.expression or "",
        spans=context.spans,
        train_rows=context.statistics.value.rows.get("train"),
        eval_rows=measured.get("rows"),
        seed=context.chosen_seed,
        metrics=measured.get("metrics") or {},
        intervals=measured.get("intervals") or {},
        threshold=measured.get("threshold"),
        baselines=verdict.metrics.baselines,
        compared=tuple(verdict.compared()),
        status=verdict.status,
        reasons=tuple(explain(verdict).sentences),
    )
    files = context.loaded.user_files
    yield Step(
        ExportRequest(
            card=card,
            code=context.code,
            trained=context.output(TrainRequest.name).ref(),
            transform=context.parameters_ref,
            model=context.model,
            module=files.get("model.name"),
            preprocess=files.get("preprocess"),
            seed=context.chosen_seed,
        )
    )


def replay(context: Context) -> Steps:
    """Yields the step that predicts the eval rows with the SavedModel, in a process that has only TensorFlow."""
    config, label, exported = context.pipeline.export, context.label, context.export.value
    request = ReplayRequest(
        limits=config.limits,
        saved_model=context.export.ref(exported.saved_model),
        predictions=predictions_of(_candidate(context).scored),
        examples=context.examples("eval"),
        columns=context.parameters.raw,
        task=label.task,
        label_std=label.std,
    )
    yield Step(request)


def set_facts(context: Context) -> None:
    """Set `context.facts`: the facts that the registry keeps of a version that this run publishes."""
    replayed = context.output(ReplayRequest.name).json()
    context.facts = champions.facts_of(context, context.reference) | {"replay": replayed}


def _candidate(context: Context) -> Candidate:
    assert context.candidate is not None
    return context.candidate


def _verdict(context: Context) -> Verdict:
    assert context.verdict is not None
    return context.verdict
