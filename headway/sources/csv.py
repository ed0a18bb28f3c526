"""CSV files, cut at line ends and parsed range by range on the calling thread.

A range is first read with the stored types. Where a value does not fit them the range is read again with the types that
pyarrow finds, and failing that as text, so that coercion can name the one bad row and keep the others. Lines with the
wrong number of columns are reported, never lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from headway.errors import DataError
from headway.schema import suggest
from headway.sources.base import BATCH_ROWS, Chunk, CsvConfig, InputFile, Malformed, Range

_BOM = b"\xef\xbb\xbf"
_PARSE_BYTES = 1 << 20
_SAMPLE_BYTES, _SAMPLE_PIECES, _SAMPLE_FILES = 1 << 18, 8, 8
"""What a schema is inferred from: so many pieces of each of so many files."""
_CUT = 200
"""A malformed line is quoted up to this many characters."""


class CsvSource:
    """A range is bytes [start, end) of a file, from the beginning of a line to the end of one."""

    def __init__(self, config: CsvConfig):
        self._config = config

    def names(self, file: InputFile) -> list[str]:
        return self._header(file.path)[0]

    def _header(self, path: str) -> tuple[list[str], int]:
        """Column names, and the offset of the first data line."""
        with Path(path).open("rb") as file:
            line = file.readline()
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
                raise DataError(f"the header cannot be read: {error}", where=path) from None
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise DataError(f"the header names column {twice[0]!r} twice", where=path, fix="rename one of them")
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
        size = Path(file.path).stat().st_size
        if file.quoted_newlines:
            if start < size:
                yield size
            return
        with Path(file.path).open("rb") as handle:
            while start < size:
                handle.seek(min(start + self._config.range_bytes, size))
                handle.readline()
                start = handle.tell()
                yield start

    def read(self, piece: Range, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
        names = list(piece.facts["names"])
        for name in columns:
            if name not in names:
                raise DataError(f"there is no column {name!r}", where=piece.path, fix=suggest(name, names))
        with Path(piece.path).open("rb") as file:
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
            for piece in self._sample(file, start):
                if piece.strip():
                    tables.append(self._attempt(piece, names, names, None, file.quoted_newlines)[0])
        if not tables:
            raise DataError("the files hold no rows", where=files[0].path)
        share = -(-rows // len(tables))
        whole = pa.concat_tables([table.slice(0, share) for table in tables], promote_options="permissive")
        for place, field in enumerate(whole.schema):
            if pa.types.is_temporal(field.type):  # no two ranges need agree on a date's type: it stays text
                whole = whole.set_column(place, field.name, whole.column(place).cast(pa.string()))
        return whole

    @staticmethod
    def _sample(file: InputFile, start: int) -> Iterator[bytes]:
        """Pieces of whole lines; of a file that cannot be cut, its beginning up to a line's end outside quotes."""
        with Path(file.path).open("rb") as handle:
            if file.quoted_newlines:
                handle.seek(start)
                yield handle.read()
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
        text = {name: pa.binary() for name in columns}  # whatever its encoding
        # what is text to us must not be taken for a number or a date: "007" would come back as "7"
        guessed = {name: kind for name, kind in types.items() if _is_text(kind)}
        attempts: list[Mapping[str, pa.DataType] | None] = [types, guessed, text]
        for i, attempt in enumerate(attempts):
            try:
                return self._attempt(data, names, columns, attempt, piece.facts["quoted"])
            except pa.ArrowInvalid as error:
                if i == len(attempts) - 1:
                    where = f"{piece.path}, bytes {piece.start} to {piece.end}"
                    raise DataError(f"not readable as CSV: {str(error).splitlines()[0]}", where=where) from None
        raise AssertionError("an attempt returns or raises")

    def _attempt(
        self, data: bytes, names: list[str], columns: list[str], types: Mapping[str, pa.DataType] | None, quoted: bool
    ) -> tuple[pa.Table, list[Malformed]]:
        malformed: list[Malformed] = []

        def handle(row: Any) -> str:
            reason = f"{row.actual_columns} columns instead of {row.expected_columns}"
            malformed.append(Malformed(row.number - 1, row.text[:_CUT], reason))
            return "skip"

        try:
            table = pacsv.read_csv(
                pa.py_buffer(data),
                read_options=pacsv.ReadOptions(use_threads=False, column_names=names, block_size=_PARSE_BYTES),
                parse_options=self._parse_options(handle, quoted=quoted),
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
        return table, malformed

    def _parse_options(self, handler: Any = None, *, quoted: bool = True) -> pacsv.ParseOptions:
        return pacsv.ParseOptions(
            delimiter=self._config.delimiter,
            quote_char=self._config.quote,
            newlines_in_values=quoted,
            invalid_row_handler=handler,
        )


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_dictionary(kind) or pa.types.is_binary(kind) or pa.types.is_string(kind)
