"""One tf.train.Example in any form that protobuf allows, put into the form that writers usually choose.

usual_form(record)         # packed lists, one map of features, nothing unknown; ValueError when it is no Example
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headway.records import wire

_WIDTHS = {1: 8, 5: 4}
SEQUENCE = "is a tf.SequenceExample: its feature_lists are not read"
_LISTS = {1: wire.BYTES, 2: wire.FLOATS, 3: wire.INTS}


def usual_form(record: bytes) -> bytes:
    """The same Example: unknown fields are left out, of fields that stand twice the last one counts."""
    features: dict[bytes, tuple[int, list[bytes]]] = {}
    for number, kind, body in _fields(record):
        if number == 2 and kind == 2:
            raise ValueError(SEQUENCE)
        if number != 1 or kind != 2:
            continue
        for inner, inner_kind, item in _fields(body):
            if inner == 1 and inner_kind == 2:
                name, feature = _entry(item)
                features[name] = _feature(feature)
    entries = []
    for name, (which, values) in features.items():
        head = wire.field(name)
        tag = _LISTS.get(which)
        if tag is None:
            entries.append(wire.field(head))
        elif which == 1:
            entries.append(wire.entry(head, wire.field(b"".join(map(wire.field, values)), tag)))
        else:
            entries.append(wire.entry(head, wire.field(wire.field(b"".join(values)) if values else b"", tag)))
    return wire.example(entries)


def _entry(item: bytes) -> tuple[bytes, bytes]:
    name = feature = b""
    for number, kind, body in _fields(item):
        if kind == 2 and number == 1:
            name = body
        elif kind == 2 and number == 2:
            feature = body
    return name, feature


def _feature(feature: bytes) -> tuple[int, list[bytes]]:
    """(which list, its strings or its numbers as they stand); (0, []) when it holds none."""
    which, values = 0, list[bytes]()
    for number, kind, body in _fields(feature):
        if kind == 2 and number in _LISTS:
            # a second list of the same kind is a continuation, one of another kind takes its place
            values = values if which == number else []
            which = number
            values += _values(number, body)
    return which, values


def _values(which: int, body: bytes) -> Iterator[bytes]:
    for number, kind, value in _fields(body):
        if number != 1:
            continue
        if (which == 2 and kind == 2 and len(value) % 4) or kind not in {1: (2,), 2: (2, 5), 3: (2, 0)}[which]:
            raise ValueError("a list holds what is none of its values")
        if which == 3 and kind == 2:
            wire.parse_ints(memoryview(wire.field(value)))
        yield value


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(number, wire type, contents) of each field; of a varint its bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            _, end = _varint(data, at)
        elif kind == 2:
            size, at = _varint(data, at)
            end = at + size
        elif kind in _WIDTHS:
            end = at + _WIDTHS[kind]
        else:
            raise ValueError(f"not a tf.train.Example: wire type {kind}")
        if end > len(data) or not number:
            raise ValueError("not a tf.train.Example: a field is cut off")
        yield number, kind, data[at:end]
        at = end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i in range(10):
        if at + i >= len(data):
            raise ValueError("not a tf.train.Example: a varint is cut off")
        byte = data[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return int(np.uint64(value & (1 << 64) - 1)), at + i + 1
    raise ValueError("not a tf.train.Example: a varint is too long")
