"""Encodes Arrow batches as records that hold many rows each.

    encode(batch, columns)                    # bytes of one tf.train.Example with all rows of the batch
    encode_records(batch, [4096, 10], columns)  # two Examples, of 4096 and 10 rows, as lists of pieces to be joined

    encode_classic(batch, columns)            # bytes of an Example for each row, for other tools
    classic_spec(columns)                     # their feature names and types, for stock tf.io

`headway.records.decode` reads records back. The classic form is one Example per row. There a feature has its column's name and
the row's value, and is left out for null.

A record's bytes depend on its rows alone, not on how the rows came in batches. A dictionary holds the record's own values in
order of first appearance, whatever dictionary the batch had. (A dictionary shared by a whole file would save about 40 bytes a
record, but tie each record to its neighbours.) A null is stored as 0, the empty string or code 0, with present = 0. A null
vector of length n is stored as n of these. A null list is stored as a list of length 0. If all values of a dictionary column
are null in a record, the column's dictionary is empty there.

A manifest holds the records' feature names and types, for stock tf.io, and the records' row counts, run-length encoded:

    feature_spec([Column(name="age", type="float32", nullable=True)])
    # {"age": {"kind": "sequence", "dtype": "float32"}, "age/present": {"kind": "sequence", "dtype": "int64"}}
    packed([4096, 4096, 4096, 17])            # [[4096, 3], [17, 1]]
    unpacked([[4096, 3], [17, 1]])            # int64: 4096, 4096, 4096, 17

For a column c, a record holds the feature `c` with the values, and if c is nullable `c/present` with 0 or 1 for each row. A
dictionary column has instead of `c` the distinct values `c/dict`, and `c/codes`, each row's index into them. A vector column of
length n has n values per row under these names. A list column has `c/values` (or `c/dict` and `c/codes`) and `c/lengths`.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.errors import DataError
from headway.records import wire
from headway.records.wire import EncodedFeature
from headway.schema.columns import Column
from headway.tabular.list_arrays import decoded, flatten, with_null_slots

Spec = dict[str, dict[str, Any]]
_MOST = 1 << 31
_FEW = 500
"""The number of dictionary words up to which plain Python is faster than Arrow's calls."""


def encode(batch: pa.RecordBatch, columns: Sequence[Column]) -> bytes:
    """Encode every row of `batch`, column by column, as one Example.

    Args:
        batch: has at least these columns, in stored types: int64, float32, binary, dictionary of binary, or lists of these.

    Raises:
        DataError: the Example would take 2 GiB or more, which protobuf cannot read.
    """
    return b"".join(encode_records(batch, [batch.num_rows], columns)[0])


def encode_records(batch: pa.RecordBatch, sizes: Sequence[int], columns: Sequence[Column]) -> list[list[wire.Piece]]:
    """Encode a batch as several Examples. `sizes` holds the number of rows of each. Returns each Example as a list of pieces
    to be joined.

    Each column is encoded for all records at once. Separate NumPy calls for a few thousand values would cost as much as the
    work itself, and two threads would wait for each other in these calls.

    Raises:
        DataError: a record would take 2 GiB or more, which protobuf cannot read.
    """
    starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    entries: list[list[wire.Piece]] = [[] for _ in sizes]
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))  # looking up each name would be quadratic
    for column in columns:
        for name, part in _features(arrays[column.name], starts, column):
            key, data, tags = wire.key(name), part.data, part.tags
            for pieces, start, end in zip(entries, part.ends, part.ends[1:], strict=False):
                pieces.append(wire.entry_head(key, end - start, tags))
                pieces.append(data[start:end])
    lengths = [sum(map(len, pieces)) for pieces in entries]
    for i, length in enumerate(lengths):
        if length >= _MOST:
            problem = f"a record of {sizes[i]} rows takes more than 2 GiB"
            raise DataError(problem, fix="leave the longest column out")
        entries[i].insert(0, wire.nested(length, wire.ONE))
    return entries


