"""Parquet files, read by row groups on the calling thread.

Row groups of very wide files are read one set of columns at a time. A reader of all columns at once would hold a compressed
chunk, a page and a dictionary of each column, three times the memory of the rows. A row group of more than `HELD_BYTES` is
written to temporary Arrow files (in TMPDIR), one for each set of columns, and read back batch by batch. Memory then
holds one set of columns, or one batch, however long the row group is.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from headway.errors import DataError
from headway.process import Scratch
from headway.schema.columns import column_yaml
from headway.sources.base import (
    BATCH_BYTES,
    BATCH_ROWS,
    INTERVAL,
    Chunk,
    FieldPath,
    InputFile,
    Malformed,
    Range,
    Source,
    check_columns,
    damaged_file_error,
    first_rows,
    leaves,
    pick,
    row_group_runs,
    rows_of_range,
    wrong_format_error,
)
from headway.sources.config import FORMATS
from headway.sources.sample import Sample, without_values
from headway.storage import filesystem as storage
from headway.tabular.list_arrays import as_batch

_LEAST_SAMPLE, _SAMPLE_BATCHES = 1000, 8
"""The fewest rows, and the most batches, from which a schema of wide rows is inferred."""
_DELTA = frozenset({"DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"})


class ParquetSource(Source):
    """Reads Parquet files. A range is the row groups [start, end) of a file. It has at most the rows that `FORMATS` says, fewer
    if the table is wide or the file short, but always at least one row group, however large."""

    def names(self, file: InputFile) -> list[str]:
        with _open(file.path) as (parquet, _):
            return list(leaves(parquet.schema_arrow, file.path))

    def ranges(self, files: Sequence[InputFile]) -> list[Range]:
        ranges: list[Range] = []
        for number, file in enumerate(files):
            with _open(file.path) as (parquet, _):
                metadata = parquet.metadata
                rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
            most = rows_of_range(FORMATS["parquet"].range_size, metadata.num_columns, sum(rows))
            for start, end, in_range in row_group_runs(rows, most):
                ranges.append(Range(len(ranges), file.path, number, start, end, {"rows": in_range}))
        return ranges

    def read(self, piece: Range, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
        dictionaries = [name for name, kind in types.items() if pa.types.is_dictionary(kind)]
        groups = list(range(piece.start, piece.end))
        with _open(piece.path, dictionaries, groups) as (parquet, hidden):
            ways = leaves(parquet.schema_arrow, piece.path)
            check_columns(columns, ways, piece.path)
            for name in columns:
                if name in hidden:
                    fix = f"write it anew, or leave it out: {column_yaml(name, 'ignore')}"
                    raise DataError(f"column {name!r} cannot be read: {hidden[name]}", where=piece.path, fix=fix)
            first = 0
            rows = _rows_at_once(parquet, columns)
            try:
                seconds = _seconds(parquet.metadata, piece.path, groups, {name: ways[name] for name in columns})
                for batch in _batches(parquet, groups, ways, columns, rows):
                    yield _without_wrapped(Chunk(batch, first), seconds)
                    first += batch.num_rows
                    del batch  # or it would be there while the next one is read
            except (OSError, pa.ArrowException) as error:
                at = f"row groups {piece.start} to {piece.end - 1}, row {first}"
                raise _corrupt(piece.path, error, at, _unreadable(parquet, columns, groups)) from None

    def sample(self, files: Sequence[InputFile], rows: int) -> Sample:
        conflicts: dict[str, str] = {}
        damaged: dict[str, str] = {}

        @contextlib.contextmanager
        def opened(path: str) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
            with _open(path) as (parquet, hidden):
                conflicts.update(_sentences(hidden) | conflicts)
                sampled = _sampled(parquet, rows, path, conflicts)
                damaged.update(dict.fromkeys(conflicts.keys() - damaged.keys(), path))
                yield sampled

        sample = first_rows(files, rows, opened)
        return replace(
            sample,
            table=without_values(sample.table, conflicts),
            conflicts={**sample.conflicts, **conflicts},
            damaged=damaged,
        )


def _seconds(
    metadata: pq.FileMetaData, path: str, groups: list[int], ways: Mapping[str, FieldPath]
) -> Mapping[str, NDArray[np.int64]]:
    """Returns the times of INT96 columns (no lists) in whole seconds since 1970; 0 for null. Microseconds may not fit int64."""
    schema, places = metadata.schema, _places(metadata, ways)
    names = [
        n for place, n in places if schema.column(place).physical_type == "INT96" and schema.column(place).path == n
    ]
    if not names:
        return {}
    with storage.open_file(path) as file:
        table = _reader(file, metadata, "s").read_row_groups(groups, columns=names, use_threads=False)
    times = pa.Table.from_batches([pick(batch, ways, names) for batch in table.to_batches()])
    return {name: pc.fill_null(times.column(name).cast(pa.int64()), 0).to_numpy() for name in names}


def _without_wrapped(chunk: Chunk, seconds: Mapping[str, NDArray[np.int64]]) -> Chunk:
    """Returns the chunk with some rows moved to the malformed rows: those with a time that int64 cannot hold as microseconds."""
    bad: dict[int, Malformed] = {}
    for name, whole in seconds.items():
        times = pc.fill_null(chunk.batch.column(name).cast(pa.int64()), 0).to_numpy() // 1_000_000
        wanted = whole[chunk.first_row : chunk.first_row + len(times)]
        for row in np.flatnonzero(times != wanted).tolist():
            why = "is a time that 64 bits of microseconds do not hold"
            bad.setdefault(row, Malformed(chunk.first_row + row, f"{wanted[row]} seconds since 1970", why, name))
    if not bad:
        return chunk
    keep = np.delete(np.arange(chunk.batch.num_rows), list(bad))
    return Chunk(chunk.batch.take(pa.array(keep)), chunk.first_row, chunk.positions()[keep], tuple(bad.values()))


def _sampled(
    parquet: pq.ParquetFile, rows: int, path: str, conflicts: dict[str, str]
) -> tuple[int, Iterator[pa.RecordBatch]]:
    """Returns the most rows that a sample with this file may have, and the file's first batches. Adds the columns that cannot be
    read, and the reasons, to `conflicts`."""
    ways = leaves(parquet.schema_arrow, path)
    schema = parquet.metadata.schema
    places = _places(parquet.metadata, ways)
    intervals = {name for place, name in places if schema.column(place).converted_type == "INTERVAL"}
    names = [name for name in ways if name not in conflicts and name not in intervals]
    if not names and conflicts:
        raise DataError("none of its columns can be read", where=path, fix="write it anew, without encryption")
    at_once = _rows_at_once(parquet, names)
    most = max(_LEAST_SAMPLE, at_once * _SAMPLE_BATCHES)
    batches = -(-min(rows, most) // at_once)
    while True:
        try:
            stream = parquet.iter_batches(at_once, columns=names, use_threads=False)
            return most, iter(
                [_complete(pick(batch, ways, names), ways, intervals) for batch in itertools.islice(stream, batches)]
            )
        except (OSError, pa.ArrowException) as error:
            groups = list(range(parquet.metadata.num_row_groups))
            unreadable = _unreadable(parquet, names, groups, batches, at_once)
            if len(unreadable) in (0, len(names)):
                raise _corrupt(path, error, "its first rows", unreadable) from None
            conflicts.update(_sentences(unreadable))
            names = [name for name in names if name not in unreadable]


def _complete(batch: pa.RecordBatch, names: Collection[str], intervals: Collection[str]) -> pa.RecordBatch:
    """Returns a batch of all the columns `names`, in which a column that `batch` lacks is null."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name in names:
        if name not in columns:
            columns[name] = pa.nulls(batch.num_rows, INTERVAL if name in intervals else None)
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names=list(names))


