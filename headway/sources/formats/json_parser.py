"""Parses a block of JSON lines to one Arrow batch, at Arrow's speed as long as the lines are valid.

parser = Parser({"a.b": (("a", "b"), pa.int64())})
chunk, rows = parser.parse(data, at=0, first=0)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from json import JSONDecodeError
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from headway.sources.base import Chunk, Malformed
from headway.sources.formats.columnar import pick
from headway.sources.formats.json_types import Number, as_json, decode
from headway.tabular.list_arrays import as_batch, is_text
from headway.tabular.quarantine import CUT

_FEW, _SOME = 8, 2048
"""So few lines are read one by one rather than parted again; so many at most are searched for bad ones at a time."""
_IN_ROW = re.compile(r" in row (\d+)$")
_NULL_LINE = re.compile(rb"\n[ \t\r]*n")
"""A line that begins as null does. Arrow makes a row of nulls of it; where it is the first, Arrow crashes the process."""
_NAMES = {dict: "an object", list: "a list", str: "a text", Number: "a number", bool: "true or false"}
Way = tuple[str, ...]


class _Misfit(Exception):
    """A cell that no coercion can convert."""


@dataclass
class _Slow:
    """Lines that were read one by one: their rows, and the cells of each column as text."""

    rows: list[int]
    cells: dict[str, list[Any]]


class Parser:
    """Parses the columns, each given by its path and type: int64, float64, bool, binary, or a list of those.

    Args:
        numbers: the columns that are to become numbers: true and false are 1 and 0 there, as texts too.
    """

    def __init__(self, columns: Mapping[str, tuple[Way, pa.DataType]], numbers: Collection[str] = ()):
        self._columns = dict(columns)
        self._numbers = frozenset(numbers)
        self._ways = {name: way for name, (way, _) in self._columns.items()}
        self._schema = _schema(list(self._columns.values()))
        self._parse = pajson.ParseOptions(
            explicit_schema=self._schema, newlines_in_values=False, unexpected_field_behavior="ignore"
        )

    def parse(self, data: bytes, at: int, first: int) -> tuple[Chunk, int]:
        """Parse the lines at offset `at`, of which `first` is the first row: (chunk, number of lines)."""
        lines = data.count(b"\n") + (not data.endswith(b"\n"))
        table = self._fast(data)
        if isinstance(table, pa.Table) and table.num_rows == lines:
            return Chunk(self._picked(table), first), lines
        return self._carefully(data, at, first)

    def _fast(self, data: bytes) -> pa.Table | int | None:
        """Parse by Arrow; when a line is broken or a value is of another type, the row if Arrow tells it."""
        if data.lstrip(b" \t\r\n").startswith(b"n"):
            return 0
        if null := _NULL_LINE.search(data):
            return data.count(b"\n", 0, null.start() + 1)
        try:
            return pajson.read_json(
                pa.BufferReader(data),
                read_options=pajson.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=self._parse,
            )
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            line = _IN_ROW.search(str(error))
            return int(line[1]) if line else None

    def _picked(self, table: pa.Table) -> pa.RecordBatch:
        batch = as_batch(table)
        return pick(batch, self._ways, list(self._columns)) if self._columns else batch

    def _carefully(self, data: bytes, at: int, first: int) -> tuple[Chunk, int]:
        lines, starts, place = list[bytes](), list[int](), at
        for line in data.split(b"\n"):
            if line.strip(b" \t\r"):
                lines.append(line)
                starts.append(place)
            place += len(line) + 1
        parts: list[pa.RecordBatch | _Slow] = []
        rows: list[int] = []
        malformed: list[Malformed] = []
        todo = [(low, min(low + _SOME, len(lines))) for low in range(0, len(lines), _SOME)][::-1]
        while todo:
            low, high = todo.pop()
            table = self._fast(b"\n".join(lines[low:high])) if high - low > 1 else None
            if isinstance(table, pa.Table) and table.num_rows == high - low:
                parts.append(self._picked(table))
                rows += range(low, high)
            elif high - low > _FEW:
                # up to the row that Arrow tells everything is well, at least so far; else one half may be
                bad = low + table if isinstance(table, int) and table < high - low else None
                cuts = [low, (low + high) // 2, high] if bad is None else [low, bad, bad + 1, high]
                if bad is not None and bad - low < _FEW:
                    cuts = [low, low + _FEW, high]
                todo += [(a, b) for a, b in pairwise(cuts) if a < b][::-1]
            else:
                slow = self._one_by_one(lines, starts, low, high, first, malformed)
                if slow.rows:
                    parts.append(slow)
                    rows += slow.rows
        batch = pa.RecordBatch.from_arrays(
            [self._column(name, parts) for name in self._columns], names=list(self._columns)
        )
        return Chunk(batch, first, first + np.array(rows, np.int64), tuple(malformed)), len(lines)

    def _one_by_one(
        self, lines: list[bytes], starts: list[int], low: int, high: int, first: int, malformed: list[Malformed]
    ) -> _Slow:
        slow = _Slow([], {name: [] for name in self._columns})
        for row in range(low, high):
            line, column = lines[row], None
            try:
                value = decode(line)
                if not isinstance(value, dict):
                    raise ValueError(f"holds {_called(value)} where an object should be")
                cells = []
                for column, (way, kind) in self._columns.items():  # noqa: B007 - named when it is a misfit
                    cells.append(_cell(value, way, pa.types.is_list(kind)))
            except _Misfit as error:
                cell_text, reason = error.args
                malformed.append(
                    Malformed(first + row, cell_text[:CUT], f"{reason}, in the line at byte {starts[row]}", column)
                )
                continue
            except ValueError as error:
                reason = f"not JSON: {error.msg}" if isinstance(error, JSONDecodeError) else str(error)
                place = starts[row] + (error.pos if isinstance(error, JSONDecodeError) else 0)
                text = line[: 4 * CUT].decode("utf-8", "backslashreplace")[:CUT]
                malformed.append(Malformed(first + row, text, f"{reason}, at byte {place}"))
                continue
            slow.rows.append(row)
            for name, cell in zip(self._columns, cells, strict=True):
                slow.cells[name].append(cell)
        return slow

    def _column(self, name: str, parts: Sequence[pa.RecordBatch | _Slow]) -> pa.Array:
        """A column of all the parts: in its type if every cell fits, else as text."""
        kind = self._columns[name][1]
        arrays = [_typed(part.cells[name], kind) if isinstance(part, _Slow) else part.column(name) for part in parts]
        if all(array is not None for array in arrays):
            return pa.concat_arrays(arrays) if arrays else pa.array([], kind)
        as_text = pa.list_(pa.binary()) if pa.types.is_list(kind) else pa.binary()
        truth = ("0", "1") if name in self._numbers else ("false", "true")
        texts = [
            _texts(part.cells[name], as_text, truth)
            if isinstance(part, _Slow)
            else _to_text(part.column(name), as_text, truth)
            for part in parts
        ]
        return pa.concat_arrays(texts)


def _schema(columns: Sequence[tuple[Way, pa.DataType]]) -> pa.Schema:
    tree: dict[str, Any] = {}
    for way, kind in columns:
        at = tree
        for part in way[:-1]:
            inner = at.setdefault(part, {})
            at = inner if isinstance(inner, dict) else {}
        at[way[-1]] = kind

    def built(node: dict[str, Any]) -> list[pa.Field]:
        return [pa.field(k, pa.struct(built(v)) if isinstance(v, dict) else v) for k, v in node.items()]

    return pa.schema(built(tree))


def _called(value: Any) -> str:
    return "null" if value is None else _NAMES[type(value)]


def _cell(value: Any, way: Way, several: bool) -> Any:
    """The value at `way` as text or a list of texts; None when it is null or missing."""
    for part in way:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _Misfit(as_json(value), f"{_called(value)} where an object is wanted")
        value = value.get(part)
    if value is None:
        return None
    if several != isinstance(value, list):
        raise _Misfit(as_json(value), f"{_called(value)} where {'a list' if several else 'one value'} is wanted")
    return [_text(item) for item in value] if several else _text(value)


def _text(value: Any) -> Any:
    """A value as text; numbers, true and false stay until the column's type is settled."""
    if isinstance(value, (dict, list)):
        raise _Misfit(as_json(value), f"{_called(value)} where one value is wanted")
    if isinstance(value, str) and not isinstance(value, Number):
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise _Misfit(ascii(value), "half a surrogate pair, which no text can hold") from None
    return value


