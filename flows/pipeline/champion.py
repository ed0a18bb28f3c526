"""The versions that a run's candidate is compared with, and the facts that the registry keeps of a published version.

judges = judges_of(context)              # the champion, and the anchor if that is another version
facts_of(context, reference)             # the facts of a version that is published from this run
"""

from collections.abc import Iterable
from typing import Any

from flows.pipeline.context import ComparedVersion, Context
from headway.config import Frozen
from headway.errors import StoreError
from headway.evaluation.requests import Champion, Parts, spans_trained_on
from headway.evaluation.verdict import KEPT, Check, Model, Verdict
from headway.messages import number
from headway.registry.registry import Version
from headway.schema.notes import Note
from headway.stages.refs import Ref
from headway.stages.step import Output
from headway.storage.fingerprint import fingerprint
from tfcore.evaluation.request import Evaluated, SavedModel
from tfcore.export.request import Exported
from tfcore.train.request import TrainRequest


def judges_of(context: Context) -> list[ComparedVersion]:
    """Returns the champion, and the anchor if it is another version; [] without a champion. Notes a lost anchor."""
    if (champion := context.champion) is None:
        return []
    judges = [ComparedVersion("champion", champion, label_mismatch(context, champion))]
    if (number := context.registry.anchor()) not in (None, champion.number):
        try:
            anchor = context.registry.version(number)
            judges.append(ComparedVersion("anchor", anchor, label_mismatch(context, anchor)))
        except StoreError as error:
            text = (
                f"version {number}, the anchor, cannot be compared ({error.problem}), and the champion takes its place"
            )
            context.notes.append(Note(text=text))
    return judges


def label_mismatch(context: Context, champion: Version) -> str | None:
    """Returns the reason why a version of another task or label cannot be compared; None: task and label are equal."""
    theirs, task, label = champion.facts.get("task"), context.label.task, context.pipeline.label.meaning
    if None not in (theirs, task) and theirs != task:
        return f"it was trained for a {theirs} label, and this pipeline's label is {task}"
    if (before := champion.facts.get("label")) not in (None, label):
        return f"it was trained for the label {before}, and this pipeline's label is {label}"
    return None


def trained_parts(version: Version) -> Parts:
    """Returns the (span, split) parts that a version, or an earlier version whose weights it began with, was trained on."""
    parts = [*version.facts.get("inherited_parts", []), *version.facts.get("train_parts", [])]
    return tuple(dict.fromkeys((span, part) for span, part in parts))


def trained_on_eval_rows(context: Context, version: Version) -> bool:
    """Returns whether a version was trained on rows that this run's candidate is judged on."""
    digest = version.facts.get("split", "")
    return bool(spans_trained_on(trained_parts(version), digest, context.parts["eval"], context.split_digest))


def judge_predictions(context: Context, judge: ComparedVersion) -> Output[Evaluated] | None:
    """Returns the output with a version's predictions of the eval rows; None if the version cannot be compared."""
    return None if judge.reason is not None else context.output(judge.title)


def saved_model(version: Version) -> SavedModel:
    path = Ref[Exported](path=version.saved_model)
    return SavedModel(path=path, version=version.number, export=version.facts.get("export"))


def compared_champion(context: Context, judge: ComparedVersion) -> Champion:
    """Returns a version for the gate's request: its facts, and its predictions or the reason why it has none."""
    facts, reason, predictions = judge.version.facts, judge.reason, None
    if (scored := judge_predictions(context, judge)) is not None:
        reason = scored.value.incompatible
        predictions = None if reason else predictions_of(scored)
    return Champion(
        version=judge.version.number,
        model=str(facts.get("train")),
        predictions=predictions,
        scored=judge.reason if scored is None else scored.fingerprint,
        incompatible=reason,
        train=trained_parts(judge.version),
        data=facts.get("data") or {},
        split=facts.get("split", ""),
        eval=facts.get("eval_parts") or (),
        worth=facts.get("worth"),
    )


def predictions_of(scored: Output[Evaluated]) -> Ref[Evaluated]:
    """Returns a reference to the file of a model's predictions; it has no path if the model cannot score the rows."""
    return scored.ref(scored.value.predictions)


