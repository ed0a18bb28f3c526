"""The sample of rows that a schema is inferred from, with notes on the files, and with the columns whose values have conflicting
forms: a value's form is one value, a list, or an object with columns inside.

    forms = ValueForms()
    forms.note("0.jsonl", {("a",): ColumnForm("a list", 40, 40)})
    forms.note("1.jsonl", {("a", "b"): ColumnForm("one value", 40, 40)})     # so that `a` is an object there
    forms.clashes()         # {"a": "column 'a' is a list in 0.jsonl and an object in 1.jsonl", "a.b": the same}

No stored type holds both a list and an object. If the sample left out one form, rows with that form would be rejected later. A
form that at most one value in a hundred has is ignored. Conflicts in a column that is not used do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from headway.schema.decimal_signs import DecimalSign

ONE_IN = 100
"""One in so many sampled values of a column may be unlike the others without an effect on the inferred type."""

_FACTS = ("conflicts", "damaged", "mixed", "misfits", "several", "nulls", "words")
"""The facts of a sample that belong to single columns."""


@dataclass(frozen=True)
class Sample:
    """Some rows of a span's files, with facts and notes about the columns."""

    table: pa.Table
    notes: tuple[str, ...] = ()
    """Sentences about the files as a whole, such as names of images without a label."""
    conflicts: Mapping[str, str] = field(default_factory=dict)
    """By column whose type differs between files, or that cannot be read: why. The column is null in the sample."""
    damaged: Mapping[str, str] = field(default_factory=dict)
    """By column that cannot be read: the file in which it cannot."""
    mixed: Mapping[str, str] = field(default_factory=dict)
    """By column that has several forms, such as an object among texts: the forms, even rare ones."""
    misfits: Mapping[str, str] = field(default_factory=dict)
    """By text column converted to numbers: a clause on the values that are no numbers, which the sample has as null."""
    several: Mapping[str, str] = field(default_factory=dict)
    """By column of one value per row: a clause on the sampled rows that have several values."""
    decimal: DecimalSign | None = None
    """The decimal sign of numbers in text; None: it is not known, or the format does not write numbers as text."""
    nulls: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By column of CSV files: the texts that mean a missing value."""
    words: Mapping[str, str] = field(default_factory=dict)
    """By column of text: a note on whether a word such as NA is a value or a missing value in it."""
    spelled: bool = False
    """Whether the files hold numbers as text, so that their spelling counts: 100000 is an integer, 1e5 is not."""

    def joined(self, whole: Sample, others: Sequence[Sample]) -> Sample:
        """Returns one sample for several spans: the rows of `whole`, and each column's facts from the first sample with any."""
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
        """Returns the sample with its columns renamed by `names`, {old: new}."""
        facts: dict[str, Any] = {
            of_it: {names.get(name, name): fact for name, fact in getattr(self, of_it).items()} for of_it in _FACTS
        }
        table = self.table.rename_columns([names.get(name, name) for name in self.table.column_names])
        return replace(self, table=table, **facts)


_OBJECT, EMPTY_LIST = "an object", "an empty list"
FieldPath = tuple[str, ...]


class ColumnForm(NamedTuple):
    """The form of one column's values in some lines (one value, a list, ...), and the number of values."""

    form: str | None
    """The form of the column's values: one value, a list, a list of ..., an empty list; None: there are only nulls."""
    values: int
    """The number of values that are not null."""
    total: int


@dataclass
class _Form:
    path: str
    """The first file that showed this form."""
    values: int = 0


@dataclass
class ValueForms:
    """Collects the forms that each column's values have in the files: one value, a list, or an object with columns inside."""

    _forms: dict[FieldPath, dict[str, _Form]] = field(default_factory=dict)
    _ways: set[FieldPath] = field(default_factory=set)

    def note(self, file: str, columns: Mapping[FieldPath, ColumnForm]) -> None:
        """Adds the columns that some lines of a file have, {field path: form}."""
        objects: dict[FieldPath, int] = {}
        for way, column in columns.items():
            self._ways.add(way)
            for i in range(1, len(way)):
                objects[way[:i]] = max(objects.get(way[:i], 0), column.total)
            if column.form is not None:
                self._add(way, column.form, file, column.values)
        for way, total in objects.items():
            self._add(way, _OBJECT, file, total)

    def _add(self, way: FieldPath, form: str, path: str, values: int) -> None:
        self._forms.setdefault(way, {}).setdefault(form, _Form(path)).values += values

    def clashes(self) -> dict[str, str]:
        """Returns {column: message} for each column with conflicting forms, or within an object that has conflicting forms."""
        conflicts = {way: _conflict(way, forms) for way, forms in self._usual().items() if len(forms) > 1}
        return {
            ".".join(way): next(conflicts[start] for start in _starts(way) if start in conflicts)
            for way in sorted(self._ways)
            if any(start in conflicts for start in _starts(way))
        }

    def mixed(self) -> dict[str, str]:
        """Returns {column: text that lists the forms} for each column with several forms, or within an object with several."""
        ways = {way: " and ".join(forms) for way, forms in self._forms.items() if len({*forms} - {EMPTY_LIST}) > 1}
        return {".".join(way): ways[start] for way in self._ways for start in _starts(way) if start in ways}

    def is_rare(self, path: FieldPath, form: str | None) -> bool:
        """Returns whether at most 1% of the values at the path have this form, or at most 1% at a parent path are objects."""
        forms = dict.fromkeys(_starts(path)[:-1], _OBJECT) | ({path: form} if form is not None else {})
        usual = self._usual(forms)
        return any(not _is_in(form, usual[start]) for start, form in forms.items())

    def _usual(self, ways: Mapping[FieldPath, str] | None = None) -> dict[FieldPath, dict[str, _Form]]:
        """Returns for each field path (only those in `ways`, if given) the forms that more than 1% of its values have."""
        usual = {}
        for way in self._forms if ways is None else ways:
            forms = self._forms.get(way, {})
            if any(name.startswith("a list") for name in forms):  # of which an empty one may be any
                forms = {name: form for name, form in forms.items() if name != EMPTY_LIST}
            values = sum(form.values for form in forms.values())
            usual[way] = {name: form for name, form in forms.items() if form.values * ONE_IN > values}
        return usual


def without_values(table: pa.Table, clashes: Mapping[str, str]) -> pa.Table:
    """Returns the table with the columns in `clashes` set to null, so that the tables of several files can be concatenated."""
    for name in clashes:
        if (place := table.schema.get_field_index(name)) >= 0:
            table = table.set_column(place, name, pa.nulls(table.num_rows))
    return table


def _starts(way: FieldPath) -> list[FieldPath]:
    return [way[:i] for i in range(1, len(way) + 1)]


def _is_in(form: str, usual: Mapping[str, _Form]) -> bool:
    return form in usual or (form == EMPTY_LIST and any(name.startswith("a list") for name in usual))


def _conflict(way: FieldPath, forms: Mapping[str, _Form]) -> str:
    (form, first), (other_form, second) = list(forms.items())[:2]
    where = f" in {first.path}" if first.path != second.path else ""
    return f"column {'.'.join(way)!r} is {form}{where} and {other_form} in {second.path}"
