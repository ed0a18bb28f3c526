"""Writes tables of predictions as Parquet or JSON lines, batch by batch.

    with PartWriter(folder / "part.jsonl", "jsonl", "data/2013-05.csv") as part:
        part.write(batch)

JSON lines are put together column by column in Arrow, without a Python object for each row. JSON has no NaN and no infinity:
JSON lines have null in their place. Parquet keeps them.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import IO, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headway.errors import DataError

ROW_GROUP = 65_536
Format = Literal["parquet", "jsonl"]


class PartWriter(contextlib.AbstractContextManager["PartWriter"]):
    """Writes one part file of the output. The first batch creates the file and fixes the types of its columns.

    Args:
        source: the input file that the rows come from, named in error messages.
    """

    def __init__(self, path: Path, format: Format, source: str):
        self.path = path
        self.schema: pa.Schema | None = None
        self._format, self._source = format, source
        self._file: IO[bytes] | None = None
        self._parquet: pq.ParquetWriter | None = None
        self._pending, self._rows = list[pa.RecordBatch](), 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows to the file.

        Raises:
            DataError: a column has another type than in the batches before.
        """
        if self.schema is None:
            self._file, self.schema = self.path.open("wb"), batch.schema
            if self._format == "parquet":
                self._parquet = pq.ParquetWriter(self._file, batch.schema, compression="zstd")
        elif batch.schema != self.schema:
            other = next(field for field in batch.schema if field not in self.schema)
            problem = f"column {other.name!r} changes its type within the file, to {other.type}"
            raise DataError(problem, where=self._source, fix="leave it out of --columns")
        self._pending.append(batch)
        self._rows += batch.num_rows
        if self._rows >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        assert self._file is not None
        table = pa.Table.from_batches(self._pending, self.schema)
        self._pending, self._rows = [], 0
        if self._parquet is not None:
            self._parquet.write_table(table, row_group_size=ROW_GROUP)
        elif table.num_rows:
            for batch in table.to_batches():
                self._file.write(json_lines(batch))

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if self._file is None:
            return
        with self._file:
            if kind is None:
                self._flush()
            if self._parquet is not None:
                with contextlib.suppress(OSError) if kind else contextlib.nullcontext():
                    self._parquet.close()


def json_lines(batch: pa.RecordBatch) -> memoryview:
    """Returns a batch as JSON lines, one object per row with every column in it."""
    parts: list[pa.Array | pa.Scalar] = []
    for place, (name, array) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        parts.append(pa.scalar(("{" if not place else ",") + json.dumps(name) + ":", pa.string()))
        parts.append(_json(array))
    lines = pc.binary_join_element_wise(*parts, pa.scalar("}\n"), pa.scalar(""))
    # the lines lie one after the other in the array's buffer
    _, offsets, data = lines.buffers()
    ends = memoryview(offsets).cast("i")
    return memoryview(data)[ends[lines.offset] : ends[lines.offset + len(lines)]] if data else memoryview(b"")


def _json(array: pa.Array) -> pa.Array:
    """Returns the JSON text of each value of an array."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        text = pc.take(_json(array.dictionary), array.indices)
    elif pa.types.is_boolean(kind):
        text = pc.if_else(array, "true", "false")
    elif pa.types.is_integer(kind):
        text = array.cast(pa.string())
    elif pa.types.is_floating(kind):
        text = pc.if_else(pc.is_finite(array), array.cast(pa.string()), "null")
    elif pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        text = _json_lists(array)
    else:  # whatever else is written as text, each distinct value once
        coded = array.cast(pa.string()).dictionary_encode()
        texts = pa.array([json.dumps(value, ensure_ascii=False) for value in coded.dictionary.to_pylist()], pa.string())
        text = texts.take(coded.indices)
    return pc.fill_null(text, "null")


def _json_lists(array: pa.Array) -> pa.Array:
    lists = array.cast(pa.list_(array.type.value_type))
    texts = pa.ListArray.from_arrays(_from_zero(lists), _json(lists.flatten()))
    joined = pc.binary_join_element_wise("[", pc.binary_join(texts, ","), "]", "")
    return pc.if_else(array.is_valid(), joined, pa.scalar(None, pa.string()))


def _from_zero(lists: pa.Array) -> pa.Array:
    """Returns the offsets at which the lists begin in their flattened values, then the end. The first offset is 0, for a slice
    too. A null counts as an empty list."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
