"""Arrow batches to records and back.

    encode(batch, columns)                    # bytes of one tf.train.Example with all rows of the batch
    encode_classic(batch, columns)            # one Example a row
    decode(record, columns, rows_per_record)  # the batch again

A record's bytes depend on its rows alone, not on how they arrived: a dictionary holds the record's own values in order
of first appearance, whatever dictionary the batch came with. (A dictionary shared by a whole file would save about 40
bytes a record and tie each record to its neighbours.) A null is stored as 0, the empty string or code 0, with
present = 0; a null vector is as many of those as it is long, a null list is a list of length 0. A record in which all of
a dictionary column is null has an empty dictionary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.errors import DataError
from headway.lists import flatten, join
from headway.records import wire
from headway.schema import Column

_MOST = 1 << 31


def encode(batch: pa.RecordBatch, columns: Sequence[Column]) -> bytes:
    """One Example holding every row of `batch`, column by column.

    Args:
        batch: stored types (int64, float32, binary or dictionary of binary, lists of them), at least the columns named.

    Raises:
        DataError: it would take 2 GiB or more, which protobuf cannot read.
    """
    entries: list[bytes] = []
    for column in columns:
        array = _without_null_words(batch.column(column.name))
        flat, name = array, column.name
        if column.is_list:
            parts = flatten(array)
            flat, name = parts.values, f"{name}/values"
            entries.append(wire.entry(_key(f"{column.name}/lengths"), wire.int_list(parts.lengths)))
        elif column.length is not None:
            flat = _slots(array, column.length)
        if column.encoding == "dictionary":
            values, codes = _dictionary(flat)
            entries.append(wire.entry(_key(f"{column.name}/dict"), wire.bytes_list(values)))
            entries.append(wire.entry(_key(f"{column.name}/codes"), wire.int_list(codes)))
        else:
            entries.append(wire.entry(_key(name), _plain(flat, column)))
        if column.nullable:
            entries.append(wire.entry(_key(f"{column.name}/present"), wire.int_list(_present(array).view(np.uint8))))
    if sum(map(len, entries)) >= _MOST:
        fix = f"set records.rows below {batch.num_rows}, or leave the longest column out"
        raise DataError(f"a record of {batch.num_rows} rows takes more than 2 GiB", where="records", fix=fix)
    return wire.example(entries)


def _slots(array: pa.Array, length: int) -> pa.Array:
    """The values of a vector column, `length` nulls for a null row."""
    flat = flatten(array)
    if flat.present.all():
        return flat.values
    held = np.repeat(flat.present, length)
    return flat.values.take(pa.array(np.cumsum(held) - 1, mask=~held))


def _key(name: str) -> bytes:
    return wire.field(name.encode())


def _without_null_words(array: pa.Array) -> pa.Array:
    """A dictionary may hold null as a value; here a row is null or it is not, and its own mask says so."""
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        return array.dictionary_decode().dictionary_encode()
    return array


def _present(array: pa.Array) -> NDArray[np.bool_]:
    return array.is_valid().to_numpy(zero_copy_only=False)


def _plain(array: pa.Array, column: Column) -> bytes:
    if column.type == "bytes":
        return wire.bytes_list(pc.fill_null(_strings(array), b""))
    numbers = _numbers(array)
    return wire.float_list(numbers) if column.type == "float32" else wire.int_list(numbers)


def _strings(array: pa.Array) -> pa.BinaryArray:
    values = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    return values if pa.types.is_binary(values.type) else values.cast(pa.binary())


def _numbers(array: pa.Array) -> NDArray[Any]:
    """The values with nulls as zero, without a copy when there are none."""
    if not array.null_count:
        return array.to_numpy()
    # the value buffer itself, in which the slots of nulls hold anything
    dtype = array.type.to_pandas_dtype()
    raw = np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]
    return np.where(_present(array), raw, dtype(0))


def _dictionary(array: pa.Array) -> tuple[pa.BinaryArray, NDArray[np.int64]]:
    """The distinct values by first appearance, and for each row its place among them; null is 0."""
    if not pa.types.is_dictionary(array.type):
        array = _strings(array).dictionary_encode()
    indices, dictionary = array.indices, array.dictionary
    present = _present(indices) if indices.null_count else None
    codes = (indices if present is None else pc.fill_null(indices, 0)).to_numpy()
    used = codes if present is None else codes[present]
    if not len(used):
        return pa.array([], pa.binary()), np.zeros(len(array), np.int64)
    order = _by_first_appearance(used, len(dictionary))
    values = _strings(dictionary.take(pa.array(order)))
    if len(values.unique()) != len(values):  # nothing forbids a dictionary to hold a value twice
        return _dictionary(_strings(array).dictionary_encode())
    place = np.zeros(len(dictionary), np.int64)
    place[order] = np.arange(len(order))
    out = place[codes]
    return values, out if present is None else np.where(present, out, 0)


def _by_first_appearance(used: NDArray[np.integer], size: int) -> NDArray[np.int64]:
    """The distinct codes of `used`, each below `size`, as they first appear."""
    if size > 4 * len(used):  # a large dictionary, of which a record uses little
        distinct, at = np.unique(used, return_index=True)
        return distinct[np.argsort(at, kind="stable")].astype(np.int64)
    first = np.full(size, len(used), np.int64)
    # reversed, so that the earliest row is written last
    first[used[::-1]] = np.arange(len(used) - 1, -1, -1)
    order = np.argsort(first, kind="stable")
    return order[: np.count_nonzero(first < len(used))]


def encode_classic(batch: pa.RecordBatch, columns: Sequence[Column]) -> list[bytes]:
    """One Example for each row of `batch`; a null leaves its feature out."""
    if not columns or not batch.num_rows:
        return [wire.example([])] * batch.num_rows
    return wire.examples([entry for column in columns for entry in _one_each(batch.column(column.name), column)])


def _one_each(array: pa.Array, column: Column) -> Iterator[pa.BinaryArray]:
    """The entries of each row's Example for a column."""
    key = _key(column.name)
    if column.shape:
        flat = flatten(array)
        tags = (wire.BYTES,) if column.type == "bytes" else (wire.ONE, _TAGS[column.type])
        pieces = _pieces(flat.values, column)
        if column.type == "bytes":
            pieces = wire.prefixed(pieces, lambda size: wire.nested(size, wire.ONE))
        ends = np.concatenate([[0], np.cumsum(pc.binary_length(pieces).to_numpy())])
        rows = ends[np.concatenate([[0], np.cumsum(flat.lengths)])].astype(np.int32)
        body = pa.Array.from_buffers(
            pa.binary(), len(array), [None, pa.py_buffer(rows), pa.py_buffer(wire.joined(pieces))]
        )
        yield wire.entries_of_one(key, body if flat.present.all() else pc.if_else(array.is_valid(), body, None), tags)
        if column.is_list and column.nullable:
            # stock tf.io reads an absent feature and an empty list alike
            said = pa.array([b"\x00", b"\x01"], pa.binary()).take(pa.array(flat.present.astype(np.int8)))
            yield wire.entries_of_one(_key(f"{column.name}/present"), said, (wire.ONE, wire.INTS))
    elif column.type == "bytes":
        yield wire.entries_of_one(key, _strings(array), (wire.ONE, wire.BYTES))
    else:
        values = _pieces(array, column)
        if array.null_count:
            values = pc.if_else(array.is_valid(), values, None)
        yield wire.entries_of_one(key, values, (wire.ONE, _TAGS[column.type]))


