"""The table of source formats: opens the source that a config names, with its size limit and renamed columns.

config = SourceConfig(format="csv", path="/data/{span}.csv")
spans(config)                                # ["2013-01", "2013-02"]
found = files(config, "2013-01")             # path, bytes, crc32c of each file of the span
source = open_source(config)
for piece in source.ranges(found):
    for chunk in source.read(piece, ["carrier", "arr_delay"], types={}):
        chunk.batch, chunk.first_row, chunk.malformed
"""

from __future__ import annotations

from headway.sources.base import BATCH_ROWS, Chunk, InputFile, Malformed, Range, Source
from headway.sources.config import (
    ArrowConfig,
    CsvConfig,
    ExamplesConfig,
    ImagesConfig,
    JsonlConfig,
    ParquetConfig,
    SourceConfig,
)
from headway.sources.discovery.spans import ONE_SPAN, files, spans
from headway.sources.discovery.window import select_window
from headway.sources.renamed import Renamed
from headway.sources.size_limit import SizeLimitedSource
from headway.storage.filesystem import reading

__all__ = [
    "BATCH_ROWS",
    "ONE_SPAN",
    "ArrowConfig",
    "Chunk",
    "CsvConfig",
    "ExamplesConfig",
    "ImagesConfig",
    "InputFile",
    "JsonlConfig",
    "Malformed",
    "ParquetConfig",
    "Range",
    "Source",
    "SourceConfig",
    "files",
    "open_source",
    "reading",
    "select_window",
    "spans",
]


def open_source(config: SourceConfig) -> Source:
    """The source of a config's format; rows with a cell beyond `max_cell_bytes` come out of it as malformed."""
    source = SizeLimitedSource(open_format(config), config.max_cell_bytes)
    return Renamed(source, config.rename) if config.rename else source


def open_format(config: SourceConfig) -> Source:
    """The source of a config's format, without a bound on cells."""
    if config.format == "csv":
        from headway.sources.formats.csv import CsvSource

        return CsvSource(config.csv)
    if config.format == "parquet":
        from headway.sources.formats.parquet import ParquetSource

        return ParquetSource(config.parquet)
    if config.format == "jsonl":
        from headway.sources.formats.jsonl import JsonlSource

        return JsonlSource(config.jsonl)
    if config.format == "examples":
        from headway.sources.formats.tfexample import ExamplesSource

        return ExamplesSource(config.examples)
    if config.format == "arrow":
        from headway.sources.formats.arrow import ArrowSource

        return ArrowSource(config.arrow)
    from headway.sources.formats.images import ImagesSource

    return ImagesSource(config)
