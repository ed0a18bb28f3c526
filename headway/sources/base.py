"""What every source has in common: its config, its spans and files, and the interface that ingest reads through.

    config = SourceConfig(format="csv", path="/data/{span}.csv")
    spans(config)                                # ["2013-01", "2013-02"]
    found = files(config, "2013-01")             # path, bytes, crc32c of each file of the span
    source = open_source(config)
    for piece in source.ranges(found):
        for chunk in source.read(piece, ["carrier", "arr_delay"], types={}):
            chunk.batch, chunk.first_row, chunk.malformed

A range is a part of one file, and ranges depend on the files and the config alone, never on who reads them.
"""

from __future__ import annotations

import contextlib
import glob
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import google_crc32c
import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from headway.config import Frozen
from headway.errors import ConfigError, DataError
from headway.expressions import parse
from headway.sources.quotes import Quotes

BATCH_ROWS = 32_768
BLOCK_BYTES = 4 << 20
SPAN = "{span}"
ONE_SPAN = "all"
"""The span of a source whose path has no {span}."""


class CsvConfig(Frozen):
    """How a CSV file is written."""

    delimiter: str = Field(default=",", min_length=1, max_length=1)
    quote: str = Field(default='"', min_length=1, max_length=1)
    header: bool = True
    names: tuple[str, ...] = Field(default=(), description="column names of files without a header")
    null_values: tuple[str, ...] = ("", "NA")
    range_bytes: int = Field(default=16 << 20, ge=1 << 10, description="about how much of a file one range holds")

    @field_validator("delimiter", "quote")
    @classmethod
    def _one_byte(cls, value: str) -> str:
        if not value.isascii() or value in "\r\n\0":
            raise ValueError("must be one ASCII character, and no line end")
        return value

    @model_validator(mode="after")
    def _named(self) -> CsvConfig:
        if not self.header and not self.names:
            raise ValueError("files without a header need csv.names")
        if self.delimiter == self.quote:
            raise ValueError("delimiter and quote are the same character")
        if len(set(self.names)) != len(self.names):
            raise ValueError("csv.names holds a name twice")
        return self


class ParquetConfig(Frozen):
    """How a Parquet file is cut."""

    range_rows: int = Field(default=262_144, ge=1, description="row groups are put together up to about this many rows")


