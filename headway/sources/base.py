"""The interface of a format's reader: cuts a span's files into ranges, reads these as Arrow batches, samples rows.

    for piece in source.ranges(files):
        for chunk in source.read(piece, ["carrier", "arr_delay"], types={}):
            chunk.batch, chunk.first_row, chunk.malformed

    leaves(schema)                          # {"id": ("id",), "a.b": ("a", "b")}: a struct `a` with a field `b`
    pick(batch, {"a.b": ("a", "b")}, ["a.b"])

    other_format(head, "parquet")           # ("JSON lines", "say 'format: jsonl'"), or None: it may be Parquet
    raise wrong_format_error(path, "parquet")         # DataError: is JSON lines, not a Parquet file

A range is a part of one file or a run of small files. Ranges depend on the files and the config alone.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.config import Frozen
from headway.errors import DataError
from headway.messages import some
from headway.records.tfrecord import masked_crc32c
from headway.schema.columns import column_yaml, suggest
from headway.sources.config import FORMATS, Format, SourceConfig
from headway.sources.sample import FieldPath, Sample, without_values
from headway.storage import filesystem as storage
from headway.storage.filesystem import checksum, reason_of, size_and_time, unreadable
from headway.tabular.list_arrays import decoded, flatten, is_list, plain, value_type

BATCH_ROWS = 131_072
BATCH_BYTES = 36 << 20
"""The approximate number of bytes of a batch of wide rows."""
RANGE_CELLS = 64 << 20
"""The most cells (rows times columns) of a range, so that a table of hundreds of columns is cut into several ranges."""
_RANGES = 8
_SPANS, _LEAST_SAMPLE = 24, 1000


class InputFile(Frozen):
    """One raw file. Two are equal if all their fields but the time of the last change are equal."""

    path: str
    bytes: int
    crc32c: str
    """The file's checksum, as eight hex digits."""
    changed: float | None = None
    """The time of the file's last change before its checksum was taken, in seconds since 1970; None if unknown."""
    quoted_newlines: bool = False
    """Whether a CSV file has a newline inside quotes, or any escape character, so that it cannot be cut at newlines."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InputFile) and self.as_key() == other.as_key()

    def __hash__(self) -> int:
        return hash((self.path, self.bytes, self.crc32c))

    def as_key(self) -> dict[str, Any]:
        """Returns the fields that a fingerprint hashes: all but the time of the last change."""
        return self.model_dump(exclude={"changed"})


@dataclass(frozen=True)
class Range:
    """A part of one file, such as row groups of a Parquet file or bytes [start, end) of a CSV file; or a run of small files."""

    index: int
    """The number of the range in the span, from 0; shards are named after it."""
    path: str
    file: int
    """The index of the file in the span's list of files; for a run of files, the index of the first one."""
    start: int
    end: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    row_per_file: bool = False
    """Whether each row is one whole file: row i of the range is file `file` + i of the span."""


@dataclass(frozen=True)
class Malformed:
    """A row that cannot be read: its line cannot be cut into columns, or one of its cells is bad."""

    row: int
    """The number of the data row within the range, from 0."""
    text: str | None
    reason: str
    column: str | None = None
    """The column of the bad cell; None: the line as a whole is malformed."""


@dataclass(frozen=True)
class Chunk:
    """A batch of rows of a range. Row i of the batch is row `rows[i]` of the range, or row first_row + i of the range if `rows`
    is None."""

    batch: pa.RecordBatch
    first_row: int
    rows: Any = None
    malformed: tuple[Malformed, ...] = ()

    def positions(self) -> NDArray[np.int64]:
        """Returns for each row of the batch its number within the range."""
        if self.rows is not None:
            return np.asarray(self.rows, np.int64)
        return np.arange(self.first_row, self.first_row + self.batch.num_rows, dtype=np.int64)


