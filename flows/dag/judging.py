"""The versions that a candidate is compared with, and the gate's request."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from flows.dag.fitted_data import Data
from flows.dag.model_requests import Candidate, predictions_of
from flows.dag.references import data_of, reference_version, trained_parts
from flows.dag.step import Output
from headway.evaluation.checks.small_steps import Measured
from headway.evaluation.gate import Candidate as Judged
from headway.evaluation.gate import Champion, GateRequest, Repeat, trained_on
from headway.metrics.ranking import ITEM_BASELINES
from headway.registry.registry import Registry, Version
from headway.registry.standing import Reference
from headway.stages.refs import Ref
from tfcore.evaluation.request import SavedModel
from tfcore.evaluation.results import Evaluated
from tfcore.export.request import Exported, ExportRequest


@dataclass(frozen=True)
class Judge:
    """A version that the candidate is compared with, scored on the same rows."""

    role: str
    """champion or reference."""
    version: Version
    since: Reference | None = None
    """Of the reference: how the champions since stood to it."""
    reason: str | None = None
    """Why it is not scored."""
    scored: Output[Evaluated] | None = None
    others: tuple[tuple[dict[str, object], Output[Evaluated]], ...] = ()
    """Its other seeds that the store still has: facts, and their predictions."""

    @property
    def model(self) -> SavedModel:
        path = Ref[Exported](path=self.version.saved_model)
        return SavedModel(path=path, version=self.version.number, export=self.version.facts.get("export"))


def judges_of(data: Data, champion: Version | None) -> list[Judge]:
    """The champion, and an early one where there is another."""
    if champion is None:
        return []
    run_spec, task, evaluation = data.window.run_spec, data.label.task, data.window.parts["eval"]
    early = reference_version(run_spec, champion, task=task, evaluation=evaluation, split=data.window.split_digest)
    judges = [Judge("champion", champion)] + ([] if early is None else [Judge("reference", early[0], early[1])])
    return [replace(judge, reason=other_label(data, judge.version)) for judge in judges]


def other_label(data: Data, champion: Version) -> str | None:
    """Why a version of another task or label cannot be compared."""
    theirs, task, label = champion.facts.get("task"), data.label.task, data.pipeline.label.meaning
    if None not in (theirs, task) and theirs != task:
        return f"it was trained for a {theirs} label, and this pipeline's label is {task}"
    if (before := champion.facts.get("label")) not in (None, label):
        return f"it was trained for the label {before}, and this pipeline's label is {label}"
    return None


def repeats_of(data: Data, judge: Judge) -> list[tuple[dict[str, object], SavedModel]]:
    """The champion's other seeds where means are compared, as far as the store has their exports."""
    if data.pipeline.gate.repeats == 1 or judge.role != "champion":
        return []
    store, name, found = data.window.run_spec.store, ExportRequest.name, []
    for repeat in judge.version.facts.get("repeats") or ():
        if (manifest := store.find(name, repeat["export"])) is not None:
            path = store.output(name, repeat["export"]) / manifest.result["saved_model"]
            ref = Ref[Exported](stage=name, fingerprint=repeat["export"], path=path)
            model = SavedModel(path=ref, version=judge.version.number, export=repeat["export"])
            found.append((repeat, model))
    return found


def fair(data: Data, judges: Sequence[Judge]) -> dict[str, Output[Evaluated]]:
    """The champion's predictions to be measured beside the candidate's, unless it was trained on these rows."""
    evaluation, digest = data.window.parts["eval"], data.window.split_digest
    return {
        judge.role: judge.scored
        for judge in judges
        if judge.role == "champion"
        and judge.scored is not None
        and not trained_on(trained_parts(judge.version), judge.version.facts.get("split", ""), evaluation, digest)
    }


def gate_request(data: Data, candidate: Candidate, others: Sequence[Candidate], judges: Sequence[Judge]) -> GateRequest:
    window, pipeline, run_spec = data.window, data.pipeline, data.window.run_spec
    training, trained, scored = pipeline.training, candidate.trained.fingerprint, candidate.scored
    models = {trained, *(other.trained.fingerprint for other in others)}
    since = next((judge.since for judge in judges if judge.since is not None), None)
    champions = {judge.role: _champion(judge) for judge in judges}
    baselines = scored.value.baselines
    return GateRequest(
        config=pipeline.gate,
        slices=data.slices,
        slices_chosen=pipeline.evaluation.slices is None,
        clusters=data.clusters,
        eval=window.parts["eval"],
        split=window.split_digest,
        force=run_spec.force,
        own_objective=any((training.loss, training.class_weights, training.ranking, training.retrieval)),
        ndcg_at=pipeline.ndcg_at,
        item=pipeline.evaluation.item,
        retrieval=pipeline.ranks_index,
        metrics=run_spec.loaded.own_metrics,
        candidate=Judged(
            model=trained,
            predictions=predictions_of(scored),
            seed=candidate.seed,
            repeats=tuple(_repeat(other.seed, other.trained.fingerprint, other.scored) for other in others),
            rolled_back=_rolled_back(run_spec.registry, models),
            train=window.parts["train"],
            data=data_of(run_spec, window.parts["train"]),
        ),
        champion=champions.get("champion"),
        reference=champions.get("reference"),
        since=() if since is None else tuple(map(Measured.model_validate, since.measured)),
        place=0 if since is None else since.place,
        task=data.label.task,
        label=data.label_facts,
        baselines={name: scored.ref(file) for name, file in baselines.items()},
        to_beat=tuple(name for name in ITEM_BASELINES if name in baselines),
        group=window.group,
        seed=run_spec.chosen_seed,
    )


def _champion(judge: Judge) -> Champion:
    facts, reason, predictions = judge.version.facts, judge.reason, None
    if judge.scored is not None:
        reason = judge.scored.value.incompatible
        predictions = None if reason else predictions_of(judge.scored)
    return Champion(
        version=judge.version.number,
        model=str(facts.get("train")),
        predictions=predictions,
        scored=judge.reason if judge.scored is None else judge.scored.fingerprint,
        incompatible=reason,
        train=trained_parts(judge.version),
        data=facts.get("data") or {},
        split=facts.get("split", ""),
        eval=facts.get("eval_parts") or (),
        worth=facts.get("worth"),
        repeats=tuple(
            _repeat(int(str(repeat["seed"])), str(repeat["train"]), scored)
            for repeat, scored in judge.others
            if predictions is not None and not scored.value.incompatible
        ),
    )


def _repeat(seed: int, model: str, scored: Output[Evaluated]) -> Repeat:
    return Repeat(seed=seed, model=model, predictions=predictions_of(scored))


def _rolled_back(registry: Registry, trained: Collection[str]) -> str | None:
    """Which version of these very trainings was rolled back, and why."""
    rolled_back = registry.rolled_back()
    numbers = [version.number for version in registry.versions() if version.facts.get("train") in trained]
    return next((f"version {number}, {why}" for number, why in rolled_back.items() if number in numbers), None)
