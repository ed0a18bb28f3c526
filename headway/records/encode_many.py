"""Features of scalar columns by the hundred, a block of them at a time: what a NumPy call costs is shared by a block.

    features_of_many(arrays, columns, starts)     # as `headway.records.encode` makes those of each; None: not made here

The bytes are those that each column alone would have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.records import wire
from headway.records.dictionaries import places_together, worth_a_table
from headway.records.wire import Part
from headway.schema.columns import Column
from headway.tabular.list_arrays import slots
from headway.tabular.splits import column_hash

Feature = tuple[str, Part]
MANY = 64
"""From so many columns on blocks pay."""
_BLOCK = 1 << 16
"""Values of a block: it and what is worked out of it stay near the processor."""
_LEAST = 8
_INT64, _FLOAT32 = np.dtype(np.int64), np.dtype("<f4")


def features_of_many(
    arrays: Sequence[pa.Array], columns: Sequence[Column], starts: NDArray[np.int64]
) -> list[list[Feature] | None]:
    """For each column its features over records that begin at the rows `starts` (the last one is the end).

    Args:
        arrays: the columns' stored arrays, of as many rows as one another.
    """
    rows = int(starts[-1])
    ones = Part(np.ones(rows, np.uint8).data, starts.tolist(), wire.PACKED_INTS)
    floats = (starts * 4).tolist()
    found: list[list[Feature] | None] = [None] * len(columns)
    integers: list[int] = []
    texts: list[int] = []
    for i, (array, column) in enumerate(zip(arrays, columns, strict=True)):
        if column.shape:
            continue
        if column.type == "int64":
            integers.append(i)
        elif column.type == "float32":
            values = np.ascontiguousarray(_filled(array, _FLOAT32))
            found[i] = [(column.name, Part(values.view(np.uint8).data, floats, wire.PACKED_FLOATS))]
        elif column.encoding == "dictionary":
            texts.append(i)
    for block in _blocks(integers, rows):
        stacked = np.empty((len(block), rows), np.int64)
        for place, i in enumerate(block):
            stacked[place] = _filled(arrays[i], _INT64)
        for i, (data, ends) in zip(block, wire.varints_of_many(stacked, starts), strict=True):
            found[i] = [(columns[i].name, Part(data, ends, wire.PACKED_INTS))]
    for i, words, codes in _texts(arrays, texts, starts):
        name = columns[i].name
        found[i] = [(f"{name}/dict", words), (f"{name}/codes", codes)]
    for i, features in enumerate(found):
        if features is not None and columns[i].nullable:
            part = Part(validity(arrays[i]).data, ones.ends, ones.tags) if arrays[i].null_count else ones
            features.append((f"{columns[i].name}/present", part))
    return found


def _blocks(places: Sequence[int], rows: int) -> Iterator[Sequence[int]]:
    each = max(_LEAST, _BLOCK // max(rows, 1))
    for start in range(0, len(places), each):
        yield places[start : start + each]


def validity(array: pa.Array) -> NDArray[np.uint8]:
    """1 where there is a value, 0 where it is null, of an array that has nulls of its own."""
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    return np.unpackbits(bits, count=array.offset + len(array), bitorder="little")[array.offset :]


def _filled(array: pa.Array, dtype: np.dtype) -> NDArray:
    """The values, 0 for a null."""
    values = slots(array, dtype)
    return np.where(validity(array), values, dtype.type(0)) if array.null_count else values


def _texts(
    arrays: Sequence[pa.Array], places: Sequence[int], starts: NDArray[np.int64]
) -> Iterator[tuple[int, Part, Part]]:
    """(column, its words, its codes) of the columns of text for which a block pays."""
    rows, records = int(starts[-1]), len(starts) - 1
    encoded: dict[int, pa.DictionaryArray] = {}
    for i in places:
        array = arrays[i] if pa.types.is_dictionary(arrays[i].type) else arrays[i].dictionary_encode()
        words = array.dictionary
        if len(words) and not words.null_count and worth_a_table(len(words), records, rows):
            encoded[i] = array
    # of like size, since the largest dictionary of a block decides the width of its table
    for block in _blocks(sorted(encoded, key=lambda i: len(encoded[i].dictionary)), rows):
        yield from _text_block([(i, encoded[i]) for i in block], starts)


def _text_block(
    block: Sequence[tuple[int, pa.DictionaryArray]], starts: NDArray[np.int64]
) -> Iterator[tuple[int, Part, Part]]:
    rows, records = int(starts[-1]), len(starts) - 1
    dictionaries = [array.dictionary.cast(pa.binary()) for _, array in block]
    sizes = np.array([len(words) for words in dictionaries])
    bases = np.concatenate([[0], np.cumsum(sizes)])
    words = pa.concat_arrays(dictionaries)
    twice = _repeated(words, sizes)
    codes = np.zeros((len(block), rows), np.int64)
    present: NDArray[np.bool_] | None = None
    for place, (_, array) in enumerate(block):
        indices = array.indices
        codes[place] = pc.fill_null(indices, 0).to_numpy() if indices.null_count else indices.to_numpy()
        if indices.null_count:
            if present is None:
                present = np.ones((len(block), rows), np.bool_)
            present[place] = validity(indices)
    cuts = (np.arange(len(block))[:, None] * rows + starts[None, :-1]).ravel()
    flat = None if present is None else present.ravel()
    orders, found = places_together(codes.ravel(), flat, np.append(cuts, len(block) * rows), int(sizes.max()))
    if flat is not None:
        found = np.where(flat, found, found.dtype.type(0))
    fields = wire.prefixed(words, lambda size: wire.nested(size, wire.ONE))
    used = [order + bases[n // records] for n, order in enumerate(orders)]
    taken = fields.take(pa.array(np.concatenate(used)))
    data = memoryview(wire.joined(taken))
    word_ends = np.concatenate([[0], np.cumsum(pc.binary_length(taken).to_numpy(), dtype=np.int64)])
    ends = word_ends[np.concatenate([[0], np.cumsum([len(order) for order in orders])])].tolist()
    stacked = found.reshape(len(block), rows)
    if stacked.dtype == np.uint8:
        cut = [(row.data, starts.tolist()) for row in stacked]
    else:
        cut = wire.varints_of_many(stacked, starts)
    for place, (i, _) in enumerate(block):
        if place not in twice:
            at = ends[place * records : (place + 1) * records + 1]
            yield i, Part(data, at, wire.WORDS), Part(*cut[place], wire.PACKED_INTS)


def _repeated(words: pa.BinaryArray, sizes: NDArray[np.int64]) -> set[int]:
    """The dictionaries that may hold a word twice; nothing forbids it. Words are told apart by their hashes."""
    owners = np.repeat(np.arange(len(sizes)), sizes)
    hashes = column_hash(words)
    order = np.lexsort((hashes, owners))
    same = (hashes[order][1:] == hashes[order][:-1]) & (owners[order][1:] == owners[order][:-1])
    return set(owners[order][1:][same].tolist())
