"""Shared by the transforms: the description of a folder of row groups, and batches in stored types.

described = RowGroups.of("s3://team/rows")        # an ingest output, or what WriteRowGroups wrote
described.columns
described.shards("train")                         # the full names of its shards
to_stored_types(batch, described.columns)
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from headway.config import Result
from headway.errors import ConfigError, DataError, HeadwayError
from headway.messages import counted
from headway.records.encode import SPEC
from headway.schema.columns import Column, suggest
from headway.storage import manifest as manifests
from headway.storage.filesystem import is_remote, kind, open_file
from headway.tabular.coerce import coerce


class Split(Result):
    shards: tuple[dict[str, Any], ...]
    """The shards; the key `file` of each has its name within the folder."""


class RowGroups(Result):
    """The columns and the shards of a folder of row groups, read from its manifest or its examples.json."""

    folder: str
    columns: tuple[Column, ...]
    splits: dict[str, Split]

    @classmethod
    def of(cls, folder: str | Path) -> RowGroups:
        """Returns the row groups of a folder, local or in a bucket, by its manifest or its examples.json.

        Raises:
            ConfigError: the folder has neither file, or a damaged one.
            StoreError: the manifest has another format.
        """
        where = full_name(folder)
        of_stage, alone = f"{where}/{manifests.NAME}", f"{where}/{SPEC}"
        try:
            if kind(of_stage) == "file":
                manifest, folder = of_manifest(where)
                return cls.model_validate(({} if manifest is None else manifest.result) | {"folder": folder})
            if kind(alone) == "file":
                return cls.model_validate(json.loads(_read(alone)) | {"folder": where})
        except (ValueError, TypeError, ValidationError):  # damaged, or another stage's
            pass
        fix = f"name the folder of an ingest (headway show --json has it), or one with the {SPEC} that WriteRowGroups wrote"
        raise ConfigError("the folder does not describe shards of row groups", where=where, fix=fix)

    def shards(self, split: str | None) -> list[str]:
        """Returns the full names of a split's shards; of all splits' shards if `split` is None.

        Raises:
            ConfigError: there is no such split.
        """
        if split is not None and split not in self.splits:
            raise ConfigError(f"there is no split {split!r}", where=self.folder, fix=suggest(split, [*self.splits]))
        chosen = [self.splits[split]] if split is not None else [*self.splits.values()]
        return [f"{self.folder}/{shard['file']}" for found in chosen for shard in found.shards]


def of_manifest(folder: str) -> tuple[manifests.Manifest | None, str]:
    """Returns the manifest in the folder of a stage's output or of a model version (None: damaged), and the folder that holds the
    files. In a bucket that is a subfolder, which the manifest names."""
    name = f"{folder}/{manifests.NAME}"
    manifest, attempt = manifests.manifest_and_attempt(_read(name), name)
    return manifest, f"{folder}/{attempt}" if attempt else folder


def full_name(folder: str | Path) -> str:
    """Returns the name by which workers find a folder: its absolute path, or the URL of one in a bucket; without a
    slash at the end."""
    return str(folder).rstrip("/") if is_remote(str(folder)) else str(Path(folder).absolute())


def free_folder(folder: str | Path) -> str:
    """Returns the full name of a folder to write row groups into.

    Raises:
        ConfigError: the folder has row groups already.
    """
    name = full_name(folder)
    if found := [file for file in (SPEC, manifests.NAME) if kind(f"{name}/{file}")]:
        problem = f"row groups are there already: it has a {found[0]}"
        raise ConfigError(problem, where=name, fix="name another folder, or delete that one")
    return name


def as_stored(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Returns the columns without `parse` and `separator`, the rules for reading text, since a batch holds values. Raises a
    ConfigError if `columns` is empty."""
    if not columns:
        raise ConfigError(
            "there are no columns", where="columns", fix='[Column(name="x", type="float32", nullable=True)]'
        )
    return tuple(column.model_copy(update={"parse": None, "separator": None}) for column in columns)


def to_stored_types(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """Returns a batch of these columns alone, converted to their stored types.

    Raises:
        DataError: a column is missing, or a value does not fit.
    """
    coerced = coerce(batch, columns)
    if coerced.rejected.num_rows:
        first = coerced.rejected.slice(0, 1).to_pylist()[0]
        raise DataError(
            f"{counted(coerced.rejected.num_rows, 'row')} of {batch.num_rows:,} do not fit the columns; the first: "
            f"{'null' if first['value'] is None else repr(first['value'][:60])} {first['reason']}",
            where=f"column {first['column']!r}",
            fix="filter such rows out before, or declare the column with another type or as nullable",
        )
    return coerced.batch


@contextlib.contextmanager
def unwrapped_errors() -> Iterator[None]:
    """Let a HeadwayError raised in the block pass through Beam unchanged. Otherwise Beam would add the step's name to
    its message, and lose its `where` and `fix`."""
    try:
        yield
    except HeadwayError as error:
        error._tagged_with_step = True  # type: ignore[attr-defined]
        raise


def _read(name: str) -> bytes:
    with open_file(name) as file:
        return file.read()
