"""Converts list and vector columns to flat values and back, vectorised.

flat = flatten(array)                    # any of Arrow's list types
flat.values, flat.lengths, flat.present  # the length of a null row is 0
join(flat.values, flat.lengths, flat.present, column)
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.schema.columns import Column

_FEW, _SIGN = 1 << 13, np.uint64(1 << 63)
_TEXTS = frozenset(kind.id for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()))


@dataclass(frozen=True)
class Flat:
    """The flat form of lists: `values` of all rows, concatenated; of each row the length (int64), and whether it is `present`."""

    values: pa.Array
    lengths: NDArray[np.int64]
    present: NDArray[np.bool_]
    nulls: int = 0
    """The number of null values in the lists, also if `values` leaves them out."""

    def rows(self) -> NDArray[np.int64]:
        """Returns the index of the row that each value belongs to."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)


def is_text(kind: pa.DataType) -> bool:
    """Returns whether an Arrow type is text or bytes, with 32- or 64-bit offsets. False for views and bytes of a fixed size."""
    return kind.id in _TEXTS


def is_number(kind: pa.DataType) -> bool:
    """Returns whether an Arrow type is an integer or a float."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def has_bytes(kind: pa.DataType) -> bool:
    """Returns whether an Arrow type holds text or bytes, views included."""
    return is_text(kind) or pa.types.is_binary_view(kind) or pa.types.is_string_view(kind)


def value_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type of a column's values: of a dictionary type the type of its words, of any other the type itself."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def decoded(array: Any) -> Any:
    """Returns an array, or a chunked one, without dictionary encoding."""
    if not pa.types.is_dictionary(array.type):
        return array
    return array.cast(array.type.value_type) if isinstance(array, pa.ChunkedArray) else array.dictionary_decode()


def escaped(array: pa.Array) -> pa.Array:
    """Returns bytes as text. Bytes that are not UTF-8 are escaped; a null stays null."""
    encoded = array.dictionary_encode()
    words = [value.decode("utf-8", "backslashreplace") for value in encoded.dictionary.to_pylist()]
    return pc.take(pa.array(words, pa.string()), encoded.indices)


def plain(array: pa.Array) -> pa.Array:
    """Returns an array in the types that columns are read from. Converts views of text or bytes, bytes of a fixed size, run-end
    encoding, extension types, dictionaries of nested values, and nulls among the words of a dictionary."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain(array.storage)
    if pa.types.is_run_end_encoded(kind):
        return plain(pc.run_end_decode(array))
    if pa.types.is_string_view(kind):
        return array.cast(pa.string())
    if pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return array.cast(pa.binary())
    if not pa.types.is_dictionary(kind):
        return array
    if pa.types.is_nested(kind.value_type):
        return array.dictionary_decode()
    words = plain(array.dictionary)
    if words.null_count:
        return words.take(array.indices).dictionary_encode().cast(pa.dictionary(kind.index_type, words.type))
    return array if words is array.dictionary else pa.DictionaryArray.from_arrays(array.indices, words)


def combine_chunks(column: pa.ChunkedArray) -> Any:
    """Returns a column as one array, without a copy where it is one chunk."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def np_view(array: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Returns the values of an Arrow array of numbers as a NumPy array, without a copy. A null has an undefined value."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array)]


def run_starts(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Returns a mask of the values that differ from the value before. The first value counts as different."""
    starts = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=starts[1:])
    return starts


def stable_argsort(values: NDArray[Any]) -> NDArray[np.int64]:
    """Returns the indices that sort `values`; equal values keep their order, and no value may be NaN. Many numbers are sorted by
    radix, in half the time of NumPy's sort."""
    if len(values) < _FEW or values.dtype.kind not in "if":
        return np.argsort(values, kind="stable")
    if values.dtype.kind == "f":
        keys = (values + 0.0).astype(np.float64, copy=False).view(np.uint64)  # 0.0 for -0.0
        keys ^= (keys.view(np.int64) >> 63).view(np.uint64) | _SIGN
    else:
        keys = values.astype(np.int64).view(np.uint64) ^ _SIGN
    varying = int(np.bitwise_or.reduce(keys ^ keys[0]))
    order = np.arange(len(keys))
    for shift in range(0, 64, 16):
        if varying >> shift & 0xFFFF:
            digits = (keys >> np.uint64(shift)).astype(np.uint16)
            order = order[np.argsort(digits[order], kind="stable")]
    return order


