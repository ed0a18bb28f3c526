"""The candidate against the champion.

compared = AgainstChampion(models, findings, tolerances, primary)
compared.judge(champion)                          # adds its checks and reasons to the findings
"""

from collections.abc import Mapping, Sequence
from typing import Any

from headway.evaluation.champion_decay import decayed, fallen
from headway.evaluation.comparison import Comparison, compare, told
from headway.evaluation.gate.findings import BY_FORCE, Findings
from headway.evaluation.gate.gate_request import Champion, newer, trained_on
from headway.evaluation.gate.scored_models import ScoredModels
from headway.evaluation.gate_checks import unusable
from headway.evaluation.slices import parts_of
from headway.evaluation.verdict import (
    BETTER,
    CHAMPION,
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
        self.left_out: tuple[LeftOut, ...] = ()

    def judge(self, champion: Champion) -> None:
        """Compare, and say what blocks the candidate, what it is better at, and whether its data are newer."""
        findings, name = self.findings, f"version {champion.version}"
        why = self._not_comparable(champion)
        if why is not None:
            self._unjudged(*why)
            return
        compared = self._compare(champion)
        self.champion = self.models.measured(self.models.of(champion))
        self.left_out = compared.left_out
        checks = self._checked(compared, name)
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

    def _checked(self, compared: Comparison, name: str) -> list[Check]:
        """Keep the comparisons with the champion, and say what they came to.

        Of the slices only what is beyond the limit is told. A change beyond the limit that chance can explain is a concern: more
        rows would tell.
        """
        checks = [self.findings.looked(check) for check in compared.checks(CHAMPION, name)]
        for check in checks:
            if not check.passed:
                self.findings.block("reject", *told(check), check=check)
            elif check.slice is None and check.outcome != NOT_COMPARED:
                self.findings.note(*told(check), check=check, concern=check.perhaps_beyond)
        return checks

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

    def _compare(self, champion: Champion) -> Comparison:
        models, theirs = self.models, self.models.of(champion)
        assert champion.predictions is not None
        models.check_same(theirs, f"version {champion.version}'s", champion.predictions)
        shared: dict[str, Any] = {
            "config": self.config,
            "slices": self.request.slices,
            "group": self.request.group,
            "units": self.request.units,
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
        """The champion cannot be compared: a person decides."""
        check = self.findings.looked(Check(name="comparable", outcome=verdict, passed=False))
        self.findings.block(verdict, summary, detail, BY_FORCE, check=check)

    def _not_comparable(self, champion: Champion) -> tuple[str, str, str] | None:
        """(verdict, summary, detail) when a champion cannot fairly be held against the candidate."""
        request, name = self.request, f"the champion, version {champion.version},"
        if champion.incompatible is not None or champion.predictions is None:
            why = champion.incompatible or "it has no predictions"
            return "incompatible champion", f"{name} cannot be compared: {why}", ""
        spans = trained_on(champion.train, champion.split, request.eval, request.split)
        if spans:
            return "not comparable", f"{name} was trained on evaluation rows of this run", f"spans {some(spans, 5)}"
        if broken := unusable(self.models.of(champion)):
            return "not comparable", f"{name} gives {broken}", ""
        return None