def _features(array: pa.Array, starts: NDArray[np.int64], column: Column) -> Iterator[tuple[str, EncodedFeature]]:
    array = _without_null_words(array)
    name, flat = column.name, array
    if column.is_list:
        parts = flatten(array)
        name, flat = f"{name}/values", parts.values
        yield f"{column.name}/lengths", _ints(parts.lengths, starts)
        inner = np.concatenate([[0], np.cumsum(parts.lengths)])[starts]
    elif column.length is not None:
        parts = flatten(array)
        flat, inner = with_null_slots(parts.values, parts.present, column.length), starts * column.length
    else:
        inner = starts
    if column.encoding == "dictionary":
        words, codes = _dictionaries(flat, inner)
        yield f"{column.name}/dict", words
        yield f"{column.name}/codes", _ints(codes, inner)
    elif column.type == "bytes":
        yield name, _texts(pc.fill_null(strings(flat), b""), inner)
    elif column.type == "float32":
        data = np.ascontiguousarray(numbers(flat), "<f4").view(np.uint8).data
        yield name, EncodedFeature(data, (inner * 4).tolist(), wire.PACKED_FLOATS)
    else:
        yield name, _ints(numbers(flat), inner)
    if column.nullable:
        present = _present(array).view(np.uint8) if array.null_count else np.ones(len(array), np.uint8)
        yield f"{column.name}/present", _ints(present, starts)


def _ints(values: NDArray[np.int64] | NDArray[np.uint8], starts: NDArray[np.int64]) -> EncodedFeature:
    data, ends = wire.varints_cut(values, starts)
    return EncodedFeature(data, ends, wire.PACKED_INTS)


def _texts(values: pa.BinaryArray, starts: NDArray[np.int64]) -> EncodedFeature:
    fields = wire.prefixed(values, lambda size: wire.nested(size, wire.ONE))
    ends = np.concatenate([[0], np.cumsum(pc.binary_length(fields).to_numpy(), dtype=np.int64)])[starts]
    return EncodedFeature(wire.joined(fields), ends.tolist(), wire.WORDS)


def _without_null_words(array: pa.Array) -> pa.Array:
    """Returns the array. A dictionary that holds null as a value is rebuilt, so that only the mask of the rows marks nulls."""
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        return array.dictionary_decode().dictionary_encode()
    return array


def _present(array: pa.Array) -> NDArray[np.bool_]:
    return array.is_valid().to_numpy(zero_copy_only=False)


def strings(array: pa.Array) -> pa.BinaryArray:
    values = decoded(array)
    return values if pa.types.is_binary(values.type) else values.cast(pa.binary())


def numbers(array: pa.Array) -> NDArray[Any]:
    """Returns the values as a NumPy array with 0 for nulls; without a copy when there are no nulls."""
    if not array.null_count:
        return array.to_numpy()
    return pc.fill_null(array, 0).to_numpy()


def _dictionaries(array: pa.Array, starts: NDArray[np.int64]) -> tuple[EncodedFeature, NDArray[Any]]:
    """Returns each record's distinct values, encoded in order of first appearance; and for each row the index of its value
    among these values of its record, 0 for null."""
    array = array if pa.types.is_dictionary(array.type) else strings(array).dictionary_encode()
    dictionary = array.dictionary
    if len(dictionary.unique()) != len(dictionary):  # nothing forbids a dictionary to hold a value twice
        return _dictionaries(strings(array).dictionary_encode(), starts)
    indices = array.indices
    records = len(starts) - 1
    present = _present(indices) if indices.null_count else None
    codes = (indices if present is None else pc.fill_null(indices, 0)).to_numpy()
    if not len(dictionary):
        return EncodedFeature(b"", [0] * (records + 1), wire.WORDS), np.zeros(len(codes), np.uint8)
    if records * len(dictionary) <= 4 * len(codes):
        orders, places = _places_at_once(codes, present, starts, len(dictionary))
    else:  # a large dictionary, of which a record uses little
        orders, places = _places_one_by_one(codes, present, starts)
    if present is not None:
        places = np.where(present, places, places.dtype.type(0))
    return _words(strings(dictionary), orders), places


