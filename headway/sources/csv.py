"""CSV files, cut at line ends and parsed range by range on the calling thread.

A range is first read with the stored types. Where a value of a column does not fit, the range is read again with that
column as text, so that coercion can name the one bad row and keep the others. Lines with the wrong number of columns are
reported, never lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from headway.errors import DataError
from headway.schema import suggest
from headway.sources.base import BATCH_ROWS, Chunk, CsvConfig, InputFile, Malformed, Range, reading, sampled, twice

_BOM = b"\xef\xbb\xbf"
_PARSE_BYTES = 1 << 20
_SAMPLE_BYTES, _SAMPLE_PIECES, _SAMPLE_FILES = 1 << 18, 8, 8
"""What a schema is inferred from: so many pieces of each of so many files."""
_CUT = 200
"""A malformed line is quoted up to this many characters."""
_RETYPED = 6
"""So many columns are turned to text one by one; after that every one at once."""
_AT_COLUMN = re.compile(r"In CSV column #(\d+): ")


class CsvSource:
    """A range is bytes [start, end) of a file, from the beginning of a line to the end of one."""

    def __init__(self, config: CsvConfig):
        self._config = config

    def names(self, file: InputFile) -> list[str]:
        return self._header(file.path)[0]

    def _header(self, path: str) -> tuple[list[str], int]:
        """Column names, and the offset of the first data line."""
        with reading(path), Path(path).open("rb") as file:
            line = file.readline()
            if b"\r" in line[:-2]:
                fix = "convert its line ends: tr '\\r' '\\n' < old > new"
                raise DataError("its lines end in a carriage return alone", where=path, fix=fix)
            skip = len(_BOM) if line.startswith(_BOM) else 0
            if not self._config.header:
                return list(self._config.names), skip
            quote = self._config.quote.encode()
            while line.count(quote) % 2 and (more := file.readline()):  # a newline inside a quoted name
                line += more
            try:
                names = pacsv.read_csv(
                    pa.py_buffer(line[skip:]),
                    parse_options=self._parse_options(),
                    read_options=pacsv.ReadOptions(use_threads=False),
                ).column_names
            except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                fix = "save the file as UTF-8"
                raise DataError(f"the header cannot be read: {error}", where=path, fix=fix) from None
        twice(names, path)
        return names, len(line)

    def ranges(self, files: Sequence[InputFile]) -> list[Range]:
        found: list[Range] = []
        for number, file in enumerate(files):
            names, start = self._header(file.path)
            for end in self._cuts(file, start):
                found.append(
                    Range(len(found), file.path, number, start, end, {"names": names, "quoted": file.quoted_newlines})
                )
                start = end
        return found

    def _cuts(self, file: InputFile, start: int) -> Iterator[int]:
        """Where ranges end: at the first line end at or after each multiple of range_bytes."""
        size = file.bytes
        if file.quoted_newlines:
            if start < size:
                yield size
            return
        with reading(file.path), Path(file.path).open("rb") as handle:
            while start < size:
                handle.seek(min(start + self._config.range_bytes, size))
                handle.readline()
                if handle.tell() <= start:
                    raise DataError(f"ends at byte {start}, not at {size}", where=file.path)
                start = min(handle.tell(), size)
                yield start

    def read(self, piece: Range, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
        names = list(piece.facts["names"])
        for name in columns:
            if name not in names:
                raise DataError(f"there is no column {name!r}", where=piece.path, fix=suggest(name, names))
        with reading(piece.path), Path(piece.path).open("rb") as file:
            file.seek(piece.start)
            data = file.read(piece.end - piece.start)
        if len(data) != piece.end - piece.start:
            raise DataError(f"ends at byte {piece.start + len(data)}, not at {piece.end}", where=piece.path)
        table, malformed = self._parse(data, names, list(columns), types, piece)
        del data
        rows = table.num_rows + len(malformed)
        positions = None
        if malformed:
            positions = np.delete(np.arange(rows, dtype=np.int64), [line.row for line in malformed])
        first = 0
        # one chunk carries the malformed lines, even when no good line is left
        batches = table.combine_chunks().to_batches(BATCH_ROWS) or [_empty(table.schema)]
        for i, batch in enumerate(batches):
            at = None if positions is None else positions[first : first + batch.num_rows]
            yield Chunk(batch, first, at, tuple(malformed) if i == 0 else ())
            first += batch.num_rows

    def prefix(self, files: Sequence[InputFile], rows: int) -> pa.Table:
        """Rows from places spread over the files: a file sorted by a column shows one value of it at its beginning."""
        tables = []
        for file in files[:_SAMPLE_FILES]:
            names, start = self._header(file.path)
            for piece in self._sample(file, start, self._config.quote.encode()):
                if piece.strip():
                    tables.append(self._guessed(piece, names, file))
        if not tables:
            raise DataError("the files hold no rows", where=files[0].path)
        whole = sampled(tables, rows)
        for place, field in enumerate(whole.schema):
            if pa.types.is_temporal(field.type):  # no two ranges need agree on a date's type: it stays text
                whole = whole.set_column(place, field.name, whole.column(place).cast(pa.string()))
        return whole

    def _guessed(self, piece: bytes, names: list[str], file: InputFile) -> pa.Table:
        """A sample in the types that pyarrow finds."""
        if not _is_utf8(piece):  # its malformed lines could not be skipped
            piece = piece.decode("latin-1").encode()
        try:
            return self._attempt(piece, names, names, None, file.quoted_newlines, len(piece))[0]
        except pa.ArrowInvalid as error:
            raise DataError(f"not readable as CSV: {str(error).splitlines()[0]}", where=file.path) from None

    @staticmethod
    def _sample(file: InputFile, start: int, quote: bytes) -> Iterator[bytes]:
        """Pieces of whole lines; of a file that cannot be cut, its beginning up to a line's end outside quotes."""
        with reading(file.path), Path(file.path).open("rb") as handle:
            if file.quoted_newlines:
                handle.seek(start)
                piece = handle.read(_SAMPLE_PIECES * _SAMPLE_BYTES)
                if start + len(piece) < file.bytes:
                    piece = piece[: _last_line_end(piece, quote)] or piece + handle.read()
                yield piece
                return
            size = file.bytes - start
            pieces = _SAMPLE_PIECES if size > _SAMPLE_PIECES * _SAMPLE_BYTES else 1
            for i in range(pieces):
                handle.seek(start + size * i // pieces)
                if i:
                    handle.readline()
                yield handle.read(_SAMPLE_BYTES if pieces > 1 else size) + handle.readline()

    def _parse(
        self, data: bytes, names: list[str], columns: list[str], types: Mapping[str, pa.DataType], piece: Range
    ) -> tuple[pa.Table, list[Malformed]]:
        """The range in the wanted types, but for columns with a value that does not fit: those come as text, so that
        what becomes of a value hangs on its column alone and never on its neighbours."""
        wanted = {name: types.get(name, pa.binary()) for name in columns}
        utf8 = _is_utf8(data)
        block, latin = _PARSE_BYTES, False
        for _ in range(len(columns) + 3):
            try:
                return self._attempt(
                    data, names, columns, wanted, piece.facts["quoted"], block, latin=latin, skip=utf8 or latin
                )
            except pa.ArrowInvalid as error:
                reason = str(error).splitlines()[0]
            if match := _AT_COLUMN.match(reason):
                name = names[int(match[1])]
                retyped = sum(wanted[column] == pa.binary() != types.get(column) for column in columns)
                wanted |= {name: pa.binary()} if retyped < _RETYPED else dict.fromkeys(columns, pa.binary())
            elif "straddling" in reason and block < len(data):
                block = len(data)  # a line longer than a block
            elif not utf8 and not latin and "Expected" in reason:  # a malformed line
                data, latin, block = data.decode("latin-1").encode(), True, 2 * block
            else:
                break
        where = f"{piece.path}, bytes {piece.start} to {piece.end}"
        raise DataError(f"not readable as CSV: {reason}", where=where) from None

    def _attempt(
        self,
        data: bytes,
        names: list[str],
        columns: list[str],
        types: Mapping[str, pa.DataType] | None,
        quoted: bool,
        block: int,
        *,
        latin: bool = False,
        skip: bool = True,
    ) -> tuple[pa.Table, list[Malformed]]:
        """One reading.

        Args:
            latin: `data` was turned from Latin-1 to UTF-8; undo that in what is read. Every byte survives it.
            skip: note malformed lines and go on. pyarrow cannot show us a line that is no UTF-8, and prints so.
        """
        malformed: list[Malformed] = []

        def handle(row: Any) -> str:
            reason = f"{row.actual_columns} columns instead of {row.expected_columns}"
            text = row.text.encode("latin-1").decode("utf-8", "backslashreplace") if latin else row.text
            malformed.append(Malformed(row.number - 1, text[:_CUT], reason))
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
        return (_from_latin(table) if latin else table), malformed

    def _parse_options(self, handler: Any = None, *, quoted: bool = True) -> pacsv.ParseOptions:
        return pacsv.ParseOptions(
            delimiter=self._config.delimiter,
            quote_char=self._config.quote,
            newlines_in_values=quoted,
            invalid_row_handler=handler,
        )


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _from_latin(table: pa.Table) -> pa.Table:
    """The bytes that stood in the file, in every column of text."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) or pa.types.is_binary(field.type):
            values = pc.cast(table.column(place), pa.binary()).to_pylist()
            back = pa.array([v if v is None else v.decode().encode("latin-1") for v in values], pa.binary())
            back = back.dictionary_encode() if pa.types.is_dictionary(field.type) else back
            table = table.set_column(place, field.name, back)
    return table


def _last_line_end(piece: bytes, quote: bytes) -> int:
    """Where the last line that ends outside quotes ends; 0 when none does."""
    end = len(piece)
    while (end := piece.rfind(b"\n", 0, end)) >= 0:
        if piece.count(quote, 0, end) % 2 == 0:
            return end + 1
    return 0
