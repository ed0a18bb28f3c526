"""Writes the rows of splits for other tools: as one Parquet or CSV file, or as TFRecord files of classic tf.Examples.

    write_rows({"train": parts, "eval": parts}, Path("rows.parquet"), {"eval": Path("predictions.parquet")})
    write_examples({"train": parts, "eval": parts}, Path("examples"))

The columns are split, row (the row's number in its split, from 0), each stored column, then the predictions. The label is
written as stored. Dates and times get Arrow's types for them again. Text that is not UTF-8 is escaped. Memory holds one record
and one row group.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from headway.errors import ConfigError, DataError, StoreError
from headway.messages import counted
from headway.records.decode import decode
from headway.records.encode import classic_spec, encode_classic
from headway.records.tfrecord import ShardWriter, read_records
from headway.schema.calendar_days import Temporal
from headway.schema.columns import Column
from headway.storage.atomic_io import remove, sync_path, write_synced, writing
from headway.storage.process_identity import temporary_name
from headway.tabular.list_arrays import escaped

Part = tuple[Path, Mapping[str, Any], str]
"""One split of an ingested span: the folder of the ingest output, the answer of the ingest stage, and the split's name."""
Format = Literal["parquet", "csv"]
SPEC = "feature_spec.json"
PREDICTION = "prediction"
_ROWS, _BYTES = 1 << 17, 1 << 26
"""The rows and bytes at which a row group is complete. It may exceed them by one record; the last of a part may be smaller."""
_TIMES: dict[Temporal, pa.DataType] = {"date": pa.date32(), "timestamp": pa.timestamp("us")}
"""The Arrow types of dates and times; epoch times stay the numbers that the files have."""


def check_output(out: Path, format: Format | None = None) -> Format:
    """Returns `format`; if it is None, the format that the ending of `out` names.

    Raises:
        ConfigError: no format is given or named, the file exists, or it cannot be written.
    """
    by_ending: dict[str, Format] = {".parquet": "parquet", ".csv": "csv"}
    if (chosen := format or by_ending.get(out.suffix.lower())) is None:
        fix = "end it by .parquet or .csv, or give --format"
        raise ConfigError(f"{out.suffix or 'no ending'} is not a format", where=str(out), fix=fix)
    check_free(out)
    return chosen