def _sentences(unreadable: Mapping[str, str]) -> dict[str, str]:
    return {name: f"column {name!r} cannot be read: {why}" for name, why in unreadable.items()}


def _unreadable(
    parquet: pq.ParquetFile, names: Sequence[str], groups: list[int], batches: int | None = None, rows: int = BATCH_ROWS
) -> dict[str, str]:
    """Reads each column by itself; returns {column: reason} for the columns that cannot be read."""
    reasons = {}
    for name in names:
        try:
            stream = parquet.iter_batches(rows, row_groups=groups, columns=[name], use_threads=False)
            for _ in itertools.islice(stream, batches):
                pass
        except (OSError, pa.ArrowException) as error:
            reasons[name] = "it is encrypted" if "decrypt" in str(error) else storage.reason_of(error)
    return reasons


def _batches(
    parquet: pq.ParquetFile, groups: list[int], ways: Mapping[str, FieldPath], columns: Sequence[str], rows: int
) -> Iterator[pa.RecordBatch]:
    if len(columns) >= WIDE:
        for group in groups:
            yield from by_columns(parquet, group, ways, columns, rows)
        return
    for batch in parquet.iter_batches(rows, row_groups=groups, columns=list(columns), use_threads=False):
        batch = pick(batch, ways, columns)
        yield batch
        del batch


