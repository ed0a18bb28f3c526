"""Parquet files, read by row groups on the calling thread.

Row groups of very wide files are read some columns at a time: a reader of all columns at once holds a compressed chunk, a page
and a dictionary of each, three times what the rows themselves take. Rows beyond `HELD_BYTES` wait in temporary Arrow files (in
TMPDIR), a file for each set of columns, and are read back batch by batch; so memory is of one set of columns, or of one batch,
however long a row group is.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.parquet as pq

from headway.errors import DataError
from headway.process import Scratch
from headway.sources.base import BATCH_BYTES, BATCH_ROWS, Chunk, InputFile, Range, check_columns, rows_of_range
from headway.sources.config import FORMATS, SourceConfig
from headway.sources.formats.columnar import Way, first_rows, leaves, not_whole, pick, runs
from headway.sources.sample import Sample
from headway.sources.sniff import not_a
from headway.storage import filesystem as storage
from headway.tabular.list_arrays import as_batch

_LEAST_SAMPLE, _SAMPLE_BATCHES = 1000, 8
"""Of wide rows a schema is inferred from fewer."""


class ParquetSource:
    """Reads Parquet files; a range is a run of row groups, given by their numbers, of up to so many rows (`FORMATS`),
    fewer of a wide table or a short file."""

    def __init__(self, config: SourceConfig):
        """Make a reader; nothing of the config matters to it."""

    def names(self, file: InputFile) -> list[str]:
        with _open(file.path) as parquet:
            return list(leaves(parquet.schema_arrow, file.path))

    def ranges(self, files: Sequence[InputFile]) -> list[Range]:
        ranges: list[Range] = []
        for number, file in enumerate(files):
            rows, columns = _shape(file.path)
            most = rows_of_range(FORMATS["parquet"].range_size, columns, sum(rows))
            for start, end, in_range in runs(rows, most):
                ranges.append(Range(len(ranges), file.path, number, start, end, {"rows": in_range}))
        return ranges

    def read(self, piece: Range, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
        dictionaries = [name for name, kind in types.items() if pa.types.is_dictionary(kind)]
        with _open(piece.path, dictionaries) as parquet:
            ways = leaves(parquet.schema_arrow, piece.path)
            check_columns(columns, ways, piece.path)
            first = 0
            groups = list(range(piece.start, piece.end))
            rows = _rows_at_once(parquet, columns)
            try:
                for batch in _batches(parquet, groups, ways, columns, rows):
                    yield Chunk(batch, first)
                    first += batch.num_rows
                    del batch  # or it would be there while the next one is read
            except (OSError, pa.ArrowException) as error:
                raise _corrupt(piece.path, error, f"row groups {piece.start} to {piece.end - 1}, row {first}") from None

    def prefix(self, files: Sequence[InputFile], rows: int) -> Sample:
        return first_rows(files, rows, _opened)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Open a file for `first_rows`."""
    with _open(path) as parquet:
        rows = _rows_at_once(parquet)
        yield max(_LEAST_SAMPLE, rows * _SAMPLE_BATCHES), _whole(parquet, rows, path)


def _whole(parquet: pq.ParquetFile, rows: int, path: str) -> Iterator[pa.RecordBatch]:
    first = 0
    try:
        for batch in parquet.iter_batches(rows, use_threads=False):
            yield batch
            first += batch.num_rows
    except (OSError, pa.ArrowException) as error:
        raise _corrupt(path, error, f"row {first}") from None


def _shape(path: str) -> tuple[list[int], int]:
    """The rows of each row group, and the number of columns."""
    with _open(path) as parquet:
        metadata = parquet.metadata
        return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)], metadata.num_columns


