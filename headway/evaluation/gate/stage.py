"""The gate: decides whether a candidate is promoted, with the reasons.

    verdict = decide(GateRequest(task="binary", candidate=..., champion=..., config=GateConfig()))
    verdict.verdict, verdict.promote, verdict.reasons

It reads predictions only (Parquet files written by evaluation: label, prediction, weight, slice columns, in the same
order for all models), so neither model nor TensorFlow is needed. Against a promotion speak, the gravest first: an absolute
threshold that is missed; a metric without a value on these rows; a constant prediction that the candidate does not beat
(`headway.evaluation.baseline`); the paired bootstrap interval of (candidate - champion), when it lies wholly beyond the
tolerance on the bad side, overall or on a slice (`headway.evaluation.comparison`). What passes all that is promoted when its
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
    forced                    promoted against the rules because a person said so

Only promote, first model and forced promote.
"""

from pathlib import Path
from typing import Any

from headway.evaluation.baseline import Beaten, beats, beside, first_model
from headway.evaluation.gate.champion import AgainstChampion
from headway.evaluation.gate.findings import BY_FORCE, Findings
from headway.evaluation.gate.gate_request import Champion, GateRequest
from headway.evaluation.gate.scored_models import ScoredModels
from headway.evaluation.gate.thresholds import check_thresholds, note_met
from headway.evaluation.gate_checks import sample_of, unusable, without_value
from headway.evaluation.verdict import ALREADY, Metrics, Model, ModelMetrics, Reason, Verdict
from headway.messages import number
from headway.metrics.base import Floats, Metric
from headway.monitor import Monitor
from headway.tasks.base import LabelFacts

LINEAR = "linear"
"""The baseline that the training fits beside its own model."""


