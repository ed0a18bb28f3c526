"""The sample of a span that a schema is inferred from: its first rows, its source's notes, and columns whose types conflict
between files, such as a list in one and an object in another.

    forms = Forms()
    forms.note("0.jsonl", {("a",): Seen("a list", 40, 40)})
    forms.note("1.jsonl", {("a", "b"): Seen("one value", 40, 40)})     # so that `a` is an object there
    forms.clashes()         # {"a": "column 'a' is a list in 0.jsonl and an object in 1.jsonl", "a.b": the same}

No type holds both, and of a sample that left one out the rows would be rejected later. What one value in a hundred is
decides nothing, and a column that nobody wants may be whatever it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

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


_OBJECT, EMPTY_LIST = "an object", "an empty list"
Way = tuple[str, ...]


class Seen(NamedTuple):
    """The type of one column in some lines."""

    form: str | None
    """What its values are: one value, a list, a list of ..., an empty list; None: there are only nulls."""
    values: int
    """How many are not null."""
    total: int


@dataclass
class _Form:
    path: str
    """The first file that showed it."""
    values: int = 0


@dataclass
class Forms:
    """The types seen of each column, and of each object that contains columns."""

    _forms: dict[Way, dict[str, _Form]] = field(default_factory=dict)
    _ways: set[Way] = field(default_factory=set)

    def note(self, path: str, columns: Mapping[Way, Seen]) -> None:
        """Add the columns of some lines of a file."""
        objects: dict[Way, int] = {}
        for way, column in columns.items():
            self._ways.add(way)
            for i in range(1, len(way)):
                objects[way[:i]] = max(objects.get(way[:i], 0), column.total)
            if column.form is not None:
                self._add(way, column.form, path, column.values)
        for way, total in objects.items():
            self._add(way, _OBJECT, path, total)

    def _add(self, way: Way, form: str, path: str, values: int) -> None:
        self._forms.setdefault(way, {}).setdefault(form, _Form(path)).values += values

    def clashes(self) -> dict[str, str]:
        """The conflict of each column whose types conflict, or that lies in an object whose types do."""
        conflicts = {way: _conflict(way, forms) for way, forms in self._usual().items() if len(forms) > 1}
        return {
            ".".join(way): next(conflicts[start] for start in _starts(way) if start in conflicts)
            for way in sorted(self._ways)
            if any(start in conflicts for start in _starts(way))
        }

    def mixed(self) -> dict[str, str]:
        """The forms of each column that has several, or that lies in what has, however few values have one."""
        ways = {way: " and ".join(forms) for way, forms in self._forms.items() if len({*forms} - {EMPTY_LIST}) > 1}
        return {".".join(way): ways[start] for way in self._ways for start in _starts(way) if start in ways}

    def is_rare(self, way: Way, form: str | None) -> bool:
        """Whether hardly any values have the type that a column, or an object around it, has in some lines."""
        forms = dict.fromkeys(_starts(way)[:-1], _OBJECT) | ({way: form} if form is not None else {})
        usual = self._usual(forms)
        return any(not _is_in(form, usual[start]) for start, form in forms.items())

    def _usual(self, ways: Mapping[Way, str] | None = None) -> dict[Way, dict[str, _Form]]:
        """The forms of more than one value in a hundred."""
        usual = {}
        for way in self._forms if ways is None else ways:
            forms = self._forms.get(way, {})
            if any(name.startswith("a list") for name in forms):  # of which an empty one may be any
                forms = {name: form for name, form in forms.items() if name != EMPTY_LIST}
            values = sum(form.values for form in forms.values())
            usual[way] = {name: form for name, form in forms.items() if form.values * ONE_IN > values}
        return usual


def without_values(table: pa.Table, clashes: Mapping[str, str]) -> pa.Table:
    """The table with these columns null, so that the tables of several files can be concatenated."""
    for name in clashes:
        if (place := table.schema.get_field_index(name)) >= 0:
            table = table.set_column(place, name, pa.nulls(table.num_rows))
    return table


def _starts(way: Way) -> list[Way]:
    return [way[:i] for i in range(1, len(way) + 1)]


def _is_in(form: str, usual: Mapping[str, _Form]) -> bool:
    return form in usual or (form == EMPTY_LIST and any(name.startswith("a list") for name in usual))


def _conflict(way: Way, forms: Mapping[str, _Form]) -> str:
    (form, first), (other_form, second) = list(forms.items())[:2]
    where = f" in {first.path}" if first.path != second.path else ""
    return f"column {'.'.join(way)!r} is {form}{where} and {other_form} in {second.path}"
