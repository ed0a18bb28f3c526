"""Opens the source that a config names (the table is `FORMATS`), with its size limit, columns of folders, renamed columns.

config = SourceConfig(format="csv", path="/data/{span}.csv")
source = open_source(config)
for piece in source.ranges(files(config, "2013-01")):
    for chunk in source.read(piece, ["carrier", "arr_delay"], types={}):
        chunk.batch, chunk.first_row, chunk.malformed
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from importlib import import_module

from headway.schema.columns import Column
from headway.sources.base import InputFile, Source
from headway.sources.config import FORMATS, SourceConfig
from headway.sources.configured import ConfiguredSource
from headway.sources.discovery.spans import folder_columns


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
    folders = None if config.format == "images" else partial(folder_columns, config.path)
    return ConfiguredSource(reader(config), config.max_cell_bytes, config.rename, files, later, folders=folders)
