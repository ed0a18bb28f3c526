"""Reads shards of row groups: `pipeline | ReadRowGroups(folder, split="train")` -> Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa

from beam_jobs.transforms.stored_batches import RowGroups, unwrapped_errors
from headway.errors import DataError
from headway.records.decode import decode
from headway.records.tfrecord import DamagedRecord, framed
from headway.schema.columns import Column, no_column
from headway.storage.filesystem import reading, resolve

_BUFFER = 1 << 20
_FIX = "delete the folder, and write it again"
_Form = tuple[tuple[Column, ...], tuple[str, ...]]
"""The form of a shard's records: the columns that the records have, and the names of the columns to read."""


class ReadRowGroups(beam.PTransform):
    """Reads shards of row groups, and yields an Arrow batch for each record. A worker reads one shard at a time.

        rows = pipeline | ReadRowGroups("s3://team/store/stages/ingest/3f2a...", split="train", columns=["carrier"])

    Input: the pipeline. Output: a PCollection of `pyarrow.RecordBatch`, columns in their stored types (int64, float32,
    binary, lists of them; text is UTF-8 in binary), in no promised order.

    Args:
        folders: a folder that an ingest or WriteRowGroups wrote, or several: a local path, which every worker must see,
            or s3:// or gs://.
        split: the split to read, such as "train"; None reads all splits.
        columns: the names of the columns to read; None reads all columns.

    Raises:
        ConfigError: a folder has no row groups, or lacks the split or column. Raised as the pipeline is built.
        DataError: a shard is missing or damaged; its message names the file and byte. Raised as the pipeline runs.
    """

    def __init__(
        self,
        folders: str | Path | Sequence[str | Path],
        *,
        split: str | None = None,
        columns: Sequence[str] | None = None,
    ):
        super().__init__()
        self._shards: list[tuple[str, int]] = []
        forms: dict[_Form, int] = {}  # the spans of a window have one; a worker gets it once
        for folder in [folders] if isinstance(folders, str | Path) else folders:
            described = RowGroups.of(folder)
            names = [column.name for column in described.columns]
            for name in columns or ():
                if name not in names:
                    raise no_column(name, names, where=described.folder)
            form = described.columns, tuple(names if columns is None else columns)
            number = forms.setdefault(form, len(forms))
            self._shards += [(shard, number) for shard in described.shards(split)]
        self._forms = [*forms]

    def expand(self, pipeline: Any) -> Any:
        shards = pipeline | "shards" >> beam.Create(self._shards)  # which spreads them
        return shards | "read" >> beam.ParDo(_Read(self._forms)).with_output_types(pa.RecordBatch)


class _Read(beam.DoFn):
    def __init__(self, forms: Sequence[_Form]):
        self._forms = forms

    def process(self, shard: tuple[str, int]) -> Iterator[pa.RecordBatch]:
        name, form = shard
        columns, wanted = self._forms[form]
        by_name = {column.name: column for column in columns}
        read = [by_name[name] for name in wanted]
        with unwrapped_errors():
            for number, record in enumerate(_records(name)):
                try:
                    yield decode(record, read)
                except ValueError as error:
                    problem = f"record {number} is not as the folder describes it: {error}"
                    raise DataError(problem, where=name, fix=_FIX) from None


def _records(name: str) -> Iterator[bytes]:
    filesystem, path = resolve(name)
    with reading(name), filesystem.open_input_stream(path, buffer_size=_BUFFER) as file:
        try:
            for _, record in framed(file):
                yield record
        except DamagedRecord as error:
            problem = f"{error.what} (record at byte {error.at})"
            raise DataError(problem, where=name, fix=_FIX) from None