def _pieces(array: pa.Array, column: Column) -> pa.BinaryArray:
    """The bytes that each value takes within its list."""
    if column.type == "bytes":
        return _strings(array)
    numbers = _numbers(array)
    if column.type == "float32":
        sizes, data = np.full(len(array), 4, np.int64), numbers.astype("<f4").tobytes()
    else:
        sizes, data = wire.varint_sizes(numbers), wire.varints(numbers)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(array), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def decode(record: bytes, columns: Sequence[Column], rows_per_record: int) -> pa.RecordBatch:
    """The rows of one record, strings as plain binary.

    Raises:
        ValueError: not a record of these columns.
    """
    try:
        features = wire.parse(record)
        part = _classic if rows_per_record == 1 else _grouped
        arrays = [part(features, column) for column in columns]
        return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])
    except KeyError as error:
        raise ValueError(f"the record has no feature {error}") from None
    except IndexError as error:  # a code beyond its dictionary
        raise ValueError(str(error)) from None


_Features = dict[str, tuple[bytes, memoryview]]
_TAGS = {"bytes": wire.BYTES, "float32": wire.FLOATS, "int64": wire.INTS}


def _body(features: _Features, name: str, type: str) -> memoryview:
    tag, body = features[name]
    if tag not in (_TAGS[type], b""):
        raise ValueError(f"feature {name!r} is no list of {type}")
    return body


def _values(features: _Features, name: str, column: Column) -> pa.Array:
    body = _body(features, name, column.type)
    if column.type == "float32":
        return pa.array(wire.parse_floats(body))
    if column.type == "int64":
        return pa.array(wire.parse_ints(body))
    return pa.array(wire.parse_bytes(body), pa.binary())


def _ints(features: _Features, name: str) -> NDArray[np.int64]:
    return wire.parse_ints(_body(features, name, "int64"))


def _classic(features: _Features, column: Column) -> pa.Array:
    if column.is_list:
        present = _ints(features, f"{column.name}/present").all() if column.nullable else True
        empty = pa.array([], column.element.arrow)
        values = _values(features, column.name, column) if column.name in features else empty
        return join(values, np.array([len(values)]), np.array([present]), column)
    if column.name not in features and column.nullable:
        return pa.nulls(1, column.arrow)
    values = _values(features, column.name, column)
    if column.length is not None and len(values) == column.length:
        return join(values, np.array([len(values)]), np.array([True]), column)
    if len(values) > 1 or column.length is not None:
        wanted = column.length or "one"
        raise ValueError(f"feature {column.name!r} has {len(values)} values where the column has {wanted} a row")
    return values if len(values) else pa.nulls(1, column.arrow)


def _grouped(features: _Features, column: Column) -> pa.Array:
    present = _ints(features, f"{column.name}/present") != 0 if column.nullable else None
    lengths = _ints(features, f"{column.name}/lengths") if column.is_list else None
    if column.encoding == "dictionary":
        codes = _ints(features, f"{column.name}/codes")
        # code 0 stands for null as well, and must be good for something where the dictionary is empty
        words = pa.concat_arrays([_values(features, f"{column.name}/dict", column), pa.array([b""], pa.binary())])
        values = words.take(pa.array(codes))
    else:
        values = _values(features, column.name if lengths is None else f"{column.name}/values", column)
    if column.length is not None:
        lengths = np.full(len(values) // column.length, column.length)
    if lengths is None:
        return values if present is None else pc.if_else(pa.array(present), values, pa.scalar(None, values.type))
    if len(values) != lengths.sum():
        raise ValueError(f"column {column.name!r} has {len(values)} values and lengths that add up to {lengths.sum()}")
    if present is None:
        present = np.ones(len(lengths), np.bool_)
    elif column.length is not None:  # the slots of null rows
        values = values.filter(pa.array(np.repeat(present, column.length)))
    return join(values, np.where(present, lengths, 0), present, column)
