"""Files of JSON objects, one per line, parsed by Arrow on the calling thread; compressed ones too.

The value of key `b` in an object `a` is column `a.b`. A missing key is null. Arrow stops at the first line that is broken or
holds a value of another type. So a block with bad lines is halved until they are found, and only a few lines are read one by one.
If some value does not have its column's type, the whole column is returned as text, and `headway.tabular.coerce` converts it.

    kinds_and_forms(b'{"a": {"b": 1}}\\n', path)[0]    # {"a.b": [["a", "b"], "int", "int"]}: path, kind of all, kind of most
    read_type(pa.int64(), "bool")                # bool, as in the file; coercion makes integers of it later
    Parser({"a.b": (("a", "b"), pa.int64())}).parse(data, at=0, first=0)      # (chunk, number of lines)
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from json import JSONDecodeError
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from headway.errors import DataError
from headway.sources.base import Chunk, InputFile, Malformed, NoRows, Range, Source, is_object, pick, rechunk, sampled
from headway.sources.config import FORMATS
from headway.sources.sample import EMPTY_LIST, ONE_IN, ColumnForm, FieldPath, Sample, ValueForms, without_values
from headway.sources.text_files import BOM, SAMPLE_BYTES, SAMPLE_FILES, TextFile, cuts, last_line_end, sample
from headway.sources.type_inference import as_numbers
from headway.tabular import list_arrays
from headway.tabular.list_arrays import as_batch, is_text, value_type
from headway.tabular.quarantine import CUT

_BLOCK_BYTES = 4 << 20
_OTHERS = (
    (re.compile(rb"\s*\[\s*(\{|$)"), "is one array of objects, not an object per line", ".[]"),
    (
        # an object whose first line is not all of it, and whose second is not an object
        re.compile(rb'\s*\{\s*(?:[\r\n]\s*["}]|"[^"\r\n]*"\s*:\s*[\[{]?\s*[\r\n]\s*[^\s{])'),
        "has objects over several lines, not an object per line",
        ".",
    ),
)
"""Layouts of JSON other than lines: (pattern of a file's beginning, problem for the message, jq filter that yields its
objects)."""


class JsonlSource(Source):
    """Reads files of JSON lines. A range is bytes [start, end) of a file, cut at line ends. A file that has to be read as a
    stream (gzip, UTF-16, ...) is one range."""

    def names(self, file: InputFile) -> list[str]:
        """Returns the column names that occur in the beginning of the file."""
        return list(_beginning(_opened(file.path)))

    def ranges(self, files: Sequence[InputFile]) -> list[Range]:
        ranges: list[Range] = []
        for number, file in enumerate(files):
            text = _opened(file.path)
            facts = {"kinds": _beginning(text)}
            whole, step = [(0, file.bytes)], FORMATS["jsonl"].range_size
            parts = whole if text.streamed else list(cuts(text, 0, file.bytes, step))
            ranges += [Range(len(ranges) + i, file.path, number, *part, facts) for i, part in enumerate(parts)]
        return ranges

    def read(self, piece: Range, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
        parser = parser_of(piece.facts["kinds"], columns, types)
        before = 0
        for at, data in _opened(piece.path).blocks(piece.start, piece.end, _BLOCK_BYTES, last_line_end):
            if not at and data.startswith(BOM):
                data, at = data[len(BOM) :], len(BOM)
            chunk, rows = parser.parse(data, at, before)
            yield from rechunk(chunk)
            before += rows

    def sample(self, files: Sequence[InputFile], rows: int) -> Sample:
        """Returns at most `rows` rows of the first files: from places spread over a file, or a compressed file's beginning."""
        samples: list[tuple[pa.Table, dict[FieldPath, ColumnForm], Kinds]] = []
        forms = ValueForms()
        for file in files[:SAMPLE_FILES]:
            text = _opened(file.path)
            for at, data in sample(text, 0, file.bytes, last_line_end, plain=not text.streamed):
                data = data if at else data.removeprefix(BOM)
                kinds, columns = kinds_and_forms(data, file.path)
                forms.note(file.path, columns)
                if kinds:
                    samples.append((_sample_table(data, kinds), columns, kinds))
        if not any(table.num_rows for table, *_ in samples):
            raise _no_rows(files[0].path)
        if all(table.num_rows == 1 for table, *_ in samples):
            _refuse_wrapped(samples[0][2], files[0].path)
        clashes = forms.clashes()
        tables = []
        numbers: dict[str, bool] = {}
        for table, columns, kinds in samples:
            shown = {name: column for way, column in columns.items() if (name := ".".join(way)) in kinds}
            rare = [name for name in shown if forms.is_rare(tuple(kinds[name][0]), shown[name].form)]
            tables.append(without_values(table.drop_columns(rare), clashes))
            for name, (_, kind, _) in kinds.items():
                if kind != "null" and name not in rare and name not in clashes:
                    numbers[name] = numbers.get(name, True) and is_number(kind)
        merged = sampled(tables, rows, evenly=True)
        merged = replace(merged, conflicts={**merged.conflicts, **clashes}, mixed=forms.mixed(), spelled=True)
        return as_numbers(merged, [name for name, all_of_it in numbers.items() if all_of_it])


