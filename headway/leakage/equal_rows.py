"""Samples rows without their identifiers, by hash, so that duplicates under different ids are found.

    sampler = ContentSampler(config, columns)    # sampler.names: the compared columns; without any nothing is drawn
    sampler.draw(batch, codes, {0: Distinct(DRAWN), 1: Distinct(DRAWN)})
    overlap(train, eval)                         # Overlap(share=0.88, beyond=0.85, values=210, whole=False)
    seen = Distinct()
    seen.add(hashes)                             # any number of batches; merge() adds another piece's
    seen.values, seen.rows, seen.whole           # distinct hashes kept, rows that have them, whether these are all there are

Hashing every column of every row would cost as much as the split itself. So each row has an order hash over a few
columns, and only rows of the least order hashes are hashed whole. Equal rows have equal order hashes everywhere.

A sample is the least distinct row hashes and their counts. Which hashes are least has nothing to do with how often they
occur, so the rows kept are as repetitive as all of them are (Gibbons, "Distinct sampling for highly-accurate answers to
distinct values queries", VLDB 2001).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.leakage.hash_sets import Hashes
from headway.schema.columns import Column, named_for
from headway.statistics.row_sample import hashed_texts
from headway.tabular.hashing import NULL
from headway.tabular.list_arrays import slots
from headway.tabular.splits import SplitConfig, column_hash

DRAWN, KEPT = 256, 1024
"""The most distinct rows in a split's sample: for a range, and for a span or a window."""
MOST_COLUMNS = 128
"""The most columns that are compared; of a wider table they are spread evenly over it."""
_ORDERED_BY = 2
_HALF, _HIGH = np.uint64(32), np.uint64(0xFFFFFFFF00000000)
_NULL_FLOAT = 1.2345679e-33
_ODD = np.uint64(0x9E3779B97F4A7C15)


def compared_columns(config: SplitConfig, columns: Sequence[Column]) -> tuple[str, ...]:
    """Returns the columns by which rows are compared: not identifiers, keys, the split column and, where eval is later
    than train, the time. Empty for a split by a hash of the row: equal rows are in one split then.
    """
    if config.by_row:
        return ()
    apart = config.columns()
    if config.by_time and (time := named_for(columns, "time")) is not None:
        apart |= {time}
    return tuple(
        column.name
        for column in columns
        if column.name not in apart and column.meaning != "identifier" and column.role != "key"
    )


SAMPLE_SIZE = 512
_MANY = 8


