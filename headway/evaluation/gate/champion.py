"""The candidate against the champion, and against an early champion, the reference.

compared = AgainstChampion(models, findings, tolerances, primary)
compared.judge(champion)                          # adds its checks and reasons to the findings
"""

from collections.abc import Mapping, Sequence
from typing import Any

from headway.evaluation.checks.champion_decay import decayed, fallen
from headway.evaluation.checks.prediction_drift import prediction_drift
from headway.evaluation.checks.small_steps import Levels, Measured, differences, of_champion
from headway.evaluation.comparison import Comparison, allowing, compare, told
from headway.evaluation.gate.findings import BY_FORCE, Findings
from headway.evaluation.gate.gate_request import Champion, newer, trained_on
from headway.evaluation.gate.scored_models import ScoredModels
from headway.evaluation.gate_checks import unusable
from headway.evaluation.slices import parts_of
from headway.evaluation.verdict import (
    BETTER,
    CHAMPION,
    EARLY_CHAMPION,
    NOT_COMPARED,
    Check,
    LeftOut,
    Metrics,
)
from headway.messages import listed, some, window_text


class AgainstChampion:
    """Compares the candidate with earlier models; adds checks, reasons and notes to the findings."""

    def __init__(
        self, models: ScoredModels, findings: Findings, tolerances: Mapping[str, float | str], primary: str
    ) -> None:
        self.models, self.findings, self.tolerances, self.primary = models, findings, tolerances, primary
        self.request, self.config = models.request, models.request.config
        self.champion: Metrics | None = None
        """The champion's metrics."""
        self.reference: Metrics | None = None
        self.left_out: tuple[LeftOut, ...] = ()

    def judge(self, champion: Champion) -> None:
        """Compare, and say what blocks the candidate, what it is better at, and whether its data are newer."""
        findings, name = self.findings, f"version {champion.version}"
        why = self._uncomparable(champion)
        if why is not None:
            self._unjudged(*why)
            return
        compared = self._compare(champion, self.request.slices)
        reference = self._reference()
        levels = self._levels(compared, reference)
        compared = self._allowing(compared, levels, self.request.place, name)
        self.champion = self.models.measured(self.models.of(champion))
        self.left_out = compared.left_out
        self._drifted(champion)
        checks = self._checked(compared, CHAMPION, name)
        self._decayed(champion, checks)
        for summary, metrics in compared.uncompared().items():
            self._unjudged("not comparable", f"{listed(metrics)} cannot be compared with {name}", summary)
        for note in compared.notes(name):
            findings.note(note)
        if self.request.slices_chosen:
            parts = [part for name in self.request.slices for part in parts_of(name)]
            what = listed([f"{of} in {bins} bins" if bins else of for of, bins in parts])
            what = what or "none, for want of rows or columns"
            findings.note(f"evaluation.slices names no slices, so Headway chose {what}")
        if reference is not None:
            self._since_reference(reference, levels)
        decisive = next(check for check in checks if (check.metric, check.slice) == (self.primary, None))
        if decisive.outcome == BETTER:
            findings.support("promote", *told(decisive), check=decisive)
        if decisive.outcome in (BETTER, NOT_COMPARED) or findings.rejected:
            return
        later = newer(self.request.candidate, champion)
        if later is not None:
            findings.support("promote", f"its data are newer, and nothing blocks it; {told(decisive)[0]}", later)
        else:
            dated = bool(champion.train and self.request.candidate.train)
            newest = "data are not newer" if dated else "data are not known to be newer"
            summary = f"{self.primary} is not better than with {name}, and the candidate's {newest}"
            findings.block("keep champion", summary, f"{name} stays", check=decisive)

    def _checked(self, compared: Comparison, kind: str, name: str) -> list[Check]:
        """Keep the comparisons with a model, and say what they came to.

        Of the slices only what is beyond the limit is told. A change beyond the limit that chance can explain is a concern: more
        rows would tell.
        """
        checks = [self.findings.looked(check) for check in compared.checks(kind, name)]
        for check in checks:
            if not check.passed:
                self.findings.block("reject", *told(check), check=check)
            elif check.slice is None and check.outcome != NOT_COMPARED:
                self.findings.note(*told(check), check=check, concern=kind == CHAMPION and check.perhaps_beyond)
        return checks

    def _drifted(self, champion: Champion) -> None:
        """How far the predictions are from the champion's, and whether that is too far."""
        rows, theirs = self.models.rows(self.models.candidate), self.models.rows(self.models.of(champion)).prediction
        found, limit = prediction_drift(self.models.task, rows, theirs), self.config.prediction_drift
        name = f"version {champion.version}"
        check = self.findings.looked(found.check(name, limit, len(rows)))
        if check.passed:
            self.findings.note(found.summary(name, limit), found.detail, check=check)
        else:
            fix = "gate.prediction_drift sets the limit"
            self.findings.block("reject", found.summary(name, limit), found.detail, fix, check=check)

    def _decayed(self, champion: Champion, compared: Sequence[Check]) -> None:
        """Whether the champion has become worse since its promotion, and whether the candidate makes up for it.

        Args:
            compared: the candidate beside the champion.
        """
        if champion.worth is None:
            return
        judging = self.models.judging
        today = self.models.worth(self.models.of(champion), [judging[name] for name in self.tolerances])
        gains = {check.metric: check for check in compared if check.slice is None}
        found = decayed(champion.worth, today, self.tolerances, judging, confidence=self.config.confidence)
        if not found:
            return
        checks = [self.findings.looked(decay.check(champion.version)) for decay in found]
        changes = [(decay, gains[decay.name].change or 0.0) for decay in found]
        mended = all((by if d.metric.higher_is_better else -by) >= d.loss - d.margin for d, by in changes)
        spans, before = self.findings.spans, sorted({span for span, _ in champion.eval})
        alone = self.request.candidate.predictions == champion.predictions
        words = fallen(
            found, champion.version, window_text(spans), window_text(before), mended=None if alone else mended
        )
        detail = "; ".join(f"{d.name}: {d.detail}" if len(found) > 1 else d.detail for d in found)
        self.findings.alarm(words[0], detail, words[1], check=checks[0], concern=not mended)

    def _reference(self) -> Comparison | None:
        """The comparison with the reference, if there is one that can be compared."""
        reference = self.request.reference
        if reference is None:
            return None
        if (why := self._uncomparable(reference, "an early champion")) is not None:
            _, summary, detail = why
            self.findings.note(f"{summary}; it is left out", detail)
            return None
        compared = self._compare(reference, ())  # which looks whether the rows are the same
        self.reference = self.models.measured(self.models.of(reference))
        return compared

    def _levels(self, champion: Comparison, reference: Comparison | None) -> dict[str, Levels]:
        """By metric, the champions since the reference, and the candidate, on one scale."""
        if reference is None:
            return {}
        early = [each for each in reference.checks(EARLY_CHAMPION, "") if each.slice is None]
        now = [each for each in champion.checks(CHAMPION, "") if each.slice is None]
        request = self.request
        today = [(request.place + 1, differences(early)), (request.place, of_champion(now, early))]
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
        self._checked(compared, EARLY_CHAMPION, name)
        for test in compared.overall:
            metric = test.measured.metric
            if metric in levels:
                # the primary metric has all of the error, the others share as much
                share = 1.0 if metric == self.primary else 1 / max(1, len(levels) - 1)
                if (decline := levels[metric].decline(test.margin.value, share)) is not None:
                    check = findings.looked(decline.check(version, test.metric.better))
                    findings.block("reject", decline.summary(version), decline.detail, check=check)

    def _compare(self, champion: Champion, slices: tuple[str, ...]) -> Comparison:
        models, theirs = self.models, self.models.of(champion)
        assert champion.predictions is not None
        models.check_same(theirs, f"version {champion.version}'s", champion.predictions)
        shared: dict[str, Any] = {
            "config": self.config,
            "slices": slices,
            "group": self.request.group,
            "clusters": self.request.clusters,
            "seed": self.request.seed,
            "monitor": models.monitor,
        }
        return compare(
            models.task,
            models.candidate,
            theirs,
            metrics=models.judging,
            tolerances=self.tolerances,
            label=self.request.label,
            **shared,
        )

    def _unjudged(self, verdict: str, summary: str, detail: str) -> None:
        """The champion cannot be compared: a person decides, or the thresholds do."""
        check = self.findings.looked(
            Check(name="comparable", outcome=verdict, passed=self.config.uncomparable != "hold")
        )
        if self.config.uncomparable == "hold":
            self.findings.block(verdict, summary, detail, BY_FORCE, check=check)
        else:
            self.findings.support(verdict, "the thresholds alone decide")
            self.findings.note(summary, detail, check=check, concern=True)

    def _uncomparable(self, champion: Champion, role: str = "the champion") -> tuple[str, str, str] | None:
        """(verdict, summary, detail) when a champion cannot fairly be held against the candidate."""
        request, name = self.request, f"{role}, version {champion.version},"
        if champion.incompatible is not None or champion.predictions is None:
            why = champion.incompatible or "it has no predictions"
            return "incompatible champion", f"{name} cannot be compared: {why}", ""
        spans = trained_on(champion.train, champion.split, request.eval, request.split)
        if spans:
            return "not comparable", f"{name} was trained on evaluation rows of this run", f"spans {some(spans, 5)}"
        if broken := unusable(self.models.of(champion)):
            return "not comparable", f"{name} gives {broken}", ""
        return None
