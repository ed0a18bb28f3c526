"""Decodes records to Arrow batches, and reads tf.train.Examples of other tools.

    decode(record, columns)   # the batch that was encoded
    features(record)          # {"age": (FLOATS, array([...])), "carrier/dict": (BYTES, [b"AA", ...])}
    usual_form(record)        # the same Example with packed lists, each feature once, no unknown fields

Protobuf parses the Examples, with Headway's own message descriptors, since TensorFlow's are in the default pool. In Headway's,
a feature's name may be any bytes, as in files. The feature map is a list: of two entries with one name, the last counts.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.records.wire import BYTES, FLOATS, INTS, TAGS
from headway.schema.columns import ARROW, Column, StoredType
from headway.tabular.list_arrays import join


def decode(record: bytes, columns: Sequence[Column]) -> pa.RecordBatch:
    """Returns the rows of one record as a batch. Strings get Arrow's type binary, also if the record stores a dictionary.

    Raises:
        ValueError: the bytes are not a record of these columns.
    """
    try:
        entries = features(record)
        arrays = [_values_of(entries, column) for column in columns]
        return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])
    except KeyError as error:
        raise ValueError(f"the record has no feature {error}") from None
    except IndexError as error:  # a code beyond its dictionary
        raise ValueError(str(error)) from None


_Features = dict[str, tuple[bytes, Any]]


def _list(features: _Features, name: str, type: StoredType) -> Any:
    tag, values = features[name]
    if tag not in (TAGS[type], b""):
        raise ValueError(f"feature {name!r} is not a list of {type}")
    return values


def _values(features: _Features, name: str, column: Column) -> pa.Array:
    return pa.array(_list(features, name, column.type), ARROW[column.type])


def _stored_ints(features: _Features, name: str) -> NDArray[np.int64]:
    return np.asarray(_list(features, name, "int64"), np.int64)


def _values_of(features: _Features, column: Column) -> pa.Array:
    present = _stored_ints(features, f"{column.name}/present") != 0 if column.nullable else None
    lengths = _stored_ints(features, f"{column.name}/lengths") if column.is_list else None
    if column.encoding == "dictionary":
        codes = _stored_ints(features, f"{column.name}/codes")
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


SEQUENCE = "is a tf.SequenceExample: its feature_lists are not read"
_TAGS = {"bytes_list": BYTES, "float_list": FLOATS, "int64_list": INTS, None: b""}
_MESSAGES: dict[str, tuple[tuple[str, str], ...]] = {
    "Strings": (("value", "*bytes"),),
    "Floats": (("value", "*float"),),
    "Integers": (("value", "*int64"),),
    "Feature": (("bytes_list", "Strings"), ("float_list", "Floats"), ("int64_list", "Integers")),
    "Entry": (("key", "bytes"), ("value", "Feature")),
    "Features": (("feature", "*Entry"),),
    "Example": (("features", "Features"), ("feature_lists", "bytes")),
}
"""The name and type of each message's fields, numbered from 1 (tensorflow/core/example/{example,feature}.proto). A * marks a
repeated field."""


@cache
def _example(*, packed: bool) -> Any:
    """Returns the message class of tf.train.Example. With `packed`, it leaves lists of numbers as undecoded packed bytes."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="example.proto")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if name == "Feature":
            message.oneof_decl.add(name="kind")
        for number, (part, kind) in enumerate(fields, 1):
            label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED if kind.startswith("*") else 1
            field = message.field.add(name=part, number=number, label=label)
            kind = kind.removeprefix("*")
            if kind in _MESSAGES:
                field.type_name = kind
            elif kind == "bytes" or packed:
                field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
            else:
                field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
                field.options.packed = True
            if name == "Feature":
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Example"))


def _parsed(record: bytes, *, packed: bool) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return _example(packed=packed).FromString(record)
    except DecodeError:
        raise ValueError("not a tf.train.Example") from None


def features(record: bytes) -> dict[str, tuple[bytes, Any]]:
    """Returns each feature of an Example in its usual form (`usual_form`), by name: the tag of the feature's list (BYTES,
    FLOATS or INTS; b"" if it has no list), and the values.

    Raises:
        ValueError: the bytes are no Example.
    """
    features: dict[str, tuple[bytes, Any]] = {}
    for entry in _parsed(record, packed=True).features.feature:
        which = entry.value.WhichOneof("kind")
        values: Any = list(getattr(entry.value, which).value) if which else []
        if which == "float_list":
            values = np.frombuffer(b"".join(values), "<f4")
        elif which == "int64_list":
            values = varints(b"".join(values))
        features[entry.key.decode()] = _TAGS[which], values
    return features


def varints(data: bytes) -> NDArray[np.int64]:
    """Decode packed varints to integers.

    Raises:
        ValueError: a varint is cut off, or is too long.
    """
    encoded = np.frombuffer(data, np.uint8)
    if not len(encoded):
        return np.zeros(0, np.int64)
    ends = np.flatnonzero(encoded < 0x80)
    if not len(ends) or ends[-1] != len(encoded) - 1:
        raise ValueError("a varint is cut off")
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if int(lengths.max()) > 10:
        raise ValueError("a varint is too long")
    out = np.zeros(len(ends), np.uint64)
    for i in range(int(lengths.max())):
        rows = lengths > i
        out[rows] |= (encoded[starts[rows] + i] & 0x7F).astype(np.uint64) << np.uint64(7 * i)
    return out.view(np.int64)


def usual_form(record: bytes) -> bytes:
    """Returns an Example rewritten with packed lists, each feature once, and without unknown fields.

    Raises:
        ValueError: the bytes are no Example, or they are a SequenceExample.
    """
    example = _parsed(record, packed=False)
    if example.HasField("feature_lists"):
        raise ValueError(SEQUENCE)
    example.DiscardUnknownFields()
    entries = {entry.key: entry for entry in example.features.feature}
    usual = _example(packed=False)()
    usual.features.SetInParent()
    for key, entry in entries.items():
        entry.key = key  # is written where it was left out, too
        usual.features.feature.append(entry)
    return bytes(usual.SerializeToString(deterministic=True))