class Distinct:
    """A sample of distinct rows: the `size` smallest hashes, and the number of rows with each hash."""

    def __init__(self, size: int = SAMPLE_SIZE) -> None:
        self._size = size
        self._hashes: Hashes = np.zeros(0, np.uint64)
        self._counts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._full = False
        """Whether more distinct hashes were seen than are kept."""

    def add(self, hashes: Hashes) -> None:
        """Add the hashes of a batch of rows."""
        if self._full:
            hashes = hashes[hashes <= self._hashes[-1]]
        elif len(hashes) > 4 * (many := _MANY * self._size):
            # sorting a part of them will do, unless they are few again and again
            least = hashes[hashes <= np.partition(hashes, many)[many]]
            values, counts = np.unique(least, return_counts=True)
            if len(values) > self._size:
                self._fold(values, counts)
                return
        if len(hashes):
            self._fold(*np.unique(hashes, return_counts=True))

    def _fold(self, hashes: Hashes, counts: NDArray[np.int64]) -> None:
        values, places = np.unique(np.concatenate([self._hashes, hashes]), return_inverse=True)
        total = np.bincount(places, weights=np.concatenate([self._counts, counts]), minlength=len(values))
        self._full = self._full or len(values) > self._size
        self._hashes, self._counts = values[: self._size], total[: self._size].astype(np.int64)

    def merge(self, other: Distinct) -> None:
        """Add another sample, of the same or another size."""
        bounds = [bound for bound in (self.bound, other.bound) if bound is not None]
        least = min(bounds) if bounds else None
        self._hashes, self._counts = self.upto(least)  # further not all that occurred are known
        self._full = self._full or other._full
        self._fold(*other.upto(least))

    @property
    def values(self) -> int:
        """The number of distinct hashes in the sample."""
        return len(self._hashes)

    @property
    def rows(self) -> int:
        """The number of rows that have the hashes in the sample."""
        return int(self._counts.sum())

    @property
    def bound(self) -> np.uint64 | None:
        """The greatest hash in the sample when greater ones were dropped; None when all were kept."""
        return self._hashes[-1] if self._full else None

    def upto(self, bound: np.uint64 | None) -> tuple[Hashes, NDArray[np.int64]]:
        """Returns the hashes up to `bound` (None: all), and the number of rows of each."""
        end = len(self._hashes) if bound is None else int(np.searchsorted(self._hashes, bound, side="right"))
        return self._hashes[:end], self._counts[:end]

    @property
    def whole(self) -> bool:
        """Whether the sample holds all distinct hashes that were added."""
        return not self._full

    def estimate(self, rows: int) -> int:
        """Returns the number of distinct hashes among all `rows` rows that were added; estimated unless `whole`."""
        return self.values if self.whole else round(rows * self.values / self.rows)

    def to_text(self) -> str:
        """Returns the sample as text for JSON."""
        data = np.concatenate([self._hashes, self._counts.astype(np.uint64)]).astype("<u8").tobytes()
        return ("full:" if self._full else "all:") + base64.b64encode(data).decode("ascii")

    @classmethod
    def from_text(cls, text: str, size: int = SAMPLE_SIZE) -> Distinct:
        """Read what `to_text` wrote; ValueError when it is damaged."""
        kind, _, data = text.partition(":")
        whole = np.frombuffer(base64.b64decode(data, validate=True), "<u8").astype(np.uint64)
        if kind not in ("full", "all") or len(whole) % 2:
            raise ValueError("a sample of distinct rows is cut off")
        sample = cls(size)
        sample._full = kind == "full"
        sample._hashes, sample._counts = whole[: len(whole) // 2], whole[len(whole) // 2 :].astype(np.int64)
        return sample


class ContentSampler:
    """Samples rows by their content; holds the columns of one pipeline by which rows are compared."""

    def __init__(self, config: SplitConfig, columns: Sequence[Column]):
        whole = compared_columns(config, columns)
        few = np.linspace(0, len(whole) - 1, MOST_COLUMNS).round().astype(int).tolist()
        self.names = tuple(whole[i] for i in few) if len(whole) > MOST_COLUMNS else whole
        compared = {*whole}
        self.apart = tuple(column.name for column in columns if column.name not in compared) if whole else ()
        """The columns that are not compared."""
        ranks = {column.name: _rank(column) for column in columns}
        ranked = sorted(self.names, key=ranks.__getitem__)  # stable
        self._by = [name for name in ranked if ranks[name] < _COSTLY][:_ORDERED_BY] or ranked[:1]

    def draw(self, batch: pa.RecordBatch, codes: NDArray[np.int8], samples: Mapping[int, Distinct]) -> None:
        """Add each row of a batch to the sample of its split, by the split's code. Without `names` nothing is added."""
        if not self.names:
            return
        order = _folded({name: batch.column(name) for name in self._by}, self._by)
        for code, sample in samples.items():
            rows = np.flatnonzero(codes == code)
            own, many = order[rows], 4 * DRAWN
            if sample.bound is not None:
                sample.add(self._hashed(batch, order, rows[own <= sample.bound | ~_HIGH]))
                continue
            hashes = np.zeros(0, np.uint64)
            if len(own) > many:
                hashes = self._hashed(batch, order, rows[own <= np.partition(own, many)[many] | ~_HIGH])
            few = len(np.unique(hashes)) <= DRAWN  # they are few, again and again, or the batch is small
            sample.add(self._hashed(batch, order, rows) if few else hashes)

    def _hashed(self, batch: pa.RecordBatch, order: Hashes, at: NDArray[np.int64]) -> Hashes:
        """Returns hashes of the rows `at`: the high half is of the order hash, the low half of all compared columns."""
        columns = pa.RecordBatch.from_arrays([batch.column(name) for name in self.names], names=self.names)
        few = hashed_texts(columns, at)
        hashes = _folded(dict(zip(self.names, few.columns, strict=True)), self.names)
        return (order[at] & _HIGH) | (hashes >> _HALF)


def _folded(arrays: Mapping[str, pa.Array], names: Sequence[str]) -> Hashes:
    """Returns a uint64 hash of each row of some columns, whose high half is well mixed."""
    state: Hashes | None = None
    for name in names:
        if state is None:
            state = np.multiply(_bits(arrays[name]), _ODD, dtype=np.uint64)
        else:
            state += _bits(arrays[name])
            state *= _ODD
    assert state is not None
    state ^= state >> np.uint64(29)
    state *= _ODD
    return state


_COSTLY = 3


def _rank(column: Column) -> int:
    """Returns the rank of a column in the order hash: numbers are cheapest to hash, and fractions tell rows apart best."""
    if column.shape:
        return _COSTLY
    return {"float32": 0, "int64": 1}.get(column.type, 2 if column.encoding == "dictionary" else _COSTLY)


def _bits(array: pa.Array) -> Hashes | NDArray[np.uint32]:
    """Returns bits of each value: equal values have equal bits."""
    kind = array.type
    if pa.types.is_float32(kind):
        return slots(pc.fill_null(array, _NULL_FLOAT) if array.null_count else array, np.dtype(np.uint32))
    if pa.types.is_int64(kind) or pa.types.is_uint64(kind):
        return slots(
            pc.fill_null(array, pa.scalar(int(NULL), kind)) if array.null_count else array, np.dtype(np.uint64)
        )
    return column_hash(array)


@dataclass(frozen=True)
class Overlap:
    """How many rows of a split occur in train too, estimated from samples of both."""

    share: float
    """The share of the split's rows that occur in train."""
    beyond: float
    """`share`, less the share of train rows that occur again in train, less three standard errors. Rows of few
    categories come again everywhere, but a month that was delivered twice only in two splits."""
    values: int
    """The number of distinct rows compared."""
    whole: bool
    """Whether all distinct rows were compared, none left out by sampling."""


def overlap(train: Distinct, rows: Distinct) -> Overlap | None:
    """Returns how many rows of a split occur in train; None where either sample has no hash to compare."""
    bounds = [sample.bound for sample in (train, rows) if sample.bound is not None]
    hashes, counts = rows.upto(min(bounds) if bounds else None)
    known, times = train.upto(None)
    if not len(hashes) or not len(known):
        return None
    # kind: tables of hashes that lie close together overflow in NumPy 2.0
    found, noise = _share(np.isin(hashes, known, kind="sort"), counts)
    again, noise_again = _share(times > 1, times)
    return Overlap(found, found - again - 3 * math.hypot(noise, noise_again), len(hashes), not bounds)


def _share(which: NDArray[np.bool_], counts: NDArray[np.int64]) -> tuple[float, float]:
    """Returns the share of the rows that `which` marks, and its standard error: distinct rows are drawn, not rows."""
    rows = float(counts.sum())
    drawn = rows**2 / float((counts.astype(np.float64) ** 2).sum())
    share = float(counts[which].sum()) / rows
    likely = (share * drawn + 1) / (drawn + 2)  # none of a few is not never
    return share, math.sqrt(likely * (1 - likely) / drawn)