def _places_at_once(
    codes: NDArray[np.integer], present: NDArray[np.bool_] | None, starts: NDArray[np.int64], size: int
) -> tuple[list[NDArray[np.int64]], NDArray[Any]]:
    """Returns each record's distinct codes, all below `size`, in order of first appearance; and for each row the index
    of its code among its record's distinct codes."""
    rows, records = len(codes), len(starts) - 1
    slots = codes.astype(np.int64)
    if records > 1:
        slots += np.repeat(np.arange(records) * size, np.diff(starts))
    at = np.arange(rows - 1, -1, -1)
    first = np.full(records * size, rows, np.int64)
    # backwards, so that the earliest row is written last
    if present is None:
        first[slots[::-1]] = at
    else:
        filled = present[::-1]
        first[slots[::-1][filled]] = at[filled]
    table = first.reshape(records, size)
    order = np.argsort(table, axis=1, kind="stable")
    used = np.count_nonzero(table < rows, axis=1)
    small = int(used.max(initial=0)) <= 0x80
    place = np.zeros((records, size), np.uint8 if small else np.int64)
    np.put_along_axis(place, order, np.arange(size).astype(place.dtype)[None, :], axis=1)
    return [order[i, : used[i]] for i in range(records)], place.reshape(-1)[slots]


