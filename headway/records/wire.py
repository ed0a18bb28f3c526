"""The few pieces of protobuf's wire format that a tf.train.Example needs, built with NumPy.

Example { Features features = 1 { map<string, Feature> feature = 1 } }, and Feature is one of bytes_list = 1,
float_list = 2, int64_list = 3, each `repeated value = 1`, packed for numbers
(tensorflow/core/example/{example,feature}.proto).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

BYTES, FLOATS, INTS = b"\x0a", b"\x12", b"\x1a"
"""Tags of a Feature's three lists."""
_FIRST = b"\x0a"
"""Tag of field 1, length-delimited."""
_SHIFTS = np.arange(0, 70, 7, dtype=np.uint64)


def varint(n: int) -> bytes:
    """One non-negative integer."""
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def varints(values: NDArray[np.int64]) -> bytes:
    """Packed varints of int64 values; negative ones take ten bytes, as protobuf has it."""
    if not len(values):
        return b""
    bits = np.ascontiguousarray(values, np.int64).view(np.uint64)
    top = int(bits.max())
    if top < 0x80:
        return bits.astype(np.uint8).tobytes()
    width = (top.bit_length() + 6) // 7
    if width == 2:  # the common case, without the general one's temporaries
        pairs = np.empty((len(bits), 2), np.uint8)
        long = bits > 0x7F
        pairs[:, 0] = (bits & np.uint64(0x7F)).astype(np.uint8) | (long.astype(np.uint8) << 7)
        pairs[:, 1] = (bits >> np.uint64(7)).astype(np.uint8)
        keep = np.ones(pairs.shape, bool)
        keep[:, 1] = long
        return pairs[keep].tobytes()
    shifted = bits[:, None] >> _SHIFTS[None, :width]
    parts = (shifted & np.uint64(0x7F)).astype(np.uint8)
    more = np.zeros(parts.shape, bool)
    more[:, :-1] = shifted[:, 1:] != 0
    parts |= more.astype(np.uint8) << 7
    keep = np.ones(parts.shape, bool)
    keep[:, 1:] = shifted[:, 1:] != 0
    return parts[keep].tobytes()


def field(data: bytes, tag: bytes = _FIRST) -> bytes:
    """A length-delimited field."""
    return tag + varint(len(data)) + data


def int_list(values: NDArray[np.int64]) -> bytes:
    """A Feature holding an int64_list."""
    return field(field(varints(values)), INTS)


def float_list(values: NDArray[np.float32]) -> bytes:
    """A Feature holding a float_list."""
    return field(field(np.ascontiguousarray(values, "<f4").tobytes()), FLOATS)


def bytes_list(values: Iterable[bytes]) -> bytes:
    """A Feature holding a bytes_list."""
    return field(b"".join([_FIRST + varint(len(v)) + v for v in values]), BYTES)


def entry(name: bytes, feature: bytes) -> bytes:
    """One entry of the feature map; `name` is the encoded key field."""
    return field(name + field(feature, b"\x12"))


def example(entries: Iterable[bytes]) -> bytes:
    """A serialized tf.train.Example."""
    return field(b"".join(entries))


def parse(data: bytes) -> dict[str, tuple[bytes, memoryview]]:
    """The features of a serialized Example: name -> (tag of the list, the list's body).

    Raises:
        ValueError: not an Example, or cut off.
    """
    features: dict[str, tuple[bytes, memoryview]] = {}
    for _, body in _fields(memoryview(data)):
        for _, item in _fields(body):
            parts = dict(_fields(item))
            name = bytes(parts[1]).decode()
            for number, values in _fields(parts.get(2, memoryview(b""))):
                features[name] = (bytes([number << 3 | 2]), values)
            features.setdefault(name, (b"", memoryview(b"")))
    return features


def parse_bytes(body: memoryview) -> list[bytes]:
    return [bytes(value) for _, value in _fields(body)]


def parse_floats(body: memoryview) -> NDArray[np.float32]:
    parts = [np.frombuffer(value, "<f4") for _, value in _fields(body)]
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def parse_ints(body: memoryview) -> NDArray[np.int64]:
    parts = [_varints_of(value) for _, value in _fields(body)]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _varints_of(value: memoryview) -> NDArray[np.int64]:
    data = np.frombuffer(value, np.uint8)
    if not len(data):
        return np.zeros(0, np.int64)
    ends = np.flatnonzero(data < 0x80)
    if not len(ends) or ends[-1] != len(data) - 1:
        raise ValueError("a varint is cut off")
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    out = np.zeros(len(ends), np.uint64)
    for i in range(int(lengths.max())):
        rows = lengths > i
        out[rows] |= (data[starts[rows] + i] & 0x7F).astype(np.uint64) << np.uint64(7 * i)
    return out.view(np.int64)


def _fields(data: memoryview) -> list[tuple[int, memoryview]]:
    found, at = [], 0
    while at < len(data):
        tag, at = _varint_at(data, at)
        if tag & 7 != 2:
            raise ValueError(f"wire type {tag & 7} where a length was expected")
        size, at = _varint_at(data, at)
        if at + size > len(data):
            raise ValueError("a field is cut off")
        found.append((tag >> 3, data[at : at + size]))
        at += size
    return found


def _varint_at(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("a varint is cut off")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
