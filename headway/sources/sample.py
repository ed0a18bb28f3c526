"""The sample of a span that a schema is inferred from: its first rows, and its source's notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headway.schema.decimal_signs import DecimalSign

ONE_IN = 100
"""So few of a column's sampled values may be unlike the others: they decide nothing."""


@dataclass(frozen=True)
class Sample:
    table: pa.Table
    notes: tuple[str, ...] = ()
    """Sentences about the files as a whole, such as names of images without a label."""
    conflicts: Mapping[str, str] = field(default_factory=dict)
    """By column: how its type differs between the files. Such a column is empty here."""
    misfits: Mapping[str, str] = field(default_factory=dict)
    """By column that was made numbers: which sampled values are not numbers, and are null here."""
    several: Mapping[str, str] = field(default_factory=dict)
    """By column of one value per row: how many sampled rows had several values."""
    decimal: DecimalSign | None = None
    """What the numbers in text that show it have as decimal sign; None: the format does not write numbers as text."""
    spelled: bool = False
    """Whether the files hold numbers as text, so that their spelling counts: 1e5 is no integer, 100000 is."""

    def renamed(self, names: Mapping[str, str]) -> Sample:
        """The sample with renamed columns, {old: new}."""

        def keys(sentences: Mapping[str, str]) -> dict[str, str]:
            return {names.get(name, name): sentence for name, sentence in sentences.items()}

        table = self.table.rename_columns([names.get(name, name) for name in self.table.column_names])
        return replace(
            self,
            table=table,
            conflicts=keys(self.conflicts),
            misfits=keys(self.misfits),
            several=keys(self.several),
        )
