"""Wide tables as one block of numbers per type, so that many columns share the cost of a call.

    train, rest = Stack.parts(batch, [rows_of_train, other_rows])
    train.values["float32"]                  # [columns, rows]
    joined([train, more]).slice(0, 100).take(np.array([3, 1]))
    train.batch()                            # as a RecordBatch again

A dictionary column is a row of the block of codes, with its words beside it. What is neither an integer of 64 bits, a float32
nor a dictionary stays an Arrow array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.tabular.list_arrays import slots
from headway.tabular.splits import column_hash

CODES = "codes"
"""The block of the dictionaries' codes."""
_BLOCK, _LEAST = 1 << 18, 8
"""Values that are stacked at a time, so that they stay near the processor; columns at least."""
DTYPES: dict[str, np.dtype[Any]] = {
    "int64": np.dtype(np.int64),
    "float32": np.dtype(np.float32),
    "uint64": np.dtype(np.uint64),
    CODES: np.dtype(np.int32),
}
_KINDS = {pa.int64().id: "int64", pa.float32().id: "float32", pa.uint64().id: "uint64"}
_DICTIONARY, _INT32 = pa.dictionary(pa.int32(), pa.binary()).id, pa.int32()
Mask = NDArray[np.bool_]


class Dictionaries:
    """The words of some dictionary columns, with cached facts of them."""

    def __init__(self, arrays: Sequence[pa.Array]):
        self.arrays = arrays

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The number of words of each column."""
        return np.array([len(words) for words in self.arrays], np.int64)

    @cached_property
    def bases(self) -> NDArray[np.int64]:
        """The place of each column's first word among all words, and their total number."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @cached_property
    def hashes(self) -> NDArray[np.uint64]:
        """The `column_hash` of all words."""
        return column_hash(pa.concat_arrays([words.cast(pa.large_binary()) for words in self.arrays]))

    @cached_property
    def repeating(self) -> frozenset[int]:
        """The columns that may contain a word twice, as Arrow allows; compared by hash."""
        owners = np.repeat(np.arange(len(self.sizes)), self.sizes)
        order = np.lexsort((self.hashes, owners))
        hashes, owners = self.hashes[order], owners[order]
        return frozenset(owners[1:][(hashes[1:] == hashes[:-1]) & (owners[1:] == owners[:-1])].tolist())

    def differing(self, other: Dictionaries) -> list[int]:
        """The columns whose words differ."""
        if self is other:
            return []
        return [i for i, (one, two) in enumerate(zip(self.arrays, other.arrays, strict=True)) if not one.equals(two)]