class SourceConfig(Frozen):
    """Where the raw files are and how they are written."""

    format: Literal["parquet", "csv"]
    path: str = Field(description="a file, a folder or a glob; {span} stands for the span's name")
    where: str | None = Field(default=None, description="keep the rows for which this expression is true")
    csv: CsvConfig = CsvConfig()
    parquet: ParquetConfig = ParquetConfig()

    @field_validator("where")
    @classmethod
    def _parses(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                parse(value)
            except ConfigError as error:
                raise ValueError(str(error)) from None
        return value

    @field_validator("path")
    @classmethod
    def _one_span(cls, value: str) -> str:
        if value.count(SPAN) > 1:
            raise ValueError("has {span} more than once")
        return value

    def at_ingest(self) -> dict[str, Any]:
        """The part that changes what ingest writes; where the files lie does not."""
        return {
            "format": self.format,
            "where": self.where,
            self.format: getattr(self, self.format).model_dump(mode="json"),
        }


class InputFile(Frozen):
    """One raw file as it was found. Its identity is its size and checksum, never its time."""

    path: str
    bytes: int
    crc32c: str
    """Eight hex digits."""
    quoted_newlines: bool = False
    """CSV: a newline stands inside quotes, so the file cannot be cut."""


@dataclass(frozen=True)
class Range:
    """A part of one file: row groups of a Parquet file, bytes [start, end) of a CSV file."""

    index: int
    """Its place in the span; shards are named after it."""
    path: str
    file: int
    """The file's place in the span."""
    start: int
    end: int
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Malformed:
    """A line that could not be cut into columns."""

    row: int
    """Data row within the range, from 0."""
    text: str
    reason: str


@dataclass(frozen=True)
class Chunk:
    """Some rows of a range. `rows[i]` is the data row within the range that batch row i came from; None: first_row + i."""

    batch: pa.RecordBatch
    first_row: int
    rows: Any = None
    malformed: tuple[Malformed, ...] = ()


class Source(Protocol):
    """One format."""

    def names(self, file: InputFile) -> list[str]:
        """The file's column names."""

    def ranges(self, files: Sequence[InputFile]) -> list[Range]:
        """The span's files cut into ranges, in order."""

    def read(self, piece: Range, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
        """The named columns of a range, in chunks of some ten thousand rows.

        `types` are what a format without types of its own should aim for. A column with a value that does not fit, or
        without a type here, comes as text.
        """

    def prefix(self, files: Sequence[InputFile], rows: int) -> pa.Table:
        """At most the first `rows` rows, every column, to infer a schema from."""


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """What the disk says against reading a raw file, as a DataError that names it."""
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", where=path) from None


def sampled(tables: Sequence[pa.Table], rows: int) -> pa.Table:
    """The beginnings of some tables as one; where their types of a column have nothing in common, it is text."""
    share = -(-rows // len(tables))
    parts = [table.slice(0, share) for table in tables]
    for name in dict.fromkeys(name for part in parts for name in part.column_names):
        fields = [pa.schema([part.schema.field(name)]) for part in parts if name in part.column_names]
        try:
            pa.unify_schemas(fields, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            parts = [_as_text(part, name) for part in parts]
    return pa.concat_tables(parts, promote_options="permissive").slice(0, rows)


def _as_text(table: pa.Table, name: str) -> pa.Table:
    place = table.schema.get_field_index(name)
    if place < 0:
        return table
    try:
        values = table.column(place).cast(pa.string()).cast(pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if not pa.types.is_binary(table.schema.field(place).type):
            raise DataError(f"column {name!r} has types that differ between the files", fix="leave it out") from None
        values = table.column(place)
    return table.set_column(place, name, values)


def twice(names: Sequence[str], path: str) -> None:
    """DataError when a file names a column twice."""
    seen = set[str]()
    for name in names:
        if name in seen:
            raise DataError(f"the file has two columns {name!r}", where=path, fix="rename one of them")
        seen.add(name)


def open_source(config: SourceConfig) -> Source:
    if config.format == "csv":
        from headway.sources.csv import CsvSource

        return CsvSource(config.csv)
    from headway.sources.parquet import ParquetSource

    return ParquetSource(config.parquet)


def spans(config: SourceConfig) -> list[str]:
    """The names that {span} takes among the files there are, sorted; one span "all" when the path has none.

    Raises:
        ConfigError: no file matches.
    """
    if SPAN not in config.path:
        _matches(config, ONE_SPAN)
        return [ONE_SPAN]
    before, after = config.path.split(SPAN)
    # {span} stands for one path part's worth of characters; the file's ending is not part of it
    pattern = re.compile(_regex(before) + r"(?P<span>[^/]+?)" + _regex(after) + r"(?:/.*)?$")
    found = set()
    for path in glob.glob(glob.escape(before) + "*" + after if not _has_magic(before) else before + "*" + after):
        if match := pattern.match(path):
            found.add(match["span"])
    if not found:
        raise ConfigError(
            f"no file matches {config.path}", where="source.path", fix="check the path; {span} stands for any name"
        )
    return sorted(found)


def _regex(text: str) -> str:
    """A glob's text as a regular expression."""
    classes = re.split(r"(\[!?[^\]/]+\])", text) if _has_magic(text) else [text]
    parts = []
    for i, part in enumerate(classes):
        if i % 2:
            parts.append("[^" + part[2:] if part.startswith("[!") else part)
        else:
            parts.append(re.escape(part).replace(r"\*", "[^/]*").replace(r"\?", "[^/]"))
    return "".join(parts)


def _has_magic(text: str) -> bool:
    return any(c in text for c in "*?[")


def select_window(known: Sequence[str], window: int | None, until: str = "latest") -> list[str]:
    """The last `window` spans up to and with `until`; all of them without a window.

    Raises:
        ConfigError: there is no such span, or fewer than `window` of them.
    """
    if until == "latest":
        until = known[-1]
    if until not in known:
        raise ConfigError(
            f"there is no span {until!r}", where="--until", fix=f"there is: {', '.join(known[-24:])} (or 'latest')"
        )
    upto = list(known[: known.index(until) + 1])
    if window is None:
        return upto
    if window < 1:
        raise ConfigError(f"{window} spans make no window", where="--window", fix="take at least 1")
    if len(upto) < window:
        raise ConfigError(
            f"a window of {window} until {until} needs more spans than the {len(upto)} there are",
            where="--window",
            fix=f"take --window {len(upto)} or less, or a later --until",
        )
    return upto[-window:]


def _matches(config: SourceConfig, span: str) -> list[str]:
    pattern = config.path.replace(SPAN, glob.escape(span))
    paths = sorted(glob.glob(pattern)) if _has_magic(pattern) else [pattern]
    found: list[str] = []
    for path in paths:
        if Path(path).is_dir():
            found += sorted(str(p) for p in Path(path).rglob("*") if p.is_file() and _is_data(p, config.format))
        elif Path(path).is_file():
            found.append(path)
    if not found:
        raise ConfigError(
            f"no file matches {pattern}", where="source.path", fix="check the path and its files' endings"
        )
    return found


def _is_data(path: Path, format: str) -> bool:
    return path.suffix == f".{format}" and not any(part.startswith((".", "_")) for part in path.parts[-2:])


def files(config: SourceConfig, span: str) -> tuple[InputFile, ...]:
    """The span's files, sorted by path, each read once for its checksum.

    Raises:
        ConfigError: there are none.
        DataError: one cannot be read, or is empty.
    """
    return tuple(_checked(config, path) for path in _matches(config, span))


def _checked(config: SourceConfig, path: str) -> InputFile:
    checksum, size = 0, 0
    quotes = Quotes(config.csv.quote) if config.format == "csv" else None
    with reading(path), Path(path).open("rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            checksum = google_crc32c.extend(checksum, block)
            size += len(block)
            if quotes is not None:
                quotes.feed(block)
    if not size:
        raise DataError("the file is empty", where=path, fix="remove it, or write it again")
    return InputFile(
        path=path, bytes=size, crc32c=f"{checksum:08x}", quoted_newlines=quotes is not None and quotes.newline_inside
    )