def _opened(path: str) -> TextFile:
    """Opens a file of JSON lines.

    Raises:
        DataError: the file is JSON, but not one object per line.
    """
    text = TextFile(path)
    for form, problem, filter in _OTHERS:
        if form.match(text.head.removeprefix(BOM)):
            raise DataError(
                problem, where=path, fix=f"write one object per line: jq -c '{filter}' old.json > new.jsonl"
            )
    return text


def parser_of(kinds: Kinds, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Parser:
    """Returns the parser of these columns. `kinds`: the kinds of values in the file's beginning; `types`: the wanted types."""
    read_types = {name: read_type(types.get(name), kinds[name][2] if name in kinds else None) for name in columns}
    elements = {name: kind.value_type if pa.types.is_list(kind) else kind for name, kind in types.items()}
    numbers = [name for name in columns if name in types and list_arrays.is_number(elements[name])]
    return Parser({name: (_way(name, kinds), read_types[name]) for name in columns}, numbers)


def _sample_table(data: bytes, kinds: Kinds) -> pa.Table:
    """Returns JSON lines as a table. A column is null if values of its kind cannot be stored."""
    types = {name: (tuple(way), default_type(kind)) for name, (way, kind, _) in kinds.items()}
    parser = Parser({name: types[name] for name, (_, kind, _) in kinds.items() if storable(kind)})
    batch = parser.parse(data, 0, 0)[0].batch
    rows = batch.num_rows if batch.num_columns else sum(1 for line in data.splitlines() if line.strip())
    arrays = {
        name: batch.column(name) if name in batch.schema.names else pa.nulls(rows, types[name][1]) for name in kinds
    }
    return pa.table(arrays)


def _way(name: str, kinds: Kinds) -> tuple[str, ...]:
    """Returns a column's path of keys, ("a", "b") for `a.b`. If the file's beginning lacks the column, the path is guessed."""
    if name in kinds:
        return tuple(kinds[name][0])
    parts = name.split(".")
    return (name,) if len(parts) == 1 or any(way == [parts[0]] for way, *_ in kinds.values()) else tuple(parts)


def _beginning(text: TextFile) -> Kinds:
    for _, data in text.blocks(0, None, SAMPLE_BYTES, last_line_end):
        return kinds_and_forms(data.removeprefix(BOM), text.path)[0]
    return {}


def _refuse_wrapped(kinds: Kinds, path: str) -> None:
    """Raise DataError when a file is one object that wraps all the rows, as a list of objects or as one object per column."""
    listed = [way for way, kind, _ in kinds.values() if kind == "list:object"]
    if listed:
        keys = "".join(f".{json.dumps(key)}" for key in listed[0])
        problem = f"holds one object, and its rows seem to be under {'.'.join(listed[0])!r}"
        raise DataError(problem, where=path, fix=f"take them out: jq -c '{keys}[]' old.json > new.jsonl")
    ways = [way for way, *_ in kinds.values()]
    if len(ways) > 1 and all(len(way) == 2 for way in ways) and {"0", "1"} <= {way[1] for way in ways}:
        fix = "pandas.read_json('old.json').to_json('new.jsonl', orient='records', lines=True)"
        raise DataError("holds one object with a column per key, not a row per object", where=path, fix=fix)


def _no_rows(path: str) -> DataError:
    """Returns the error for a file in which no line is an object with keys."""
    for _, data in _opened(path).blocks(0, None, SAMPLE_BYTES, last_line_end):
        for number, line in enumerate(data.removeprefix(BOM).split(b"\n"), 1):
            if not line.strip():
                continue
            start = line[:60].decode("utf-8", "backslashreplace").strip()
            if is_object(line):
                try:
                    decode(line)
                except ValueError as error:
                    fix = "mend the lines: as they are, none can be read"
                    return DataError(str(error), where=f"{path}:{number}", fix=fix)
                return DataError("its objects hold no keys", where=f"{path}:{number}", fix="bring lines with features")
            fix = "say 'format: csv' if it is CSV, or check source.format"
            if line.lstrip().startswith(b"{"):
                fix = "write one object per line: jq -c . old.json > new.jsonl"
            return DataError(f"no line is a JSON object, beginning with {start!r}", where=f"{path}:{number}", fix=fix)
    return NoRows("the files hold empty lines and no rows", where=path, fix="bring files with rows")


Kinds = dict[str, list[Any]]
"""By column: [its field path, the kind that covers all values but rare ones, the kind of most values], as plain JSON. A
kind is int, large, float, bool, text, mixed, null, list:<kind>, or in a list also object."""
_LISTS, _LARGE = "list:", "large"
"""The prefix of the kinds of lists, and the kind of integers beyond int64."""
_FEW_LARGE = 64
"""So many integers beyond int64 in a piece of a file may count as odd values; later the whole sample decides."""
_PLAIN = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "null": pa.null()}