def rolled_back(context: Context, trained: str) -> str | None:
    """Returns text such as "version 3, <reason>" if a version of the training `trained` was rolled back; else None."""
    reasons = context.registry.rolled_back()
    numbers = [version.number for version in context.registry.versions() if version.facts.get("train") == trained]
    return next((f"version {number}, {why}" for number, why in reasons.items() if number in numbers), None)


def split_change_notes(context: Context, champion: Version) -> list[Note]:
    """Returns a note if the split assigned rows in another way when the champion was judged; else an empty list."""
    before = champion.facts.get("split")
    if not before or before == context.split_digest:
        return []
    text = f"eval rows are not drawn as they were for version {champion.number} (the split, or the columns that it "
    text += "hashes, changed since): metrics of that run and of this one are of different rows"
    return [Note(text=text)]


def recognise_same_model(context: Context) -> None:
    """Set `context.same_model` if the candidate is the champion, not if forced or train is last. Evaluate, export may follow."""
    champion = context.champion
    if (
        champion is None
        or context.force
        or context.last == "train"
        or context.output(TrainRequest.name).fingerprint != champion.facts.get("train")
    ):
        return
    against = f"version {champion.number}"
    same = Check(name="same model", against=against, outcome="the champion", passed=False, status=KEPT)
    context.same_model = Verdict(
        status=KEPT, basis="same model", anchors=False, checks=(same,), champion=Model(version=champion.number)
    )
    context.facts = {name: champion.facts.get(name) for name in ("metrics", "baselines")}
    context.notes += _other_threshold(context.pipeline.evaluation.threshold, champion)
    # there is nothing to promote, but there may be a model to look at, which is not compared with itself
    context.over = context.last not in ("evaluate", "export")
    context.champion = None


def _other_threshold(rule: Frozen | None, champion: Version) -> list[Note]:
    kept = champion.facts.get("threshold") or {}
    if (rule and rule.model_dump(mode="json")) == kept.get("config"):
        return []
    value = number(kept["value"]) if kept.get("value") is not None else "none was chosen: 0.5"
    text = f"the model card and `classify` of version {champion.number} keep the threshold that it was promoted with "
    text += f"({value}); evaluation.threshold takes effect with the next version. "
    text += "headway run --to evaluate shows what it chooses on the eval rows"
    return [Note(text=text)]


def facts_of(context: Context, reference: dict[str, str | None] | None) -> dict[str, Any]:
    """Returns the facts that the registry keeps of a version: its data, training, metrics and verdict.

    Args:
        reference: the reference for drift of the run (`Context.reference`).
    """
    candidate, verdict, found, export = context.candidate, context.verdict, context.measured.json(), context.export
    assert candidate is not None
    rule, chosen, parent = context.pipeline.evaluation.threshold, found.get("threshold"), context.parent
    inherited: dict[str, Any] = {}
    if parent is not None:
        parts = [list(part) for part in trained_parts(parent)]
        inherited = {"warm_start": parent.number, "inherited_parts": parts}
    return {
        "pipeline": context.pipeline.name,
        "spans": list(context.spans),
        "train_parts": [list(part) for part in context.parts["train"]],
        "eval_parts": [list(part) for part in context.parts["eval"]],
        "split": context.split_digest,
        "task": context.label.task,
        "label": context.pipeline.label.meaning,
        "train": candidate.trained.fingerprint,
        "statistics": context.statistics.fingerprint,
        "reference": reference,
        "export": export.fingerprint,
        "seed": context.chosen_seed,
        "evaluation": candidate.scored.fingerprint,
        "worth": verdict and verdict.worth,
        "data": data_of(context, context.parts["train"]),
        "metrics": found["metrics"],
        "baselines": verdict.metrics.baselines if verdict else {},
        "threshold": rule and chosen and {"config": rule.model_dump(mode="json"), "value": chosen["value"]},
        "test": context.test and context.test.model_dump(),
        "compared": verdict and verdict.beside_champion,
        "signatures": export.json()["signatures"],
        **inherited,
    }


def data_of(context: Context, parts: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Returns {span: a digest of its raw files} for the spans of `parts`; each part is (span, split)."""
    spans = dict.fromkeys(span for span, _ in parts)
    return {span: fingerprint({"files": [[f.bytes, f.crc32c] for f in context.files(span)]}) for span in spans}
