"""What the gate checked, what speaks for and against a promotion, and the verdict that follows.

findings.block("reject", "auc is 0.61, below the required minimum of 0.7", check=check)
findings.conclude(kept=None, force=False)        # ("reject", False, (Reason(...),))
"""

from dataclasses import dataclass, field

from headway.evaluation.verdict import Check, Note, Reason

GRAVEST_FIRST = ("rolled back", "reject", "incompatible champion", "not comparable", "keep champion", "held")
BY_FORCE = "a person must decide (headway promote, by force)"


@dataclass
class Findings:
    """The checks, the reasons against and for a promotion, and further remarks."""

    spans: tuple[str, ...] = ()
    """That the eval rows come from."""
    checks: list[Check] = field(default_factory=list)
    blocks: list[Reason] = field(default_factory=list)
    """In the order of the checks."""
    favour: list[Reason] = field(default_factory=list)
    """What speaks for a promotion."""
    notes: list[Note] = field(default_factory=list)
    alarms: list[Note] = field(default_factory=list)
    """Why the champion itself needs a look."""

    def looked(self, check: Check) -> Check:
        """Keep a check."""
        check = check.model_copy(update={"spans": self.spans})
        self.checks.append(check)
        return check

    def block(self, verdict: str, summary: str, detail: str = "", fix: str = "", *, check: Check | None = None) -> None:
        """Speak against a promotion."""
        key = None if check is None else check.key
        self.blocks.append(Reason(verdict=verdict, summary=summary, detail=detail, fix=fix, check=key))

    def refuse(
        self, name: str, summary: str, detail: str = "", *, verdict: str = "reject", outcome: str = "failed"
    ) -> None:
        """Speak against a promotion for something that has no number."""
        self.block(verdict, summary, detail, check=self.looked(Check(name=name, outcome=outcome, passed=False)))

    def support(self, verdict: str, summary: str, detail: str = "", *, check: Check | None = None) -> None:
        """Speak for a promotion; what was said last is the verdict."""
        key = None if check is None else check.key
        self.favour.insert(0, Reason(verdict=verdict, summary=summary, detail=detail, check=key))

    def note(self, summary: str, detail: str = "", *, check: Check | None = None, concern: bool = False) -> None:
        key = None if check is None else check.key
        self.notes.append(Note(summary=summary, detail=detail, check=key, concern=concern))

    def alarm(self, summary: str, detail: str, fix: str, *, check: Check, concern: bool) -> None:
        """Say why the champion needs a look: a concern where the candidate does not mend it."""
        self.alarms.append(Note(summary=summary, detail=detail, fix=fix, check=check.key, concern=concern))

    @property
    def rejected(self) -> bool:
        return any(reason.verdict == "reject" for reason in self.blocks)

    def conclude(self, *, kept: tuple[str, str] | None, force: bool) -> tuple[str, bool, tuple[Reason, ...]]:
        """The verdict, whether to promote, and the reasons: those of the gravest verdict first.

        Args:
            kept: the verdict and the reason of a candidate that passed where a person promotes.
            force: promote against every block.
        """
        blocks = sorted(self.blocks, key=lambda reason: GRAVEST_FIRST.index(reason.verdict))
        if not blocks and kept:
            blocks = [Reason(verdict=kept[0], summary=kept[1])]
        if blocks and force:
            return "forced", True, tuple(reason.model_copy(update={"overruled": True}) for reason in blocks)
        if blocks:
            return blocks[0].verdict, False, tuple(blocks)
        said = {reason.check for reason in self.favour if reason.check}
        self.notes = [note for note in self.notes if note.check not in said]
        return (self.favour[0].verdict if self.favour else "promote"), True, tuple(self.favour)
