"""Logged serving requests as statistics, to be held against the train rows: is the model asked what it was taught?

    logged = requests(Path("requests.jsonl"), feature_columns)
    logged.statistics, logged.unfit          # of the rows that fit, and (rows that do not, the first reason)

The file holds a request a line as JSON ({"carrier": "AA", "distance": 733}, or TensorFlow Serving's {"instances": [...]}), or
is a TFRecord of tf.Examples. Features that no request names count as missing in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import pyarrow as pa
import pyarrow.json as pajson

from headway.coerce import coerce
from headway.errors import DataError
from headway.files import open_file
from headway.records.tfrecord import read_records
from headway.records.wire import BYTES, FLOATS, INTS, parse, parse_bytes, parse_floats, parse_ints
from headway.schema import Column
from headway.statistics.split import SplitStatistics

_BLOCK = 1 << 20
_BATCH = 32_768


@dataclass(frozen=True)
class Logged:
    rows: int
    statistics: SplitStatistics
    unfit: tuple[int, str]
    """How many rows hold a value that does not fit its column, and the first reason."""


def checksum(path: Path) -> dict[str, int | str]:
    """The identity of a file of requests: its size and crc32c; DataError when it cannot be read."""
    found, size = 0, 0
    with open_file(str(path)) as file:
        while block := file.read(_BLOCK):
            found, size = google_crc32c.extend(found, block), size + len(block)
    return {"bytes": size, "crc32c": f"{found:08x}"}


def requests(path: Path, columns: Sequence[Column]) -> Logged:
    """What was asked of the model.

    Raises:
        DataError: the file is empty, or neither JSON lines nor TFRecords.
    """
    with open_file(str(path)) as file:
        start = file.read(1)
    table = _json(path) if start in (b"{", b" ", b"\n") else _examples(path)
    if not len(table):
        raise DataError("there is no request in the file", where=str(path), fix="log some requests, or leave it out")
    for column in columns:
        if column.name not in table.column_names:
            table = table.append_column(column.name, pa.nulls(len(table), column.arrow))
    statistics = SplitStatistics.create(columns)
    unfit, reason = 0, ""
    wanted = [column.model_copy(update={"nullable": True}) for column in columns]
    for batch in table.select([column.name for column in columns]).combine_chunks().to_batches(_BATCH):
        coerced = coerce(batch, wanted)
        statistics.update(coerced.batch)
        if coerced.rejected.num_rows and not unfit:
            first = coerced.rejected.slice(0, 1).to_pylist()[0]
            reason = f"{first['column']!r}: {first['value']!r} {first['reason']}"
        unfit += coerced.rejected.num_rows
    return Logged(len(table), statistics, (unfit, reason))


def _json(path: Path) -> pa.Table:
    try:
        with open_file(str(path)) as file:
            table = pajson.read_json(file)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"not a request a line as JSON: {error}", where=str(path), fix="write one object a line"
        ) from None
    if table.column_names == ["instances"] and pa.types.is_list(table.schema.field(0).type):
        rows = pa.chunked_array([chunk.flatten() for chunk in table.column(0).chunks])
        if pa.types.is_struct(rows.type):
            names = [rows.type.field(i).name for i in range(rows.type.num_fields)]
            return pa.table(rows.flatten(), names=names)
    return table


def _examples(path: Path) -> pa.Table:
    read = {BYTES: parse_bytes, FLOATS: parse_floats, INTS: parse_ints}
    rows: list[dict[str, object]] = []
    for record in read_records(path):
        try:
            features = {name: (tag, read[tag](body)) for name, (tag, body) in parse(record).items() if tag in read}
        except (ValueError, KeyError, UnicodeDecodeError) as error:
            raise DataError(f"record {len(rows)} is no tf.Example: {error}", where=str(path)) from None
        rows.append({name: _one(values) for name, (_, values) in features.items()})
    names = list(dict.fromkeys(name for row in rows for name in row))
    try:
        return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DataError(f"a feature has values of several types: {error}", where=str(path)) from None


def _one(values: object) -> object:
    """The first value as plain Python; None when the feature is empty."""
    if not len(values):  # type: ignore[arg-type]
        return None
    first = values[0]  # type: ignore[index]
    return first if isinstance(first, bytes) else first.item()