def gate(request: GateRequest, out: Path, monitor: Monitor) -> dict[str, Any]:
    """The stage: decide, and write out/verdict.json. Returns the verdict as JSON."""
    verdict = decide(request, monitor)
    (out / "verdict.json").write_text(verdict.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return verdict.model_dump(mode="json")


def decide(request: GateRequest, monitor: Monitor | None = None) -> Verdict:
    """The verdict."""
    request.config.check(
        request.task,
        ranked=request.ranked,
        items=request.item is not None,
        retrieval=request.retrieval,
        own=request.metrics,
    )
    return _Decision(request, monitor or Monitor()).verdict()


class _Decision:
    """One candidate before the gate."""

    def __init__(self, request: GateRequest, monitor: Monitor):
        self.request, self.config, self.monitor = request, request.config, monitor
        self.models = ScoredModels(request, monitor)
        self.primary = self.config.primary_metric(request.task, ranked=request.ranked)
        self.spans = tuple(sorted({span for span, _ in request.eval}))
        self.findings = Findings(spans=self.spans)
        self.values = self.models.measured(self.models.candidate)
        self.tolerances = self._tolerances()
        self.earlier = AgainstChampion(self.models, self.findings, self.tolerances, self.primary)

    def verdict(self) -> Verdict:
        request, findings, champion = self.request, self.findings, self.request.champion
        models = self.models
        if champion and champion.model == request.candidate.model:
            summary = f"the candidate is the champion, version {champion.version}: there is nothing to promote"
            findings.refuse("same model", summary, verdict=ALREADY, outcome="the champion")
            return self._verdict(ALREADY, False, tuple(findings.blocks), self._baselines())
        if request.candidate.rolled_back is not None:
            why = request.candidate.rolled_back
            summary = f"this model was rolled back ({why}) and returns only by force"
            findings.refuse("rolled back before", summary, verdict="rolled back", outcome="rolled back")
        broken = unusable(models.candidate)
        if broken:
            findings.refuse("usable predictions", f"the candidate gives {broken}")
        thresholds = check_thresholds(self.config, models, self.values, findings)
        baselines = self._baselines()
        if not broken:
            for missing in without_value(self.tolerances, self.values, first=champion is None):
                findings.refuse("has a value", missing, outcome="no value")
            self._constant()
            self._others()
        note_met(thresholds, findings)
        if (rows := sample_of(models.candidate)) is not None:
            findings.note(f"judged on a random sample of {len(models.candidate):,} of {rows:,} rows")
        if champion is None:
            none_set = "" if thresholds else " and no threshold is set"
            findings.support("first model", f"there is no champion yet{none_set}; {self._measured(baselines)}")
        elif not broken:
            self.earlier.judge(champion)
        return self._verdict(*findings.conclude(kept=self.config.kept, force=request.force), baselines)

    def _tolerances(self) -> dict[str, float | str]:
        """What is compared; a metric of the mean alone only where it has a value, unless the config names it."""
        tolerances = self.config.tolerances(self.models.task, ranked=self.request.ranked)
        return {
            name: tolerance
            for name, tolerance in tolerances.items()
            if self.config.tolerance or self.values[name] is not None or not self.models.judging[name].of_the_mean
        }

    def _baselines(self) -> dict[str, Metrics]:
        """The metrics of the baselines; how those that need not be beaten compare is noted."""
        baselines, findings = self.models.baselines(), self.findings
        for name in self.request.baselines:
            if name in self.request.to_beat and self.config.baseline:
                continue  # it has a reason of its own
            if (found := self._beside(name)) is None:
                findings.note(f"the {name} baseline has {self.primary} {number(baselines[name][self.primary])}")
                continue
            check = findings.looked(found.check(name, len(self.models.candidate)))
            concern = name == LINEAR and found.outcome == "worse"
            findings.note(found.summary, found.detail, check=check, concern=concern)
        return baselines

    def _beside(self, name: str) -> Beaten | None:
        """How a baseline compares with the candidate on the primary metric, where both can be used."""
        models, theirs = self.models, self.models.table(self.request.baselines[name])
        if unusable(models.candidate) or unusable(theirs):
            return None
        predicted = models.rows(theirs).prediction
        return beside(
            models.rows(models.candidate),
            predicted,
            models.judging[self.primary],
            name=name,
            confidence=self.config.confidence,
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
        metrics = [judging[n] for n in names if judging[n].higher_is_better is not None and not judging[n].of_the_mean]
        self._beats(metrics, "constant", trained_for)

    def _others(self) -> None:
        """The baselines that a candidate has to beat on the primary metric, beside the constant."""
        for name in self.request.to_beat if self.config.baseline else ():
            theirs = self.models.rows(self.models.table(self.request.baselines[name])).prediction
            self._beats([self.models.judging[self.primary]], name, others=theirs)

    def _beats(
        self,
        metrics: list[Metric],
        name: str,
        trained_for: list[str] | None = None,
        others: Floats | None = None,
    ) -> None:
        """Block a candidate that a baseline is not worse than; hold a first model of which too few rows can tell."""
        arguments: dict[str, Any] = {
            "confidence": self.config.confidence,
            "seed": self.request.seed,
            "check": self.monitor.check,
        }
        task, facts, findings = self.models.task, self.request.label or LabelFacts(), self.findings
        rows = self.models.rows(self.models.candidate)
        if self.request.champion is None and trained_for is not None:
            beaten = first_model(task, facts, rows, metrics=metrics, trained_for=trained_for, **arguments)
        else:
            beaten = beats(task, facts, rows, metrics=metrics, others=others, name=name, **arguments)
        if beaten is None:
            return
        check = findings.looked(beaten.check(name, len(rows)))
        if beaten.passed:
            findings.note(beaten.summary, beaten.detail, check=check)
        elif beaten.few:
            findings.block("held", beaten.summary, beaten.detail, BY_FORCE, check=check)
        else:
            fix = "gate.baseline: false would let it pass"
            findings.block("reject", beaten.summary, beaten.detail, fix, check=check)

    def _measured(self, baselines: dict[str, Metrics]) -> str:
        """The primary metric of the candidate beside that of the baselines."""
        name, better = self.primary, self.models.judging[self.primary].better
        # of a metric of the user's own nobody else can know
        which = f" ({'more' if better == 'higher' else 'less'} is better)" if ":" in name else ""
        known = [(who, values[name]) for who, values in baselines.items() if values.get(name) is not None]
        others = "".join(f", {who} {number(value)}" for who, value in known)
        return f"{name} is {number(self.values[name])}{which}{others}"

    def _verdict(
        self, verdict: str, promote: bool, reasons: tuple[Reason, ...], baselines: dict[str, Metrics]
    ) -> Verdict:
        request, models, findings = self.request, self.models, self.findings
        ranked: dict[str, Any] = {"ndcg_at": request.ndcg_at} if request.ranked else {}
        ranked |= {"item": request.item} if request.item else {}
        compared = [models.judging[name] for name in self.tolerances]
        return Verdict(
            task=str(request.task),
            verdict=verdict,
            promote=promote,
            reasons=reasons,
            notes=tuple(findings.notes),
            alarms=tuple(findings.alarms),
            checks=tuple(findings.checks),
            primary=self.primary,
            better=models.judging[self.primary].better,
            rows=len(models.candidate),
            spans=self.spans,
            candidate=request.candidate.model,
            champion=_model(request.champion),
            metrics=ModelMetrics(
                candidate=self.values,
                champion=self.earlier.champion,
                baselines=baselines,
            ),
            left_out=self.earlier.left_out,
            worth=None if unusable(models.candidate) else models.worth(models.candidate, compared),
            settings=self.config.model_dump(mode="json") | {"seed": request.seed, "group": request.group} | ranked,
        )


def _model(champion: Champion | None) -> Model | None:
    return None if champion is None else Model(version=champion.version, model=champion.model)
