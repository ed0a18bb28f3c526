"""Encodes hundreds of scalar columns at a time, in blocks that share the cost of a NumPy call.

    features_of_stack(stack, columns, starts)     # as `headway.records.encode` makes those of each; None: not made here

The bytes are those that each column alone would have.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.records import wire
from headway.records.wire import Part
from headway.schema.columns import Column
from headway.tabular.stacked import CODES, Mask, Stack


def worth_a_table(size: int, records: int, rows: int) -> bool:
    """Whether `places_together` is faster; else a record uses little of a large dictionary: `places_apart`."""
    return records * size <= 4 * rows


def places_together(
    codes: NDArray[np.integer], present: NDArray[np.bool_] | None, starts: NDArray[np.int64], size: int
) -> tuple[list[NDArray[np.int64]], NDArray[Any]]:
    """Each record's distinct codes, all below `size`, in order of first appearance; and each row's place among them."""
    rows, records = len(codes), len(starts) - 1
    slots = codes.astype(np.int64)
    if records > 1:
        slots += np.repeat(np.arange(records) * size, np.diff(starts))
    at = np.arange(rows - 1, -1, -1)
    first = np.full(records * size, rows, np.int64)
    # backwards, so that the earliest row is written last
    if present is None:
        first[slots[::-1]] = at
    else:
        filled = present[::-1]
        first[slots[::-1][filled]] = at[filled]
    table = first.reshape(records, size)
    order = np.argsort(table, axis=1, kind="stable")
    used = np.count_nonzero(table < rows, axis=1)
    small = int(used.max(initial=0)) <= 0x80
    place = np.zeros((records, size), np.uint8 if small else np.int64)
    np.put_along_axis(place, order, np.arange(size).astype(place.dtype)[None, :], axis=1)
    return [order[i, : used[i]] for i in range(records)], place.reshape(-1)[slots]


def places_apart(
    codes: NDArray[np.integer], present: NDArray[np.bool_] | None, starts: NDArray[np.int64]
) -> tuple[list[NDArray[np.int64]], NDArray[Any]]:
    """Compute the result of `places_together` one record at a time."""
    orders, places = [], np.zeros(len(codes), np.int64)
    for start, end in pairwise(starts.tolist()):
        rows_held = slice(start, end) if present is None else start + np.flatnonzero(present[start:end])
        distinct, at, which = np.unique(codes[rows_held], return_index=True, return_inverse=True)
        order = np.argsort(at, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        places[rows_held] = place[which]
        orders.append(distinct[order].astype(np.int64))
    return orders, places


Feature = tuple[str, Part]
MANY = 64
"""From so many columns on blocks pay."""
_BLOCK = 1 << 16
"""Values of a block: it and what is worked out of it stay near the processor."""
_LEAST = 8


def features_of_stack(stack: Stack, columns: Sequence[Column], starts: NDArray[np.int64]) -> list[list[Feature] | None]:
    """Each column's features over records that begin at the rows `starts` (the last one is the end).

    Args:
        columns: as many as are stacked, in the same order.
    """
    rows = int(starts[-1])
    at = starts.tolist()
    ones = Part(np.ones(rows, np.uint8).data, at, wire.PACKED_INTS)
    floats = (starts * 4).tolist()
    features: list[list[Feature] | None] = [None] * len(columns)
    for kind, places in stack.places.items():
        for block, values, present in _blocks(stack, kind, rows):
            in_block = [places[i] for i in block]
            if kind == "float32":
                whole = np.ascontiguousarray(values, "<f4").view(np.uint8).reshape(len(in_block), 4 * rows)
                for i, row in zip(in_block, whole, strict=True):
                    features[i] = [(columns[i].name, Part(row.data, floats, wire.PACKED_FLOATS))]
            elif kind == "int64":
                cut = wire.varints_of_many(np.ascontiguousarray(values), starts)
                for i, (data, ends) in zip(in_block, cut, strict=True):
                    features[i] = [(columns[i].name, Part(data, ends, wire.PACKED_INTS))]
            else:
                continue
            _note_presence(features, in_block, columns, present, ones)
    if CODES in stack.places:
        _add_texts(features, stack, columns, starts, ones)
    return features


def _note_presence(
    encoded: list[list[Feature] | None], places: list[int], columns: Sequence[Column], present: Mask | None, ones: Part
) -> None:
    bytes_present = None if present is None else np.ascontiguousarray(present).view(np.uint8)
    for row, i in enumerate(places):
        features = encoded[i]
        if features is not None and columns[i].nullable:
            part = ones if bytes_present is None else Part(bytes_present[row].data, ones.ends, ones.tags)
            features.append((f"{columns[i].name}/present", part))


def _blocks(stack: Stack, kind: str, rows: int) -> Iterator[tuple[range, NDArray, Mask | None]]:
    """A few columns at a time: (their numbers, their values with 0 for a null, a mask of the present values)."""
    whole, mask = stack.values[kind], stack.present[kind]
    each = max(_LEAST, _BLOCK // max(rows, 1))
    for start in range(0, len(whole), each):
        values, present = whole[start : start + each], None if mask is None else mask[start : start + each]
        if present is not None:
            values = np.where(present, values, values.dtype.type(0))
        yield range(start, start + len(values)), values, present


def _add_texts(
    features: list[list[Feature] | None],
    stack: Stack,
    columns: Sequence[Column],
    starts: NDArray[np.int64],
    ones: Part,
) -> None:
    """Add the features of the text columns that are fast to encode in blocks."""
    rows, records = int(starts[-1]), len(starts) - 1
    places, mask = stack.places[CODES], stack.present[CODES]
    sizes, twice = stack.words.sizes, stack.words.repeating
    pays = [
        i for i in range(len(places)) if columns[places[i]].encoding == "dictionary" and sizes[i] and i not in twice
    ]
    pays = [i for i in pays if worth_a_table(int(sizes[i]), records, rows)]
    # of like size, since the largest dictionary of a block decides the width of its table
    pays.sort(key=lambda i: sizes[i])
    each = max(_LEAST, _BLOCK // max(rows, 1))
    for start in range(0, len(pays), each):
        block = pays[start : start + each]
        codes, present = stack.values[CODES][block], None if mask is None else mask[block]
        text_parts = _text_block(codes, present, [stack.words.arrays[i] for i in block], starts)
        in_block = [places[i] for i in block]
        for i, (words, coded) in zip(in_block, text_parts, strict=True):
            features[i] = [(f"{columns[i].name}/dict", words), (f"{columns[i].name}/codes", coded)]
        _note_presence(features, in_block, columns, present, ones)


def _text_block(
    codes: NDArray[np.int32], present: Mask | None, words: list[pa.Array], starts: NDArray[np.int64]
) -> list[tuple[Part, Part]]:
    """(words, codes) of each column; no word occurs twice."""
    columns, rows = codes.shape
    records = len(starts) - 1
    sizes = np.array([len(each) for each in words])
    bases = np.concatenate([[0], np.cumsum(sizes)])
    whole = pa.concat_arrays([each if pa.types.is_binary(each.type) else each.cast(pa.binary()) for each in words])
    cuts = (np.arange(columns)[:, None] * rows + starts[None, :-1]).ravel()
    flat = None if present is None else present.ravel()
    codes = codes if present is None else np.where(present, codes, np.int32(0))
    orders, places = places_together(codes.ravel(), flat, np.append(cuts, columns * rows), int(sizes.max()))
    if flat is not None:
        places = np.where(flat, places, places.dtype.type(0))
    fields = wire.prefixed(whole, lambda size: wire.nested(size, wire.ONE))
    lengths = np.array([len(order) for order in orders])
    used = np.concatenate(orders) + np.repeat(bases[np.arange(len(orders)) // records], lengths)
    ordered = fields.take(pa.array(used))
    data = memoryview(wire.joined(ordered))
    word_ends = np.concatenate([[0], np.cumsum(pc.binary_length(ordered).to_numpy(), dtype=np.int64)])
    ends = word_ends[np.concatenate([[0], np.cumsum(lengths)])].tolist()
    stacked = places.reshape(columns, rows)
    if stacked.dtype == np.uint8:
        at = starts.tolist()
        cut = [(row.data, at) for row in stacked]
    else:
        cut = wire.varints_of_many(stacked, starts)
    spans = [ends[i * records : (i + 1) * records + 1] for i in range(columns)]
    return [
        (Part(data, span, wire.WORDS), Part(*codes, wire.PACKED_INTS)) for span, codes in zip(spans, cut, strict=True)
    ]
