"""Opens the source that a config names (the table is `FORMATS`), with its size limit, columns of folders, renamed columns.

config = SourceConfig(format="csv", path="/data/{span}.csv")
source = open_source(config)
for piece in source.ranges(files(config, "2013-01")):
    for chunk in source.read(piece, ["carrier", "arr_delay"], types={}):
        chunk.batch, chunk.first_row, chunk.malformed

A row with a larger value is quarantined, so that the batches stay small. Columns of fixed width cost nothing; of the others,
the size of the whole column in a batch is looked at first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.errors import ConfigError
from headway.schema.columns import Column, suggest
from headway.sources.base import Chunk, InputFile, Malformed, Range, Source
from headway.sources.config import FORMATS, SourceConfig
from headway.sources.discovery.spans import folder_columns
from headway.sources.sample import Sample
from headway.tabular.list_arrays import cell_bytes, decoded, flatten, has_bytes, is_list
from headway.tabular.quarantine import CUT, text_of


def open_source(
    config: SourceConfig, files: Sequence[InputFile] = (), later: Collection[str] = (), columns: Sequence[Column] = ()
) -> Source:
    """Open the source of a config's format; rows with a cell beyond `max_cell_bytes` come out as malformed.

    Args:
        later: columns that came with later files: missing in those of `files` that lack them.
        columns: of the schema that is read by: a text that is a value in one of them is read as text in all, and
            `headway.tabular.coerce` knows where it is missing.
    """
    if config.format == "csv":
        missing = [column.null for column in columns if column.null is not None]
        words = tuple(word for word in config.csv.null_values if not word or all(word in of for of in missing))
        config = config.model_copy(update={"csv": config.csv.model_copy(update={"null_values": words})})
    module, name = FORMATS[config.format].reader.split(".")
    reader = getattr(import_module(f"headway.sources.formats.{module}"), name)
    folders = {} if config.format == "images" else {"folders": partial(folder_columns, config.path)}
    return ConfiguredSource(reader(config), config.max_cell_bytes, config.rename, files, later, **folders)


class ConfiguredSource:
    """A source that rejects rows with too large values, renames columns, and gives those that files lack.

    Args:
        names: {name in the files: name in the pipeline}.
        files: the span's, of which some may lack the columns in `later`: their values are missing then.
        folders: the columns that the folders of a file name, and their values as text; a file's own column of a name comes
            first.
    """

    def __init__(
        self,
        source: Source,
        max_bytes: int,
        names: Mapping[str, str],
        files: Sequence[InputFile] = (),
        later: Collection[str] = (),
        folders: Callable[[str], dict[str, str | None]] = lambda path: {},
    ):
        self._source, self._max, self._names = source, max_bytes, dict(names)
        self._files, self._later, self._folders = files, frozenset(later), folders

    def names(self, file: InputFile) -> list[str]:
        names = dict.fromkeys([*self._source.names(file), *self._folders(file.path)])
        return [self._names.get(name, name) for name in names]

    def ranges(self, files: Sequence[InputFile]) -> list[Range]:
        return self._source.ranges(files)

    def read(self, piece: Range, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
        lacking = self._later and self._later - {*self.names(self._files[piece.file])}
        folders = self._folders(piece.path)
        look = self._names or folders or lacking
        own = self._source.names(InputFile(path=piece.path, bytes=0, crc32c="")) if look else []
        # a file may have the new name already; of JSON lines and tf.Examples `own` are the first rows' names only
        there = {*own, *folders}
        already = {new for raw, new in self._names.items() if raw not in there and new in there} - {*self._names}
        raw_of = {new: raw for raw, new in self._names.items() if new not in already}
        given: dict[str, tuple[str | None, pa.DataType]] = {}
        for name in columns:
            raw = raw_of.get(name, name)
            if name in lacking:
                given[name] = None, types.get(name, pa.string())
            elif raw in folders and raw not in own:
                given[name] = folders[raw], pa.binary()
        read = [raw_of.get(name, name) for name in columns if name not in given]
        if given and not read:
            read = own[:1]  # a read of no column counts no rows
        raw_types = {raw_of.get(name, name): kind for name, kind in types.items() if name not in given}
        for chunk in self._source.read(piece, read, raw_types):
            chunk = bounded(chunk, self._max)
            if self._names:
                chunk = self._renamed(chunk)
            if given:
                batch = chunk.batch
                for name, (value, kind) in given.items():
                    rows = batch.num_rows
                    array = pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)
                    batch = batch.append_column(name, array)
                chunk = dataclasses.replace(chunk, batch=batch.select(list(columns)))
                del batch
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
        table, folders = sample.table, [self._folders(file.path) for file in files]
        for name in dict.fromkeys(name for each in folders for name in each):
            if name not in table.column_names:  # which row is of which file does not matter to a type
                values = pa.array([each.get(name) for each in folders], pa.string())
                places = np.arange(table.num_rows) * len(files) // max(table.num_rows, 1)
                table = table.append_column(name, values.take(pa.array(places)))
        names = table.column_names
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
        return dataclasses.replace(sample, table=table).renamed(self._names)


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
