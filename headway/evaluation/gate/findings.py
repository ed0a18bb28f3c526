"""What speaks for and against a promotion, and the verdict that follows.

findings.block("reject", "auc is 0.61, below the required minimum of 0.7")
findings.conclude(kept=None, force=False)        # {"verdict": "reject", "promote": False, "reasons": [...]}
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

GRAVEST_FIRST = ("rolled back", "reject", "incompatible champion", "not comparable", "keep champion", "held")


@dataclass
class Findings:
    """The reasons against a promotion, and further remarks."""

    blocks: list[tuple[str, str]] = field(default_factory=list)
    """(verdict, reason), in the order of the checks."""
    notes: list[str] = field(default_factory=list)
    passed: str = "promote"
    """The verdict of a candidate that nothing speaks against."""

    def block(self, verdict: str, *reasons: str) -> None:
        self.blocks += [(verdict, reason) for reason in reasons]

    @property
    def rejected(self) -> bool:
        return any(verdict == "reject" for verdict, _ in self.blocks)

    def conclude(self, *, kept: tuple[str, str] | None, force: bool) -> dict[str, Any]:
        """The verdict, whether to promote, and the reasons: those of the gravest verdict first.

        Args:
            kept: the verdict and the reason of a candidate that passed where a person promotes.
            force: promote against every block.
        """
        blocks = sorted(self.blocks, key=lambda block: GRAVEST_FIRST.index(block[0]))
        if not blocks and kept:
            blocks = [kept]
        if blocks and force:
            reasons = ["promoted by force, against: " + reason for _, reason in blocks]
            return {"verdict": "forced", "promote": True, "reasons": reasons + self.notes}
        if blocks:
            return {"verdict": blocks[0][0], "promote": False, "reasons": [reason for _, reason in blocks] + self.notes}
        return {"verdict": self.passed, "promote": True, "reasons": self.notes}
