"""The gate: decides whether a candidate is promoted, with the reasons.

    verdict = gate(GateRequest(task="binary", candidate=..., champion=..., config=GateConfig()), out, monitor)
    verdict["verdict"], verdict["promote"], verdict["reasons"]

It reads predictions only (Parquet files written by evaluation: label, prediction, weight, slice columns, in the same
order for all models), so neither model nor TensorFlow is needed. Against a promotion speak, the gravest first: an absolute
threshold that is missed; a metric without a value on these rows; a constant prediction that the candidate does not beat
(`headway.evaluation.baseline`); the paired bootstrap interval of (candidate - champion), when it lies wholly beyond the
tolerance on the bad side, overall, on a slice, or against an early champion (`headway.evaluation.comparison`); and a fall
that adds up from promotion to promotion (`headway.evaluation.checks.small_steps`). What passes all that is promoted when its
primary metric is better (the interval is wholly above 0) or its data are newer than the champion's. docs/gate.md has the
rules in a table. Verdicts:

    promote                   better than the champion, or trained on newer data and not blocked
    first model               there is no champion, the thresholds are met, and it is better than a constant beyond chance
    already champion          the candidate is the champion: nothing to do
    keep champion             neither blocked nor better, on the same data or older ones
    reject                    blocked: worse by more than the tolerance, under a threshold, no better than a constant
    not comparable            too few rows to compare by, or the champion was trained on these evaluation rows
    incompatible champion     the champion cannot score these rows, or predicts another kind of label
    rolled back               this very model was rolled back before: it returns only by force
    held                      it passed, or is a first model of too few eval rows to say; it waits for a person
    shadow                    it passed, and is only watched
    forced                    promoted against the rules because a person said so

Only promote, first model and forced promote (and the two of a champion that cannot be compared, with `uncomparable:
thresholds`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headway.evaluation.baseline import Beaten, Beside, beats, beside, first_model
from headway.evaluation.gate.champion import AgainstChampion
from headway.evaluation.gate.findings import Findings
from headway.evaluation.gate.scored_models import ScoredModels
from headway.evaluation.gate.thresholds import check_thresholds
from headway.evaluation.gate_checks import unusable, without_value
from headway.evaluation.gate_config import GateRequest
from headway.messages import number
from headway.metrics.base import Metric
from headway.monitor import Monitor
from headway.tasks.base import LabelFacts

VERSION = 8
LINEAR = "linear"
"""The baseline that the training fits beside its own model."""


def gate(request: GateRequest, out: Path, monitor: Monitor) -> dict[str, Any]:
    """The stage: decide, and write out/verdict.json. Returns the verdict."""
    verdict = decide(request, monitor)
    (out / "verdict.json").write_text(json.dumps(verdict, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    for reason in verdict["reasons"]:
        monitor.log(reason)
    return verdict


def decide(request: GateRequest, monitor: Monitor | None = None) -> dict[str, Any]:
    """The verdict as JSON: verdict, promote, reasons, metrics (of candidate, champion, reference and baselines), thresholds,
    comparisons and the settings used."""
    request.config.check(
        request.task,
        ranked=request.ranked,
        items=request.item is not None,
        retrieval=request.retrieval,
        own=request.metrics,
        labels={label.name: (label.task,) for label in request.labels},
    )
    return _Decision(request, monitor or Monitor()).verdict()


class _Decision:
    """One candidate before the gate."""

    def __init__(self, request: GateRequest, monitor: Monitor):
        self.request, self.config, self.monitor = request, request.config, monitor
        self.models = ScoredModels(request, monitor)
        self.primary = self.config.primary_metric(request.task, ranked=request.ranked)
        self.findings = Findings()
        self.beside: dict[str, Beside] = {}
        """The baselines that the candidate need not beat, as far as they can be compared with it."""
        self.values = self.models.measured(self.models.candidate)
        self.tolerances = self._tolerances()
        self.thresholds = check_thresholds(self.config, self.models, self.values)
        self.earlier = AgainstChampion(self.models, self.findings, self.tolerances, self.primary)

    def verdict(self) -> dict[str, Any]:
        request, findings, champion = self.request, self.findings, self.request.champion
        models, task = self.models, self.models.task
        baselines = self._baselines()
        if champion and champion.model == request.candidate.model:
            reasons = [f"the candidate is the champion, version {champion.version}: there is nothing to promote"]
            return {"verdict": "already champion", "promote": False, "reasons": reasons, **self._facts(baselines)}
        if request.candidate.rolled_back is not None:
            why = request.candidate.rolled_back
            findings.block("rolled back", f"this model was rolled back ({why}) and returns only by force")
        broken = unusable(models.candidate, task)
        if broken:
            findings.block("reject", f"the candidate gives {broken}")
        for repeat, table in models.seeds:
            if useless := unusable(table, task):
                findings.block("reject", f"seed {repeat.seed} of the candidate gives {useless}")
                broken = broken or useless
        findings.block("reject", *self.thresholds.failures)
        if not broken:
            findings.block("reject", *without_value(self.tolerances, self.values, first=champion is None))
            self._constant()
            self._others()
        findings.notes += [*filter(None, [self.thresholds.met]), *self.thresholds.notes]
        if models.seeds:
            findings.notes.append(self._exported())
        if champion is None:
            findings.passed = "first model"
            findings.notes.append(
                "there is no champion yet" + ("" if self.thresholds.checks else " and no threshold is set")
            )
        elif not broken:
            self.earlier.judge(champion)
        return {**findings.conclude(kept=self.config.kept, force=request.force), **self._facts(baselines)}

    def _tolerances(self) -> dict[str, float | str]:
        """What is compared; a metric of the mean alone only where it has a value, unless the config names it."""
        tolerances = self.config.tolerances(self.models.task, ranked=self.request.ranked)
        return {
            name: tolerance
            for name, tolerance in tolerances.items()
            if self.config.tolerance or self.values[name] is not None or not self.models.judging[name].of_the_mean
        }

    def _baselines(self) -> dict[str, Any]:
        """The metrics of the baselines; how those that need not be beaten compare is noted."""
        baselines = self.models.baselines()
        for name in self.request.baselines:
            if name not in self.request.to_beat or not self.config.baseline:  # else it has a sentence of its own
                if (found := self._beside(name)) is None:
                    value = number(baselines[name][self.primary])
                    self.findings.notes.append(f"the {name} baseline has {self.primary} {value}")
                    continue
                self.beside[name] = found
                if name == LINEAR and found.outcome == "baseline better" and self.config.linear_baseline == "reject":
                    self.findings.block("reject", f"{found.sentence}; gate.linear_baseline: note would let it pass")
                else:
                    self.findings.notes.append(found.sentence)
        return baselines

    def _beside(self, name: str) -> Beside | None:
        """How a baseline compares with the candidate on the primary metric, where both can be used."""
        models, theirs = self.models, self.models.table(self.request.baselines[name])
        if unusable(models.candidate, models.task) or unusable(theirs, models.task):
            return None
        predicted = models.rows(theirs).prediction
        return beside(
            models.candidate_rows(predicted),
            predicted,
            models.judging[self.primary],
            name=name,
            confidence=self.config.confidence,
            samples=self.config.bootstrap,
            seed=self.request.seed,
            check=self.monitor.check,
        )

    def _constant(self) -> None:
        request = self.request
        if not self.config.baseline or all(v is None for v in self.values.values()):
            return
        judging, loss = self.models.judging, self.models.task.metrics[0].name
        trained_for = [self.primary] if request.own_objective else [self.primary, *self.tolerances, loss]
        names = dict.fromkeys((self.primary, *self.tolerances, *trained_for))
        self._beats(
            [judging[n] for n in names if judging[n].higher_is_better is not None and not judging[n].of_the_mean],
            trained_for,
        )

    def _others(self) -> None:
        """The baselines that a candidate has to beat on the primary metric, beside the constant."""
        for name in self.request.to_beat if self.config.baseline else ():
            theirs = self.models.rows(self.models.table(self.request.baselines[name])).prediction
            self._beats([self.models.judging[self.primary]], others=theirs, name=name)

    def _beats(self, metrics: list[Metric], trained_for: list[str] | None = None, **others: Any) -> None:
        """Block a candidate that a baseline is not worse than; hold a first model of which too few rows can tell."""
        arguments: dict[str, Any] = {
            "confidence": self.config.confidence,
            "samples": self.config.bootstrap,
            "seed": self.request.seed,
            "check": self.monitor.check,
            **others,
        }
        task, facts, rows = (
            self.models.task,
            self.request.label or LabelFacts(),
            self.models.candidate_rows(others.get("others")),
        )
        beaten: Beaten | None
        if self.request.champion is None and trained_for is not None:
            beaten = first_model(task, facts, rows, metrics=metrics, trained_for=trained_for, **arguments)
        else:
            beaten = beats(task, facts, rows, metrics=metrics, **arguments)
        if beaten is None:
            return
        if beaten.passed or (beaten.few and self.config.first_model == "promote"):
            self.findings.notes.append(beaten.reason)
        elif beaten.few:
            fix = "a person must decide (headway promote, by force), or gate.first_model: promote"
            self.findings.block("held", f"{beaten.reason}; {fix}")
        else:
            self.findings.block("reject", f"{beaten.reason}; gate.baseline: false would let it pass")

    def _exported(self) -> str:
        values = [self.values[self.primary]]
        values += [self.models.measured(table)[self.primary] for _, table in self.models.seeds]
        known = sorted(value for value in values if value is not None)
        spread = f", which is {number(known[0])} to {number(known[-1])}" if known else ""
        exported = f"seed {self.request.candidate.seed} is exported, the median of {len(values)} by {self.primary}"
        return exported + spread

    def _facts(self, baselines: dict[str, Any]) -> dict[str, Any]:
        request, champion, reference = self.request, self.request.champion, self.request.reference
        models, earlier = self.models, self.earlier
        ranked: dict[str, Any] = {"ndcg_at": request.ndcg_at} if request.ranked else {}
        ranked |= {"item": request.item} if request.item else {}
        compared = [models.judging[name] for name in self.tolerances]
        return {
            "format": 1,
            "task": request.task,
            "rows": len(models.candidate),
            "candidate": request.candidate.model,
            "champion": {"version": champion.version, "model": champion.model} if champion else None,
            "reference": {"version": reference.version, "model": reference.model} if reference else None,
            "primary": self.primary,
            "better": models.judging[self.primary].better,
            "baselines": {name: found.as_json() for name, found in self.beside.items()},
            "outcome": earlier.outcome,
            "metrics": {"candidate": self.values, **earlier.metrics, "baselines": baselines},
            "thresholds": self.thresholds.checks,
            "comparisons": earlier.comparisons,
            "seed": request.candidate.seed,
            "seeds": [
                {"seed": repeat.seed, "model": repeat.model, "metrics": models.measured(table)}
                for repeat, table in models.seeds
            ],
            "prediction_drift": earlier.drift,
            "worth": None if unusable(models.candidate, models.task) else models.worth(models.candidate, compared),
            "decay": earlier.decay,
            "declines": [decline.as_json() for decline in earlier.declines],
            "alarms": earlier.alarms,
            "settings": self.config.model_dump(mode="json") | {"seed": request.seed, "group": request.group} | ranked,
        }
