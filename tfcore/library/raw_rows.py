"""Rows as a caller has them, whatever they are, as Arrow batches with a sample to infer their schema from.

raw = RawRows.of({"delay": np.array([3.0, -1.0]), "carrier": np.array(["AA", "UA"])})
raw = RawRows.of("flights/2013-*.parquet")          # or an Arrow table, a pandas frame, a SourceConfig
for chunk in raw.chunks(["delay"], {}): chunk.batch
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Self

import numpy as np
import pyarrow as pa

from headway.config import load
from headway.errors import ConfigError, DataError
from headway.messages import some
from headway.schema_inference.column_types import PREFIX_ROWS
from headway.sources.base import BATCH_ROWS, Chunk, InputFile
from headway.sources.config import FORMATS, NAMED, Format, SourceConfig, by_ending
from headway.sources.discovery.open_source import open_source
from headway.sources.discovery.spans import ONE_SPAN, files
from headway.sources.sample import Sample
from headway.storage import filesystem as storage

Rows = Any
"""An Arrow table or batch, a pandas frame, a dict of arrays by column, a list of dicts, a path, or a SourceConfig."""
WHERE = "rows"


class RawRows:
    """Rows that are not coerced yet; made by `of`.

    Attributes:
        typed: whether their form tells text from numbers; that of CSV files does not.
    """

    def __init__(self, table: pa.Table | None = None, source: SourceConfig | None = None):
        self._table, self._config = table, source
        self._files: tuple[InputFile, ...] = files(source, ONE_SPAN) if source is not None else ()
        self.typed = source is None or source.format != "csv"

    @classmethod
    def of(cls, rows: Rows) -> Self:
        """Take rows in any form.

        Raises:
            ConfigError: no file has that path, it ends as no format does, or the source has a filter.
            DataError: the rows are of another type, or there are none.
        """
        if isinstance(rows, SourceConfig):
            if rows.where is not None:
                fix = "leave out where, and give the rows that it keeps"
                raise ConfigError("rows are not filtered here", where=f"{WHERE}.where", fix=fix)
            return cls(source=rows)
        if isinstance(rows, str | Path):
            path = str(rows)
            config = {"format": _format(path), "path": path}
            return cls(source=load(SourceConfig, config, where=WHERE))
        table = as_table(rows)
        if twice := sorted({name for name in table.column_names if table.column_names.count(name) > 1}):
            raise DataError(f"there are two columns {twice[0]!r}", where=WHERE, fix="rename one of them")
        if not table.num_rows:
            raise DataError("there are no rows", where=WHERE)
        return cls(table)

    def sample(self) -> Sample:
        """The first rows, every column."""
        if self._config is None:
            assert self._table is not None
            return Sample(self._table.slice(0, PREFIX_ROWS))
        return open_source(self._config).prefix(self._files, PREFIX_ROWS)

    def chunks(self, names: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[tuple[str, Chunk]]:
        """The named columns, as (file, chunk); of rows in memory the file is "".

        Args:
            types: what a format without types of its own should aim for.
        """
        if self._config is None:
            assert self._table is not None
            first = 0
            for batch in self._table.to_batches(max_chunksize=BATCH_ROWS):
                yield "", Chunk(batch, first)
                first += batch.num_rows
            return
        source = open_source(self._config)
        for piece in source.ranges(self._files):
            for chunk in source.read(piece, names, types):
                yield piece.path, chunk

    def names(self) -> list[str] | None:
        """The columns that can be asked for; None: any, and one that is not there is null."""
        if self._config is None:
            assert self._table is not None
            return list(self._table.column_names)
        known = self._config.format in NAMED
        return open_source(self._config).names(self._files[0]) if known else None


def _format(path: str) -> Format:
    """The format of the files that a path names, by their endings."""
    found = [name for match in storage.matches(path) for name in storage.below(match) or [match]]
    if not found:
        raise ConfigError(f"no file matches {path}", where=WHERE, fix="give an existing file, folder or glob")
    names = [PurePosixPath(name).name for name in found]
    for name in names:
        if (format := by_ending(name)) is not None:
            return format
    endings = "; ".join(known.endings for known in FORMATS.values())
    raise ConfigError(
        f"{some(names, 1)} does not end as the files of a format do",
        where=f"{WHERE}: {path}",
        fix=f"name the format: headway.sources.config.SourceConfig(format=..., path=...); endings are {endings}",
    )


def as_table(rows: Rows) -> pa.Table:
    """Rows in memory as an Arrow table.

    Raises:
        DataError: they are none of the kinds that are read, or a column mixes types.
    """
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, Mapping):
        return _from_arrays(rows)
    if isinstance(rows, Sequence) and rows and all(isinstance(row, Mapping) for row in rows):
        names = dict.fromkeys(name for row in rows for name in row)
        return _from_arrays({name: [row.get(name) for row in rows] for name in names})
    try:
        if type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns"):
            return pa.Table.from_pandas(rows, preserve_index=False)
        if hasattr(rows, "__arrow_c_stream__"):  # polars, DuckDB and others
            return pa.table(rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        reason = "; ".join(str(part) for part in error.args)
        fix = "give each column values of one type: text, numbers, dates, or lists of them"
        raise DataError(f"cannot be read: {reason}", where=WHERE, fix=fix) from None
    raise DataError(
        f"expected a table, given {type(rows).__name__}",
        where=WHERE,
        fix="give an Arrow table, a pandas frame, a dict of arrays by column, a list of dicts, or files by their path",
    )


def _from_arrays(columns: Mapping[str, Any]) -> pa.Table:
    if not columns:
        raise DataError("there are no columns", where=WHERE)
    arrays = {str(name): _array(str(name), values) for name, values in columns.items()}
    first, count = next((name, len(array)) for name, array in arrays.items())
    for name, array in arrays.items():
        if len(array) != count:
            raise DataError(f"column {name!r} has {len(array):,} rows, and {first!r} has {count:,}", where=WHERE)
    return pa.table(arrays)


def _array(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    """One column; NaN in NumPy arrays stands for a missing value, and a second axis makes a vector."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, str | bytes) or (not isinstance(values, list | tuple) and np.ndim(values) == 0):
        raise DataError(f"column {name!r}: expected an array, given {type(values).__name__}", where=WHERE)
    shape: tuple[int, ...] = values.shape if isinstance(values, np.ndarray) else (len(values),)
    if len(shape) > 2:
        fix = "flatten each row: values.reshape(len(values), -1)"
        raise DataError(f"column {name!r} has the shape {list(shape)}", where=WHERE, fix=fix)
    try:
        if len(shape) == 2:
            flat = pa.array(np.ascontiguousarray(values).reshape(-1))
            return pa.FixedSizeListArray.from_arrays(flat, shape[1])
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        fix = "give it values of one type"
        raise DataError(f"column {name!r} cannot be read: {str(error).splitlines()[0]}", where=WHERE, fix=fix) from None
