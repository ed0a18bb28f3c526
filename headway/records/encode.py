"""Arrow batches to records and back.

    encode(batch, columns)                    # bytes of one tf.train.Example with all rows of the batch
    encode_classic(batch, columns)            # one Example a row
    decode(record, columns, rows_per_record)  # the batch again

A record's bytes depend on its rows alone: a dictionary holds the record's own values in order of first appearance,
whatever dictionary the batch came with. A null is stored as 0 or the empty string with present = 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.records import wire
from headway.schema import Column


def encode(batch: pa.RecordBatch, columns: Sequence[Column]) -> bytes:
    """One Example holding every row of `batch`, column by column."""
    entries: list[bytes] = []
    for column in columns:
        array = batch.column(column.name)
        if column.encoding == "dictionary":
            values, codes = _dictionary(array)
            entries.append(wire.entry(_key(f"{column.name}/dict"), wire.bytes_list(values)))
            entries.append(wire.entry(_key(f"{column.name}/codes"), wire.int_list(codes)))
        else:
            entries.append(wire.entry(_key(column.name), _plain(array, column)))
        if column.nullable:
            present = array.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
            entries.append(wire.entry(_key(f"{column.name}/present"), wire.int_list(present.astype(np.int64))))
    return wire.example(entries)


def _key(name: str) -> bytes:
    return wire.field(name.encode())


def _plain(array: pa.Array, column: Column) -> bytes:
    if column.type == "float32":
        return wire.float_list(_numbers(array, np.float32(0)))
    if column.type == "int64":
        return wire.int_list(_numbers(array, np.int64(0)))
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return wire.bytes_list(pc.fill_null(array, b"").to_pylist())


def _numbers(array: pa.Array, null: np.generic) -> NDArray[Any]:
    """The values with nulls as zero, without a copy when there are none."""
    if not array.null_count:
        return array.to_numpy()
    return np.where(array.is_valid().to_numpy(zero_copy_only=False), _raw(array), null)


def _raw(array: pa.Array) -> NDArray[Any]:
    """The value buffer itself: slots of nulls hold anything."""
    dtype = np.float32 if pa.types.is_float32(array.type) else np.int64
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def _dictionary(array: pa.Array) -> tuple[list[bytes], NDArray[np.int64]]:
    """The distinct values by first appearance, and for each row its place among them; null is 0."""
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    indices, dictionary = array.indices, array.dictionary
    if indices.null_count:
        present = indices.is_valid().to_numpy(zero_copy_only=False)
        codes = pc.fill_null(indices, 0).to_numpy()
        used = codes[present]
    else:
        present = None
        codes = used = indices.to_numpy()
    if not len(used):
        return [], np.zeros(len(array), np.int64)
    if len(dictionary) <= 4 * len(used):
        first = np.full(len(dictionary), len(used), np.int64)
        # reversed, so that the earliest row is written last
        first[used[::-1]] = np.arange(len(used) - 1, -1, -1)
        order = np.argsort(first, kind="stable")
        order = order[: int((first < len(used)).sum())]
    else:
        distinct, at = np.unique(used, return_index=True)
        order = distinct[np.argsort(at, kind="stable")]
    place = np.zeros(len(dictionary), np.int64)
    place[order] = np.arange(len(order))
    out = place[codes]
    if present is not None:
        out = np.where(present, out, 0)
    return dictionary.take(pa.array(order)).to_pylist(), out


def encode_classic(batch: pa.RecordBatch, columns: Sequence[Column]) -> list[bytes]:
    """One Example for each row of `batch`; a null leaves its feature out."""
    parts: list[list[bytes | None]] = []
    for column in columns:
        key = _key(column.name)
        array = batch.column(column.name)
        values = array.dictionary_decode().to_pylist() if pa.types.is_dictionary(array.type) else array.to_pylist()
        parts.append([None if value is None else wire.entry(key, _one(value, column)) for value in values])
    return [wire.example(entry for entry in row if entry is not None) for row in zip(*parts, strict=True)]


def _one(value: object, column: Column) -> bytes:
    if column.type == "float32":
        return wire.float_list(np.array([value], np.float32))
    if column.type == "int64":
        return wire.int_list(np.array([value], np.int64))
    assert isinstance(value, bytes)
    return wire.bytes_list([value])


def decode(record: bytes, columns: Sequence[Column], rows_per_record: int) -> pa.RecordBatch:
    """The rows of one record, strings as plain binary.

    Raises:
        ValueError: not a record of these columns.
    """
    features = wire.parse(record)
    arrays = []
    for column in columns:
        arrays.append(_classic(features, column) if rows_per_record == 1 else _grouped(features, column))
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def _values(features: dict[str, tuple[bytes, memoryview]], name: str, column: Column) -> pa.Array:
    _, body = features.get(name, (b"", memoryview(b"")))
    if column.type == "float32":
        return pa.array(wire.parse_floats(body))
    if column.type == "int64":
        return pa.array(wire.parse_ints(body))
    return pa.array(wire.parse_bytes(body), pa.binary())


def _classic(features: dict[str, tuple[bytes, memoryview]], column: Column) -> pa.Array:
    values = _values(features, column.name, column)
    return values if len(values) == 1 else pa.nulls(1, column.arrow)


def _grouped(features: dict[str, tuple[bytes, memoryview]], column: Column) -> pa.Array:
    present = None
    if column.nullable:
        present = wire.parse_ints(features[f"{column.name}/present"][1]) != 0
    if column.encoding == "dictionary":
        values = _values(features, f"{column.name}/dict", column)
        codes = wire.parse_ints(features[f"{column.name}/codes"][1])
        indices = pa.array(codes, mask=None if present is None else ~present)
        return values.take(indices)
    values = _values(features, column.name, column)
    if present is None:
        return values
    return pc.if_else(pa.array(present), values, pa.scalar(None, values.type))


class RowGrouper:
    """Cuts a stream of batches into pieces of exactly `rows` rows; the last may be shorter."""

    def __init__(self, rows: int):
        self._rows = rows
        self._held: list[pa.RecordBatch] = []
        self._count = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        at = 0
        while batch.num_rows - at >= self._rows - self._count:
            take = self._rows - self._count
            piece = batch.slice(at, take)
            yield _joined([*self._held, piece])
            self._held, self._count = [], 0
            at += take
        if at < batch.num_rows:
            self._held.append(batch.slice(at))
            self._count += batch.num_rows - at

    def rest(self) -> Iterator[pa.RecordBatch]:
        if self._held:
            yield _joined(self._held)
        self._held, self._count = [], 0


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()[0]
