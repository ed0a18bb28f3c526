"""CSV files, cut at line ends and parsed range by range on the calling thread.

A range is first read with the stored types. If a value does not fit its column's type, the range is read again with that column
as text. `headway.tabular.coerce` then rejects the one bad row and keeps the others. Lines with the wrong number of columns are
reported, never lost.

    replace_null_words(pa.chunked_array([["DE", "FR", "IT", "NA"]]), ("", "NA"), ())  # (the same values, ("",), a note)
    replace_null_words(pa.chunked_array([["Berlin", "NA"]]), ("", "NA"), ())  # (["Berlin", None], ("", "NA"), a note)
    misplaced_name(["b", "a"], ["a", "b"])                              # ("b", 1, 2): first in the header, second in the names

NA is what R writes for a missing value, but also Namibia's country code. In a text column, NA is a value if it stands in quotes,
or if nine in ten of the other distinct values look like it: two capitals. The same holds for other words for a missing value.
"""

from __future__ import annotations

import contextlib
import copy
import csv
import dataclasses
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from headway.errors import DataError
from headway.messages import counted
from headway.schema.decimal_signs import DecimalSign, in_groups, sign_of_table
from headway.sources.base import (
    Chunk,
    InputFile,
    Malformed,
    NoRows,
    Range,
    check_columns,
    is_object,
    rechunk,
    refuse_duplicates,
    sampled,
)
from headway.sources.config import FORMATS, MAX_CELL_BYTES, CsvConfig, SourceConfig
from headway.sources.sample import ONE_IN, Sample
from headway.sources.text_files import BOM, SAMPLE_FILES, QuoteRules, TextFile, cuts, last_line_end, row_offsets, sample
from headway.sources.type_inference import as_numbers
from headway.tabular.list_arrays import as_batch, is_text, np_view
from headway.tabular.quarantine import CUT

_PARSE_BYTES = 1 << 20
_BLOCK_BYTES = 9 << 20
"""The most bytes of text that are parsed at once: some hundred thousand short rows."""
_LARGE_INTEGER = r"^\s*[+-]?[0-9]{8,}\s*$"
"""A pattern for integers of more digits than float32 holds: a decimal point in another row must not cost their last
digits."""
_CODE, _REAL = r"^\s*[0-9]+[eE][0-9]+\s*$", r"[.]|[eE][+-]"
"""Patterns that tell a code, such as 12E3, from a number with an exponent, which has a sign or a point: 1.2e+4."""
_ZEROS = r"^\s*0[0-9]+\s*$"
_DOUBLE = pa.float64()
_NOT_UTF8 = (
    "some text is not UTF-8: such values are read as cp1252 (Latin-1) and stored as UTF-8; say source.csv.encoding if the files "
    "are written in another"
)
_RETYPED = 6
"""The most columns that are turned to text one by one; beyond it all are turned at once."""
_HEADER_LINES = 100
"""The most lines of a header, whose names may have newlines inside quotes."""
_MARK = "\x1f\x1e"
"""The text that marks a line put in place of a broken record."""
_CONTROLS = (*range(1, 9), *range(14, 30), 127)
_AT_COLUMN = re.compile(r"In CSV column #(\d+): ")