class Number(str):
    """A JSON number as text, in the spelling of the file, so that no digit is lost."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        seen = set[str]()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} stands twice")
    return entries


DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=Number, object_pairs_hook=_once)


def decode(line: bytes) -> Any:
    """Returns the JSON value of a line. Numbers in it are of class `Number`, in the spelling of the file.

    Raises:
        ValueError: the line is not JSON, or an object repeats a key.
    """
    try:
        return DECODER.decode(line.decode("utf-8", "surrogateescape"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def as_json(value: Any) -> str:
    """Returns a value that `decode` returned as JSON. Numbers keep their spelling. A value that is one string gets no quotes."""
    return str(value) if isinstance(value, str) else _as_json(value)


def _as_json(value: Any) -> str:
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_as_json, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key, ensure_ascii=False)}: {_as_json(inner)}' for key, inner in value.items())}}}"
    return json.dumps(value, ensure_ascii=False)


def kinds_and_forms(data: bytes, path: str) -> tuple[Kinds, dict[tuple[str, ...], ColumnForm]]:
    """Returns what values the columns have in some lines: {column: [field path, kind that covers all but rare values, kind of
    most values]}, and {field path: form and numbers of the values}. Broken lines are skipped.

    Raises:
        DataError: the rows are lists instead of objects, or two columns have the same name.
    """
    if data.lstrip()[:1] == b"[":
        raise DataError(
            "its rows are lists, and objects with keys are wanted",
            where=path,
            fix="write them as CSV with a header: jq -r '.[] | @csv' old.json",
        )
    counts: dict[tuple[str, ...], Counter[str]] = {}
    for line in data.splitlines():
        try:
            value = decode(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            _count(value, (), counts)
    overruled = {way for way in counts if _overruled(way, counts)}
    kinds_of: Kinds = {}
    columns = {}
    for way, kinds in counts.items():
        name, kind = ".".join(way), _together(_usual(_settled(kinds)))
        columns[way] = ColumnForm(_form(kind), kinds.total() - kinds["null"], kinds.total())
        if way in overruled:  # it counts as another form of what overrules it
            continue
        if name in kinds_of:
            raise DataError(f"the file has two columns {name!r}", where=path, fix="rename one of them")
        kinds_of[name] = [list(way), kind, _most(_settled(kinds, few=0))]
    return kinds_of, columns


def _count(value: dict[str, Any], way: tuple[str, ...], counts: dict[tuple[str, ...], Counter[str]]) -> None:
    for key, inner in value.items():
        here = (*way, key)
        if isinstance(inner, dict):
            _count(inner, here, counts)
        else:
            counts.setdefault(here, Counter())[_kind(inner)] += 1


def _overruled(way: tuple[str, ...], counts: dict[tuple[str, ...], Counter[str]]) -> bool:
    """Returns whether to ignore the values at a field path. True if objects are at this path at least as often as values are, or
    if the path lies within an object, and at the object's own path plain values are more frequent."""
    values = counts[way].total() - counts[way]["null"]
    below = [other for other in counts if len(other) > len(way) and other[: len(way)] == way]
    above = [other for other in counts if len(other) < len(way) and way[: len(other)] == other]
    if below and values <= max(counts[other].total() for other in below):
        return True
    return any(counts[other].total() - counts[other]["null"] > counts[way].total() for other in above)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, Number):
        if not value.lstrip("-").isdigit():
            return "float"
        return "int" if -(1 << 63) <= int(value[:30]) < 1 << 63 else _LARGE
    if isinstance(value, list):
        kinds = Counter(_kind(item) for item in value)
        return _LISTS + _together(kinds)
    return "text" if isinstance(value, str) else "object"


