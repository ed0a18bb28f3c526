"""What an ingest is asked: plain data, so that it crosses to a worker and into a fingerprint."""

from __future__ import annotations

from typing import Any

from headway.config import Frozen
from headway.label import LabelConfig
from headway.records.spec import RecordsConfig
from headway.schema import Column
from headway.sources.base import InputFile, SourceConfig
from headway.splits import SplitConfig

VERSION = 1
"""Raised by whoever changes a byte of what ingest writes for the same request."""


class IngestRequest(Frozen):
    """One span."""

    span: str
    files: tuple[InputFile, ...]
    source: SourceConfig
    read: tuple[Column, ...]
    """What is read and coerced: stored columns, and those that the label, the filter and the split look at."""
    stored: tuple[str, ...]
    """The columns of `read` that go into the shards; the label is added to them."""
    label: LabelConfig
    split: SplitConfig
    records: RecordsConfig = RecordsConfig()

    def columns(self) -> tuple[Column, ...]:
        """The columns of the shards, the label last."""
        return (*(c for c in self.read if c.name in self.stored), self.label.stored(self.read))

    def key(self) -> dict[str, Any]:
        """What the output depends on: checksums and not paths, and of each config the part that is read here."""
        return {
            "stage": "ingest",
            "version": VERSION,
            "span": self.span,
            "files": [{"bytes": f.bytes, "crc32c": f.crc32c} for f in self.files],
            "source": self.source.at_ingest(),
            "columns": {c.name: {"type": c.type, "nullable": c.nullable, "role": c.role} for c in self.read},
            "stored": list(self.stored),
            "label": self.label.model_dump(mode="json"),
            "split": self.split.at_ingest(),
            "records": self.records.model_dump(mode="json"),
        }
