"""The classic form, for other tools: one tf.train.Example per row, with plain names, one value each, and nothing for null.

encode_classic(batch, columns)            # bytes of an Example for each row
classic_spec(columns)                     # what parses them with stock tf.io
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headway.records import wire
from headway.records.encode import numbers, strings
from headway.records.spec import Spec
from headway.schema.columns import Column
from headway.tabular.list_arrays import flatten


def classic_spec(columns: Sequence[Column]) -> Spec:
    """The kind and dtype ("int64", "float32", "string") of each feature, and "shape": [n] for vectors.

    kind "scalar" is a FixedLenFeature without a default, "optional" one that null rows leave out, "ragged" a RaggedFeature;
    all of shape [] unless they say another. A list that may be null has `c/present`, since parsers take an empty list for
    an absent one.
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
    """Encode each row of `batch` as one Example; a null leaves its feature out."""
    if not columns or not batch.num_rows:
        return [wire.example([])] * batch.num_rows
    return wire.examples([entry for column in columns for entry in _one_each(batch.column(column.name), column)])


def _one_each(array: pa.Array, column: Column) -> Iterator[pa.BinaryArray]:
    """The feature map entries of a column, one per row's Example."""
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
        yield wire.entries_of_one(key, body if flat.present.all() else pc.if_else(array.is_valid(), body, None), tags)
        if column.is_list and column.nullable:
            # stock tf.io reads an absent feature and an empty list alike
            presence = pa.array([b"\x00", b"\x01"], pa.binary()).take(pa.array(flat.present.astype(np.int8)))
            yield wire.entries_of_one(wire.key(f"{column.name}/present"), presence, (wire.ONE, wire.INTS))
    elif column.type == "bytes":
        yield wire.entries_of_one(key, strings(array), (wire.ONE, wire.BYTES))
    else:
        values = _pieces(array, column)
        if array.null_count:
            values = pc.if_else(array.is_valid(), values, None)
        yield wire.entries_of_one(key, values, (wire.ONE, wire.TAGS[column.type]))


def _pieces(array: pa.Array, column: Column) -> pa.BinaryArray:
    """The bytes of each value within its list."""
    if column.type == "bytes":
        return strings(array)
    values = numbers(array)
    if column.type == "float32":
        sizes, data = np.full(len(array), 4, np.int64), values.astype("<f4").tobytes()
    else:
        sizes, data = wire.varint_sizes(values), wire.varints(values)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(array), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
