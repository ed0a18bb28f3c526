"""Writes the rows of splits as one Parquet or CSV file, for tools that read tables.

    write_rows({"train": parts, "eval": parts}, Path("rows.parquet"), {"eval": Path("predictions.parquet")})

The columns: split, row (its number in the split, from 0), each stored column, then those of the predictions. The label is the
stored one; a date or time is one again; text that is not UTF-8 is escaped. Memory holds one record and one row group.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from headway.errors import ConfigError, DataError, StoreError
from headway.messages import counted
from headway.records.interchange import Part, batches
from headway.schema.calendar_days import Temporal
from headway.schema.columns import Column
from headway.storage.atomic_io import remove, sync_path, writing
from headway.storage.process_identity import mark
from headway.tabular.list_arrays import escaped

FORMATS = (".parquet", ".csv")
PREDICTION = "prediction"
_ROWS, _BYTES = 1 << 17, 1 << 26
"""A row group has so many rows, or bytes, or a record more; the last of a part has fewer."""
_TIMES: dict[Temporal, pa.DataType] = {"date": pa.date32(), "timestamp": pa.timestamp("us")}
"""Epoch times stay the numbers that the files have."""


def check_output(out: Path) -> None:
    """ConfigError for a file that exists, or of another format than `FORMATS`."""
    if out.suffix.lower() not in FORMATS:
        raise ConfigError(
            f"{out.suffix or 'no ending'} is not a format", where=str(out), fix="end it by .parquet or .csv"
        )
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
) -> dict[str, int]:
    """Write the rows of each split in the order of its parts; the file appears whole.

    Args:
        parts: {split: its parts}.
        predictions: {split: a Parquet file of its rows in their order}, of which the column `prediction` is kept.
        outputs: the names of a row's predictions where there are several: each is the column `prediction_NAME`.

    Returns:
        {split: rows}

    Raises:
        ConfigError: see `check_output`; or a CSV file, and a column of several values or of bytes that are not text.
        DataError: there are no rows (of that split), or a shard is damaged.
        StoreError: the predictions are of other rows.
    """
    check_output(out)
    temporary = out.parent / mark(f".{out.name}")
    rows: dict[str, int] = {}
    try:
        with writing(out.parent), contextlib.ExitStack() as stack:
            out.parent.mkdir(parents=True, exist_ok=True)
            file: pq.ParquetWriter | pyarrow.csv.CSVWriter | None = None
            for table in _tables(parts, predictions or {}, outputs):
                if file is None:
                    writer = pyarrow.csv.CSVWriter if out.suffix.lower() == ".csv" else pq.ParquetWriter
                    if out.suffix.lower() == ".csv":
                        _check_cells(table.schema, out)
                    file = stack.enter_context(writer(temporary, table.schema))
                file.write_table(table)
                split = str(table.column(0)[0])
                rows[split] = rows.get(split, 0) + len(table)
            if file is None:
                raise DataError(
                    "there are no rows to export", where=", ".join(parts) or "--split", fix="export another split"
                )
        check_output(out)  # it may have come meanwhile
        with writing(out.parent):
            sync_path(temporary)
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
    """The rows of each part, `_ROWS` or a little more in each table; all of one schema."""
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


def _stored(part: Part) -> Iterator[pa.Table]:
    folder, result, _ = part
    columns = tuple(Column.model_validate(column) for column in result["columns"])
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for shard in _shards(part):
        for batch in batches(folder / shard["file"], columns, result["rows_per_record"]):
            waiting.append(batch)
            rows, size = rows + len(batch), size + batch.nbytes
            if rows >= _ROWS or size >= _BYTES:
                yield pa.Table.from_batches(waiting)
                waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _schema(stored: pa.Table, part: Part, predictions: pa.Schema) -> pa.Schema:
    """Ours and the stored columns; one of ours that a stored column is called too gets underscores."""
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
    """The column's type, with text for bytes where the first ones are text. Of vectors the list: a Parquet file cannot give
    back a missing vector of a fixed length (Arrow 25)."""
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