@contextlib.contextmanager
def _open(
    path: str, dictionaries: Sequence[str] = (), groups: Sequence[int] = ()
) -> Iterator[tuple[pq.ParquetFile, Mapping[str, str]]]:
    """Yields the file's reader, and {column: reason} for the columns that cannot be read since their metadata is encrypted.

    Args:
        dictionaries: columns of text to read as dictionaries, if pyarrow can do so in these row `groups`.
    """
    with storage.open_file(path) as file:
        try:
            footer = _footer(path, file)
            parquet = _reader(file, footer.metadata)
            # pyarrow cannot read a struct with a dictionary in it over several row groups
            names = frozenset(parquet.schema_arrow.names)  # made anew each time it is asked for
            if plain := [name for name in dictionaries if name in names and name not in footer.hidden]:
                delta = _delta_coded(footer.metadata, plain, groups)
                plain = [name for name in plain if name not in delta]
                parquet = _reader(file, footer.metadata, read_dictionary=plain)
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # a damaged name is no text
            raise wrong_format_error(path, "parquet") or _corrupt(path, error, "its footer") from None
        leaves(parquet.schema_arrow, path)
        yield parquet, footer.hidden


def _reader(
    file: pa.NativeFile, metadata: pq.FileMetaData | None = None, int96: str = "us", **options: Any
) -> pq.ParquetFile:
    """Returns a reader that verifies the checksums of pages. INT96 times are read in the unit `int96`: int64 cannot hold all of
    them as nanoseconds."""
    return pq.ParquetFile(
        file, metadata=metadata, page_checksum_verification=True, coerce_int96_timestamp_unit=int96, **options
    )


class _Footer:
    """The metadata of a file, which takes 1 kB of memory per column and row group: 100 MB for a wide table."""

    def __init__(self, path: str, file: pa.NativeFile):
        parquet = _reader(file)
        self.metadata = parquet.metadata
        self.hidden: Mapping[str, str] = {}
        """The reason why each column with encrypted metadata cannot be read; to ask for that metadata crashes the
        process."""
        file.seek(file.size() - 8)
        if int.from_bytes(file.read(4), "little") != self.metadata.serialized_size:
            # the signature of a footer that is not encrypted itself stands behind its metadata
            names = list(leaves(parquet.schema_arrow, path))
            groups = list(range(self.metadata.num_row_groups))
            self.hidden = _unreadable(parquet, names, groups, batches=1, rows=1)


_FOOTERS: WeakValueDictionary[tuple[str, int, int], _Footer] = WeakValueDictionary()
_FOOTERS_LOCK = threading.Lock()


def _footer(path: str, file: pa.NativeFile) -> _Footer:
    """Returns the file's footer. All concurrent readers of the file share one footer."""
    written = 0 if storage.is_remote(path) else Path(path).stat().st_mtime_ns
    key = (path, file.size(), written)
    with _FOOTERS_LOCK:
        footer = _FOOTERS.get(key)
        if footer is None:
            footer = _FOOTERS[key] = _Footer(path, file)
        return footer