@dataclass(frozen=True)
class Stack:
    names: Sequence[str]
    num_rows: int
    places: dict[str, list[int]]
    """By kind of block: which column each of its rows is."""
    values: dict[str, NDArray[Any]]
    """[columns, rows]; anything may stand in the place of a null."""
    present: dict[str, Mask | None]
    """Where there is a value; None: everywhere."""
    words: Dictionaries
    """Of each row of the block of codes."""
    others: dict[int, pa.Array]
    """Columns that are in no block."""

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Stack:
        """Stack all rows of a batch."""
        return cls.parts(batch, [None])[0]

    @classmethod
    def parts(
        cls, batch: pa.RecordBatch, rows: Sequence[NDArray[np.int64] | None], earlier: Dictionaries | None = None
    ) -> list[Stack]:
        """Stack parts of a batch, one per entry of `rows`, the rows in their order; None: all of them.

        Args:
            earlier: the words of another batch, used again if they are the same.
        """
        arrays, names = batch.columns, batch.schema.names
        places, dictionaries, others = _places(arrays)
        words = Dictionaries(dictionaries)
        if earlier is not None and len(earlier.arrays) == len(dictionaries) and not earlier.differing(words):
            words = earlier
        counts = [batch.num_rows if chosen is None else len(chosen) for chosen in rows]
        stacks = [
            cls(names, n, places, {k: np.empty((len(p), n), DTYPES[k]) for k, p in places.items()}, {}, words, {})
            for n in counts
        ]
        for kind, columns in places.items():
            for start, block, present in _stacked(arrays, columns, kind, batch.num_rows):
                for chosen, stack in zip(rows, stacks, strict=True):
                    stack._fill(kind, start, block, present, chosen)
            for stack in stacks:
                stack.present.setdefault(kind, None)
        for chosen, stack in zip(rows, stacks, strict=True):
            for i, array in others.items():
                stack.others[i] = array if chosen is None else array.take(pa.array(chosen))
        return stacks

    def _fill(
        self, kind: str, start: int, block: NDArray[Any], present: Mask | None, rows: NDArray[np.int64] | None
    ) -> None:
        end = start + len(block)
        if rows is None:
            self.values[kind][start:end] = block
        else:
            np.take(block, rows, axis=1, out=self.values[kind][start:end], mode="clip")
        if present is not None:
            whole = self.present.get(kind)
            if whole is None:
                whole = self.present[kind] = np.ones(self.values[kind].shape, np.bool_)
            whole[start:end] = present if rows is None else present[:, rows]

    @property
    def num_columns(self) -> int:
        return len(self.names)

    def slice(self, start: int, length: int | None = None) -> Stack:
        """A range of rows, by reference."""
        start = min(start, self.num_rows)
        end = self.num_rows if length is None else min(start + length, self.num_rows)
        return self._each(end - start, lambda block: block[:, start:end], lambda array: array.slice(start, end - start))

    def take(self, rows: NDArray[np.int64]) -> Stack:
        """The given rows in the order given, by copy."""
        places = pa.array(rows)
        return self._each(len(rows), lambda block: block.take(rows, axis=1), lambda array: array.take(places))

    def leading(self, count: int) -> Stack:
        """The first `count` columns, by reference."""
        if count == self.num_columns:
            return self
        kept = {kind: [i for i in places if i < count] for kind, places in self.places.items()}
        places = {kind: rows for kind, rows in kept.items() if rows}
        values = {kind: self.values[kind][: len(rows)] for kind, rows in places.items()}
        masks = {kind: self.present[kind] for kind in places}
        present = {kind: None if mask is None else mask[: len(places[kind])] for kind, mask in masks.items()}
        words = self.words
        if len(words.arrays) > (codes := len(places.get(CODES, ()))):
            words = Dictionaries(words.arrays[:codes])
        others = {i: array for i, array in self.others.items() if i < count}
        return Stack(self.names[:count], self.num_rows, places, values, present, words, others)

    def _each(self, n: int, of_block: Callable[[NDArray[Any]], NDArray[Any]], of_array: Callable[[Any], Any]) -> Stack:
        values = {kind: of_block(block) for kind, block in self.values.items()}
        present = {kind: None if mask is None else of_block(mask) for kind, mask in self.present.items()}
        others = {i: of_array(array) for i, array in self.others.items()}
        return Stack(self.names, n, self.places, values, present, self.words, others)

    def arrays(self, kind: str) -> list[pa.Array]:
        """The columns of one kind of block as Arrow arrays, by reference where possible."""
        arrays = _sliced(self.values[kind], self.present[kind])
        if kind != CODES:
            return arrays
        pairs = zip(arrays, self.words.arrays, strict=True)
        return [pa.DictionaryArray.from_arrays(codes, words, safe=False) for codes, words in pairs]

    def columns(self) -> list[pa.Array]:
        """All columns as Arrow arrays."""
        columns: list[Any] = [None] * len(self.names)
        for kind, places in self.places.items():
            for i, array in zip(places, self.arrays(kind), strict=True):
                columns[i] = array
        for i, array in self.others.items():
            columns[i] = array
        return columns

    def column(self, name: str) -> pa.Array:
        """One column as an Arrow array."""
        at = list(self.names).index(name)
        for kind, places in self.places.items():
            if at in places:
                row = places.index(at)
                mask = self.present[kind]
                array = _sliced(self.values[kind][row : row + 1], None if mask is None else mask[row : row + 1])[0]
                return pa.DictionaryArray.from_arrays(array, self.words.arrays[row]) if kind == CODES else array
        return self.others[at]

    def batch(self) -> pa.RecordBatch:
        """The rows as a RecordBatch."""
        return pa.RecordBatch.from_arrays(self.columns(), names=list(self.names))