def _settled(kinds: Counter[str], few: int = _FEW_LARGE) -> Counter[str]:
    """Returns the counts by kind. Integers beyond int64 count as int if they are few; else their kind makes the column text."""
    values = kinds.total() - kinds["null"]
    settled: Counter[str] = Counter()
    for kind, count in kinds.items():
        if kind.endswith(_LARGE):
            rare = count <= few or (few and count * ONE_IN <= values)
            kind = kind.removesuffix(_LARGE) + ("int" if rare else _LARGE)
        settled[kind] += count
    return settled


def _usual(kinds: Counter[str]) -> Counter[str]:
    """Returns the counts of those kinds that more than one value in a hundred has, and of null."""
    values = kinds.total() - kinds["null"]
    return Counter({kind: count for kind, count in kinds.items() if kind == "null" or count * ONE_IN > values})


def is_number(kind: str) -> bool:
    """Returns whether values of this kind are numbers or booleans, or lists of numbers or booleans."""
    return kind.removeprefix(_LISTS) in ("int", "float", "bool", _LARGE)


def storable(kind: str) -> bool:
    """Returns whether a column of this kind can be stored. Objects, lists of objects and lists of lists cannot."""
    inner = kind.removeprefix(_LISTS)
    return inner != "object" and not inner.startswith(_LISTS)


def _together(kinds: Counter[str]) -> str:
    """Returns the one kind that covers all given kinds; "mixed" if there is none."""
    typed = {kind for kind in kinds if kind not in ("null", "list:null")}
    if not typed:
        return "list:null" if "list:null" in kinds else "null"
    if len(typed) == 1 and ("list:null" not in kinds or next(iter(typed)).startswith(_LISTS)):
        return typed.pop()
    if all(kind.startswith(_LISTS) for kind in typed):
        return _LISTS + _together(Counter({kind.removeprefix(_LISTS): 1 for kind in typed}))
    if not typed <= {"int", _LARGE, "float"} or "list:null" in kinds:
        return "mixed"
    return "float" if "float" in typed else _LARGE


def _most(kinds: Counter[str]) -> str:
    """Returns the kind that most values have. Lines are parsed by it, so that a few exceptions do not slow down the rest."""
    typed = Counter({kind: count for kind, count in kinds.items() if kind not in ("null", "list:null")})
    if not typed:
        return _together(kinds)
    kind = typed.most_common(1)[0][0]
    return "float" if kind == "int" and typed["float"] else kind


def _form(kind: str) -> str | None:
    """Returns the words for values of that kind in a message, such as "a list of objects"; None when there are only nulls."""
    if kind == "null":
        return None
    if not kind.startswith(_LISTS):
        return "one value"
    inner = kind.removeprefix(_LISTS)
    if inner == "null":
        return EMPTY_LIST
    return "a list of objects" if inner == "object" else "a list of lists" if inner.startswith(_LISTS) else "a list"


