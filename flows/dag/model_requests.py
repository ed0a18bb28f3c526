"""The requests of the stages of models: training, evaluation, measuring, importance, export and replay."""

from collections.abc import Mapping
from dataclasses import dataclass

from flows.dag.fitted_data import Data
from flows.dag.step import Output
from flows.dag.warm_start import Parent, parent_of
from headway.evaluation.results.measured import Measured
from headway.evaluation.results.request import MeasureRequest
from headway.evaluation.verdict import Verdict
from headway.schema.notes import Note
from headway.stages.refs import Ref
from tfcore.evaluation.request import EvaluateRequest, ImportanceRequest, SavedModel, TrainedModel
from tfcore.evaluation.results import Evaluated
from tfcore.export.model_card import CardFacts
from tfcore.export.replay.replay_stage import ReplayRequest
from tfcore.export.request import Exported, ExportRequest
from tfcore.train.request import Latest, Trained, TrainRequest


@dataclass(frozen=True)
class Candidate:
    """A model trained with one seed, and its predictions of the eval rows."""

    seed: int
    trained: Output[Trained]
    scored: Output[Evaluated]


def train_request(data: Data, seed: int) -> tuple[TrainRequest, Parent | None, list[Note]]:
    """The request of one seed, the model that it begins with, and notes."""
    window, run_spec, training, trial = data.window, data.window.run_spec, data.training, data.window.run_spec.trial
    store, files = run_spec.store, run_spec.loaded.user_files
    request = TrainRequest(
        model=data.model,
        training=training,
        seed=seed,
        code=window.code,
        transform=data.fitted,
        examples=data.examples("train"),
        trial=trial,
        latest=Latest.of(data.pipeline.split),
        group=window.group,
        module=files.get("model.name"),
        preprocess=files.get("preprocess"),
        loss=files.get("training.loss"),
    )
    parent, note = parent_of(run_spec, request, evaluation=window.parts["eval"], split=window.split_digest)
    if parent is not None:
        request = request.model_copy(update={"warm_start": parent.warm_start(run_spec)})
    name = request.fingerprint
    summaries = None if trial else store.summaries / data.pipeline.name / name
    kept = {"checkpoints": store.checkpoints / name, "summaries": summaries}
    return request.model_copy(update=kept), parent, [Note(text=note)] if note else []


def predictions_of(scored: Output[Evaluated]) -> Ref[Evaluated]:
    """The file of a model's predictions; without a path where it cannot score the rows."""
    return scored.ref(scored.value.predictions)


def model_of(data: Data, trained: Output[Trained], seed: int) -> TrainedModel:
    """A trained model as the part of a request."""
    files = data.window.run_spec.loaded.user_files
    return TrainedModel(
        path=trained.ref(),
        config=data.model,
        seed=seed,
        module=files.get("model.name"),
        preprocess=files.get("preprocess"),
    )


def evaluate_request(data: Data, model: TrainedModel | SavedModel, split: str = "eval") -> EvaluateRequest:
    """Return the request of a model's pass over a split, which keeps the predictions that all is computed from."""
    config, trained, group = data.pipeline.evaluation, isinstance(model, TrainedModel), data.window.group
    # the baselines of the item are computed beside a training, not a version
    item = config.item if trained else None
    ranked = item is not None and data.pipeline.ranks_index and group is not None
    return EvaluateRequest(
        batch_size=config.batch_size,
        columns=data.kept,
        item=item,
        group=group if trained and group in data.window.columns.stored else None,
        seed=model.seed if isinstance(model, TrainedModel) else 0,
        ranks=data.pipeline.ndcg_at if ranked else None,
        code=data.window.code if trained else {},
        model=model,
        transform=data.fitted,
        examples=data.examples(split),
        train=() if item is None else data.examples("train"),
    )


def importance_request(data: Data, candidate: Candidate) -> ImportanceRequest | None:
    """How much each column matters to the trained model; None where the config does not ask for it."""
    rows, group = data.pipeline.evaluation.importance, data.window.group
    if rows is None:
        return None
    return ImportanceRequest(
        rows=rows,
        group=group if group in data.window.columns.stored else None,
        seed=candidate.seed,
        code=data.window.code,
        transform=data.fitted,
        model=model_of(data, candidate.trained, candidate.seed),
        examples=data.examples("eval"),
    )


def measure_request(
    data: Data,
    scored: Output[Evaluated],
    beside: Mapping[str, Output[Evaluated]],
    *,
    split: str = "eval",
    given: float | None = None,
) -> MeasureRequest:
    """Return the request of the measuring of predictions.

    Args:
        beside: the predictions of other models on the same rows, by name.
        split: whose rows these are.
        given: the threshold, where other rows chose it.
    """
    pipeline, config, label = data.pipeline, data.pipeline.evaluation, data.label
    return MeasureRequest(
        slice_min_rows=config.slice_min_rows,
        threshold=config.threshold,
        slices=data.slices,
        searched=data.searched,
        shown=data.shown,
        clusters=data.clusters,
        group=data.window.group,
        confidence=pipeline.gate.confidence,
        given_threshold=given,
        seed=data.window.run_spec.chosen_seed,
        ndcg_at=pipeline.ndcg_at,
        item=config.item,
        retrieval=pipeline.ranks_index,
        metrics=data.window.run_spec.loaded.own_metrics,
        predictions=predictions_of(scored),
        statistics=data.statistics.ref(None),
        beside={name: predictions_of(output) for name, output in beside.items()},
        baselines={name: scored.ref(file) for name, file in scored.value.baselines.items()},
        task=label.task,
        label=data.label_facts,
        classes=label.classes or (),
        spans=tuple(span for span, _ in data.window.parts[split]),
    )


def unmeasured_export(data: Data, trained: Output[Trained], seed: int) -> ExportRequest:
    """Return the request of the export of a model of which nothing else is known yet."""
    files = data.window.run_spec.loaded.user_files
    return ExportRequest(
        formats=data.pipeline.export.formats,
        code=data.window.code,
        trained=trained.ref(),
        transform=data.fitted,
        model=data.model,
        module=files.get("model.name"),
        preprocess=files.get("preprocess"),
        seed=seed,
    )


def export_request(
    data: Data, candidate: Candidate, measured: Output[Measured] | None, verdict: Verdict | None
) -> ExportRequest:
    """Return the request of the export of a candidate.

    Args:
        measured: of the one that is promoted; None: another seed.
    """
    window, pipeline = data.window, data.pipeline
    found = (measured or candidate.scored).get()
    card = CardFacts(
        model=pipeline.name,
        label=pipeline.label.column or pipeline.label.expression or "",
        spans=window.spans,
        train_rows=data.statistics.value.rows.get("train"),
        eval_rows=found.get("rows"),
        seed=candidate.seed,
        metrics=found.get("metrics") or {},
        intervals=found.get("intervals") or {},
        threshold=found.get("threshold"),
        verdict=None if verdict is None else verdict.brief,
    )
    return unmeasured_export(data, candidate.trained, candidate.seed).model_copy(update={"card": card})


def replay_request(data: Data, candidate: Candidate, export: Output[Exported]) -> ReplayRequest:
    config, label, exported = data.pipeline.export, data.label, export.value
    return ReplayRequest(
        limits=config.limits,
        wanted=config.formats,
        saved_model=export.ref(exported.saved_model),
        predictions=predictions_of(candidate.scored),
        examples=data.examples("eval"),
        columns=data.parameters.raw,
        task=label.task,
        label_std=label.std,
        formats=exported.formats,
    )
