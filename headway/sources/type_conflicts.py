"""Finds columns whose types conflict between files, such as a list in one and an object in another.

    forms = Forms()
    forms.note("0.jsonl", {("a",): Seen("a list", 40, 40)})
    forms.note("1.jsonl", {("a", "b"): Seen("one value", 40, 40)})     # so that `a` is an object there
    forms.clashes()         # {"a": "column 'a' is a list in 0.jsonl and an object in 1.jsonl", "a.b": the same}

No type holds both, and of a sample that left one out the rows would be rejected later. What one value in a hundred is
decides nothing, and a column that nobody wants may be whatever it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from headway.sources.sample import ONE_IN

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
