"""The window of a leakage proof: spans with their key indexes, the parts of each split, and the findings.

window = Window.of([IndexedSpan.load("2013-01", folder)], window_splits(...))
window.say("no key is in two splits")
window.find("error", "key overlap", ...)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.leakage.key_index import SpanIndex, SplitIndex, read
from headway.messages import counted
from headway.tabular.splits import Part
from headway.validation.anomaly import Anomaly, Severity, finding


@dataclass(frozen=True)
class IndexedSpan:
    """A span of the window with its key index."""

    span: str
    folder: Path
    index: SpanIndex

    @classmethod
    def load(cls, span: str, folder: Path) -> IndexedSpan:
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

    def __init__(self, spans: Sequence[IndexedSpan], parts: Mapping[str, Sequence[Part]]):
        self.spans = list(spans)
        self.parts = {name: tuple(of) for name, of in parts.items() if of}
        self._by_name = {indexed.span: indexed for indexed in spans}
        self.proof = Proof(splits={name: {"rows": sum(n.rows for n in self.indexes(name))} for name in self.parts})

    def of(self, split: str) -> Iterator[tuple[IndexedSpan, str, SplitIndex]]:
        """The parts of a split that have rows: (span, its part, index of that)."""
        for span, part in self.parts[split]:
            indexed = self._by_name[span]
            if part in indexed.index.splits:
                yield indexed, part, indexed.index.splits[part]

    def indexes(self, split: str) -> list[SplitIndex]:
        return [note for _, _, note in self.of(split)]

    @property
    def rows(self) -> int:
        return sum(split["rows"] for split in self.proof.splits.values())

    @property
    def size(self) -> str:
        return counted(len(self.spans), "span")

    def say(self, sentence: str) -> None:
        self.proof.says.append(sentence)

    def find(self, severity: Severity, kind: str, where: str, message: str, fix: str) -> None:
        self.proof.anomalies.append(finding(severity, kind, where, message, fix))