def _places(arrays: list[pa.Array]) -> tuple[dict[str, list[int]], list[pa.Array], dict[int, pa.Array]]:
    places: dict[str, list[int]] = {}
    words: list[pa.Array] = []
    others: dict[int, pa.Array] = {}
    for i, array in enumerate(arrays):
        number = array.type.id
        kind = _KINDS.get(number)
        if number == _DICTIONARY:
            if (
                array.type.index_type != _INT32 or array.dictionary.null_count
            ):  # a code of a null word is a null as well
                array = arrays[i] = array.dictionary_decode().dictionary_encode()
            kind = CODES
            words.append(array.dictionary)
        if kind is None:
            others[i] = array
        else:
            places.setdefault(kind, []).append(i)
    return places, words, others


def _stacked(
    arrays: Sequence[pa.Array], places: list[int], kind: str, rows: int
) -> Iterator[tuple[int, NDArray[Any], Mask | None]]:
    """Blocks of a few columns: (the number of the first, the values by reference, a mask of those present)."""
    each = max(_LEAST, _BLOCK // max(rows, 1))
    for start in range(0, len(places), each):
        columns = [arrays[i].indices if kind == CODES else arrays[i] for i in places[start : start + each]]
        flat = pa.concat_arrays(columns)
        shape = len(columns), rows
        present = flat.is_valid().to_numpy(zero_copy_only=False).reshape(shape) if flat.null_count else None
        yield start, slots(flat, DTYPES[kind]).reshape(shape), present


def _sliced(block: NDArray[Any], present: Mask | None) -> list[pa.Array]:
    """Each row of a block as an array."""
    columns, rows = block.shape
    flat = pa.array(block.reshape(-1), mask=None if present is None else ~present.reshape(-1))
    return [flat.slice(start, rows) for start in range(0, columns * rows, rows)] if rows else [flat] * columns


def joined(stacks: Sequence[Stack]) -> Stack:
    """Concatenate stacks of the same columns."""
    if len(stacks) == 1:
        return stacks[0]
    first = stacks[0]
    rows = sum(stack.num_rows for stack in stacks)
    codes, words = _one_dictionary(stacks)
    values = {
        kind: np.concatenate(codes if kind == CODES else [stack.values[kind] for stack in stacks], axis=1)
        for kind in first.places
    }
    present: dict[str, Mask | None] = {}
    for kind, block in values.items():
        masks = [stack.present[kind] for stack in stacks]
        present[kind] = None
        if any(mask is not None for mask in masks):
            shapes = [(len(block), stack.num_rows) for stack in stacks]
            whole = [np.ones(s, np.bool_) if m is None else m for m, s in zip(masks, shapes, strict=True)]
            present[kind] = np.concatenate(whole, axis=1)
    others = {i: pa.concat_arrays([stack.others[i] for stack in stacks]) for i in first.others}
    return Stack(first.names, rows, first.places, values, present, words, others)


def _one_dictionary(stacks: Sequence[Stack]) -> tuple[list[NDArray[Any]], Dictionaries]:
    """Recode the blocks of codes to common dictionaries: (blocks, dictionaries)."""
    dictionaries = stacks[0].words
    if CODES not in stacks[0].places:
        return [], dictionaries
    codes = [stacks[0].values[CODES]]
    for stack in stacks[1:]:
        block = stack.values[CODES]
        if differing := dictionaries.differing(stack.words):
            block, words = block.copy(), list(dictionaries.arrays)
            for i in differing:
                both = pa.concat_arrays([words[i], stack.words.arrays[i]]).dictionary_encode()
                places, own = both.indices.to_numpy(), len(words[i])
                if not (places[:own] == np.arange(own)).all():  # a word that stands twice
                    codes = [before.copy() for before in codes]
                    for before in codes:
                        before[i] = _other_codes(before[i], places[:own])
                block[i] = _other_codes(block[i], places[own:])
                words[i] = both.dictionary
            dictionaries = Dictionaries(words)
        codes.append(block)
    return codes, dictionaries


def _other_codes(codes: NDArray[Any], places: NDArray[Any]) -> NDArray[Any]:
    """Recode a dictionary's codes by `places`; the codes of nulls, which may be anything, are kept in bounds."""
    return places[np.clip(codes, 0, len(places) - 1)] if len(places) else np.zeros(len(codes), codes.dtype)