def _typed(cells: list[Any], kind: pa.DataType) -> pa.Array | None:
    """The column in the type; None unless every cell has it already."""
    element = kind.value_type if pa.types.is_list(kind) else kind
    value_class = bool if pa.types.is_boolean(element) else bytes if is_text(element) else Number
    flat = [item for cell in cells for item in (cell if isinstance(cell, list) else [cell])]
    if not all(item is None or isinstance(item, value_class) for item in flat):
        return None
    if pa.types.is_null(element):
        return None if any(item is not None for item in flat) else pa.array(cells, kind)
    try:
        if value_class is not Number:
            return pa.array(cells, kind)
        array = _texts(cells, pa.list_(pa.string()) if pa.types.is_list(kind) else pa.string()).cast(kind)
        numbers = array.flatten() if pa.types.is_list(kind) else array
        # coercion tells digits that no double holds from an infinity that is meant
        return None if pa.types.is_floating(element) and pc.any(pc.is_inf(numbers)).as_py() else array
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
        return None


def _texts(cells: list[Any], kind: pa.DataType, truth: tuple[str, str] = ("false", "true")) -> pa.Array:
    def text(item: Any) -> Any:
        return truth[item] if isinstance(item, bool) else item

    return pa.array([[text(i) for i in cell] if isinstance(cell, list) else text(cell) for cell in cells], kind)


def _to_text(array: pa.Array, kind: pa.DataType, truth: tuple[str, str]) -> pa.Array:
    if pa.types.is_list(kind):
        inner = _to_text(array.values, kind.value_type, truth)
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(array.offsets, inner, mask=mask)
    if pa.types.is_boolean(array.type):
        return pc.if_else(array, *(text.encode() for text in truth))
    return (
        array.cast(kind) if is_text(array.type) or pa.types.is_null(array.type) else array.cast(pa.string()).cast(kind)
    )
