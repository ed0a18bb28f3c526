"""The request for a batch prediction: plain data that is sent to workers.

request = PredictRequest(files=files(source, ONE_SPAN), source=source, columns=model.columns, model=folder,
                         digest=digest, loader="tfcore.export.predictor:load", passthrough=(CopiedColumn(name="id"),))
request.check()
request.key(piece)           # what the output of one range depends on
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

from beam_jobs.ingest.merge import file_names
from headway.config import Frozen
from headway.errors import ConfigError, DataError
from headway.schema.columns import Column, suggest
from headway.sources.base import InputFile, Range
from headway.sources.config import SourceConfig
from headway.sources.spans import open_source
from headway.storage.fingerprint import fingerprint

VERSION = 5
"""The version of the prediction. It is raised whenever other bytes are written for the same request."""
FILE, ROW = "source_file", "source_row"
OUTPUTS = (FILE, ROW, "prediction", "probabilities")


class CopiedColumn(Frozen):
    """An input column that is copied to the output."""

    name: str
    column: Column | None = None
    """The schema's column whose type the copy gets (float64 for float32); None: the copy keeps the type in the file."""


class PredictRequest(Frozen):
    """The request of a batch prediction: raw files, and the model that predicts their rows."""

    files: tuple[InputFile, ...]
    source: SourceConfig
    columns: tuple[Column, ...]
    """The model's raw columns."""
    model: str
    """The folder of the SavedModel."""
    model_url: str | None = None
    """The model's folder in a bucket, from which workers on other machines download it; None: they all see `model`."""
    digest: str
    """The digest of the model's bytes."""
    loader: str
    """A function, as `module:function`. Called with (model, digest), it returns the model as a `range_scorer.Model`."""
    passthrough: tuple[CopiedColumn, ...] = ()
    write: Literal["parquet", "jsonl"] = "parquet"
    span: str = "predict"
    """The name of the input in messages."""

    def columns_to_coerce(self) -> tuple[Column, ...]:
        """Returns the columns to convert: the model's columns, then the other copied columns that have a schema column."""
        model_columns = {column.name for column in self.columns}
        extra = [p.column.in_float64 for p in self.passthrough if p.column is not None and p.name not in model_columns]
        return (*self.columns, *extra)

    def columns_to_read(self) -> list[str]:
        """Returns the names of the columns to read: first the model's columns, then the copied columns."""
        return list(dict.fromkeys([*(c.name for c in self.columns), *(p.name for p in self.passthrough)]))

    def check(self) -> None:
        """Check that every file has the columns, and that no copied column is called like a column that the output adds.

        Raises:
            ConfigError: a file lacks a copied column, or a copied column has a name that the output uses.
            DataError: a file lacks one of the model's columns.
        """
        for passed in self.passthrough:
            if passed.name in OUTPUTS:
                problem = f"the output has a column {passed.name!r} of its own"
                raise ConfigError(problem, where="--columns", fix="leave it out, or rename it in the files")
        source = open_source(self.source)
        for file in self.files:
            names = source.names(file)
            for column in self.columns:
                if column.name not in names:
                    problem = f"there is no column {column.name!r}, which the model needs"
                    raise DataError(problem, where=file.path, fix=suggest(column.name, names))
            for passed in self.passthrough:
                if passed.name not in names:
                    problem = f"there is no column {passed.name!r} in {file.path}"
                    raise ConfigError(problem, where="--columns", fix=suggest(passed.name, names))

    def config(self) -> dict[str, Any]:
        """Returns the settings that the output of every range depends on."""
        source = {key: value for key, value in self.source.at_ingest().items() if key != "where"}
        return {
            "stage": "predict",
            "version": VERSION,
            "source": source,
            "model": self.digest,
            "columns": [column.model_dump(mode="json") for column in self.columns],
            "passthrough": [passed.model_dump(mode="json") for passed in self.passthrough],
            "write": self.write,
        }

    def whole_key(self) -> str:
        """Returns the digest of everything that the output as a whole depends on."""
        files = [[name, file.crc32c] for name, file in zip(self.file_names, self.files, strict=True)]
        return fingerprint({"config": self._digest, "files": files})

    def key(self, piece: Range) -> str:
        """Returns the digest of all that one range's output depends on: the settings, the range's bounds, and its files."""
        last = piece.file + (piece.end - piece.start if piece.row_per_file else 1)
        files = [[self.file_names[i], self.files[i].crc32c] for i in range(piece.file, last)]
        where = [piece.index, piece.file, piece.start, piece.end, piece.facts.get("labels")]
        return fingerprint({"config": self._digest, "range": where, "files": files})

    @cached_property
    def file_names(self) -> list[str]:
        """The name of each input file, as the output's column `source_file` has it."""
        return file_names(self.files)

    @cached_property
    def _digest(self) -> str:
        return fingerprint(self.config())
