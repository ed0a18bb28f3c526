"""The candidate against the champion, and against an early champion, the reference.

compared = AgainstChampion(models, findings, tolerances, primary)
compared.judge(champion)
compared.outcome, compared.comparisons, compared.alarms
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headway.evaluation.checks.champion_decay import decayed
from headway.evaluation.checks.prediction_drift import prediction_drift
from headway.evaluation.checks.small_steps import Decline, Levels, Measured, differences, of_champion
from headway.evaluation.comparison import Comparison, allowing, compare, with_further
from headway.evaluation.further_labels import named, part_of
from headway.evaluation.gate.findings import Findings
from headway.evaluation.gate.scored_models import ScoredModels
from headway.evaluation.gate_checks import unusable
from headway.evaluation.gate_config import Champion, Repeat, newer, trained_on
from headway.messages import listed, number, some
from headway.tasks.table import task_of


class AgainstChampion:
    """What the comparison with earlier models says; adds its reasons to the findings."""

    def __init__(
        self, models: ScoredModels, findings: Findings, tolerances: Mapping[str, float | str], primary: str
    ) -> None:
        self.models, self.findings, self.tolerances, self.primary = models, findings, tolerances, primary
        self.request, self.config = models.request, models.request.config
        self.metrics: dict[str, Any] = {"champion": None, "reference": None}
        self.comparisons: dict[str, Any] = {"overall": [], "slices": [], "left_out": [], "reference": []}
        self.outcome: str | None = None
        self.drift: dict[str, Any] | None = None
        self.decay: list[dict[str, Any]] = []
        self.declines: list[Decline] = []
        self.alarms: list[str] = []
        """Why the champion itself needs a look; they change no verdict."""

    def judge(self, champion: Champion) -> None:
        """Compare, and say what blocks the candidate, what it is better at, and whether its data are newer."""
        findings, name = self.findings, f"version {champion.version}"
        why = self._uncomparable(champion)
        if why is not None:
            self._unjudged(*why)
            return
        compared = self._compare(champion, self.request.slices, self.models.repeats(champion.repeats))
        reference = self._reference()
        levels = self._levels(compared, reference)
        compared = self._allowing(compared, levels, self.request.place, name)
        self.metrics["champion"] = self.models.measured(self.models.of(champion))
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
        if reference is not None:
            self._since_reference(reference, levels)
        if self.outcome in ("better", "not compared") or findings.rejected:
            return
        later = newer(self.request.candidate, champion)
        if later is not None:
            findings.notes.insert(0, f"its data are newer, and nothing blocks it: {later}")
        else:
            dated = bool(champion.train and self.request.candidate.train)
            data = "its data are not newer" if dated else "it is not known whether its data are newer"
            findings.block("keep champion", f"{self.primary} is not better than with {name}, and {data}: {name} stays")

    def _drifted(self, champion: Champion) -> None:
        """How far the predictions are from the champion's, and whether that is too far."""
        theirs = self.models.rows(self.models.of(champion)).prediction
        drift = prediction_drift(self.models.task, self.models.rows(self.models.candidate), theirs)
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
        judging, confidence = self.models.judging, self.config.confidence
        today = self.models.worth(self.models.of(champion), [judging[name] for name in self.tolerances])
        for decay in decayed(champion.worth, today, self.tolerances, judging, confidence=confidence):
            self.decay.append(decay.as_json())
            name = f"the champion, version {champion.version}, has become worse since it was promoted"
            self.alarms.append(f"{name}: {decay.sentence(confidence)}")

    def _reference(self) -> Comparison | None:
        """The comparison with the reference, if there is one that can be compared."""
        reference = self.request.reference
        if reference is None:
            return None
        if (why := self._uncomparable(reference, "an early champion")) is not None:
            self.findings.notes.append(f"{why[1]}; it is left out")
            return None
        self.metrics["reference"] = self.models.measured(self.models.of(reference))
        return self._compare(reference, ())

    def _levels(self, champion: Comparison, reference: Comparison | None) -> dict[str, Levels]:
        """By metric, the champions since the reference, and the candidate, on one scale."""
        if reference is None:
            return {}
        request, sides = self.request, (reference.as_json()["overall"], champion.as_json()["overall"])
        today = [(request.place + 1, differences(sides[0])), (request.place, of_champion(sides[1], sides[0]))]
        measured = [
            *request.since,
            *(Measured(place=at, eval=request.eval, differences=found) for at, found in today if at),
        ]
        metrics = {c.measured.metric: c.metric for c in reference.overall if c.interval is not None}
        return {name: Levels.of(measured, metric, name) for name, metric in metrics.items()}

    def _allowing(self, compared: Comparison, levels: Mapping[str, Levels], place: int, name: str) -> Comparison:
        """With wider margins where a seed of good luck made the champion, or the reference."""
        return allowing(compared, {metric: each.luck(place) for metric, each in levels.items()}, self.config, name)

    def _since_reference(self, compared: Comparison, levels: Mapping[str, Levels]) -> None:
        """Many small steps down, each within the tolerance, are a long way."""
        assert self.request.reference is not None
        version, findings = self.request.reference.version, self.findings
        name = f"version {version}, an early champion"
        compared = self._allowing(compared, levels, 0, name)
        self.comparisons["reference"] = [metric.as_json() for metric in compared.overall]
        findings.block("reject", *compared.failures(name))
        for test in compared.overall:
            metric = test.measured.metric
            if metric in levels:
                # the primary metric has all of the error, the others share as much
                share = 1.0 if metric == self.primary else 1 / max(1, len(levels) - 1)
                if (decline := levels[metric].decline(test.margin.value, share)) is not None:
                    self.declines.append(decline)
        findings.block("reject", *(decline.sentence(version) for decline in self.declines))
        test = compared.of(self.primary)
        if not test.failed and test.outcome != "not compared":
            findings.notes.append(test.sentence(name, compared.confidence))

    def _compare(
        self, champion: Champion, slices: tuple[str, ...], seeds: Sequence[tuple[Repeat, pa.Table]] = ()
    ) -> Comparison:
        models, theirs = self.models, self.models.of(champion)
        models.check_same(theirs, f"version {champion.version}'s", champion.predictions)
        shared: dict[str, Any] = {
            "config": self.config,
            "slices": slices,
            "group": self.request.group,
            "clusters": self.request.clusters,
            "seed": self.request.seed,
            "monitor": models.monitor,
        }
        repeats = [table for _, table in models.seeds], [table for _, table in seeds]
        compared = compare(
            models.task,
            models.candidate,
            theirs,
            metrics=models.judging,
            tolerances=self.tolerances,
            label=self.request.label,
            repeats=repeats,
            **shared,
        )
        for name, (label, metrics) in models.further.items():
            if not (tolerances := self.config.further_tolerances(name)):
                continue
            ours, before = part_of(models.candidate, name), part_of(theirs, name)
            if before is None:
                lacks = f"version {champion.version} does not predict {name}"
                self.findings.notes.append(f"{lacks}, so that {listed([*named(tolerances, name)])} is not compared")
                continue
            more = [[part for table in side if (part := part_of(table, name)) is not None] for side in repeats]
            further = compare(
                task_of(label.task),
                ours,
                before,
                metrics=metrics,
                tolerances=tolerances,
                label=label.facts,
                repeats=(more[0], more[1]),
                **shared,
            )
            compared = with_further(compared, name, further, self.config)
        return compared

    def _unjudged(self, verdict: str, reason: str) -> None:
        """The champion cannot be compared: a person decides, or the thresholds do."""
        if self.config.uncomparable == "hold":
            self.findings.block(verdict, f"{reason}; a person must decide (headway promote, by force)")
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
        if broken := unusable(self.models.of(champion), self.models.task):
            return "not comparable", f"{name} gives {broken}"
        return None
