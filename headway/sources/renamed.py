"""A source as the pipeline configures it: no value above `source.max_cell_bytes`, other names than in the files.

source = ConfiguredSource(CsvSource(config), 16 << 20, {"price/kg": "price_per_kg"})
source.names(file)                                    # ["price_per_kg", ...]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from headway.errors import ConfigError
from headway.schema.columns import suggest
from headway.sources.base import Chunk, InputFile, Range, Source
from headway.sources.sample import Sample
from headway.sources.size_limit import bounded


class ConfiguredSource:
    """A source whose rows with a larger value come as malformed; `names` are {name in the files: name in the pipeline}."""

    def __init__(self, source: Source, max_bytes: int, names: Mapping[str, str]):
        self.source, self._max, self._names = source, max_bytes, dict(names)
        self._raw = {new: raw for raw, new in names.items()}

    def names(self, file: InputFile) -> list[str]:
        return [self._names.get(name, name) for name in self.source.names(file)]

    def ranges(self, files: Sequence[InputFile]) -> list[Range]:
        return self.source.ranges(files)

    def read(self, piece: Range, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
        raw = [self._raw.get(name, name) for name in columns]
        wanted = {self._raw.get(name, name): kind for name, kind in types.items()}
        for chunk in self.source.read(piece, raw, wanted):
            chunk = bounded(chunk, self._max)
            if self._names:
                chunk = self._renamed(chunk)
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
        sample = self.source.prefix(files, rows)
        known = sample.table.column_names
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
        return sample.renamed(self._names) if self._names else sample
