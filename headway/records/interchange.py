"""Exports shards for other tools: classic tf.Examples, and a folder that tensorflow_datasets reads.

export_examples([(ingest_output, manifest, "train")], Path("out"), name="flights")
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headway.errors import ConfigError, DataError
from headway.records.decode import decode
from headway.records.shard import Shard
from headway.records.spec import feature_spec
from headway.records.tfrecord import read_records
from headway.schema.columns import Column
from headway.schema.tensor_name import PRESENT
from headway.storage.atomic_io import remove, write_synced
from headway.storage.process_identity import mark
from headway.tabular.list_arrays import flatten, join, with_null_slots

SPEC = "examples.json"


def batches(shard: Path, columns: Sequence[Column], rows_per_record: int) -> Iterator[pa.RecordBatch]:
    """The rows of a shard of Headway's, a record each.

    Raises:
        DataError: it is damaged, or holds something else than its manifest says.
    """
    for number, record in enumerate(read_records(shard)):
        try:
            yield decode(record, columns, rows_per_record)
        except ValueError as error:
            raise DataError(f"record {number} is not as its manifest says: {error}", where=str(shard)) from None


Part = tuple[Path, Mapping[str, Any], str]
"""(an ingest output, its result, the split of it)."""


def export_examples(parts: Mapping[str, Sequence[Part]], out: Path, *, name: str, tfds: bool = False) -> dict[str, Any]:
    """Write classic one-row tf.Examples of each split, in the order of the parts, and the spec that parses them.

    Args:
        parts: {split: its parts}.
        out: a folder that does not exist yet; it appears whole.
        tfds: named and described as tensorflow_datasets.builder_from_directory wants it. A null is then 0 or empty, and
            a nullable column `c` has a companion `c__present`, since that format has no word for null.

    Returns:
        {"splits": {split: {"rows", "shards": [{"file", "rows"}]}}, "columns", "feature_spec", "rows_per_record": 1}

    Raises:
        ConfigError: `out` exists.
        DataError: there are no rows, or a shard is damaged.
    """
    if out.exists():
        raise ConfigError("exists already", where=str(out), fix="name a folder that is not there yet")
    if not any(parts.values()):
        raise DataError("there are no rows to export")
    temporary = out.parent / mark(f".{out.name}")
    temporary.mkdir(parents=True)
    try:
        result = _export(parts, temporary, name, tfds)
        write_synced(temporary / SPEC, json.dumps(result, indent=1) + "\n")
        temporary.rename(out)
    finally:
        remove(temporary)
    return result


def _export(parts: Mapping[str, Sequence[Part]], out: Path, name: str, tfds: bool) -> dict[str, Any]:
    first = next(split_parts[0] for split_parts in parts.values() if split_parts)[1]
    columns = tuple(Column.model_validate(column) for column in first["columns"])
    written = _with_presence(columns) if tfds else columns
    splits: dict[str, Any] = {}
    for split, split_parts in parts.items():
        shards = [
            (folder / shard["file"], result["rows_per_record"])
            for folder, result, part in split_parts
            for shard in result["splits"].get(part, {"shards": []})["shards"]
        ]
        shard_facts: list[dict[str, Any]] = []
        for number, (path, rows_per_record) in enumerate(shards):
            place = f"{number:05d}-of-{len(shards):05d}"
            file = f"{name}-{split}.tfrecord-{place}" if tfds else f"{split}-{place}.tfrecord"
            with Shard(out / file, written, 1) as shard:
                for batch in batches(path, columns, rows_per_record):
                    shard.add(_filled(batch, columns) if tfds else batch)
            shard_facts.append({"file": file, "rows": len(shard.rows), "bytes": shard.bytes})
        splits[split] = {"rows": sum(shard["rows"] for shard in shard_facts), "shards": shard_facts}
    if tfds:
        _describe_to_tfds(out, name, splits, written)
    return {
        "name": name,
        "rows_per_record": 1,
        "columns": [column.model_dump(mode="json") for column in written],
        "feature_spec": feature_spec(written, 1),
        "splits": splits,
    }


def _with_presence(columns: Sequence[Column]) -> tuple[Column, ...]:
    stored = []
    for column in columns:
        stored.append(column.model_copy(update={"nullable": False, "encoding": "plain"}))
        if column.nullable:
            stored.append(Column(name=column.name + PRESENT, type="int64", nullable=False))
    return tuple(stored)


def _filled(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """Replace nulls by 0, "" or the empty list, and add the presence of each nullable column."""
    arrays, names = [], []
    for column in columns:
        array = batch.column(column.name)
        arrays.append(_without_nulls(array, column))
        names.append(column.name)
        if column.nullable:
            arrays.append(array.is_valid().cast(pa.int64()))
            names.append(column.name + PRESENT)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _without_nulls(array: pa.Array, column: Column) -> pa.Array:
    if not array.null_count:
        return array
    empty = b"" if column.type == "bytes" else 0
    if not column.shape:
        return pc.fill_null(array, empty)
    flat = flatten(array)
    present = np.ones(len(array), np.bool_)
    if column.length is None:
        return join(flat.values, flat.lengths, present, column)
    values = with_null_slots(flat.values, flat.present, column.length)
    return join(pc.fill_null(values, empty), np.full(len(array), column.length), present, column)


_TFDS = "tensorflow_datasets.core.features."
_TFDS_TYPES = {"int64": "int64", "float32": "float32", "bytes": "string"}


def _describe_to_tfds(out: Path, name: str, splits: Mapping[str, Any], columns: Sequence[Column]) -> None:
    """Write features.json and dataset_info.json, in the form that tensorflow_datasets 4.9 writes."""
    features = {
        "pythonClassName": f"{_TFDS}features_dict.FeaturesDict",
        "featuresDict": {"features": {column.name: _tfds_feature(column) for column in columns}},
    }
    info = {
        "name": name,
        "version": "1.0.0",
        "fileFormat": "tfrecord",
        "splits": [
            {
                "name": split,
                "shardLengths": [str(shard["rows"]) for shard in facts["shards"]],
                "numBytes": str(sum(shard["bytes"] for shard in facts["shards"])),
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
            }
            for split, facts in splits.items()
            if facts["rows"]
        ],
    }
    write_synced(out / "features.json", json.dumps(features, indent=1) + "\n")
    write_synced(out / "dataset_info.json", json.dumps(info, indent=1) + "\n")


def _tfds_feature(column: Column) -> dict[str, Any]:
    shape = {"dimensions": [str(column.length)]} if column.length is not None else {}
    tensor = {"shape": shape, "dtype": _TFDS_TYPES[column.type], "encoding": "none"}
    plain = {"pythonClassName": f"{_TFDS}tensor_feature.Tensor", "tensor": tensor}
    if not column.is_list:
        return plain
    return {"pythonClassName": f"{_TFDS}sequence_feature.Sequence", "sequence": {"feature": plain, "length": "-1"}}
