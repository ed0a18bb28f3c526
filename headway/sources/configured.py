"""The configured source: any format with a limit on values, columns of folders, the pipeline's names, later files' columns.

source = ConfiguredSource(CsvSource(config), 16 << 20, {"price/kg": "price_per_kg"})
source.names(file)                                    # ["price_per_kg", ...]

A row with a larger value is quarantined, so that the batches stay small. Columns of fixed width cost nothing; of the others,
the size of the whole column in a batch is looked at first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.errors import ConfigError
from headway.schema.columns import suggest
from headway.sources.base import Chunk, InputFile, Malformed, Range, Source
from headway.sources.sample import Sample
from headway.tabular.list_arrays import cell_bytes, decoded, flatten, has_bytes, is_list
from headway.tabular.quarantine import CUT, text_of


class ConfiguredSource:
    """A source that rejects rows with too large values, and renames columns.

    Args:
        names: {name in the files: name in the pipeline}.
        files: the span's, of which some may lack the columns in `later`: their values are missing then.
        folders: the columns that the folders of a file name, and their values; a file's own column of a name comes first.
    """

    def __init__(
        self,
        source: Source,
        max_bytes: int,
        names: Mapping[str, str],
        files: Sequence[InputFile] = (),
        later: Collection[str] = (),
        folders: Callable[[str], dict[str, str | None]] | None = None,
    ):
        self.source, self._max, self._names = source, max_bytes, dict(names)
        self._source: Source = source if folders is None else _WithFolders(source, folders)
        self._files, self._later = files, frozenset(later)

    def names(self, file: InputFile) -> list[str]:
        return [self._names.get(name, name) for name in self._source.names(file)]

    def ranges(self, files: Sequence[InputFile]) -> list[Range]:
        return self._source.ranges(files)

    def read(self, piece: Range, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
        lacking = self._later and self._later - {*self.names(self._files[piece.file])}
        there = self._source.names(InputFile(path=piece.path, bytes=0, crc32c="")) if self._names else ()
        # a file may have the new name already; of JSON lines and tf.Examples `there` are the first rows' names only
        already = {new for raw, new in self._names.items() if raw not in there and new in there} - {*self._names}
        raw_of = {new: raw for raw, new in self._names.items() if new not in already}
        raw = [raw_of.get(name, name) for name in columns if name not in lacking]
        raw_types = {raw_of.get(name, name): kind for name, kind in types.items() if name not in lacking}
        for chunk in self._source.read(piece, raw, raw_types):
            chunk = bounded(chunk, self._max)
            if self._names:
                chunk = self._renamed(chunk)
            if lacking:
                batch = chunk.batch
                for name in columns:
                    if name in lacking:
                        batch = batch.append_column(name, pa.nulls(batch.num_rows, types.get(name, pa.string())))
                chunk = dataclasses.replace(chunk, batch=batch)
            yield chunk
            del chunk  # batches are large: none is held here while the next one is read

    def _renamed(self, chunk: Chunk) -> Chunk:
        batch = chunk.batch.rename_columns([self._names.get(name, name) for name in chunk.batch.schema.names])
        malformed = tuple(
            dataclasses.replace(bad, column=self._names.get(bad.column, bad.column)) if bad.column else bad
            for bad in chunk.malformed
        )
        return dataclasses.replace(chunk, batch=batch, malformed=malformed)

    def prefix(self, files: Sequence[InputFile], rows: int) -> Sample:
        sample = self._source.prefix(files, rows)
        names = sample.table.column_names
        for raw, new in self._names.items():
            if raw not in names and (new not in names or new in self._names):
                raise ConfigError(
                    f"there is no column {raw!r} in the files", where="source.rename", fix=suggest(raw, names)
                )
            if raw in names and new in names and new not in self._names:
                raise ConfigError(
                    f"{raw!r} is renamed to {new!r}, but the files have a column of that name already",
                    where="source.rename",
                    fix="give it another name",
                )
        return sample.renamed(self._names) if self._names else sample


class _WithFolders:
    """A source whose files have the columns that their folders name besides their own, as text."""

    def __init__(self, source: Source, folders: Callable[[str], dict[str, str | None]]):
        self._source, self._folders = source, folders

    def names(self, file: InputFile) -> list[str]:
        return list(dict.fromkeys([*self._source.names(file), *self._folders(file.path)]))

    def ranges(self, files: Sequence[InputFile]) -> list[Range]:
        return self._source.ranges(files)

    def read(self, piece: Range, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
        folders = self._folders(piece.path)
        names = self._source.names(InputFile(path=piece.path, bytes=0, crc32c="")) if folders else []
        folders = {name: value for name, value in folders.items() if name in columns and name not in names}
        if not folders:
            yield from self._source.read(piece, columns, types)
            return
        own = [name for name in columns if name not in folders] or names[:1]  # a read of no column counts no rows
        for chunk in self._source.read(piece, own, types):
            batch = chunk.batch
            for name, value in folders.items():
                batch = batch.append_column(name, pa.repeat(pa.scalar(value, pa.binary()), batch.num_rows))
            yield dataclasses.replace(chunk, batch=batch.select(list(columns)))
            del chunk, batch

    def prefix(self, files: Sequence[InputFile], rows: int) -> Sample:
        sample = self._source.prefix(files, rows)
        table, folders = sample.table, [self._folders(file.path) for file in files]
        for name in dict.fromkeys(name for each in folders for name in each):
            if name not in table.column_names:  # which row is of which file does not matter to a type
                values = pa.array([each.get(name) for each in folders], pa.string())
                places = np.arange(table.num_rows) * len(files) // max(table.num_rows, 1)
                table = table.append_column(name, values.take(pa.array(places)))
        return dataclasses.replace(sample, table=table)


_FIXED = frozenset(kind.id for kind in (pa.int64(), pa.float32(), pa.float64(), pa.int32(), pa.bool_()))
Sizes = NDArray[np.int64]


def bounded(chunk: Chunk, max_bytes: int) -> Chunk:
    """Move the rows that hold a value of more than `max_bytes` bytes from the chunk's batch to its malformed rows."""
    batch, large = chunk.batch, dict[int, tuple[str, int]]()
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if array.type.id in _FIXED:
            continue
        if (sizes := _large(array, max_bytes)) is not None:
            for row in np.flatnonzero(sizes > max_bytes).tolist():
                large.setdefault(row, (name, int(sizes[row])))
    if not large:
        return chunk
    at = chunk.positions()
    bad = [
        Malformed(
            int(at[row]),
            _cell_text(batch.column(name).slice(row, 1)),
            f"{size} bytes, more than source.max_cell_bytes: {max_bytes}",
            name,
        )
        for row, (name, size) in sorted(large.items())
    ]
    keep = np.delete(np.arange(batch.num_rows), sorted(large))
    # rows are given by their place from here on, so first_row says nothing more
    return Chunk(batch.take(pa.array(keep)), chunk.first_row, at[keep], (*chunk.malformed, *bad))


def _cell_text(cell: pa.Array) -> str:
    cell = decoded(cell)
    if is_list(cell.type):
        cell = flatten(cell).values.slice(0, 1)
    value = cell[0].as_py() if len(cell) else ""
    return text_of(value[:CUT])[:CUT] if isinstance(value, bytes) else str(value)[:CUT]


def _large(array: pa.Array, max_bytes: int) -> Sizes | None:
    """The bytes of each row, when a row may exceed the limit."""
    if pa.types.is_dictionary(array.type):
        values = _large(array.dictionary, max_bytes)
        return None if values is None else values[pc.fill_null(array.indices, 0).to_numpy(zero_copy_only=False)]
    try:  # at least the bytes of the values that the array, perhaps a slice, refers to
        size = int(array.nbytes)
    except pa.ArrowException:  # of a list view
        size = int(array.get_total_buffer_size())
    if size <= max_bytes or not (is_list(array.type) or has_bytes(array.type)):
        return None
    sizes = cell_bytes(array)
    return np.full(len(array), sizes) if isinstance(sizes, int) else sizes
