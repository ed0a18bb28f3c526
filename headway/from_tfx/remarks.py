"""What of a TFX pipeline has no counterpart, with its file and line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Remark:
    """One thing that was not translated, or means something else."""

    file: str
    line: int
    """From 1; 0: of the file as a whole."""
    problem: str
    fix: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}  {self.problem}" + (f"; {self.fix}" if self.fix else "")


class Untranslatable(Exception):
    """Raised where a value of the program cannot be said in Headway."""

    def __init__(self, remark: Remark):
        super().__init__(str(remark))
        self.remark = remark


def names_of(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())