def _batches(
    parquet: pq.ParquetFile, groups: list[int], ways: Mapping[str, Way], columns: Sequence[str], rows: int
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
def _open(path: str, dictionaries: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    with storage.open_file(path) as file:
        try:
            footer = _footer(path, file)
            parquet = pq.ParquetFile(file, metadata=footer.metadata)
            # pyarrow cannot read a struct with a dictionary in it over several row groups
            names = frozenset(parquet.schema_arrow.names)  # made anew each time it is asked for
            if plain := [name for name in dictionaries if name in names]:
                parquet = pq.ParquetFile(file, metadata=footer.metadata, read_dictionary=plain)
        except (OSError, pa.ArrowException) as error:
            raise not_a(path, "parquet") or _corrupt(path, error, "its footer") from None
        leaves(parquet.schema_arrow, path)
        yield parquet


class _Footer:
    """A file's metadata. It takes 1 kB of memory per column of each row group, 100 MB for a wide table."""

    def __init__(self, metadata: pq.FileMetaData):
        self.metadata = metadata


_FOOTERS: WeakValueDictionary[tuple[str, int, int], _Footer] = WeakValueDictionary()
_FOOTERS_LOCK = threading.Lock()


def _footer(path: str, file: pa.NativeFile) -> _Footer:
    """The file's footer, shared by all concurrent readers."""
    written = 0 if storage.is_remote(path) else Path(path).stat().st_mtime_ns
    key = (path, file.size(), written)
    with _FOOTERS_LOCK:
        footer = _FOOTERS.get(key)
        if footer is None:
            footer = _FOOTERS[key] = _Footer(pq.ParquetFile(file).metadata)
        return footer


def _rows_at_once(parquet: pq.ParquetFile, columns: Sequence[str] | None = None) -> int:
    """The rows of a batch: BATCH_ROWS, or fewer of wide ones. One number per file, so that reading is repeatable."""
    metadata = parquet.metadata
    size = 0
    names = set(columns) if columns is not None else None
    for group in range(metadata.num_row_groups):
        chunks = metadata.row_group(group)
        for place in range(chunks.num_columns):
            chunk = chunks.column(place)
            top = chunk.path_in_schema.split(".")[0]
            if names is None or chunk.path_in_schema in names or top in names:
                size += chunk.total_uncompressed_size
    each = size / max(1, metadata.num_rows)
    return max(1, min(BATCH_ROWS, int(BATCH_BYTES / max(each, 1.0))))


def _corrupt(path: str, error: Exception, at: str) -> DataError:
    if str(error).startswith("Expected all lists to be of size"):  # pyarrow writes what it cannot read
        fix = "write that column as pa.list_(type), and say its length in the pipeline: columns: {name: {shape: n}}"
        return DataError("a column of fixed-size lists holds a null, which cannot be read back", where=path, fix=fix)
    return not_whole("Parquet", path, error, at)


WIDE = 256
"""From so many columns on."""
SET_BYTES, HELD_BYTES = 12 << 20, 32 << 20
_MOST = 512
"""Columns of a set."""


def by_columns(
    parquet: pq.ParquetFile, group: int, ways: Mapping[str, Way], columns: Sequence[str], rows: int
) -> Iterator[pa.RecordBatch]:
    """Read the named columns of a row group, in batches of `rows` rows."""
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
    parquet: pq.ParquetFile, group: int, ways: Mapping[str, Way], columns: Sequence[str]
) -> tuple[list[list[str]], int]:
    """The columns in sets of up to about `SET_BYTES` each, and the bytes of all of them."""
    metadata = parquet.metadata.row_group(group)
    sizes: dict[str, int] = {}
    for place in range(metadata.num_columns):
        chunk = metadata.column(place)
        top = chunk.path_in_schema.split(".")[0]
        # a dictionary's codes take less in the file than the values do afterwards
        sizes[top] = sizes.get(top, 0) + max(chunk.total_uncompressed_size, 8 * metadata.num_rows)
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


def _read(parquet: pq.ParquetFile, group: int, ways: Mapping[str, Way], names: list[str]) -> pa.Table:
    table = parquet.read_row_group(group, columns=names, use_threads=False).unify_dictionaries()
    if all(len(ways[name]) == 1 for name in names):
        return table.select(names)
    return pa.Table.from_batches([pick(batch, ways, names) for batch in table.to_batches()])


def _side_by_side(batches: Sequence[pa.RecordBatch], columns: Sequence[str]) -> pa.RecordBatch:
    arrays = {name: array for batch in batches for name, array in zip(batch.schema.names, batch.columns, strict=True)}
    return pa.RecordBatch.from_arrays([arrays[name] for name in columns], names=list(columns))