def check_free(out: Path) -> None:
    """Raise ConfigError when `out` exists, or lies in a folder to which this user cannot write."""
    if out.exists():
        raise ConfigError("exists already", where=str(out), fix="name a file that is not there yet")
    folder = next(parent for parent in out.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError("is not a folder to write to", where=str(folder), fix="name a file in another folder")


def write_rows(
    parts: Mapping[str, Sequence[Part]],
    out: Path,
    predictions: Mapping[str, Path] | None = None,
    *,
    outputs: Sequence[str] = (),
    format: Format | None = None,
) -> dict[str, int]:
    """Write the rows of all splits to one file, each split in the order of its parts. The file appears when it is complete.

    Args:
        parts: by a split's name, its parts: the ingest outputs that hold its rows.
        predictions: by a split's name, a Parquet file whose column `prediction` has the predictions in the order of the rows.
        format: parquet or csv; None: as the ending of `out` says.
        outputs: if a row has several predictions, the name of each; every one becomes a column `prediction_NAME`.

    Returns:
        The number of rows that were written, by the split's name.

    Raises:
        ConfigError: as `check_output`; or CSV cannot hold a column: it has several values per row, or bytes that are no text.
        DataError: there are no rows, or a shard is damaged.
        StoreError: a split has another number of predictions than of rows.
    """
    chosen = check_output(out, format)
    temporary = out.parent / temporary_name(f".{out.name}")
    rows: dict[str, int] = {}
    try:
        with writing(out.parent), contextlib.ExitStack() as stack:
            out.parent.mkdir(parents=True, exist_ok=True)
            file: pq.ParquetWriter | pyarrow.csv.CSVWriter | None = None
            for table in _tables(parts, predictions or {}, outputs):
                if file is None:
                    writer = pyarrow.csv.CSVWriter if chosen == "csv" else pq.ParquetWriter
                    if chosen == "csv":
                        _check_cells(table.schema, out)
                    file = stack.enter_context(writer(temporary, table.schema))
                file.write_table(table)
                split = str(table.column(0)[0])
                rows[split] = rows.get(split, 0) + len(table)
            if file is None:
                raise DataError(
                    "there are no rows to export", where=", ".join(parts) or "--split", fix="export another split"
                )
        check_free(out)  # it may have come meanwhile
        with writing(out.parent):
            sync_path(temporary)
            temporary.rename(out)
    finally:
        remove(temporary)
    return rows


def write_examples(parts: Mapping[str, Sequence[Part]], out: Path) -> dict[str, int]:
    """Write the stored columns of each split as classic tf.Examples, one per row, in one TFRecord file per stored shard. The
    folder `out` appears when it is complete. It also holds the feature spec to parse the files (`SPEC`).

    Args:
        parts: by a split's name, its parts: the ingest outputs that hold its rows.

    Returns:
        The number of rows that were written, by the split's name.

    Raises:
        ConfigError: `out` exists, or its folder is not writable. StoreError: the disk is full.
        DataError: there are no parts, or a shard is damaged.
    """
    check_free(out)
    first = next((part for split_parts in parts.values() for part in split_parts), None)
    if first is None:
        raise DataError("there are no rows to export", where=", ".join(parts) or "--split", fix="export another split")
    columns = tuple(Column.model_validate(column) for column in first[1]["columns"])
    temporary, rows = out.parent / temporary_name(f".{out.name}"), dict[str, int]()
    try:
        with writing(out.parent):
            temporary.mkdir(parents=True)
            for split, split_parts in parts.items():
                shards = [part[0] / shard["file"] for part in split_parts for shard in _shards(part)]
                for number, shard in enumerate(shards):
                    with ShardWriter(temporary / f"{split}-{number:05d}-of-{len(shards):05d}.tfrecord") as file:
                        for batch in batches(shard, columns):
                            file.write_many(encode_classic(batch, columns))
                    rows[split] = rows.get(split, 0) + len(file.rows)
            write_synced(temporary / SPEC, json.dumps(classic_spec(columns), indent=1) + "\n")
            check_free(out)
            temporary.rename(out)
    finally:
        remove(temporary)
    return rows


def _check_cells(schema: pa.Schema, out: Path) -> None:
    for field in schema:
        if pa.types.is_nested(field.type) or field.type == pa.binary():
            problem = f"column {field.name!r} has several values per row, or bytes that are not text: a CSV file cannot hold it"
            raise ConfigError(problem, where=str(out), fix="write a .parquet file")


def _tables(
    parts: Mapping[str, Sequence[Part]], predictions: Mapping[str, Path], outputs: Sequence[str]
) -> Iterator[pa.Table]:
    """Yields tables with the rows of each part and their predictions. All have one schema; each becomes a row group."""
    scores = {split: _scores(path, outputs) for split, path in predictions.items()}
    for name, found in scores.items():
        rows = sum(result["splits"].get(split, {}).get("rows", 0) for _, result, split in parts[name])
        if len(found) != rows:
            problem = f"there are {len(found):,} predictions of {counted(rows, 'row')} of {name}"
            raise StoreError(problem, where=str(predictions[name]), fix="headway verify")
    schema: pa.Schema | None = None
    for split, split_parts in parts.items():
        start = 0
        for part in split_parts:
            for stored in _stored(part):
                if schema is None:
                    schema = _schema(stored, part, next(iter(scores.values())).schema if scores else pa.schema([]))
                end = start + len(stored)
                columns = [pa.repeat(split, len(stored)), pa.array(np.arange(start, end)), *_converted(stored, schema)]
                if split in scores:
                    columns += scores[split][start:end].columns
                columns += [pa.nulls(len(stored), kind) for kind in schema.types[len(columns) :]]
                yield pa.table(columns, schema=schema)
                start = end


def _scores(path: Path, outputs: Sequence[str]) -> pa.Table:
    table = pq.read_table(path, columns=[PREDICTION]).combine_chunks()
    kind = table.schema.types[0]
    if not pa.types.is_fixed_size_list(kind):
        return table
    values = table.column(0).combine_chunks().flatten().to_numpy().reshape(len(table), -1)
    names = outputs if len(outputs) == values.shape[1] else range(values.shape[1])
    return pa.table({f"{PREDICTION}_{name}": values[:, number] for number, name in enumerate(names)})


def _shards(part: Part) -> list[dict[str, Any]]:
    _, result, split = part
    return list(result["splits"].get(split, {}).get("shards", ()))


def batches(shard: Path, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a shard, one record at a time. Raises DataError when the shard is damaged or has other columns."""
    for number, record in enumerate(read_records(shard)):
        try:
            yield decode(record, columns)
        except ValueError as error:
            raise DataError(f"record {number} is not as its manifest says: {error}", where=str(shard)) from None


def _stored(part: Part) -> Iterator[pa.Table]:
    folder, result, _ = part
    columns = tuple(Column.model_validate(column) for column in result["columns"])
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for shard in _shards(part):
        for batch in batches(folder / shard["file"], columns):
            waiting.append(batch)
            rows, size = rows + len(batch), size + batch.nbytes
            if rows >= _ROWS or size >= _BYTES:
                yield pa.Table.from_batches(waiting)
                waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _schema(stored: pa.Table, part: Part, predictions: pa.Schema) -> pa.Schema:
    """Returns the file's schema: the columns that Headway adds, and the stored columns. If a stored column has the name of an
    added one, the added column's name gets underscores at its end."""
    columns = [Column.model_validate(column) for column in part[1]["columns"]]
    fields = [(each.name, (each.temporal and _TIMES.get(each.temporal)) or _type(stored, each)) for each in columns]
    ours = [("split", pa.string()), ("row", pa.int64()), *((field.name, field.type) for field in predictions)]
    named = []
    for name, kind in ours:
        while name in stored.column_names:
            name += "_"
        named.append((name, kind))
    return pa.schema([*named[:2], *fields, *named[2:]])


def _type(stored: pa.Table, column: Column) -> pa.DataType:
    """Returns the column's type in the file. Bytes become text if the first rows are UTF-8. A vector becomes a list, since
    Parquet cannot give back a null in a column of fixed-size lists (Arrow 25)."""
    values = stored.column(column.name)
    kind = pa.list_(values.type.value_type) if pa.types.is_fixed_size_list(values.type) else values.type
    text = {pa.binary(): pa.string(), pa.list_(pa.binary()): pa.list_(pa.string())}.get(kind)
    if text is None or (values.null_count == len(values) and column.encoding == "plain"):
        return kind
    try:
        values.cast(text)
    except pa.ArrowInvalid:
        return kind
    return text


def _converted(stored: pa.Table, schema: pa.Schema) -> Iterator[pa.ChunkedArray | pa.Array]:
    for field in list(schema)[2 : 2 + stored.num_columns]:
        values = stored.column(field.name)
        values = values.cast(pa.int32()) if field.type == pa.date32() else values
        try:
            yield values if values.type == field.type else values.cast(field.type)
        except pa.ArrowInvalid:  # later bytes that are not text
            yield _escaped(values.combine_chunks(), field.type)


def _escaped(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_list(kind):
        flat = values.cast(pa.list_(pa.binary()))
        return pa.ListArray.from_arrays(flat.offsets, escaped(flat.values), mask=flat.is_null())
    return escaped(values)
