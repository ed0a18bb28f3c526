"""The sample of a span that a schema is inferred from: its first rows, and its source's notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headway.schema.decimal_signs import DecimalSign

ONE_IN = 100
"""So few of a column's sampled values may be unlike the others: they decide nothing."""

_FACTS = ("conflicts", "damaged", "mixed", "misfits", "several", "nulls", "words")
"""The facts of a sample that are of single columns."""


@dataclass(frozen=True)
class Sample:
    table: pa.Table
    notes: tuple[str, ...] = ()
    """Sentences about the files as a whole, such as names of images without a label."""
    conflicts: Mapping[str, str] = field(default_factory=dict)
    """By column: how its type differs between the files, or why it cannot be read. Such a column is empty here."""
    damaged: Mapping[str, str] = field(default_factory=dict)
    """By column that cannot be read: its file."""
    mixed: Mapping[str, str] = field(default_factory=dict)
    """By column of values of several forms, such as an object among texts: the forms, however few have one."""
    misfits: Mapping[str, str] = field(default_factory=dict)
    """By column that was made numbers: which sampled values are not numbers, and are null here."""
    several: Mapping[str, str] = field(default_factory=dict)
    """By column of one value per row: how many sampled rows had several values."""
    decimal: DecimalSign | None = None
    """What the numbers in text that show it have as decimal sign; None: the format does not write numbers as text."""
    nulls: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By column of text files: the texts that mean a missing value."""
    words: Mapping[str, str] = field(default_factory=dict)
    """By column of text: what such a word is in it, where that is worth a note."""
    spelled: bool = False
    """Whether the files hold numbers as text, so that their spelling counts: 1e5 is no integer, 100000 is."""

    def joined(self, whole: Sample, others: Sequence[Sample]) -> Sample:
        """The sample of several spans: `whole` is that of all their tables, and of each fact the first span's counts."""
        every = (whole, self, *others)
        facts: dict[str, Any] = {
            name: {column: fact for each in every[::-1] for column, fact in getattr(each, name).items()}
            for name in _FACTS
        }
        for name, words in facts["nulls"].items():  # a word that is a text in one span is one
            facts["nulls"][name] = tuple(
                word for word in words if all(word in of.nulls.get(name, words) for of in others)
            )
        notes = tuple(dict.fromkeys(note for each in every for note in each.notes))
        decimal = self.decimal if all(each.decimal == self.decimal for each in others) else None
        return replace(self, table=whole.table, notes=notes, decimal=decimal, **facts)

    def renamed(self, names: Mapping[str, str]) -> Sample:
        """The sample with renamed columns, {old: new}."""
        facts: dict[str, Any] = {
            of_it: {names.get(name, name): fact for name, fact in getattr(self, of_it).items()} for of_it in _FACTS
        }
        table = self.table.rename_columns([names.get(name, name) for name in self.table.column_names])
        return replace(self, table=table, **facts)