def default_type(kind: str) -> pa.DataType:
    """Returns the Arrow type to parse values of a kind as, if no type is wanted. Text and mixed kinds become strings."""
    if not storable(kind):  # one type for all, whatever lies in them
        return pa.list_(pa.struct([]) if kind == _LISTS + "object" else pa.list_(pa.null()))
    if kind.startswith(_LISTS):
        return pa.list_(default_type(kind.removeprefix(_LISTS)))
    return _PLAIN.get(kind, pa.string())


def read_type(chosen: pa.DataType | None, kind: str | None) -> pa.DataType:
    """Returns the type to parse a column as: the wanted one (`chosen`), or that of the file's values if coercion converts it."""
    if chosen is None:
        inferred = default_type(kind or "text")
        return pa.binary() if pa.types.is_string(inferred) or pa.types.is_null(inferred) else inferred
    chosen = value_type(chosen)
    if pa.types.is_list(chosen):
        inner = kind.removeprefix(_LISTS) if kind and kind.startswith(_LISTS) else None
        return pa.list_(read_type(chosen.value_type, inner))
    if kind == "bool" or (kind == "int" and pa.types.is_binary(chosen)):
        return _PLAIN[kind]
    return pa.binary() if kind in ("text", "mixed") else chosen


_FEW, _SOME = 8, 2048
"""The most lines that are read one by one rather than halved again, and the most that are searched for bad lines at once."""
_IN_ROW = re.compile(r" in row (\d+)$")
_NULL_LINE = re.compile(rb"\n[ \t\r]*n")
"""A pattern for a line that begins as null does. Arrow makes a row of nulls of it; as the first line it crashes the process."""
_NAMES = {dict: "an object", list: "a list", str: "a text", Number: "a number", bool: "true or false"}


class _Misfit(Exception):
    """Raised for a cell that no coercion can convert to its column's type."""


@dataclass
class _Slow:
    """Lines that were read one by one, without the bad ones: their rows, and each column's cells as text, numbers or booleans."""

    rows: list[int]
    cells: dict[str, list[Any]]


class Parser:
    """Parses JSON lines to `columns`, {name: (field path, type)}. A type is int64, float64, bool, binary or a list of one of
    these.

    Args:
        numbers: the columns that are converted to numbers later. In the text of such a column true is 1, and false is 0.
    """

    def __init__(self, columns: Mapping[str, tuple[FieldPath, pa.DataType]], numbers: Collection[str] = ()):
        self._columns = dict(columns)
        self._numbers = frozenset(numbers)
        self._ways = {name: way for name, (way, _) in self._columns.items()}
        self._schema = _schema(list(self._columns.values()))
        self._parse = pajson.ParseOptions(
            explicit_schema=self._schema, newlines_in_values=False, unexpected_field_behavior="ignore"
        )

    def parse(self, data: bytes, at: int, first: int) -> tuple[Chunk, int]:
        """Parses lines; returns the chunk and the number of lines that are not blank. `at`: the byte offset of `data` in the
        file; `first`: how many rows of the range come before `data`."""
        lines = data.count(b"\n") + (not data.endswith(b"\n"))
        table = self._fast(data)
        if isinstance(table, pa.Table) and table.num_rows == lines:
            return Chunk(self._picked(table), first), lines
        return self._carefully(data, at, first)

    def _fast(self, data: bytes) -> pa.Table | int | None:
        """Returns the table that Arrow parses. If a line is broken or has a wrong type, returns its row, or None if unknown."""
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
        """Returns one column, joined from all parsed parts: in its wanted type if every cell fits, else as text."""
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


def _schema(columns: Sequence[tuple[FieldPath, pa.DataType]]) -> pa.Schema:
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


def _cell(value: Any, way: FieldPath, several: bool) -> Any:
    """Returns the value at a field path (if `several`: the list of values) as `_text` does; None if it is null or missing."""
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
    """Returns a string as UTF-8 bytes. Numbers and booleans stay as they are until the type of the column is settled."""
    if isinstance(value, (dict, list)):
        raise _Misfit(as_json(value), f"{_called(value)} where one value is wanted")
    if isinstance(value, str) and not isinstance(value, Number):
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise _Misfit(ascii(value), "half a surrogate pair, which no text can hold") from None
    return value


def _typed(cells: list[Any], kind: pa.DataType) -> pa.Array | None:
    """Returns the cells as an array of the type `kind`; None if any cell has another type."""
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
