"""A source whose columns have other names than in the files: `source.rename` of the pipeline.

source = Renamed(CsvSource(config), {"price/kg": "price_per_kg"})
source.names(file)                                    # ["price_per_kg", ...]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from headway.errors import ConfigError
from headway.schema.columns import suggest
from headway.sources.base import Chunk, InputFile, Range, Source


class Renamed:
    """`names` are {name in the files: name in the pipeline}."""

    def __init__(self, source: Source, names: Mapping[str, str]):
        self._source, self._names = source, dict(names)
        self._raw = {new: raw for raw, new in names.items()}

    def names(self, file: InputFile) -> list[str]:
        return [self._names.get(name, name) for name in self._source.names(file)]

    def ranges(self, files: Sequence[InputFile]) -> list[Range]:
        return self._source.ranges(files)

    def read(self, piece: Range, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
        raw = [self._raw.get(name, name) for name in columns]
        wanted = {self._raw.get(name, name): kind for name, kind in types.items()}
        for chunk in self._source.read(piece, raw, wanted):
            batch = chunk.batch.rename_columns([self._names.get(name, name) for name in chunk.batch.schema.names])
            malformed = tuple(
                dataclasses.replace(bad, column=self._names.get(bad.column, bad.column)) if bad.column else bad
                for bad in chunk.malformed
            )
            yield dataclasses.replace(chunk, batch=batch, malformed=malformed)

    def prefix(self, files: Sequence[InputFile], rows: int) -> pa.Table:
        table = self._source.prefix(files, rows)
        known = table.column_names
        for raw, new in self._names.items():
            if raw not in known:
                raise ConfigError(
                    f"there is no column {raw!r} in the files", where="source.rename", fix=suggest(raw, known)
                )
            if new in known and new not in self._names:
                raise ConfigError(
                    f"{raw!r} is renamed to {new!r}, but the files have a column of that name already",
                    where="source.rename",
                    fix="give it another name",
                )
        fields = [field.with_name(self._names.get(field.name, field.name)) for field in table.schema]
        return pa.table(table.columns, schema=pa.schema(fields, metadata=table.schema.metadata))
