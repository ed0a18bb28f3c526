"""A versioned 64-bit hash of integers and byte strings, vectorised over NumPy.

Splits, shuffles and sketches depend on this hash, so it never changes: the tests compare it with fixed values. The mixer is
splitmix64's finaliser (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).

    mix64(np.arange(3, dtype=np.uint64), seed=7)
"""

import hashlib

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

VERSION = 1
U64 = np.uint64
GOLDEN = 0x9E3779B97F4A7C15
_ONES = 0xFFFFFFFFFFFFFFFF
_BLOCK = 1 << 14
_FEW = 4
_LONG = 1024
NULL = U64(0x6E756C6C6E756C6C)
"""The hash of a null; no value is given this hash on purpose."""


def mix64(x: NDArray[np.uint64], seed: int = 0) -> NDArray[np.uint64]:
    """Compute splitmix64's finaliser of x + (seed + 1) * golden, elementwise, modulo 2**64; dtype and shape [n] as `x`.

    It is computed in blocks that stay in the processor's cache. Whole arrays took six times as long.
    """
    mixed, scratch = np.empty(len(x), U64), np.empty(min(len(x), _BLOCK), U64)
    for start in range(0, len(x), _BLOCK):
        z = mixed[start : start + _BLOCK]
        shifted = scratch[: len(z)]
        np.add(x[start : start + _BLOCK], U64(((seed + 1) * GOLDEN) & _ONES), out=z)
        z ^= np.right_shift(z, U64(30), out=shifted)
        z *= U64(0xBF58476D1CE4E5B9)
        z ^= np.right_shift(z, U64(27), out=shifted)
        z *= U64(0x94D049BB133111EB)
        z ^= np.right_shift(z, U64(31), out=shifted)
    return mixed


def hash_bytes(data: NDArray[np.uint8], offsets: NDArray[np.int64], seed: int = 0) -> NDArray[np.uint64]:
    """Hash strings to uint64; string i is data[offsets[i]:offsets[i + 1]].

    A string is cut into little-endian 8-byte words, the last one padded with zeros. `mix64` folds them one by one into a state
    that begins with the string's length, so that padding cannot collide. Of a string of more than 1,024 bytes only the 8 bytes of
    its BLAKE2b digest (RFC 7693) are folded: an image has too many words for NumPy's calls.
    """
    offsets = np.asarray(offsets, np.int64)
    lengths = offsets[1:] - offsets[:-1]
    state = mix64(lengths.astype(U64), seed)
    if not len(lengths):
        return state
    long = np.flatnonzero(lengths > _LONG)
    for row in long.tolist():
        text = data[offsets[row] : offsets[row + 1]].tobytes()
        digest = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
        state[row] = mix64(state[row : row + 1] ^ U64(digest), 0)[0]
    words = np.where(lengths > _LONG, 0, (lengths + 7) // 8)
    order = np.argsort(-words, kind="stable")
    padded = np.zeros(len(data) + 8, np.uint8)
    padded[: len(data)] = data
    falling = -words[order]
    for k in range(-int(falling[0])):
        rows = order[: np.searchsorted(falling, -k, side="left")]  # strings with more than k words
        if len(rows) <= _FEW:
            for row in rows.tolist():
                text = data[offsets[row] : offsets[row + 1]].tobytes()
                state[row] = _fold_words(int(state[row]), text, k)
            break
        start = offsets[rows] + 8 * k
        word = np.zeros(len(rows), U64)
        remaining = np.minimum(lengths[rows] - 8 * k, 8)
        for byte in range(8):
            value = padded[start + byte].astype(U64) << U64(8 * byte)
            word |= np.where(byte < remaining, value, U64(0))
        state[rows] = mix64(state[rows] ^ word, k)
    return state


def hash_texts(array: pa.Array) -> NDArray[np.uint64]:
    """Compute `hash_bytes` of each value of a string or binary array; a null has an undefined hash."""
    if not len(array):
        return np.zeros(0, U64)
    array = array.cast(pa.large_binary())
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    return hash_bytes(data[offsets[0] : offsets[-1]], offsets - offsets[0])


def _fold_words(state: int, text: bytes, first: int) -> int:
    """Fold the words of a string, from word `first` on, into `state`. Plain Python: NumPy's calls are slow for few strings."""
    for k in range(first, (len(text) + 7) // 8):
        z = (state ^ int.from_bytes(text[8 * k : 8 * k + 8], "little")) + (k + 1) * GOLDEN & _ONES
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _ONES
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _ONES
        state = z ^ (z >> 31)
    return state


def permutation(n: int, *seeds: int) -> NDArray[np.int64]:
    """Returns a permutation of range(n). The same seeds give the same one in every version of NumPy."""
    key = np.arange(n, dtype=U64)
    for seed in seeds:
        key = mix64(key, seed)
    return np.argsort(key, kind="stable").astype(np.int64)
