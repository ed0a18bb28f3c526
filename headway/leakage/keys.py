"""Hashes keys to 64 bits by their value: it does not matter how a file writes them.

    hashes, missing = key_hashes(batch, ["customer", "day"])      # uint64 [rows], bool [rows]
    canonical(pa.array([b" 7", b"7.0", b"+7"]))                   # [b"7", b"7", b"7"]

The split hashes stored values. A text key that one file writes as 7 and another as 7.0 is two keys there; here it is one. White
space around a text, a plus sign before a whole number and zeros behind its decimal point are ignored. Leading zeros, case and
everything else count. Floats are compared as float32, with -0.0 as 0.0.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.tabular.hashing import mix64
from headway.tabular.splits import column_hash
from headway.validation.anomaly import value_text

Hashes = NDArray[np.uint64]
_SALT = 0x6C65616B  # "leak"
_SPACE, _SIGN, _DIGIT, _POINT = 1, 2, 4, 8
_FLAGS = np.zeros(256, np.uint8)
_FLAGS[np.frombuffer(b" \t\n\r\f\v", np.uint8)] = _SPACE
_FLAGS[ord("+")] = _SIGN
_FLAGS[np.frombuffer(b"0123456789", np.uint8)] = _DIGIT
_FLAGS[np.frombuffer(b".", np.uint8)] = _POINT
_EDGES = r"^[ \t\n\r\f\v]+|[ \t\n\r\f\v]+$"
_WHOLE = r"^[+]?(-?[0-9]+)(?:[.]0*)?$"


def key_hashes(
    batch: pa.RecordBatch, columns: Sequence[str], hashes_of: dict[str, Hashes] | None = None
) -> tuple[Hashes, NDArray[np.bool_] | None]:
    """Returns the hash of each row's key, uint64 [rows]; and a mask of the keys with a null or NaN (None: there are none).

    A hash depends on the key's values alone, not on the config of a split.

    Args:
        columns: the columns of the key, at least one, each with one value per row. Their order does not matter.
        hashes_of: the `column_hash` of columns that were hashed already, by name.
    """
    state: Hashes | None = None
    missing: NDArray[np.bool_] | None = None
    for i, name in enumerate(sorted(columns)):
        array = batch.column(name)
        same = canonical(array)
        hashes = hashes_of[name] if hashes_of and same is array and name in hashes_of else column_hash(same)
        state = hashes if state is None else mix64(mix64(state, _SALT) ^ hashes, i)
        gone = _missing(same)
        if gone is not None:
            missing = gone if missing is None else missing | gone
    assert state is not None
    return state, missing


def unit_codes(batch: pa.RecordBatch, key: Sequence[str], hashes_of: dict[str, Hashes] | None = None) -> pa.Array:
    """Returns a code of each row's key: int64 [rows], at least 0; null for a row without a key. A key's rows are in one split.

    A code is 42 bits of `key_hashes`, six bytes in a record. The chance that two of a million keys share a code is one in nine.
    """
    hashes, missing = key_hashes(batch, key, hashes_of)
    return pa.array((hashes >> np.uint64(22)).astype(np.int64), mask=missing)


def _missing(array: pa.Array) -> NDArray[np.bool_] | None:
    if pa.types.is_floating(array.type):
        mask = pc.is_null(array, nan_is_null=True)
        return mask.to_numpy(zero_copy_only=False) if mask.true_count else None
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None


def canonical(array: pa.Array) -> pa.Array:
    """Returns the values in the form in which keys are compared; returns `array` itself if all values have this form."""
    if pa.types.is_dictionary(array.type):
        if array.dictionary.null_count:
            return canonical(array.dictionary_decode())
        values = canonical(array.dictionary)
        return array if values is array.dictionary else pa.DictionaryArray.from_arrays(array.indices, values)
    if not (pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)):
        return array
    unusual = _unusual(array.cast(pa.large_binary()))
    if unusual is None:
        return array
    values = _plain(array.filter(pa.array(unusual)))
    return pc.replace_with_mask(array, pa.array(unusual), values.cast(array.type))


def _unusual(array: pa.Array) -> NDArray[np.bool_] | None:
    """Returns a mask of the texts that may have to be rewritten; None: none has to. For nearly all texts, the first and last byte
    tell."""
    _, offsets_buffer, data_buffer = array.buffers()
    if data_buffer is None or not len(array):
        return None
    offsets = np.frombuffer(offsets_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(data_buffer, np.uint8)
    if not len(data):
        return None
    not_empty = offsets[1:] > offsets[:-1]
    last = _FLAGS[data[np.maximum(offsets[1:] - 1, 0)]]
    first = _FLAGS[data[np.minimum(offsets[:-1], len(data) - 1)]]
    unusual = ((first & (_SPACE | _SIGN)) | (last & _SPACE)) != 0
    numeric = ((last & (_DIGIT | _POINT)) != 0) & not_empty & ~unusual
    if numeric.any():
        # most keys of digits have no point in them
        texts = array if numeric.all() else array.filter(pa.array(numeric))
        unusual[numeric] = pc.fill_null(pc.match_substring(texts, "."), False).to_numpy(zero_copy_only=False)
    unusual &= not_empty
    if array.null_count:
        unusual &= array.is_valid().to_numpy(zero_copy_only=False)
    return unusual if unusual.any() else None


def _plain(texts: pa.Array) -> pa.Array:
    trimmed = pc.replace_substring_regex(texts.cast(pa.large_binary()), _EDGES, "")
    return pc.replace_substring_regex(trimmed, _WHOLE, r"\1")


def key_text(value: Any) -> str:
    """Returns the value of one column of a key as text, for messages."""
    if isinstance(value, bytes):
        return value_text(value)
    return repr(value) if not isinstance(value, float) else f"{value:.9g}"