def factorize(values: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
    """Returns a code for each value, and the number of distinct values. A code is the index of the value among the distinct
    values in rising order. The codes may be the array `values` itself."""
    if not len(values):
        return np.zeros(0, np.int64), 0
    if values.dtype.kind in "iu" and values.min() >= 0 and values.max() < 16 * len(values):  # nothing to sort
        there = np.zeros(int(values.max()) + 1, np.bool_)
        there[values] = True
        if there.all():
            return values.astype(np.int64, copy=False), len(there)
        numbers = np.cumsum(there)
        return numbers[values] - 1, int(numbers[-1])
    order = stable_argsort(values)
    numbers = np.cumsum(run_starts(values[order]))
    codes = np.empty(len(values), np.int64)
    codes[order] = numbers - 1
    return codes, int(numbers[-1])


def is_list(kind: pa.DataType) -> bool:
    """Returns whether an Arrow type holds several values per row."""
    return isinstance(
        kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType | pa.ListViewType | pa.LargeListViewType
    )


def cell_bytes(array: pa.Array, extra: int = 0) -> int | NDArray[np.int64]:
    """Returns the bytes of each value, plus `extra` bytes where sizes vary; a single number if all values have the same size.

    Args:
        extra: bytes to add to each value of varying size, whose own bytes are 0 if it is null, and to each list.
    """
    kind = array.type
    if has_bytes(kind):
        return pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64) + extra
    if pa.types.is_fixed_size_list(kind) and isinstance(each := cell_bytes(array.values, extra), int):
        return int(kind.list_size * each)
    if is_list(kind):
        flat = flatten(array)
        if isinstance(each := cell_bytes(flat.values, extra), int):
            return flat.lengths * each + extra
        ends = np.concatenate([[0], np.cumsum(each)])
        stops = np.cumsum(flat.lengths)
        return ends[stops] - ends[stops - flat.lengths] + extra
    try:
        return -(-kind.bit_width // 8)
    except ValueError:  # a struct cannot be stored anyway
        return 0


def as_batch(table: pa.Table) -> pa.RecordBatch:
    """Returns all rows of a table as one batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


def flatten(array: pa.Array, *, with_nulls: bool = False) -> Flat:
    """Returns the flat form of a list array of any kind. Values behind a null row are left out. So are nulls in lists, unless
    `with_nulls` is set."""
    present = array.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_fixed_size_list(array.type):
        lengths = np.where(present, array.type.list_size, 0).astype(np.int64)
    else:
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
    values = array.flatten()
    nulls = values.null_count
    if nulls and not with_nulls:
        rows = np.repeat(np.arange(len(lengths)), lengths)
        known = values.is_valid().to_numpy(zero_copy_only=False)
        values, lengths = values.drop_null(), np.bincount(rows[known], minlength=len(lengths))
    return Flat(values, lengths, present, nulls)


def join(values: pa.Array, lengths: NDArray[np.int64], present: NDArray[np.bool_], column: Column) -> pa.Array:
    """Returns the stored array of a list or vector column, given its flat form. A row that is not `present` must have length
    0."""
    mask = None if present.all() else pa.array(~present)
    if column.length is not None:
        values = with_null_slots(values, present, column.length)  # Arrow's fixed lists have them as well
        return pa.FixedSizeListArray.from_arrays(values, column.length, mask=mask)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    if offsets[-1] >= 1 << 31:
        raise ValueError("a batch holds more than 2**31 list elements")
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=mask)


def with_null_slots(values: pa.Array, present: NDArray[np.bool_], length: int) -> pa.Array:
    """Insert `length` nulls into the flat values of a vector column for each row that is not `present`."""
    if present.all():
        return values
    filled = np.repeat(present, length)
    return values.take(pa.array(np.cumsum(filled) - 1, mask=~filled))


def split_text(raw: pa.Array, separator: str) -> pa.Array:
    """Split texts such as "a|b" into lists; "" becomes the empty list, null stays null."""
    parts = pc.split_pattern(raw.cast(pa.large_string()), separator)
    empty = pc.equal(raw, "")
    return pc.if_else(empty, pa.scalar([], parts.type), parts) if pc.any(empty).as_py() else parts
