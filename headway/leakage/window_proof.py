"""The window of a leakage proof: spans with their key indexes, the parts of each split, and the findings.

window = Window.of([Noted.load("2013-01", folder)], window_splits(...))
window.say("no key is in two splits")
window.find("error", "key overlap", ...)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headway.leakage.key_index import SpanNotes, SplitNote, read
from headway.tabular.splits import Part
from headway.validation.anomaly import Anomaly


@dataclass(frozen=True)
class Noted:
    """A span of the window with its key index."""

    span: str
    folder: Path
    notes: SpanNotes

    @classmethod
    def load(cls, span: str, folder: Path) -> Noted:
        return cls(span, folder, read(folder))


@dataclass
class Proof:
    """The result of a proof: statements, findings, and the figures of each split."""

    says: list[str] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    splits: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Rows; distinct keys where they were compared; first and last time where there is a time column."""


class Window:
    """Spans in their order, and the splits that have a part of any of them."""

    def __init__(self, spans: Sequence[Noted], parts: Mapping[str, Sequence[Part]]):
        self.spans = list(spans)
        self.parts = {name: tuple(of) for name, of in parts.items() if of}
        self._by_name = {noted.span: noted for noted in spans}
        self.proof = Proof(splits={name: {"rows": sum(n.rows for n in self.notes(name))} for name in self.parts})

    def of(self, split: str) -> Iterator[tuple[Noted, str, SplitNote]]:
        """The parts of a split that have rows: (span, its part, notes of that)."""
        for span, part in self.parts[split]:
            noted = self._by_name[span]
            if part in noted.notes.splits:
                yield noted, part, noted.notes.splits[part]

    def notes(self, split: str) -> list[SplitNote]:
        return [note for _, _, note in self.of(split)]

    @property
    def rows(self) -> int:
        return sum(split["rows"] for split in self.proof.splits.values())

    @property
    def size(self) -> str:
        return f"{len(self.spans):,} span{'s' * (len(self.spans) != 1)}"

    def say(self, sentence: str) -> None:
        self.proof.says.append(sentence)

    def find(
        self, severity: Literal["error", "warning", "info"], kind: str, where: str, message: str, fix: str
    ) -> None:
        self.proof.anomalies.append(Anomaly(severity=severity, kind=kind, where=where, message=message, fix=fix))