class Source(Protocol):
    """The reader of one file format, made from the config of the source."""

    def __init__(self, config: SourceConfig):
        pass

    def names(self, file: InputFile) -> list[str]:
        """Returns the names of the file's columns."""

    def ranges(self, files: Sequence[InputFile]) -> list[Range]:
        """Returns the ranges that the span's files are cut into, in order."""

    def read(self, piece: Range, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
        """Yields the named columns of a range, in chunks of about BATCH_ROWS rows, or of fewer rows if the rows are wide.

        `types` has the wanted type of each column, for formats whose files have no types. A column with a value that does not fit
        its type is returned as text. A column without a wanted type is returned as text, or in the file's type."""

    def sample(self, files: Sequence[InputFile], rows: int) -> Sample:
        """Returns a sample of at most `rows` rows, with every column, from which a schema is inferred."""


def read_unchanged(
    source: Source, files: Sequence[InputFile], piece: Range, columns: Sequence[str], types: Mapping[str, pa.DataType]
) -> Iterator[Chunk]:
    """Reads a range as `Source.read` does, then checks that the range's file has not changed since its checksum was taken.

    Raises:
        DataError: the file cannot be read, or has changed. The files of a run of small files are not checked for changes.
    """
    try:
        yield from source.read(piece, columns, types)
    except OSError as error:
        raise unreadable(piece.path, error) from None
    if not piece.row_per_file:
        _check_unchanged(files, piece)


def _check_unchanged(files: Sequence[InputFile], piece: Range) -> None:
    """Raise DataError when the size of the range's file has changed, or if both its time of change and its checksum have."""
    file, (size, changed) = files[piece.file], size_and_time(piece.path)
    if size != file.bytes:
        how = f"it has {size:,} bytes, and had {file.bytes:,} when the run began"
    elif file.changed not in (None, changed) and checksum(piece.path)[1] != file.crc32c:
        how = "its size is the same as when the run began, and its bytes are not"
    else:
        return
    raise DataError(
        f"changed while it was read: {how}",
        where=piece.path,
        fix="put new data into files of their own, by a rename; then run again",
    )


def whole_files(ranges: Sequence[Range]) -> list[Range]:
    """Returns the ranges with those of one file joined into one, so that rows count from the file's first row. Runs of small
    files stay as they are."""
    joined: list[Range] = []
    for piece in ranges:
        if joined and piece.file == joined[-1].file and not piece.row_per_file:
            before = joined.pop()
            facts = {**before.facts}
            if "rows" in facts:
                facts["rows"] += piece.facts["rows"]
            joined.append(replace(before, end=piece.end, facts=facts))
        else:
            joined.append(replace(piece, index=len(joined)))
    return joined


class NoRows(DataError):
    """Raised when the files that a sample is taken from hold no rows."""


def sample_spans(source: Source, spans: Sequence[Sequence[InputFile]], rows: int) -> tuple[Sample, Sample]:
    """Returns two samples: one of the first span, and one of the first span with up to 24 others, evenly spread over all spans.
    The first span alone may mislead: a column may be empty there, or hold only integers. A span without rows is skipped.

    Args:
        spans: the files of each span.
        rows: the most rows from the first span, and from all others together. Each other span may give at least 1000.

    Raises:
        NoRows: no span has rows.
    """
    others = [spans[i] for i in np.unique(np.linspace(1, len(spans) - 1, _SPANS).astype(int))] if len(spans) > 1 else []
    samples, empty = list[Sample](), None
    for most, files in ((rows, spans[0]), *((max(_LEAST_SAMPLE, rows // len(others)), files) for files in others)):
        try:
            samples.append(source.sample(files, most))
        except NoRows as error:
            empty = empty or error
    if not samples:
        assert empty is not None
        raise empty
    if len(samples) == 1:
        return samples[0], samples[0]
    whole = sampled([each.table for each in samples], sum(each.table.num_rows for each in samples))
    return samples[0], samples[0].joined(whole, samples[1:])


def sampled(tables: Sequence[pa.Table], rows: int, *, evenly: bool = False) -> Sample:
    """Returns a sample of the first `rows` rows of all tables together; if `evenly`, as many rows from each table. A column whose
    types differ gets a common type, else becomes text. If it cannot become text, it is null, and `Sample.conflicts` says why."""
    share = -(-rows // len(tables)) if evenly else rows
    parts = [table.slice(0, share) for table in tables]
    named: dict[str, list[pa.Field]] = {}
    clashes: dict[str, str] = {}
    for part in parts:
        for column in part.schema:
            named.setdefault(column.name, []).append(column)
    for name, fields in named.items():
        if all(column.type == fields[0].type for column in fields):
            continue
        kinds = {column.type for column in fields}
        if pa.int64() in kinds and any(map(pa.types.is_floating, kinds)):  # Arrow refuses integers that no double holds
            parts = [_as_doubles(part, name) for part in parts]
            continue
        try:
            pa.unify_schemas([pa.schema([column]) for column in fields], promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            alike = len({is_list(column.type) for column in fields}) == 1
            texts = [_as_text(part, name) if alike else None for part in parts]
            if all(text is not None for text in texts):
                parts = [text for text in texts if text is not None]
            else:
                first, second = list(dict.fromkeys(str(column.type) for column in fields))[:2]
                clashes[name] = f"column {name!r} has types that differ between the files: {first} and {second}"
                parts = [without_values(part, clashes) for part in parts]
    return Sample(pa.concat_tables(parts, promote_options="permissive").slice(0, rows), conflicts=clashes)


def _as_doubles(table: pa.Table, name: str) -> pa.Table:
    place = table.schema.get_field_index(name)
    if place < 0 or table.schema.field(place).type != pa.int64():
        return table
    return table.set_column(place, name, table.column(place).cast(pa.float64(), safe=False))


def _as_text(table: pa.Table, name: str) -> pa.Table | None:
    """Returns the table with the column `name` as text; None when the column holds lists of lists, or objects."""
    place = table.schema.get_field_index(name)
    if place < 0:
        return table
    listed = is_list(table.schema.field(place).type)
    text, raw = (pa.list_(kind) if listed else kind for kind in (pa.string(), pa.binary()))
    try:
        values = table.column(place).cast(text).cast(raw)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if table.schema.field(place).type != raw:
            return None
        values = table.column(place)
    return table.set_column(place, name, values)


def refuse_duplicates(names: Sequence[str], path: str) -> None:
    """Raise DataError when two of a file's columns have the same name."""
    seen = set[str]()
    for name in names:
        if name in seen:
            raise DataError(f"the file has two columns {name!r}", where=path, fix="rename one of them")
        seen.add(name)


def check_columns(columns: Sequence[str], names: Collection[str], path: str) -> None:
    """Raise DataError when a file lacks a column of the schema."""
    for name in columns:
        if name not in names:
            fix = f"{suggest(name, list(names))} (the schema has it: bring it; or, if it is called otherwise here, "
            fix += f"source.rename: {{ITS NAME HERE: {name}}}; or leave it out: {column_yaml(name, 'ignore')})"
            raise DataError(f"there is no column {name!r}", where=path, fix=fix)


def rows_of_range(rows: int, columns: int, whole: int | None = None) -> int:
    """Returns the number of rows per range of a table with `columns` columns: at most `rows`, and at most RANGE_CELLS cells.

    A file that is known to have `whole` rows is cut into about eight ranges, since few ranges mean little parallelism. More
    ranges are cut if eight were too large; fewer if they had less than BATCH_ROWS rows, since each range costs some
    milliseconds."""
    most = min(rows, max(1, RANGE_CELLS // max(columns, 1)))
    return most if whole is None else min(most, max(BATCH_ROWS, -(-whole // _RANGES)))


def rechunk(chunk: Chunk) -> Iterator[Chunk]:
    """Cuts a chunk into equal chunks of about BATCH_ROWS rows; a smaller one stays whole. Each chunk costs some milliseconds. The
    first chunk carries all malformed rows, and exists even if there is no good row."""
    rows = chunk.batch.num_rows
    size = max(1, -(-rows // max(1, round(rows / BATCH_ROWS))))
    for start in range(0, max(rows, 1), size):
        at = None if chunk.rows is None else chunk.rows[start : start + size]
        malformed = () if start else chunk.malformed
        yield Chunk(chunk.batch.slice(start, size), chunk.first_row + start, at, malformed)


_NAMED = 3
INTERVAL = pa.month_day_nano_interval()
"""The type that a sample has for every kind of interval, as intervals cannot be stored."""


def leaves(schema: pa.Schema, path: str) -> dict[str, FieldPath]:
    """Returns the leaf columns of a file, {flat name: field path}. Field b of struct a is {"a.b": ("a", "b")}.

    Raises:
        DataError: two leaves have the same flat name.
    """
    ways: list[FieldPath] = []

    def walk(field: pa.Field, way: FieldPath) -> None:
        if pa.types.is_struct(field.type):
            for inner in field.type:
                walk(inner, (*way, inner.name))
        else:
            ways.append(way)

    for top in schema:
        walk(top, (top.name,))
    names = [".".join(way) for way in ways]
    refuse_duplicates(names, path)
    return dict(zip(names, ways, strict=True))


def pick(batch: pa.RecordBatch, ways: Mapping[str, FieldPath], names: Sequence[str]) -> pa.RecordBatch:
    """Returns a batch of the leaf columns `names`, found by the field paths `ways`, in plain types. A leaf is null if its struct
    is."""
    arrays = []
    for name in names:
        first, *rest = ways[name]
        try:
            array = batch.column(first)
            arrays.append(plain(pc.struct_field(array, rest) if rest else array))
        except KeyError:  # pyarrow has no arrays of some intervals
            arrays.append(pa.nulls(batch.num_rows, INTERVAL))
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def flat_columns(table: pa.Table, path: str) -> pa.Table:
    """Returns the table with each leaf of a struct as a column of its own. Text columns that are not UTF-8 become binary."""
    ways = leaves(table.schema, path)
    names = list(ways)
    batches = [pick(batch, ways, names) for batch in table.to_batches()]
    if not batches:
        return pa.table({name: pa.nulls(0) for name in names})
    columns = dict(zip(names, pa.Table.from_batches(batches).columns, strict=True))
    return pa.table({name: _bytes_unless_text(column) for name, column in columns.items()})


def _bytes_unless_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns a column unchanged, or as binary if some of its text is not UTF-8."""
    kind, raw = column.type, pa.binary()
    words = kind.value_type if is_list(kind) else value_type(kind)
    if not (pa.types.is_string(words) or pa.types.is_large_string(words)):
        return column
    try:
        for chunk in column.chunks:
            values = flatten(chunk).values if is_list(kind) else decoded(chunk)
            values.cast(pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid:
        listed = pa.list_(raw, kind.list_size) if pa.types.is_fixed_size_list(kind) else pa.list_(raw)
        coded = pa.dictionary(kind.index_type, raw) if pa.types.is_dictionary(kind) else raw
        return column.cast(listed if is_list(kind) else coded)
    return column


def first_rows(
    files: Sequence[InputFile],
    rows: int,
    opened: Callable[[str], AbstractContextManager[tuple[int, Iterator[pa.RecordBatch]]]],
) -> Sample:
    """Returns the first `rows` rows of some files, with every leaf of a struct as a column.

    Args:
        opened: opens a file and yields two things: the most rows of a sample that includes this file, and the file's batches.
    """
    tables: list[pa.Table] = []
    count = 0
    for file in files:
        batches: list[pa.RecordBatch] = []
        with opened(file.path) as (most, stream):
            rows = min(rows, most)
            for batch in stream:
                batches.append(batch)
                count += batch.num_rows
                if count >= rows:
                    break
        if batches:
            tables.append(flat_columns(pa.Table.from_batches(batches), file.path))
        if count >= rows:
            break
    if not count:
        raise NoRows("the files hold no rows", where=files[0].path, fix="name files with rows")
    return sampled(tables, rows)


def damaged_file_error(kind: str, path: str, error: Exception, at: str, columns: Collection[str] = ()) -> DataError:
    """Returns the error for a damaged file. `at`: where the damage is, as text; `columns`: the unreadable columns, if known."""
    fix, names = "write the file again", list(columns)
    if names:
        at += f", {'column' if len(names) == 1 else 'columns'} {some(names, _NAMED, repr)}"
        fix += f", or leave out what cannot be read: {column_yaml(names[:_NAMED], 'ignore')}"
    return DataError(f"not a whole {kind} file, at {at}: {reason_of(error)}", where=path, fix=fix)


def row_group_runs(counts: Sequence[int], most: int) -> Iterator[tuple[int, int, int]]:
    """Joins consecutive row groups (or batches) into runs of up to `most` rows. A larger group is a run by itself. Yields the
    first group of each run, the group after its last one, and its number of rows."""
    start = total = 0
    for i, count in enumerate(counts):
        if total and total + count > most:
            yield start, i, total
            start, total = i, 0
        total += count
    if total:
        yield start, len(counts), total


_HEAD = 4096
_OTHERS = {
    b"PK\x03\x04": ("a zip archive (or an Excel workbook)", "unzip it, or save it as CSV"),
    b"PARE": ("Parquet with an encrypted footer", "write it without encryption"),
    b"BZh": ("compressed with bzip2", "decompress it, or compress it with gzip"),
    b"\xfd7zXZ": ("compressed with xz", "unpack it: xz -d FILE"),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", "decompress it, or compress it with gzip"),
    b"\x1f\x8b": ("compressed with gzip", "gzip is for text and TFRecords; decompress it, or check source.format"),
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), ("UTF-16", "save it as UTF-8: iconv -f UTF-16 -t UTF-8 old > new")),
    b"%PDF": ("a PDF", "export its table as CSV"),
    b"SQLite format 3": ("an SQLite database", "export its table as CSV"),
    b"\x89HDF": ("an HDF5 file", "write it as Parquet"),
    b"<": ("HTML or XML", "check the path and source.format"),
}
_OBJECTS = re.compile(rb'\s*(?:\[\s*\{\s*["}]|\{\s*\n\s*")')
"""A pattern for the beginning of an array of objects, or of an object over several lines."""
_ARFF = re.compile(rb"(?i)(?:\s*%[^\n]*\n|\s)*@relation\s")
_TEXT = {name for name, format in FORMATS.items() if format.text}


def other_format(head: bytes, expected: Format) -> tuple[str, str] | None:
    """Returns the other format that a file's first bytes show, and the fix; None if they may be of the `expected` format."""
    sniffed = format_of(head)
    if sniffed is not None and sniffed != expected and not (sniffed in _TEXT and expected in _TEXT):
        return FORMATS[sniffed].noun, f"say 'format: {sniffed}'"
    if sniffed == expected:
        return None
    if _ARFF.match(head):
        fix = "write it as CSV: pandas.DataFrame(scipy.io.arff.loadarff(file)[0]).to_csv(new_file, index=False)"
        return "an ARFF file (Weka's)", fix
    zipped = head.startswith(b"\x1f\x8b") and "gz" in FORMATS[expected].pattern
    for magic, (what, fix) in _OTHERS.items():
        # a table may begin with <, text with anything
        if head.startswith(magic) and not zipped and not (magic == b"<" and expected in _TEXT):
            return what, fix
    if expected not in _TEXT and head and _is_text(head):
        return "text", "say 'format: csv' if it is CSV, or check source.format and the path"
    return None


def wrong_format_error(path: str, expected: Format) -> DataError | None:
    """Returns the error for a file whose first bytes show another format than the expected one; None when they do not."""
    with storage.open_file(path) as file, storage.reading(path):
        other = other_format(file.read(_HEAD), expected)
    if other is None:
        return None
    return DataError(f"is {other[0]}, not {FORMATS[expected].noun}", where=path, fix=other[1])


def format_of(head: bytes) -> Format | None:
    """Returns the format that a file's first bytes show; None for text that may be CSV, and for unknown bytes."""
    for name, format in FORMATS.items():
        if format.magic and head.startswith(format.magic):
            return name
    if len(head) >= 12 and masked_crc32c(head[:8]) == struct.unpack_from("<I", head, 8)[0]:
        return "examples"
    head = head.removeprefix(b"\xef\xbb\xbf")
    return "jsonl" if is_object(head.split(b"\n", 1)[0]) or _OBJECTS.match(head) else None


def is_object(line: bytes) -> bool:
    """Returns whether a line is a JSON object. A long line may be cut off at its end."""
    line = line.strip()
    if not line.startswith(b"{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return len(line) > _HEAD // 2 and line[1:].lstrip().startswith(b'"')


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:
            return False
        text = head[: error.start].decode("utf-8")
    return all(character.isprintable() or character in "\t\r\n\ufeff" for character in text[:512])