class CsvSource:
    """Reads CSV files. A range is bytes [start, end) of a file, cut at line ends."""

    def __init__(self, config: SourceConfig):
        self._config = config.csv
        self._rules = QuoteRules(config.csv, max(config.max_cell_bytes, MAX_CELL_BYTES))

    def names(self, file: InputFile) -> list[str]:
        return self._header(self._text(file.path))[0]

    def _text(self, path: str) -> TextFile:
        return TextFile(path, self._config.encoding)

    def _header(self, text: TextFile) -> tuple[list[str], int]:
        """Returns the column names, and the byte offset of the first data line."""
        number = self._config.skip_lines
        marks = (self._config.quote.encode(), self._config.escape.encode()) if self._config.header else ()
        start, line = text.line(number, *marks)
        if number and not line:
            problem = f"it has no line {number + 1:,}, and csv.skip_lines skips {counted(number, 'line')}"
            raise DataError(problem, where=text.path, fix="skip fewer lines")
        skip = len(BOM) if line.startswith(BOM) else 0
        if not self._config.header:
            if number:
                self._check_order(text, number - 1)
            return list(self._config.names), start + skip
        here = f"{text.path}:{number + 1}"
        if not line[skip:].strip():
            problem = "its first line is empty, where the column names should be"
            raise DataError(problem, where=here, fix="csv.skip_lines skips the lines above the names")
        line, start = line[skip:], start + skip
        ends = (found.end() for found in islice(re.finditer(rb"\n", line), _HEADER_LINES))
        line = line[: next((end for end in ends if self._rules.record_end(line[:end], 0) == end), len(line))]
        if broken := self._rules.broken(line, 0):
            fix = "double the quote inside quotes, or say csv.quote or csv.escape as the files are written"
            raise DataError(f"the header cannot be read: {broken[0].reason}", where=here, fix=fix)
        whole = self._utf8(line, text, start)
        try:
            head = self._head(whole)
            names = head.column_names
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            fix = "save the file as UTF-8, or say what it is written in: source.csv.encoding: latin-1"
            raise DataError(f"the header cannot be read: {error}", where=text.path, fix=fix) from None
        if is_object(whole):
            problem = "its first line is a JSON object, where column names should be"
            raise DataError(problem, where=here, fix="say 'format: jsonl'")
        if head.num_rows:
            problem = "its first line ends in a carriage return alone, and other lines do not"
            raise DataError(problem, where=here, fix="write all lines with the same line end")
        refuse_duplicates(names, text.path)
        return names, start + len(line)

    def _check_order(self, text: TextFile, number: int) -> None:
        """Raise DataError if the line above the first row is a header with a name of `csv.names` at another place."""
        line = text.line(number)[1].removeprefix(BOM)
        words = line.decode("utf-8" if text.decoded else self._config.encoding, "replace")
        _, cells = next(rows_of(words.strip("\r\n").lstrip(COMMENT), self._config), (0, []))
        header = [cell.strip() for cell in cells]
        if wrong := misplaced_name(header, self._config.names):
            name, here, there = wrong
            problem = (
                f"its columns stand in another order: {name!r} is number {here} here, and number {there} in csv.names"
            )
            fix = "write all files in one order, or give each column one name of its own in the first line"
            raise DataError(problem, where=f"{text.path}:{number + 1}", fix=fix)

    def _head(self, line: bytes) -> pa.Table:
        line = self._rules.escaped(line)
        return pacsv.read_csv(
            pa.py_buffer(line if line.endswith(b"\n") else line + b"\n"),
            parse_options=self._parse_options(),
            read_options=pacsv.ReadOptions(use_threads=False, block_size=max(_PARSE_BYTES, 2 * len(line))),
        )

    def _utf8(self, data: bytes, text: TextFile, at: int) -> bytes:
        """Returns `data`, text in the configured encoding, as UTF-8."""
        if self._config.encoding == "utf-8" or text.decoded or data.isascii():
            return data
        try:
            return data.decode(self._config.encoding).encode()
        except UnicodeDecodeError as error:
            problem = f"byte {at + error.start} is not {self._config.encoding}"
            raise DataError(problem, where=text.path, fix="say another source.csv.encoding, or mend the file") from None

    def ranges(self, files: Sequence[InputFile]) -> list[Range]:
        ranges: list[Range] = []
        for number, file in enumerate(files):
            text = self._text(file.path)
            names, start = self._header(text)
            facts = {"names": names, "quoted": file.quoted_newlines or text.streamed}
            if text.streamed:  # of which `start` counts what is read, and its size does not
                parts = [(start, file.bytes)]
            else:
                step = file.bytes if file.quoted_newlines else FORMATS["csv"].range_size
                parts = list(cuts(text, start, file.bytes, step))
            ranges += [Range(len(ranges) + i, file.path, number, *part, facts) for i, part in enumerate(parts)]
        return ranges

    def read(self, piece: Range, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
        names = list(piece.facts["names"])
        check_columns(columns, names, piece.path)
        before = 0
        text = self._text(piece.path)
        for at, data in self._blocks(text, piece):
            data = self._utf8(data, text, at)
            table, malformed = self._parse(data, names, list(columns), types, piece, at)
            del data
            batch = as_batch(table)
            del table  # the pieces go
            rows = batch.num_rows + len(malformed)
            positions = None
            if malformed:
                positions = before + np.delete(np.arange(rows, dtype=np.int64), [line.row for line in malformed])
                malformed = [dataclasses.replace(line, row=line.row + before) for line in malformed]
            yield from rechunk(Chunk(batch, before, positions, tuple(malformed)))
            before += rows

    def _blocks(self, text: TextFile, piece: Range) -> Iterator[tuple[int, bytes]]:
        """Yields the byte offset and the bytes of the range's blocks of whole lines. One block at a time is in memory."""
        if not piece.facts["quoted"]:
            yield from text.blocks(piece.start, piece.end, _BLOCK_BYTES, last_line_end)
            return
        end = None if text.streamed else piece.end
        record_end = partial(self._rules.record_end, columns=len(piece.facts["names"]))
        yield from text.blocks(piece.start, end, FORMATS["csv"].range_size, record_end)

    def sample(self, files: Sequence[InputFile], rows: int) -> Sample:
        """Returns a sample of rows from all over the first files, since a sorted file's beginning could show one value only."""
        tables = []
        bad: list[tuple[list[Malformed], str]] = []
        quoted_words: dict[str, set[str]] = {}
        other = 0
        for file in files[:SAMPLE_FILES]:
            text = self._text(file.path)
            names, start = self._header(text)
            quoted = file.quoted_newlines or text.streamed
            record_end = partial(self._rules.record_end, columns=len(names))
            for at, piece in sample(text, start, file.bytes, record_end, plain=not quoted):
                if piece.strip():
                    piece = self._utf8(piece, text, at)
                    other += not _is_utf8(piece)
                    table, malformed = self._guessed(piece, names, file.path, quoted)
                    tables.append(self._with_words(table, piece, names, quoted, quoted_words))
                    if malformed and not table.num_rows:
                        bad.append((malformed, file.path))
        if not tables:
            what = "column names and no rows" if self._config.header else "no rows"
            raise NoRows(f"the files hold {what}", where=files[0].path, fix="bring files with rows")
        if bad and not any(table.num_rows for table in tables):
            lines, path = bad[0]
            problem = f"none of {len(lines):,} sampled lines fits the column names: {lines[0].reason}, first "
            fix = "check csv.delimiter, csv.quote and csv.escape, and that the first line ends like the others"
            raise DataError(f"{problem}{(lines[0].text or '')[:60]!r}", where=path, fix=fix)
        merged = sampled(tables, rows, evenly=True)
        whole = merged.table
        nulls, words = dict[str, tuple[str, ...]](), dict[str, str]()
        for place, name in enumerate(whole.column_names):
            found = replace_null_words(whole.column(place), self._config.null_values, quoted_words.get(name, ()))
            values, nulls[name], note = found
            whole = whole.set_column(place, name, values)
            words |= {} if note is None else {name: note}
        merged = dataclasses.replace(merged, nulls=nulls, words=words)
        decimal: DecimalSign | None = sign_of_table(whole.columns)
        if decimal == "either" and self._config.delimiter != ";":
            decimal = None  # the semicolon separates values where the comma is the decimal sign
        notes = (_NOT_UTF8,) if other else ()
        merged = dataclasses.replace(merged, table=whole, notes=notes, decimal=decimal, spelled=True)
        thousands = {name for name in whole.column_names if decimal == "," and in_groups(whole.column(name))}
        return as_numbers(merged, [name for name in whole.column_names if name not in thousands])

    def _guessed(self, piece: bytes, names: list[str], path: str, quoted: bool) -> tuple[pa.Table, list[Malformed]]:
        """Returns a piece of the sample in the types that pyarrow infers, and its malformed lines. Dates and times stay text. So
        do digits that would change as a number: integers that float32 cannot hold among real numbers, digits that begin with 0,
        codes such as 12E3, and digits in groups of three."""
        piece = _as_utf8(piece)  # the malformed lines of another could not be skipped
        around = re.escape(self._config.delimiter + self._config.quote).encode()
        piece, broken = self._marked(piece, names, quoted)
        try:
            table, malformed = self._attempt(piece, names, names, None, quoted, len(piece), broken)
            may_be_codes = re.search(rb"[0-9][eE][0-9]", piece)
            doubles = [name for name in names if pa.types.is_floating(table.schema.field(name).type)]
            doubtful = {name: _LARGE_INTEGER for name in doubles if may_be_codes or _large_integers(table.column(name))}
            if re.search(rb"(?:^|[\n" + around + rb"])[ \t]*0[0-9]+[ \t]*(?:[\r\n" + around + rb"]|$)", piece):
                doubtful |= {name: _ZEROS for name in names if pa.types.is_integer(table.schema.field(name).type)}
            grouped: list[str] = []
            if self._config.delimiter != "," and re.search(rb"\.[0-9]{3}[ \t]*(?:[\r\n" + around + rb"]|$)", piece):
                grouped = doubles
            times = [name for name in names if pa.types.is_temporal(table.schema.field(name).type)]
            if doubtful or grouped or times:
                as_text = dict.fromkeys([*doubtful, *grouped, *times], pa.string())
                text, _ = self._attempt(piece, names, names, as_text, quoted, len(piece), broken)
                kept = [name for name, pattern in doubtful.items() if _is_like(text.column(name), pattern)]
                kept += [name for name in grouped if in_groups(text.column(name))]
                for name in (*times, *kept):
                    table = table.set_column(names.index(name), name, text.column(name))
        except pa.ArrowInvalid as error:
            raise DataError(f"not readable as CSV: {str(error).splitlines()[0]}", where=path) from None
        return table, malformed

    def _with_words(
        self, table: pa.Table, piece: bytes, names: list[str], quoted: bool, quoted_words: dict[str, set[str]]
    ) -> pa.Table:
        """Returns the table with every text as it is written in `piece`, also words for a missing value such as NA. Such words
        that stand in quotes are added to `quoted_words`, by column."""
        words, texts = self._config.null_values, [f.name for f in table.schema if pa.types.is_string(f.type)]
        for name in texts:
            values = table.column(name)
            in_quotes = values.filter(pc.is_in(values, value_set=pa.array(words, pa.string())))
            quoted_words.setdefault(name, set()).update(pc.unique(in_quotes).to_pylist())
        if not texts or not any(word and word.encode() in piece for word in words):
            return table
        piece, broken = self._marked(_as_utf8(piece), names, quoted)
        bare = copy.copy(self)
        bare._config = self._config.model_copy(update={"null_values": tuple(word for word in words if not word)})
        whole, _ = bare._attempt(piece, names, texts, dict.fromkeys(texts, pa.string()), quoted, len(piece), broken)
        for name in texts:
            table = table.set_column(names.index(name), name, whole.column(name))
        return table

    def _parse(
        self, data: bytes, names: list[str], columns: list[str], types: Mapping[str, pa.DataType], piece: Range, at: int
    ) -> tuple[pa.Table, list[Malformed]]:
        """Parses a block in the wanted types; returns the table and the malformed lines. If a value does not fit its column's
        type, the whole column is returned as text, so that coercion judges each value by itself."""
        read_as = {name: types.get(name, pa.binary()) for name in columns}
        utf8 = _is_utf8(data)
        raw, block, latin = data, _PARSE_BYTES, False
        data, broken = self._marked(data, names, piece.facts["quoted"])
        for _ in range(len(columns) + 4):
            try:
                table, malformed = self._attempt(
                    data, names, columns, read_as, piece.facts["quoted"], block, broken, latin=latin, skip=utf8 or latin
                )
                # digits that no double holds are an infinity now; coercion tells them from one that is meant
                if not (infinite := _infinite(table)):
                    table = table if utf8 else _changed(table, _as_utf8)
                    return table, malformed if piece.facts["quoted"] else _placed(malformed, raw, at)
                read_as |= dict.fromkeys(infinite, pa.binary())
                continue
            except pa.ArrowInvalid as error:
                reason = str(error).splitlines()[0]
            if match := _AT_COLUMN.match(reason):
                name = names[int(match[1])]
                retyped = sum(read_as[column] == pa.binary() != types.get(column) for column in columns)
                read_as |= {name: pa.binary()} if retyped < _RETYPED else dict.fromkeys(columns, pa.binary())
            elif "straddling" in reason and block < len(data):
                block = len(data)  # a line longer than a block
            elif not utf8 and not latin and "Expected" in reason:  # a malformed line
                data, latin, block = data.decode("latin-1").encode(), True, 2 * block
            else:
                break
        where = f"{piece.path}, bytes {at} to {at + len(raw)}"
        raise DataError(f"not readable as CSV: {reason}", where=where) from None

    def _marked(self, data: bytes, names: list[str], quoted: bool) -> tuple[bytes, list[Malformed]]:
        """Replaces each broken record in `data` by a numbered line that pyarrow rejects, and doubles stray escapes. Returns the
        changed data and the broken records."""
        parts, at, bad = list[bytes](), 0, list[Malformed]()
        for found in self._rules.broken(data, len(names), newlines=quoted):
            parts += [data[at : found.start], f"{self._mark(names)}{len(bad)}\n".encode()]
            text = data[found.start : min(found.end, found.start + 4 * CUT)].decode("utf-8", "backslashreplace")
            bad.append(Malformed(0, text.rstrip("\r\n")[:CUT], found.reason))
            at = found.end
        return self._rules.escaped(b"".join([*parts, data[at:]]) if parts else data), bad

    def _mark(self, names: list[str]) -> str:
        return self._config.delimiter * len(names) + _MARK

    def _attempt(
        self,
        data: bytes,
        names: list[str],
        columns: list[str],
        types: Mapping[str, pa.DataType] | None,
        quoted: bool,
        block: int,
        broken: Sequence[Malformed],
        *,
        latin: bool = False,
        skip: bool = True,
    ) -> tuple[pa.Table, list[Malformed]]:
        """Parses a block once, with these column types (None: inferred). Returns the table and the malformed lines.

        Args:
            broken: the broken records, in the order of the marked lines that replace them in `data`.
            latin: `data` was converted from Latin-1 to UTF-8, so that no byte is an error; the values read are converted back.
            skip: whether to go on after malformed lines. False for data that are not UTF-8: pyarrow cannot hand over their lines.
        """
        malformed: list[Malformed] = []
        mark, zero = self._mark(names), b"\0"
        if zero in data:  # pyarrow overlooks line ends behind it
            used = data + f"{self._config.delimiter}{self._config.quote}{self._config.escape}".encode()
            zero = next(bytes([code]) for code in _CONTROLS if code not in used)
            data = data.replace(b"\0", zero)

        def handle(row: Any) -> str:
            if row.text.startswith(mark):
                malformed.append(dataclasses.replace(broken[int(row.text[len(mark) :])], row=row.number - 1))
                return "skip"
            reason = f"{counted(row.actual_columns, 'column')} instead of {row.expected_columns}"
            text = row.text.encode("latin-1").decode("utf-8", "backslashreplace") if latin else row.text
            malformed.append(Malformed(row.number - 1, text[:CUT].replace(zero.decode(), "\0"), reason))
            return "skip"

        try:
            table = pacsv.read_csv(
                pa.py_buffer(data),
                read_options=pacsv.ReadOptions(use_threads=False, column_names=names, block_size=block),
                parse_options=self._parse_options(handle if skip else None, quoted=quoted),
                convert_options=pacsv.ConvertOptions(
                    column_types=dict(types) if types else None,
                    include_columns=columns,
                    null_values=list(self._config.null_values),
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            # every line was malformed: pyarrow calls that an empty file
            if "Empty CSV" in str(error):
                empty = pa.schema([(name, (types or {}).get(name, pa.string())) for name in columns])
                return empty.empty_table(), malformed
            raise
        table = _changed(table, lambda text: text.decode().encode("latin-1")) if latin else table
        return (table if zero == b"\0" else _changed(table, lambda text: text.replace(zero, b"\0"))), malformed

    def _parse_options(self, handler: Any = None, *, quoted: bool = True) -> pacsv.ParseOptions:
        return pacsv.ParseOptions(
            delimiter=self._config.delimiter,
            quote_char=self._config.quote or False,
            escape_char=self._config.escape or False,
            newlines_in_values=quoted,
            invalid_row_handler=handler,
        )


def _infinite(table: pa.Table) -> list[str]:
    """Returns the names of the columns of doubles that hold an infinity."""
    return [
        field.name
        for field, column in zip(table.schema, table.columns, strict=True)
        if field.type == _DOUBLE and any(np.isinf(np_view(part, np.dtype(np.float64))).any() for part in column.chunks)
    ]


def _is_like(texts: pa.ChunkedArray, pattern: str) -> bool:
    """Returns whether any text matches. With `_LARGE_INTEGER`, codes (12E3) count as matches if no text is a real number."""

    def any_like(pattern: str) -> bool:
        return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())

    return any_like(pattern) or (pattern == _LARGE_INTEGER and any_like(_CODE) and not any_like(_REAL))


def _large_integers(values: pa.ChunkedArray) -> bool:
    """Returns whether any of these doubles is an integer beyond 2^24."""
    sizes = pc.abs(values)
    large = pc.and_(pc.greater(sizes, 2.0**24), pc.is_finite(sizes))
    return bool(pc.any(pc.and_(large, pc.equal(sizes, pc.floor(sizes)))).as_py())


def _placed(malformed: list[Malformed], data: bytes, at: int) -> list[Malformed]:
    """Returns the malformed lines with a longer reason, which ends with the byte offset of the line in the file."""
    if not malformed:
        return malformed
    offsets = row_offsets(data, [line.row for line in malformed])
    return [
        dataclasses.replace(line, reason=f"{line.reason}, at byte {at + offset}")
        for line, offset in zip(malformed, offsets, strict=True)
    ]


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _as_utf8(value: bytes) -> bytes:
    """Returns text as UTF-8. What is not UTF-8 is read as cp1252, which old Western editors wrote, or else as Latin-1."""
    if _is_utf8(value):
        return value
    try:
        return value.decode("cp1252").encode()
    except UnicodeDecodeError:
        return value.decode("latin-1").encode()


def _changed(table: pa.Table, change: Callable[[bytes], bytes]) -> pa.Table:
    """Returns the table with `change` applied to each distinct value of its binary and dictionary columns."""
    for place, field in enumerate(table.schema):
        if not pa.types.is_dictionary(field.type) and not pa.types.is_binary(field.type):
            continue
        chunks = []
        for chunk in table.column(place).chunks:
            coded = chunk if pa.types.is_dictionary(field.type) else chunk.dictionary_encode()
            words = pa.array([v if v is None else change(v) for v in coded.dictionary.to_pylist()], pa.binary())
            values = words.take(coded.indices)
            chunks.append(values.dictionary_encode() if pa.types.is_dictionary(field.type) else values)
        table = table.set_column(place, field.name, pa.chunked_array(chunks, field.type))
    return table


COMMENT = "#%/ "
"""The characters that may stand before the first name of a header, as a comment sign does."""


def unnamed_column(place: int) -> str:
    """Returns the name for a column without a name: column_3 for the third column, whose `place` is 3."""
    return f"column_{place}"


def unique_names(names: Sequence[str]) -> list[str]:
    """Returns the names made unique: column_3 for an empty third name, price_2 for the second `price`."""
    made: list[str] = []
    for place, name in enumerate(names, 1):
        stem = new = name or unnamed_column(place)
        number = 2
        while new in made or (new != name and new in names):
            new, number = f"{stem}_{number}", number + 1
        made.append(new)
    return made


def rows_of(text: str, config: CsvConfig) -> Iterator[tuple[int, list[str]]]:
    """Yields the line number (from 0) and the values of each CSV row, except empty rows; stops at an unreadable row."""
    reader = csv.reader(
        (line + "\n" for line in text.split("\n")),
        delimiter=config.delimiter,
        quotechar=config.quote or None,
        escapechar=config.escape or None,
        quoting=csv.QUOTE_MINIMAL if config.quote else csv.QUOTE_NONE,
    )
    before = 0
    with contextlib.suppress(csv.Error):  # a field beyond the reader's limit
        for row in reader:
            if row:
                yield before, row
            before = reader.line_num


def misplaced_name(header: Sequence[str], names: Sequence[str]) -> tuple[str, int, int] | None:
    """Returns a name whose place in the header differs from its place in `names`, and both places, counted from 1; else None. A
    header that is one name short is taken to lack the first or the last name. None also for a title: a line with fewer than two
    names, or that lacks more than one."""
    if sum(map(bool, header)) < 2 or len(header) < len(names) - 1:
        return None
    forms = [header] if len(header) != len(names) - 1 else [["", *header], [*header, ""]]
    found = []
    for form in forms:
        places = {name: place for place, name in enumerate(names, 1)}
        named = [(name, place) for place, name in enumerate(unique_names(form), 1) if name in places]
        wrong = [(name, place, places[name]) for name, place in named if place != places[name]]
        if not wrong:
            return None
        found.append(wrong)
    return min(found, key=len)[0]


_LEAST, _MOSTLY = 3, 0.9


def replace_null_words(
    values: pa.ChunkedArray, words: Sequence[str], quoted: Collection[str]
) -> tuple[pa.ChunkedArray, tuple[str, ...], str | None]:
    """Makes words such as NA null where they mean a missing value. Returns three things: the new values, the words that mean a
    missing value here, and a note to the user on a word that is frequent or may be meant otherwise (None: no note).

    Args:
        values: sampled text as the files have it; values of another type are returned unchanged.
        quoted: those of the words that stand in quotes in the files.
    """
    if not is_text(values.type):
        return values, tuple(words), None
    texts = values.cast(pa.string())
    distinct = pc.unique(texts).drop_null()
    others = distinct.filter(pc.invert(pc.is_in(distinct, value_set=pa.array(words, pa.string()))))
    counts = {word: pc.sum(pc.equal(texts, word)).as_py() or 0 for word in words if word}
    plain = {word for word, count in counts.items() if word in quoted or (count and _are_like(others, word))}
    null = tuple(word for word in words if word not in plain and (word or word not in quoted))
    gone = pc.is_in(texts, value_set=pa.array([word for word in null if word], pa.string()))
    present, fix = len(texts) - texts.null_count, "{parse: {as: text, null: "
    note = None
    for word, count in counts.items():
        of_it = f"{word!r}, in {count:,} of {present:,} sampled values,"
        if count and word in plain:
            note = f"{of_it} is a text like the others; say {fix}[{word}]}}}} if it means that the value is missing"
        elif count * ONE_IN > present:
            note = f"{of_it} means that the value is missing; say {fix}[]}}}} if it is a text like the others"
    return pc.if_else(gone, pa.scalar(None, values.type), values), null, note


def _are_like(others: pa.Array, word: str) -> bool:
    if len(others) < _LEAST:
        return False
    alike = pc.equal(_forms(others), _forms(pa.array([word]))[0])
    return bool(pc.mean(alike.cast(pa.int8())).as_py() >= _MOSTLY)


def _forms(texts: pa.Array) -> pa.Array:
    """Returns the texts with each character replaced by its kind: A for a capital, a for a small letter, 0 for a digit. Others
    stay as they are."""
    for pattern, kind in ((r"\p{Lu}", "A"), (r"\p{Ll}", "a"), (r"\d", "0")):
        texts = pc.replace_substring_regex(texts, pattern, kind)
    return texts