def _places_one_by_one(
    codes: NDArray[np.integer], present: NDArray[np.bool_] | None, starts: NDArray[np.int64]
) -> tuple[list[NDArray[np.int64]], NDArray[Any]]:
    """Returns the same as `_places_at_once`, computed one record at a time."""
    orders, places = [], np.zeros(len(codes), np.int64)
    for start, end in pairwise(starts.tolist()):
        rows_held = slice(start, end) if present is None else start + np.flatnonzero(present[start:end])
        distinct, at, which = np.unique(codes[rows_held], return_index=True, return_inverse=True)
        order = np.argsort(at, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        places[rows_held] = place[which]
        orders.append(distinct[order].astype(np.int64))
    return orders, places


def _words(dictionary: pa.BinaryArray, orders: Sequence[NDArray[np.int64]]) -> EncodedFeature:
    """Encodes each record's distinct values as fields of a bytes_list. `orders` has their indices in `dictionary`."""
    if len(dictionary) > _FEW:
        ends = np.concatenate([[0], np.cumsum([len(order) for order in orders])])
        return _texts(dictionary.take(pa.array(np.concatenate(orders))), ends)
    fields = [wire.field(word) for word in dictionary.to_pylist()]
    parts = [b"".join([fields[code] for code in order.tolist()]) for order in orders]
    return EncodedFeature(b"".join(parts), list(accumulate(map(len, parts), initial=0)), wire.WORDS)


def classic_spec(columns: Sequence[Column]) -> Spec:
    """Returns for each classic feature by name its "kind", its "dtype" (int64, float32, string) and a vector's "shape": [n].

    Kind "scalar" is a FixedLenFeature without a default. "optional" is a FixedLenFeature that null rows leave out. "ragged"
    is a RaggedFeature. The shape is [] if none is given. A nullable list column c also has `c/present`, since parsers take
    an absent list for an empty list.
    """
    spec: Spec = {}
    for column in columns:
        kind = "ragged" if column.is_list else "optional" if column.nullable else "scalar"
        shape = {"shape": [column.length]} if column.length is not None else {}
        dtype = "string" if column.type == "bytes" else column.type
        spec[column.name] = {"kind": kind, "dtype": dtype, **shape}
        if column.is_list and column.nullable:
            spec[f"{column.name}/present"] = {"kind": "scalar", "dtype": "int64"}
    return spec


def encode_classic(batch: pa.RecordBatch, columns: Sequence[Column]) -> list[bytes]:
    """Returns one serialized Example per row of `batch`. The feature of a null value is left out."""
    if not columns or not batch.num_rows:
        return [wire.example([])] * batch.num_rows
    return wire.examples([entry for column in columns for entry in _one_each(batch.column(column.name), column)])


def _one_each(array: pa.Array, column: Column) -> Iterator[pa.BinaryArray]:
    """Yields arrays with an encoded feature map entry per row: the column's own, and for a nullable list also `c/present`."""
    key = wire.key(column.name)
    if column.shape:
        flat = flatten(array)
        tags = (wire.BYTES,) if column.type == "bytes" else (wire.ONE, wire.TAGS[column.type])
        pieces = _pieces(flat.values, column)
        if column.type == "bytes":
            pieces = wire.prefixed(pieces, lambda size: wire.nested(size, wire.ONE))
        ends = np.concatenate([[0], np.cumsum(pc.binary_length(pieces).to_numpy())])
        rows = ends[np.concatenate([[0], np.cumsum(flat.lengths)])].astype(np.int32)
        body = pa.Array.from_buffers(
            pa.binary(), len(array), [None, pa.py_buffer(rows), pa.py_buffer(wire.joined(pieces))]
        )
        yield wire.entry_per_row(key, body if flat.present.all() else pc.if_else(array.is_valid(), body, None), tags)
        if column.is_list and column.nullable:
            # stock tf.io reads an absent feature and an empty list alike
            presence = pa.array([b"\x00", b"\x01"], pa.binary()).take(pa.array(flat.present.astype(np.int8)))
            yield wire.entry_per_row(wire.key(f"{column.name}/present"), presence, (wire.ONE, wire.INTS))
    elif column.type == "bytes":
        yield wire.entry_per_row(key, strings(array), (wire.ONE, wire.BYTES))
    else:
        values = _pieces(array, column)
        if array.null_count:
            values = pc.if_else(array.is_valid(), values, None)
        yield wire.entry_per_row(key, values, (wire.ONE, wire.TAGS[column.type]))


def _pieces(array: pa.Array, column: Column) -> pa.BinaryArray:
    """Returns each value as encoded in its feature's list: a string, a varint, or the four bytes of a float."""
    if column.type == "bytes":
        return strings(array)
    values = numbers(array)
    if column.type == "float32":
        sizes, data = np.full(len(array), 4, np.int64), values.astype("<f4").tobytes()
    else:
        sizes, data = wire.varint_sizes(values), wire.varints(values)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(array), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


SPEC = "examples.json"
"""The name of the file with the columns and the feature spec of shards that were written outside of a run."""
ROWS_PER_RECORD = 4096
"""The most rows that a record holds. A record whose cells are large holds fewer."""


def feature_spec(columns: Sequence[Column]) -> Spec:
    """Returns for each feature by name its "kind", its "dtype" (int64, float32, string) and a vector's "shape": [n].

    The kind is always "sequence": a FixedLenSequenceFeature (allow_missing=True). The shape is [] if none is given.
    """
    spec: Spec = {}
    for column in columns:
        dtype = "string" if column.type == "bytes" else column.type
        shape = {"shape": [column.length]} if column.length is not None else {}
        if column.encoding == "dictionary":
            spec[f"{column.name}/dict"] = {"kind": "sequence", "dtype": "string"}
            spec[f"{column.name}/codes"] = {"kind": "sequence", "dtype": "int64", **shape}
        else:
            name = f"{column.name}/values" if column.is_list else column.name
            spec[name] = {"kind": "sequence", "dtype": dtype, **shape}
        if column.is_list:
            spec[f"{column.name}/lengths"] = {"kind": "sequence", "dtype": "int64"}
        if column.nullable:
            spec[f"{column.name}/present"] = {"kind": "sequence", "dtype": "int64"}
    return spec


Packed = Sequence[Sequence[int]]
"""The row counts of records, run-length encoded: pairs of a count and the number of successive records with it."""


def packed(rows: Sequence[int]) -> list[list[int]]:
    """Returns records' row counts, run-length encoded: pairs of a count and the number of successive records with it."""
    return [[size, sum(1 for _ in records)] for size, records in groupby(rows)]


def unpacked(value: Packed) -> NDArray[np.int64]:
    """Returns the row count of each record, int64 [records], from the result of `packed`. If all counts are equal, the array
    is a view that takes no memory."""
    runs = np.asarray(value, np.int64).reshape(-1, 2)
    return np.broadcast_to(runs[0, 0], runs[0, 1]) if len(runs) == 1 else np.repeat(runs[:, 0], runs[:, 1])


def total_rows(value: Packed) -> int:
    """Returns the number of rows in all records together, from their run-length encoded row counts."""
    return sum(rows * records for rows, records in value)
