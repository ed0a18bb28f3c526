"""The gate: decides whether a candidate is promoted, with the reasons.

    verdict = gate(GateRequest(task="binary", candidate=..., champion=..., config=GateConfig()), out, monitor)
    verdict["verdict"], verdict["promote"], verdict["reasons"]

It reads predictions only (Parquet files written by evaluation: label, prediction, weight, slice columns, in the same
order for all models), so neither model nor TensorFlow is needed. Against a promotion speak, the gravest first: an absolute
threshold that is missed; a metric without a value on these rows; a constant prediction that the candidate does not beat
(`headway.evaluation.baseline`); and the paired bootstrap interval of (candidate - champion), when it lies wholly beyond the
tolerance on the bad side, overall, on a slice, or against the best of the last champions (`headway.evaluation.comparison`).
What passes all that is promoted when its primary metric is better (the interval is wholly above 0) or its data are newer
than the champion's. docs/gate.md has the rules in a table. Verdicts:

    promote                   better than the champion, or trained on newer data and not blocked
    first model               there is no champion; the thresholds and the constant baseline decide
    already champion          the candidate is the champion: nothing to do
    keep champion             neither blocked nor better, on the same data or older ones
    reject                    blocked: worse by more than the tolerance, under a threshold, no better than a constant
    not comparable            too few rows to compare by, or the champion was trained on these evaluation rows
    incompatible champion     the champion cannot score these rows, or predicts another kind of label
    rolled back               this very model was rolled back before: it returns only by force
    held, shadow              it passed, and waits for a person
    forced                    promoted against the rules because a person said so

Only promote, first model and forced promote (and the two of a champion that cannot be compared, with `uncomparable:
thresholds`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from headway.evaluation.baseline import beats, constant
from headway.evaluation.checks.champion_decay import Worth, decayed, worth
from headway.evaluation.checks.prediction_drift import prediction_drift
from headway.evaluation.comparison import Comparison, compare
from headway.evaluation.gate_checks import (
    check_same_rows,
    check_thresholds,
    met,
    read_predictions,
    unusable,
    without_value,
)
from headway.evaluation.gate_config import Candidate, Champion, GateRequest, Parts, Repeat, newer, trained_on
from headway.evaluation.metrics import measured, metrics_of, rows_of
from headway.messages import listed, number, some
from headway.metrics.base import Rows
from headway.monitor import Monitor
from headway.tasks.base import LabelFacts
from headway.tasks.table import task_of

__all__ = [
    "VERSION",
    "Candidate",
    "Champion",
    "GateRequest",
    "Parts",
    "Repeat",
    "decide",
    "gate",
    "newer",
    "trained_on",
]
VERSION = 5


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
    request.config.check(request.task, ranked=request.ranked, items=request.item is not None, own=request.metrics)
    return _Decision(request, monitor or Monitor()).verdict()


@dataclass
class _Findings:
    """The reasons against a promotion, and further remarks."""

    blocks: list[tuple[str, str]] = field(default_factory=list)
    """(verdict, reason), the gravest first."""
    notes: list[str] = field(default_factory=list)
    passed: str = "promote"
    """The verdict of a candidate that nothing speaks against."""

    def block(self, verdict: str, *reasons: str) -> None:
        self.blocks += [(verdict, reason) for reason in reasons]


class _Decision:
    """One candidate before the gate."""

    def __init__(self, request: GateRequest, monitor: Monitor):
        self.request, self.config, self.monitor = request, request.config, monitor
        self.task = task_of(request.task)
        self.judging = {m.name: m for m in metrics_of(self.task, request.ndcg_at, request.metrics, request.item)}
        self.rows = read_predictions(request.candidate.predictions, request.columns)
        self.primary = self.config.primary_metric(request.task, ranked=request.ranked)
        self.findings = _Findings()
        self.metrics: dict[str, Any] = {"candidate": self._measured(self.rows), "champion": None, "reference": None}
        self.tolerances = self._tolerances()
        self.comparisons: dict[str, Any] = {"overall": [], "slices": [], "left_out": [], "reference": []}
        self.thresholds = check_thresholds(self.config.thresholds, self.metrics["candidate"])
        self.outcome: str | None = None
        self.read: dict[Path, pa.Table] = {}
        self.seeds = self._seeds(self.request.candidate.repeats)
        self.drift: dict[str, Any] | None = None
        self.decay: list[dict[str, Any]] = []
        self.alarms: list[str] = []
        """Why the champion itself needs a look; they decide nothing."""

    def verdict(self) -> dict[str, Any]:
        request, findings, champion = self.request, self.findings, self.request.champion
        self.metrics["baselines"] = self._baselines()
        if champion and champion.model == request.candidate.model:
            reasons = [f"the candidate is the champion, version {champion.version}: there is nothing to promote"]
            return {"verdict": "already champion", "promote": False, "reasons": reasons, **self._facts()}
        if request.candidate.rolled_back is not None:
            why = request.candidate.rolled_back
            findings.block("rolled back", f"this model was rolled back ({why}) and returns only by force")
        broken = unusable(self.rows, self.task)
        if broken:
            findings.block("reject", f"the candidate gives {broken}")
        for repeat, table in self.seeds:
            if useless := unusable(table, self.task):
                findings.block("reject", f"seed {repeat.seed} of the candidate gives {useless}")
                broken = broken or useless
        findings.block("reject", *(check["reason"] for check in self.thresholds if not check["passed"]))
        if not broken:
            findings.block("reject", *without_value(self.tolerances, self.metrics["candidate"], first=champion is None))
            self._constant()
            self._others()
        if self.thresholds and all(check["passed"] for check in self.thresholds):
            findings.notes.append("every threshold is met: " + ", ".join(met(check) for check in self.thresholds))
        if self.seeds:
            findings.notes.append(self._exported())
        if champion is None:
            findings.passed = "first model"
            findings.notes.append("there is no champion yet" + ("" if self.thresholds else " and no threshold is set"))
        elif not broken:
            self._against(champion)
        return {**self._conclude(), **self._facts()}

    def _tolerances(self) -> dict[str, float | str]:
        """What is compared; a metric of the mean alone only where it has a value, unless the config names it."""
        tolerances = self.config.tolerances(self.task, ranked=self.request.ranked)
        values = self.metrics["candidate"]
        return {
            name: tolerance
            for name, tolerance in tolerances.items()
            if self.config.tolerance or values[name] is not None or not self.judging[name].of_the_mean
        }

    def _constant(self) -> None:
        request, config = self.request, self.config
        if not config.baseline or request.label is None or all(v is None for v in self.metrics["candidate"].values()):
            return
        names = dict.fromkeys((self.primary, *self.tolerances))
        beaten = beats(
            self.task,
            request.label,
            self._arrays(self.rows),
            metrics=[self.judging[name] for name in names if not self.judging[name].of_the_mean],
            confidence=config.confidence,
            samples=config.bootstrap,
            seed=request.seed,
            check=self.monitor.check,
        )
        if beaten is None:
            return
        if beaten.passed:
            self.findings.notes.append(beaten.reason)
        else:
            self.findings.block("reject", f"{beaten.reason}; gate.baseline: false would let it pass")

    def _others(self) -> None:
        """The baselines that a candidate has to beat on the primary metric, beside the constant."""
        request, config = self.request, self.config
        for name in request.to_beat if config.baseline else ():
            beaten = beats(
                self.task,
                request.label or LabelFacts(),
                self._arrays(self.rows),
                metrics=[self.judging[self.primary]],
                confidence=config.confidence,
                samples=config.bootstrap,
                seed=request.seed,
                check=self.monitor.check,
                others=self._arrays(read_predictions(request.baselines[name])).prediction,
                name=name,
            )
            if beaten is not None and beaten.passed:
                self.findings.notes.append(beaten.reason)
            elif beaten is not None:
                self.findings.block("reject", f"{beaten.reason}; gate.baseline: false would let it pass")

    def _against(self, champion: Champion) -> None:
        """The comparison with the champion and with the best of the last ones."""
        findings, name = self.findings, f"version {champion.version}"
        why = self._uncomparable(champion)
        if why is not None:
            self._unjudged(*why)
            return
        compared = self._compare(champion, self.request.slices, self._seeds(champion.repeats))
        self.comparisons |= compared.as_json()
        self.outcome = compared.of(self.primary).outcome
        self._drifted(champion)
        self._decayed(champion)
        findings.block("reject", *compared.failures(name))
        for reason in compared.uncompared(name):
            self._unjudged("not comparable", reason)
        findings.notes += compared.notes(name)
        if self.request.slices_chosen:
            what = listed(self.request.slices) if self.request.slices else "none, for want of rows or columns"
            findings.notes.append(f"slices, as evaluation.slices names none: {what}")
        self._reference()
        if self.outcome in ("better", "not compared") or any(verdict == "reject" for verdict, _ in findings.blocks):
            return
        later = newer(self.request.candidate, champion)
        if later is not None:
            findings.notes.insert(0, f"its data are newer, and nothing blocks it: {later}")
        else:
            dated = bool(champion.train and self.request.candidate.train)
            data = "its data are not newer" if dated else "it is not known whether its data are newer"
            findings.block("keep champion", f"{self.primary} is not better than with {name}, and {data}: {name} stays")

    def _scored(self, champion: Champion) -> pa.Table:
        """The predictions of a champion, or of the reference, read once."""
        assert champion.predictions is not None
        if champion.predictions not in self.read:
            self.read[champion.predictions] = read_predictions(champion.predictions, self.request.columns)
        return self.read[champion.predictions]

    def _seeds(self, repeats: Sequence[Repeat]) -> list[tuple[Repeat, pa.Table]]:
        """The predictions of trainings with other seeds."""
        tables = [(repeat, read_predictions(repeat.predictions, self.request.columns)) for repeat in repeats]
        for repeat, table in tables:
            check_same_rows(self.rows, table, f"seed {repeat.seed}'s", str(repeat.predictions))
        return tables

    def _exported(self) -> str:
        values = [self.metrics["candidate"][self.primary]]
        values += [self._measured(table)[self.primary] for _, table in self.seeds]
        known = sorted(value for value in values if value is not None)
        spread = f", which is {number(known[0])} to {number(known[-1])}" if known else ""
        exported = f"seed {self.request.candidate.seed} is exported, the median of {len(values)} by {self.primary}"
        return exported + spread

    def _drifted(self, champion: Champion) -> None:
        """How far the predictions are from the champion's, and whether that is too far."""
        theirs = self._arrays(self._scored(champion)).prediction
        drift = prediction_drift(self.task, self._arrays(self.rows), theirs)
        limit, sentence = self.config.prediction_drift, drift.sentence(f"version {champion.version}")
        self.drift = drift.as_json(limit)
        if self.drift["passed"]:
            self.findings.notes.append(sentence + (f"; the limit is {number(limit)}" if limit is not None else ""))
        else:
            self.findings.block("reject", f"{sentence}; gate.prediction_drift allows {number(limit)}")

    def _decayed(self, champion: Champion) -> None:
        """Whether the champion has become worse since its promotion."""
        if champion.worth is None:
            return
        today = self._worth(self._scored(champion))
        confidence = self.config.confidence
        for decay in decayed(champion.worth, today, self.tolerances, self.judging, confidence=confidence):
            self.decay.append(decay.as_json())
            name = f"the champion, version {champion.version}, has become worse since it was promoted"
            self.alarms.append(f"{name}: {decay.sentence(confidence)}")

    def _worth(self, table: pa.Table) -> Worth:
        return worth(
            self.task,
            self._arrays(table),
            [self.judging[name] for name in self.tolerances],
            table=self.rows,
            label=self.request.label,
            clusters=self.request.clusters,
            samples=self.config.bootstrap,
            seed=self.request.seed,
            check=self.monitor.check,
        )

    def _reference(self) -> None:
        """Many small steps down, each within the tolerance, are a long way: the best of the last champions is held too."""
        reference = self.request.reference
        if reference is None:
            return
        name = f"version {reference.version}, the best of the last champions"
        if (why := self._uncomparable(reference, "the best of the last champions")) is not None:
            self.findings.notes.append(f"{why[1]}; it is left out")
            return
        compared = self._compare(reference, ())
        self.metrics["reference"] = self._measured(self._scored(reference))
        self.comparisons["reference"] = [metric.as_json() for metric in compared.overall]
        failures = compared.failures(name)
        self.findings.block("reject", *failures)
        if not failures and (metric := compared.of(self.primary)).outcome != "not compared":
            self.findings.notes.append(metric.sentence(name, compared.confidence))

    def _compare(
        self, champion: Champion, slices: tuple[str, ...], seeds: Sequence[tuple[Repeat, pa.Table]] = ()
    ) -> Comparison:
        theirs = self._scored(champion)
        check_same_rows(self.rows, theirs, f"version {champion.version}'s", str(champion.predictions))
        if champion is self.request.champion:
            self.metrics["champion"] = self._measured(theirs)
        return compare(
            self.task,
            self.rows,
            theirs,
            config=self.config,
            slices=slices,
            metrics=self.judging,
            tolerances=self.tolerances,
            label=self.request.label,
            group=self.request.group,
            clusters=self.request.clusters,
            repeats=([table for _, table in self.seeds], [table for _, table in seeds]),
            seed=self.request.seed,
            monitor=self.monitor,
        )

    def _unjudged(self, verdict: str, reason: str) -> None:
        """The champion cannot be compared: a person decides, or the thresholds do."""
        if self.config.uncomparable == "hold":
            self.findings.block(verdict, f"{reason}; a person must decide (promote it by force)")
        else:
            self.findings.passed = verdict
            self.findings.notes.append(f"{reason}; the thresholds alone decide")

    def _uncomparable(self, champion: Champion, role: str = "the champion") -> tuple[str, str] | None:
        """(verdict, reason) when a champion cannot fairly be held against the candidate."""
        request, name = self.request, f"{role}, version {champion.version},"
        if champion.incompatible is not None or champion.predictions is None:
            why = champion.incompatible or "it has no predictions"
            return "incompatible champion", f"{name} cannot score these rows: {why}"
        spans = trained_on(champion.train, champion.split, request.eval, request.split)
        if spans:
            return "not comparable", f"{name} was trained on evaluation rows of this run (spans {some(spans, 5)})"
        if broken := unusable(self._scored(champion), self.task):
            return "not comparable", f"{name} gives {broken}"
        return None

    def _conclude(self) -> dict[str, Any]:
        blocks, notes = self.findings.blocks, self.findings.notes
        order = ("rolled back", "reject", "incompatible champion", "not comparable", "keep champion")
        blocks.sort(key=lambda block: order.index(block[0]))
        if not blocks and (kept := self.config.kept):
            blocks = [kept]
        if blocks and self.request.force:
            reasons = ["promoted by force, against: " + reason for _, reason in blocks]
            return {"verdict": "forced", "promote": True, "reasons": reasons + notes}
        if blocks:
            return {"verdict": blocks[0][0], "promote": False, "reasons": [reason for _, reason in blocks] + notes}
        return {"verdict": self.findings.passed, "promote": True, "reasons": notes}

    def _facts(self) -> dict[str, Any]:
        request, champion, reference = self.request, self.request.champion, self.request.reference
        ranked: dict[str, Any] = {"ndcg_at": request.ndcg_at} if request.ranked else {}
        ranked |= {"item": request.item} if request.item else {}
        return {
            "format": 1,
            "task": request.task,
            "rows": len(self.rows),
            "candidate": request.candidate.model,
            "champion": {"version": champion.version, "model": champion.model} if champion else None,
            "reference": {"version": reference.version, "model": reference.model} if reference else None,
            "primary": self.primary,
            "outcome": self.outcome,
            "metrics": self.metrics,
            "thresholds": self.thresholds,
            "comparisons": self.comparisons,
            "seed": request.candidate.seed,
            "seeds": [
                {"seed": repeat.seed, "model": repeat.model, "metrics": self._measured(table)}
                for repeat, table in self.seeds
            ],
            "prediction_drift": self.drift,
            "worth": None if unusable(self.rows, self.task) else self._worth(self.rows),
            "decay": self.decay,
            "alarms": self.alarms,
            "settings": self.config.model_dump(mode="json") | {"seed": request.seed, "group": request.group} | ranked,
        }

    def _measured(self, table: pa.Table) -> dict[str, float | None]:
        return measured(tuple(self.judging.values()), self._arrays(table))

    def _arrays(self, table: pa.Table) -> Rows:
        return rows_of(
            table, self.task, self.request.group, columns=any(metric.reads_columns for metric in self.judging.values())
        )

    def _baselines(self) -> dict[str, Any]:
        """The metrics of the constant, and of every other baseline on the same rows."""
        baselines: dict[str, Any] = {}
        if self.request.label is not None:
            values = constant(self.task, self.request.label, self._arrays(self.rows), tuple(self.judging.values()))
            if values is not None:
                baselines["constant"] = values
        for name, path in self.request.baselines.items():
            table = read_predictions(path, self.request.columns)
            check_same_rows(self.rows, table, f"the baseline {name}'s", str(path))
            baselines[name] = self._measured(table)
            value = baselines[name][self.primary]
            if name not in self.request.to_beat or not self.config.baseline:  # else it has a sentence of its own
                self.findings.notes.append(f"the baseline {name} has {self.primary} {number(value)}")
        return baselines
