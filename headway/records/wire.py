"""Encodes the parts of protobuf's wire format that a tf.train.Example needs, with NumPy and Arrow.

Example { Features features = 1 { map<string, Feature> feature = 1 } }, and Feature is one of bytes_list = 1,
float_list = 2, int64_list = 3, each `repeated value = 1`, packed for numbers
(tensorflow/core/example/{example,feature}.proto).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Piece = bytes | memoryview
BYTES, FLOATS, INTS = b"\x0a", b"\x12", b"\x1a"
"""The tags of a Feature's three lists."""
TAGS = {"bytes": BYTES, "float32": FLOATS, "int64": INTS}
ONE, _TWO = b"\x0a", b"\x12"
"""The tags of the length-delimited fields 1 and 2: a message's only field, and the value in an entry of a map."""
PACKED_INTS, PACKED_FLOATS, WORDS = (ONE, INTS), (ONE, FLOATS), (BYTES,)
"""The tags of the fields around a feature's bytes, innermost first. For WORDS, the bytes already hold each value's tag."""
_LIMITS = np.array([1 << 7 * i for i in range(1, 10)], np.uint64)
"""The smallest values whose varints take 2, 3, ... 10 bytes."""


class EncodedFeature(NamedTuple):
    """One feature of several records. Record i holds data[ends[i]:ends[i + 1]], nested in fields with these tags."""

    data: Piece
    ends: Sequence[int]
    tags: tuple[bytes, ...]


def varint(n: int) -> bytes:
    """Encode one non-negative integer as a varint."""
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def varints(values: NDArray[np.int64] | NDArray[np.uint8]) -> bytes:
    """Encode integers as packed varints, as protobuf does: a negative one takes ten bytes. uint8 values must be below 128."""
    return bytes(varints_cut(values, np.array([0, len(values)]))[0])


def varints_cut(
    values: NDArray[np.int64] | NDArray[np.uint8], starts: NDArray[np.int64]
) -> tuple[memoryview, list[int]]:
    """Returns integers as packed varints, and for each index in `starts` (ascending) the byte offset of the varint there.

    uint8 values must be below 128.
    """
    if values.dtype == np.uint8 or not len(values):
        return np.ascontiguousarray(values, np.uint8).data, starts.tolist()
    bits = np.ascontiguousarray(values, np.int64).view(np.uint64)
    width = 1 + int(np.searchsorted(_LIMITS, bits.max(), side="right"))
    if width == 1:
        return bits.astype(np.uint8).data, starts.tolist()
    parts, keep = _sevens(bits, width)
    if width <= 8 and int(bits.min()) >> 7 * (width - 1):  # all of one width, such as running numbers
        return memoryview(parts.tobytes()), (starts * width).tolist()
    ends = np.concatenate([[0], np.cumsum(np.count_nonzero(keep, axis=1), dtype=np.int64)])
    return parts[keep].data, ends[starts].tolist()


def _sevens(bits: NDArray[np.uint64], width: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Returns each value's varint, padded to `width` bytes, uint8 [n, width]; and a mask of the bytes in use."""
    words: NDArray[Any] = bits.astype(np.uint32) if width <= 4 else bits  # half as long: faster
    parts, keep = np.empty((len(bits), width), np.uint8), np.ones((len(bits), width), np.bool_)
    for i in range(width):
        if i:
            words = words >> words.dtype.type(7)
            np.not_equal(words, 0, out=keep[:, i])
        parts[:, i] = words.astype(np.uint8) & np.uint8(0x7F)
    parts[:, :-1] |= keep[:, 1:].view(np.uint8) << np.uint8(7)  # more follows
    return parts, keep


def varint_sizes(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the number of bytes, 1 to 10, that each value takes in `varints`; int64 [n]."""
    bits = np.ascontiguousarray(values, np.int64).view(np.uint64)
    top = int(bits.max()) if len(bits) else 0
    sizes = np.ones(len(bits), np.int64)
    for shift in range(7, top.bit_length(), 7):
        sizes += bits >> np.uint64(shift) != 0
    return sizes


def prefixed(values: pa.BinaryArray, prefix: Callable[[int], bytes]) -> pa.BinaryArray:
    """Prepend `prefix(length in bytes)` to each value; a null stays null. Arrow joins the two without holding Python's lock."""
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy()
    distinct, which = np.unique(lengths, return_inverse=True)
    prefixes = pa.array([prefix(int(length)) for length in distinct], pa.binary())
    return pc.binary_join_element_wise(prefixes.take(pa.array(which)), values, b"")


def joined(values: pa.BinaryArray) -> bytes:
    """Returns all values concatenated, without a Python loop."""
    _, offsets, data = values.buffers()
    if not len(values) or data is None:
        return b""
    ends = np.frombuffer(offsets, np.int32)
    return data[int(ends[values.offset]) : int(ends[values.offset + len(values)])].to_pybytes()


def field(data: bytes, tag: bytes = ONE) -> bytes:
    """Encode a length-delimited field: tag, length, data."""
    return tag + varint(len(data)) + data


@lru_cache(1 << 15)
def key(name: str) -> bytes:
    """Returns a feature's name, encoded as the key field of a feature map entry."""
    return field(name.encode())


def nested(size: int, *tags: bytes) -> bytes:
    """Returns the tags and lengths before `size` bytes in nested length-delimited fields; `tags`: innermost first."""
    head = b""
    for tag in tags:
        head = tag + varint(size + len(head)) + head
    return head


@lru_cache(1 << 15)  # records of equal rows have columns of equal size
def entry_head(name: bytes, size: int, tags: tuple[bytes, ...]) -> bytes:
    """Returns all that stands before `size` bytes of data in an entry of the feature map: tags, lengths, name.

    Args:
        name: the encoded key field.
        tags: the tags of the fields around the data, innermost first: (ONE, INTS) for packed integers.
    """
    head = nested(size, *tags, _TWO)
    return ONE + varint(len(name) + len(head) + size) + name + head


def entry(name: bytes, feature: bytes) -> bytes:
    """Encode one entry of the feature map, from its encoded key field `name` and its encoded Feature."""
    return field(name + field(feature, _TWO))


def entry_per_row(name: bytes, values: pa.BinaryArray, tags: tuple[bytes, ...]) -> pa.BinaryArray:
    """Encode one entry of the feature map per row; a null stays null.

    Args:
        values: each row's bytes in the innermost field: a varint, four bytes of a float, a string, or a list of one of these.
        tags: the tags of the fields around these bytes, innermost first: (ONE, INTS) for integers.
    """

    return prefixed(values, lambda size: entry_head(name, size, tags))


def examples(entries: list[pa.BinaryArray]) -> list[bytes]:
    """Encode one tf.train.Example per row. Each array of `entries` has a feature map entry per row; a null is left out."""
    # not null_handling="skip", which loses the row when all of its entries are null (pyarrow 25)
    bodies = [pc.fill_null(entry, b"") for entry in entries]
    body = pc.binary_join_element_wise(*bodies, b"") if len(bodies) > 1 else bodies[0]
    return prefixed(body, lambda size: nested(size, ONE)).to_pylist()


def example(entries: Iterable[bytes]) -> bytes:
    """Encode a tf.train.Example from its encoded feature map entries."""
    return field(b"".join(entries))