def _places(metadata: pq.FileMetaData, names: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yields the index of each of the file's physical columns that belongs to a leaf column in `names`, and the leaf's name."""
    schema = metadata.schema
    for place in range(metadata.num_columns):
        path = schema.column(place).path
        while path and path not in names:  # the values of a list lie below it
            path = path.rpartition(".")[0]
        if path:
            yield place, path


def _delta_coded(metadata: pq.FileMetaData, names: Collection[str], groups: Sequence[int]) -> set[str]:
    """Returns those of the named text columns that pyarrow cannot read as dictionaries, since they are delta-encoded."""
    places = list(_places(metadata, frozenset(names)))
    return {
        name
        for group in groups
        for place, name in places
        if not _DELTA.isdisjoint(metadata.row_group(group).column(place).encodings)
    }


def _rows_at_once(parquet: pq.ParquetFile, columns: Collection[str]) -> int:
    """Returns the number of rows of a batch: BATCH_ROWS, or fewer if the rows are wide. The number is the same for the whole
    file, so that repeated reads give the same batches."""
    metadata = parquet.metadata
    places = [place for place, _ in _places(metadata, frozenset(columns))]
    size = 0
    for group in range(metadata.num_row_groups):
        chunks = metadata.row_group(group)
        size += sum(chunks.column(place).total_uncompressed_size for place in places)
    each = size / max(1, metadata.num_rows)
    return max(1, min(BATCH_ROWS, int(BATCH_BYTES / max(each, 1.0))))


def _corrupt(path: str, error: Exception, at: str, columns: Collection[str] = ()) -> DataError:
    if str(error).startswith("Expected all lists to be of size"):  # pyarrow writes what it cannot read
        fix = "write that column as pa.list_(type), and say its length in the pipeline: columns: {name: {shape: n}}"
        return DataError("a column of fixed-size lists holds a null, which cannot be read back", where=path, fix=fix)
    return damaged_file_error("Parquet", path, error, at, columns)


WIDE = 256
"""The number of columns from which a table is wide."""
SET_BYTES, HELD_BYTES = 12 << 20, 32 << 20
_MOST = 512
"""The most columns of a set."""


def by_columns(
    parquet: pq.ParquetFile, group: int, ways: Mapping[str, FieldPath], columns: Sequence[str], rows: int
) -> Iterator[pa.RecordBatch]:
    """Yields the named columns of a row group in batches of `rows` rows. A large row group goes through temporary files."""
    sets, size = _sets(parquet, group, ways, columns)
    if size <= HELD_BYTES:
        tables = [_read(parquet, group, ways, names) for names in sets]
        count = parquet.metadata.row_group(group).num_rows
        for start in range(0, count, rows):
            yield _side_by_side([as_batch(table.slice(start, rows)) for table in tables], columns)
        return
    with Scratch("columns") as folder:
        files = [Path(folder) / str(i) for i in range(len(sets))]
        for path, names in zip(files, sets, strict=True):
            table = _read(parquet, group, ways, names)
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                for start in range(0, table.num_rows, rows):
                    writer.write_batch(as_batch(table.slice(start, rows)))
            del table
        readers = [pa.ipc.open_file(pa.OSFile(str(path))) for path in files]
        for i in range(readers[0].num_record_batches):
            yield _side_by_side([reader.get_batch(i) for reader in readers], columns)


def _sets(
    parquet: pq.ParquetFile, group: int, ways: Mapping[str, FieldPath], columns: Sequence[str]
) -> tuple[list[list[str]], int]:
    """Returns the columns, divided into sets of up to about `SET_BYTES` bytes each, and the total bytes of all columns."""
    metadata = parquet.metadata.row_group(group)
    sizes: dict[str, int] = {}
    for place, name in _places(parquet.metadata, frozenset(columns)):
        top = ways[name][0]
        # a dictionary's codes take less in the file than the values do afterwards
        sizes[top] = sizes.get(top, 0) + max(metadata.column(place).total_uncompressed_size, 8 * metadata.num_rows)
    sets: list[list[str]] = []
    filled, whole = SET_BYTES, 0
    # fields of one struct stay together: they come as one column
    for top, names in itertools.groupby(sorted(columns, key=lambda name: ways[name][0]), lambda name: ways[name][0]):
        size = sizes.get(top, 0)
        if not sets or filled + size > SET_BYTES or len(sets[-1]) >= _MOST:
            sets.append([])
            filled = 0
        sets[-1] += names
        filled += size
        whole += size
    return sets, whole


def _read(parquet: pq.ParquetFile, group: int, ways: Mapping[str, FieldPath], names: list[str]) -> pa.Table:
    table = parquet.read_row_group(group, columns=names, use_threads=False).unify_dictionaries()
    return pa.Table.from_batches([pick(batch, ways, names) for batch in table.to_batches()])


def _side_by_side(batches: Sequence[pa.RecordBatch], columns: Sequence[str]) -> pa.RecordBatch:
    arrays = {name: array for batch in batches for name, array in zip(batch.schema.names, batch.columns, strict=True)}
    return pa.RecordBatch.from_arrays([arrays[name] for name in columns], names=list(columns))
