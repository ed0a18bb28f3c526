"""What a run makes of its candidate: which seed is chosen, a candidate that is the champion, the facts of a version."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from flows.dag.fitted_data import Data
from flows.dag.judging import other_label
from flows.dag.model_requests import Candidate
from flows.dag.references import check_metrics, data_of, trained_parts
from flows.dag.run_spec import ALREADY, RunResult
from flows.dag.step import Output
from flows.dag.warm_start import Parent
from headway.config import Frozen
from headway.errors import DataError
from headway.evaluation.results.measured import Measured
from headway.evaluation.verdict import Model, Reason, Verdict
from headway.messages import counted, listed, number
from headway.registry.registry import Version
from headway.registry.standing import standing_of
from headway.schema.notes import Note
from headway.tasks.table import direction, task_of
from headway.validation.anomaly import Validated
from tfcore.export.request import Exported


def refuse_errors(validated: Output[Validated]) -> None:
    """Raise a DataError if validation found errors."""
    if not (wrong := validated.value.stopping):
        return
    problem = f"validation found {counted(len(wrong), 'error')}"
    if len(wrong) == 1:
        raise DataError(f"{problem}: {wrong[0].message}", where=validated.title, fix=wrong[0].fix or None)
    lines = "\n".join(f"  - {a.message}" + (f"\n    fix: {a.fix}" if a.fix else "") for a in wrong)
    raise DataError(f"{problem}:\n{lines}", where=validated.title)


def check_task(data: Data, champion: Version | None) -> list[Note]:
    """Check the task, once the train labels are known, against the metrics that the pipeline names and the champion's task."""
    task = data.label.task
    check_metrics(data.window.run_spec.loaded, (task,))
    if champion is None or not (reason := other_label(data, champion)):
        return []
    return [Note(text=f"the champion, version {champion.number}, cannot be compared: {reason}")]


def by_quality(
    data: Data, candidates: Sequence[Candidate], measure: Callable[[Candidate], Output[Measured]]
) -> list[Candidate]:
    """The seeds by the primary metric, the worst first; those without a value before all.

    Args:
        measure: measures a candidate, for a metric that the evaluation does not compute.
    """
    task = data.label.task
    metric = data.pipeline.gate.primary_metric(task, ranked=data.pipeline.ndcg_at is not None)
    better = {each.name: each.better for each in task_of(task).metrics}
    better |= {each.name: each.better for each in data.window.run_spec.loaded.own_metrics}
    sign = direction(metric, better.get(metric))

    def quality(candidate: Candidate) -> tuple[float, int]:
        metrics = candidate.scored.value.metrics
        if metric not in metrics:  # one of evaluation.metrics
            metrics = measure(candidate).value.metrics
        value = metrics.get(metric)
        return (-math.inf if value is None else sign * value), candidate.seed

    return sorted(candidates, key=quality)


def other_rows(data: Data, champion: Version) -> list[Note]:
    """A note if eval rows are drawn in another way than for the champion."""
    before = champion.facts.get("split")
    if not before or before == data.window.split_digest:
        return []
    text = f"eval rows are not drawn as they were for version {champion.number} (the split, or the columns that it "
    text += "hashes, changed since): metrics of that run and of this one are of different rows"
    return [Note(text=text)]


def lacking(data: Data, champion: Version) -> list[str]:
    """The formats of `export.formats` that a version was exported without."""
    has = (champion.facts.get("replay") or {}).get("formats") or {}
    return [name for name in data.pipeline.export.formats if name not in has]


def already(data: Data, champion: Version, formats: Sequence[str], result: RunResult) -> bool:
    """The candidate is the champion: say so; return whether it is promoted once more, in the formats that it lacks."""
    again, names = bool(formats) and data.window.run_spec.force, listed(formats)
    if again:
        reason = f"forced: the model of version {champion.number} once more, with {names} (export.formats)"
    else:
        reason = f"the candidate is the champion, version {champion.number}: there is nothing to promote"
    verdict = "forced" if again else ALREADY
    result.verdict = Verdict(
        verdict=verdict,
        promote=again,
        reasons=(Reason(verdict=verdict, summary=reason),),
        champion=None if again else Model(version=champion.number),
    )
    result.facts = {name: champion.facts.get(name) for name in ("metrics", "baselines")}
    if formats and not again:
        text = (
            f"version {champion.number} was promoted without {names} (export.formats): headway run --to export writes "
        )
        text += "the same model with it, and headway run --force promotes that as a new version"
        result.notes.append(Note(text=text))
    result.notes += _other_threshold(data.pipeline.evaluation.threshold, champion)
    return again


def _other_threshold(rule: Frozen | None, champion: Version) -> list[Note]:
    kept = champion.facts.get("threshold") or {}
    if (rule and rule.model_dump(mode="json")) == kept.get("config"):
        return []
    value = number(kept["value"]) if kept.get("value") is not None else "none was chosen: 0.5"
    text = f"the model card and `classify` of version {champion.number} keep the threshold that it was promoted with "
    text += f"({value}); evaluation.threshold takes effect with the next version. "
    text += "headway run --to evaluate shows what it chooses on the eval rows"
    return [Note(text=text)]


def facts_of(
    data: Data,
    candidate: Candidate,
    export: Output[Exported],
    exports: Sequence[tuple[Candidate, Output[Exported]]],
    *,
    measured: Output[Measured],
    parent: Parent | None,
    reference: dict[str, str | None] | None,
    result: RunResult,
) -> dict[str, Any]:
    """What a version says of itself.

    Args:
        exports: of the other seeds.
        parent: what the training began with.
        reference: what the data were held against for drift.
    """
    window, verdict, found = data.window, result.verdict, measured.get()
    rule, chosen = data.pipeline.evaluation.threshold, found.get("threshold")
    inherited: dict[str, Any] = {}
    if parent is not None:
        parts = [list(part) for part in trained_parts(parent.version)]
        inherited = {"warm_start": parent.version.number, "inherited_parts": parts}
    return {
        "pipeline": data.pipeline.name,
        "spans": list(window.spans),
        "train_parts": [list(part) for part in window.parts["train"]],
        "eval_parts": [list(part) for part in window.parts["eval"]],
        "split": window.split_digest,
        "task": data.label.task,
        "label": data.pipeline.label.meaning,
        "train": candidate.trained.fingerprint,
        "statistics": data.statistics.fingerprint,
        "reference": reference,
        "export": export.fingerprint,
        "seed": candidate.seed,
        "repeats": [
            {"seed": other.seed, "train": other.trained.fingerprint, "export": out.fingerprint}
            for other, out in exports
        ],
        "evaluation": candidate.scored.fingerprint,
        "worth": verdict and verdict.worth,
        "data": data_of(window.run_spec, window.parts["train"]),
        "metrics": found["metrics"],
        "baselines": verdict.metrics.baselines if verdict else {},
        "threshold": rule and chosen and {"config": rule.model_dump(mode="json"), "value": chosen["value"]},
        "test": result.test and result.test.model_dump(),
        "standing": verdict and standing_of(verdict),
        "signatures": export.get()["signatures"],
        **inherited,
    }
