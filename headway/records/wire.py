"""The few pieces of protobuf's wire format that a tf.train.Example needs, built with NumPy and Arrow.

Example { Features features = 1 { map<string, Feature> feature = 1 } }, and Feature is one of bytes_list = 1,
float_list = 2, int64_list = 3, each `repeated value = 1`, packed for numbers
(tensorflow/core/example/{example,feature}.proto).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

BYTES, FLOATS, INTS = b"\x0a", b"\x12", b"\x1a"
"""Tags of a Feature's three lists."""
ONE, _TWO = b"\x0a", b"\x12"
"""Tags of fields 1 and 2, length-delimited: of a message's only field, and of the value in an entry of a map."""
_FEW = 200
"""Below this many strings, such as a small dictionary, plain Python is faster than Arrow's calls."""
_SHIFTS = np.arange(0, 70, 7, dtype=np.uint64)
_SMALL = [bytes([n]) for n in range(0x80)]
"""Varints of one byte."""


def varint(n: int) -> bytes:
    """One non-negative integer."""
    if n < 0x80:
        return _SMALL[n]
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def varints(values: NDArray[np.int64] | NDArray[np.uint8]) -> bytes:
    """Packed varints; negative ones take ten bytes, as protobuf has it. uint8 values must be below 128."""
    if values.dtype == np.uint8:
        return values.tobytes()
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


def varint_sizes(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many bytes each value takes in `varints`: 1 to 10."""
    bits = np.ascontiguousarray(values, np.int64).view(np.uint64)
    top = int(bits.max()) if len(bits) else 0
    sizes = np.ones(len(bits), np.int64)
    for shift in range(7, top.bit_length(), 7):
        sizes += bits >> np.uint64(shift) != 0
    return sizes


def prefixed(values: pa.BinaryArray, prefix: Callable[[int], bytes]) -> pa.BinaryArray:
    """Each value behind the prefix that belongs to its length; a null stays null. Arrow joins them outside of Python's lock."""
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy()
    distinct, which = np.unique(lengths, return_inverse=True)
    prefixes = pa.array([prefix(int(length)) for length in distinct], pa.binary())
    return pc.binary_join_element_wise(prefixes.take(pa.array(which)), values, b"")


def joined(values: pa.BinaryArray) -> bytes:
    """All values one behind the other, without a step of Python for each."""
    _, offsets, data = values.buffers()
    if not len(values) or data is None:
        return b""
    ends = np.frombuffer(offsets, np.int32)
    return data[int(ends[values.offset]) : int(ends[values.offset + len(values)])].to_pybytes()


def field(data: bytes, tag: bytes = ONE) -> bytes:
    """A length-delimited field."""
    return tag + varint(len(data)) + data


def nested(size: int, *tags: bytes) -> bytes:
    """The bytes before `size` bytes of data that lie in one length-delimited field in another, innermost tag first."""
    head = b""
    for tag in tags:
        head = tag + varint(size + len(head)) + head
    return head


def int_list(values: NDArray[np.int64] | NDArray[np.uint8]) -> bytes:
    """A Feature holding an int64_list."""
    return field(field(varints(values)), INTS)


def float_list(values: NDArray[np.float32]) -> bytes:
    """A Feature holding a float_list."""
    return field(field(np.ascontiguousarray(values, "<f4").tobytes()), FLOATS)


def bytes_list(values: pa.BinaryArray) -> bytes:
    """A Feature holding a bytes_list of values without nulls."""
    if len(values) < _FEW:
        return field(b"".join([ONE + varint(len(v)) + v for v in values.to_pylist()]), BYTES)
    return field(joined(prefixed(values, lambda size: nested(size, ONE))), BYTES)


def entry(name: bytes, feature: bytes) -> bytes:
    """One entry of the feature map; `name` is the encoded key field."""
    return field(name + field(feature, _TWO))


def entries_of_one(name: bytes, values: pa.BinaryArray, tags: tuple[bytes, ...]) -> pa.BinaryArray:
    """For each value an entry of the feature map that holds it alone; a null stays null.

    Args:
        values: what the innermost field holds: a varint, four bytes of a float, or a string.
        tags: of the fields around it, innermost first, up to the feature's list: (ONE, INTS) for integers.
    """

    def prefix(size: int) -> bytes:
        head = nested(size, *tags, _TWO)
        return ONE + varint(len(name) + len(head) + size) + name + head

    return prefixed(values, prefix)


def examples(entries: list[pa.BinaryArray]) -> list[bytes]:
    """One serialized tf.train.Example a row from the rows' entries; a null is left out."""
    # not null_handling="skip", which loses the row when all of its entries are null (pyarrow 25)
    bodies = [pc.fill_null(entry, b"") for entry in entries]
    body = pc.binary_join_element_wise(*bodies, b"") if len(bodies) > 1 else bodies[0]
    return prefixed(body, lambda size: nested(size, ONE)).to_pylist()


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
    if int(lengths.max()) > 10:
        raise ValueError("a varint is too long")
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
