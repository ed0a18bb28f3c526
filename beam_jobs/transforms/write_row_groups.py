"""Writes Arrow batches as sharded TFRecords of row groups: `batches | WriteRowGroups(folder, columns)`."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindows

from beam_jobs.runners.place import as_store_errors, open_place
from beam_jobs.transforms.stored_batches import as_stored, free_folder, to_stored_types, unwrapped_errors
from headway.errors import ConfigError, StoreError
from headway.process import Scratch
from headway.records.encode import ROWS_PER_RECORD, SPEC, feature_spec, total_rows
from headway.records.tfrecord import Shard
from headway.schema.columns import Column
from headway.storage.manifest import entry

Facts = dict[str, Any]
"""The facts of a shard: file, rows (the rows per record, run-length encoded), bytes, crc32c."""


class WriteRowGroups(beam.PTransform):
    """Writes batches as shards of row groups, with a file that describes them: columns, feature spec, checksums.

        described = batches | WriteRowGroups("s3://team/rows", columns, split="train", shards=8)

    Input: a bounded PCollection of `pyarrow.RecordBatch` with at least the columns, in their stored types or in types
    that become them without loss (int32, double, string, date). Output: a PCollection of one dict, the content of
    examples.json: columns, feature_spec, splits {split: {rows, shards [{file, rows, bytes, crc32c}]}}. ReadRowGroups
    reads the folder.

    The shards appear in the folder when all of them are written, and examples.json after them. A pipeline that fails
    leaves only a hidden folder, `.writing-...`. Rows are written in no promised order. Rows of one group (role: group)
    share a record if they come in one batch.

    Args:
        folder: a local path, which every worker must see, or s3:// or gs://.
        columns: the columns to write, in this order (`headway.schema.columns.Column`).
        split: the split's name, with which the names of the shards begin: `train-00003-of-00008.tfrecord`.
        rows_per_record: the most rows of a record.
        shards: the most shards; the rows then go through a GroupByKey. None: a shard for each bundle of the runner.

    Raises:
        ConfigError: no columns, a bad number, or the folder has row groups already. Raised as the pipeline is built.
        DataError: a batch lacks a column, or a value does not fit; its message names both. Raised as the pipeline runs.
        StoreError: the folder cannot be written. Raised as the pipeline runs.
    """

    def __init__(
        self,
        folder: str | Path,
        columns: Sequence[Column],
        *,
        split: str = "train",
        rows_per_record: int = ROWS_PER_RECORD,
        shards: int | None = None,
    ):
        super().__init__()
        self._folder, self._columns, self._split = free_folder(folder), tuple(columns), split
        as_stored(columns)
        for name, number in (("rows_per_record", rows_per_record), ("shards", shards)):
            if number is not None and number < 1:
                raise ConfigError(f"{name} is {number}", where="WriteRowGroups", fix="at least 1")
        self._rows_per_record, self._shards = rows_per_record, shards

    def expand(self, batches: Any) -> Any:
        attempt = f"{self._folder}/.writing-{uuid.uuid4().hex[:12]}"
        writer = _Writer(attempt, self._columns, self._rows_per_record)
        if self._shards is None:
            written = batches | "write" >> beam.ParDo(_WriteBundle(writer))
        else:
            keyed = batches | "spread" >> beam.ParDo(_Spread(self._shards)) | "gather" >> beam.GroupByKey()
            written = keyed | "write" >> beam.Map(_write_group, writer)
        return (
            written
            | "shards" >> beam.CombineGlobally(beam.combiners.ToListCombineFn())
            | "publish" >> beam.Map(_publish, self._folder, self._split, writer)
        )


@dataclass(frozen=True)
class _Writer:
    """The settings by which every shard is written; they can be pickled."""

    folder: str
    columns: tuple[Column, ...]
    rows_per_record: int


class _Shard:
    """A shard that is being written, under a unique name. For a bucket it is first written to this machine's disk."""

    def __init__(self, writer: _Writer):
        self._stored, self._place = as_stored(writer.columns), open_place(writer.folder)
        self._where, self._name = writer.folder, f"{uuid.uuid4().hex}.tfrecord"
        self._scratch = Scratch("shard") if self._place.objects.remote else None
        self._folder = Path(self._scratch.name if self._scratch else writer.folder)
        with as_store_errors(self._where):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._shard = Shard(self._folder / self._name, writer.columns, writer.rows_per_record)

    def add(self, batch: pa.RecordBatch) -> None:
        with as_store_errors(self._where):
            self._shard.add(to_stored_types(batch, self._stored))

    def finish(self) -> Facts:
        with as_store_errors(self._where):
            rows, file = self._shard.finish(), entry(self._folder, self._name)
            if self._scratch is not None:
                self._place.move_to_output(self._folder, [file])
                self._scratch.cleanup()
        return {"file": self._name, "rows": rows, "bytes": file.bytes, "crc32c": file.crc32c}


class _WriteBundle(beam.DoFn):
    """Writes the batches of each bundle into a shard."""

    def __init__(self, writer: _Writer):
        self._writer = writer
        self._shard: _Shard | None = None

    def start_bundle(self) -> None:
        self._shard = None

    def process(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            with unwrapped_errors():
                self._shard = self._shard or _Shard(self._writer)
                self._shard.add(batch)

    def finish_bundle(self) -> Iterator[Any]:
        if self._shard is not None:
            with unwrapped_errors():
                yield GlobalWindows.windowed_value(self._shard.finish())


class _Spread(beam.DoFn):
    """Assigns the batches of a bundle to the shards in turn, beginning at a random shard."""

    def __init__(self, shards: int):
        self._shards, self._next = shards, 0

    def start_bundle(self) -> None:
        self._next = random.randrange(self._shards)

    def process(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        if batch.num_rows:
            self._next = (self._next + 1) % self._shards
            yield self._next, batch


def _write_group(group: tuple[int, Iterable[pa.RecordBatch]], writer: _Writer) -> Facts:
    with unwrapped_errors():
        shard = _Shard(writer)
        for batch in group[1]:
            shard.add(batch)
        return shard.finish()


@unwrapped_errors()
def _publish(shards: list[Facts], folder: str, split: str, writer: _Writer) -> Facts:
    """Move the shards to their final names, write and return examples.json, delete the rest. May run again after a crash."""
    objects, attempt = open_place(folder).objects, writer.folder.removeprefix(f"{folder}/")
    there = {key: found.bytes for key, found in objects.listing().items()}
    named = []
    for number, shard in enumerate(sorted(shards, key=lambda shard: shard["file"])):
        name = f"{split}-{number:05d}-of-{len(shards):05d}.tfrecord"
        source = f"{attempt}/{shard['file']}"
        if source in there:  # else an earlier try moved it
            with as_store_errors(f"{folder}/{name}"):
                objects.move(source, name)
        found = there.get(source, there.get(name))
        if found != shard["bytes"]:
            problem = f"has {found} bytes, and {shard['bytes']} were written"
            raise StoreError(problem, where=f"{folder}/{name}", fix="delete the folder, and run again")
        named.append(shard | {"file": name})
    described = {
        "columns": [column.model_dump(mode="json") for column in writer.columns],
        "feature_spec": feature_spec(writer.columns),
        "splits": {split: {"rows": sum(total_rows(shard["rows"]) for shard in named), "shards": named}},
    }
    with as_store_errors(f"{folder}/{SPEC}"):
        objects.write(SPEC, (json.dumps(described, indent=1) + "\n").encode())
        objects.delete_folder(attempt)  # what bundles left that failed
    return described
