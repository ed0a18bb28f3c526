"""Files of JSON objects, one per line, parsed by Arrow on the calling thread; compressed ones too.

Nested objects are columns `a.b`; a key that is missing is null. Arrow gives up at the first line that is broken or holds
a value of another type, so a block in which that happens is halved until the lines are found: these are read one by
one, and cost nobody else anything. A column with a value that is not of its type comes as text, for coercion to judge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from headway.errors import DataError
from headway.sources import type_conflicts
from headway.sources.base import Chunk, InputFile, NoRows, Range, cut, sampled
from headway.sources.config import FORMATS, SourceConfig
from headway.sources.formats.json_parser import Parser
from headway.sources.formats.json_types import (
    Kinds,
    counted_in,
    decode,
    is_number,
    natural,
    read_type,
    seen_in,
    storable,
)
from headway.sources.sample import Sample
from headway.sources.sniff import is_object
from headway.sources.text_files import BOM, SAMPLE_BYTES, SAMPLE_FILES, TextFile, cuts, last_line_end, sample
from headway.sources.type_inference import as_numbers

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
"""JSON in other layouts than lines: (how it begins, what is said, the filter of jq that takes its objects)."""


class JsonlSource:
    """Reads files of JSON lines; a range is bytes [start, end) of a file, cut at line ends, or a whole file that is read
    as a stream (gzip, UTF-16, ...)."""

    def __init__(self, config: SourceConfig):
        """Make a reader; nothing of the config matters to it."""

    def names(self, file: InputFile) -> list[str]:
        """The keys in the beginning of the file."""
        return list(_beginning(_text(file.path)))

    def ranges(self, files: Sequence[InputFile]) -> list[Range]:
        ranges: list[Range] = []
        for number, file in enumerate(files):
            text = _text(file.path)
            facts = {"kinds": _beginning(text)}
            whole, step = [(0, file.bytes)], FORMATS["jsonl"].range_size
            parts = whole if text.streamed else list(cuts(text, 0, file.bytes, step))
            ranges += [Range(len(ranges) + i, file.path, number, *part, facts) for i, part in enumerate(parts)]
        return ranges

    def read(self, piece: Range, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
        parser = parser_of(piece.facts["kinds"], columns, types)
        before = 0
        for at, data in _text(piece.path).blocks(piece.start, piece.end, _BLOCK_BYTES, last_line_end):
            if not at and data.startswith(BOM):
                data, at = data[len(BOM) :], len(BOM)
            chunk, rows = parser.parse(data, at, before)
            yield from cut(chunk)
            before += rows

    def prefix(self, files: Sequence[InputFile], rows: int) -> Sample:
        """Sample rows from places spread over the files."""
        samples: list[tuple[pa.Table, dict[type_conflicts.Way, type_conflicts.Seen], Kinds]] = []
        forms = type_conflicts.Forms()
        for file in files[:SAMPLE_FILES]:
            text = _text(file.path)
            for at, data in sample(text, 0, file.bytes, last_line_end, plain=not text.streamed):
                data = data if at else data.removeprefix(BOM)
                kinds, columns = counted_in(data, file.path)
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
            tables.append(type_conflicts.without_values(table.drop_columns(rare), clashes))
            for name, (_, kind, _) in kinds.items():
                if kind != "null" and name not in rare and name not in clashes:
                    numbers[name] = numbers.get(name, True) and is_number(kind)
        merged = sampled(tables, rows, evenly=True)
        merged = replace(merged, conflicts={**merged.conflicts, **clashes}, mixed=forms.mixed(), spelled=True)
        return as_numbers(merged, [name for name, all_of_it in numbers.items() if all_of_it])


def _text(path: str) -> TextFile:
    """Open a file.

    Raises:
        DataError: its objects are not a line each.
    """
    text = TextFile(path)
    for form, problem, filter in _OTHERS:
        if form.match(text.head.removeprefix(BOM)):
            raise DataError(
                problem, where=path, fix=f"write one object per line: jq -c '{filter}' old.json > new.jsonl"
            )
    return text


def parser_of(kinds: Kinds, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Parser:
    """The parser of these columns for lines whose beginning showed these kinds."""
    read_types = {name: read_type(types.get(name), kinds[name][2] if name in kinds else None) for name in columns}
    numbers = [name for name in columns if name in types and _is_number(types[name])]
    return Parser({name: (_way(name, kinds), read_types[name]) for name in columns}, numbers)


def _sample_table(data: bytes, kinds: Kinds) -> pa.Table:
    """The lines as a table; values that no column can hold become nulls of its type."""
    types = {name: (tuple(way), natural(kind)) for name, (way, kind, _) in kinds.items()}
    parser = Parser({name: types[name] for name, (_, kind, _) in kinds.items() if storable(kind)})
    batch = parser.parse(data, 0, 0)[0].batch
    rows = batch.num_rows if batch.num_columns else sum(1 for line in data.splitlines() if line.strip())
    arrays = {
        name: batch.column(name) if name in batch.schema.names else pa.nulls(rows, types[name][1]) for name in kinds
    }
    return pa.table(arrays)


def _is_number(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_list(kind) else kind
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _way(name: str, kinds: Kinds) -> tuple[str, ...]:
    """The path of a column in a line; a guess for one that the beginning of the file does not show."""
    if name in kinds:
        return tuple(kinds[name][0])
    parts = name.split(".")
    return (name,) if len(parts) == 1 or any(way == [parts[0]] for way, *_ in kinds.values()) else tuple(parts)


def _beginning(text: TextFile) -> Kinds:
    for _, data in text.blocks(0, None, SAMPLE_BYTES, last_line_end):
        return seen_in(data.removeprefix(BOM), text.path)
    return {}


def _refuse_wrapped(kinds: Kinds, path: str) -> None:
    """Raise DataError when a file's only object holds the rows, in a list or column by column."""
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
    """The error for a file in which no line is an object."""
    for _, data in _text(path).blocks(0, None, SAMPLE_BYTES, last_line_end):
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
