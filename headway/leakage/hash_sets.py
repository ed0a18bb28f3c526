"""Hashes of keys and rows: sets of them on disk, and samples that estimate how many rows repeat others.

    write(path, distinct(hashes))                # any order, any repeats
    compare({"train": [a, b], "eval": [c]})      # hashes that both sides have

A set is rising distinct uint64, little endian, eight bytes each and nothing else. Whatever is asked of any number of sets is
answered slice by slice of the hashes' range, about a million values at a time: memory does not grow with the sets.

    seen = Distinct()
    seen.add(hashes)                        # any number of batches; merge() adds another piece's
    seen.values, seen.rows, seen.whole      # distinct hashes kept, rows that have them, whether these are all there are

A sample is the least distinct row hashes and their counts. Which hashes are least has nothing to do with how often they occur,
so that the rows kept are as repetitive as all of them are (Gibbons, "Distinct sampling for highly-accurate answers to distinct
values queries", VLDB 2001).
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headway.errors import DataError
from headway.tabular.list_arrays import run_starts

Hashes = NDArray[np.uint64]
SLICE = 1 << 20
"""Values that are held at a time."""
MOST_SHARED = 5
"""So many found values are kept, to name their rows; the rest is counted."""


def distinct(hashes: Hashes) -> Hashes:
    """Returns the distinct values, rising."""
    ordered = np.sort(hashes)  # np.unique takes twice as long
    first = run_starts(ordered)
    return ordered if first.all() else ordered[first]


def write(path: Path, hashes: Hashes) -> None:
    """Write a set that `distinct` returned."""
    np.ascontiguousarray(hashes, "<u8").tofile(path)


def read(path: Path) -> Hashes:
    """Memory-map a set; its file must stay.

    Raises:
        DataError: the file is missing or cut off.
    """
    try:
        size = path.stat().st_size
        if size % 8:
            raise ValueError(f"{size} bytes are not a whole number of hashes")
        return np.memmap(path, np.dtype("<u8"), "r") if size else np.zeros(0, np.uint64)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read: {error}", where=str(path), fix="delete its folder and run again") from None


def slices(sets: Sequence[Hashes], most: int = SLICE) -> Iterator[list[Hashes]]:
    """Cut the sets at the same values into slices of about `most` values together, each value in one slice only."""
    total = sum(map(len, sets))
    parts = max(1, -(-total // most))
    edges = np.array([(i << 64) // parts for i in range(1, parts)], np.uint64)
    cuts = [np.concatenate([[0], np.searchsorted(hashes, edges), [len(hashes)]]) for hashes in sets]
    for i in range(parts):
        yield [np.asarray(hashes[cut[i] : cut[i + 1]]) for hashes, cut in zip(sets, cuts, strict=True)]


@dataclass
class SharedHashes:
    """The values that two groups share: their number, and the least of them."""

    count: int = 0
    least: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    """At most `MOST_SHARED`, rising."""

    def add(self, values: Hashes) -> None:
        """Add values greater than all earlier ones."""
        self.count += len(values)
        self.least = np.concatenate([self.least, values[: MOST_SHARED - len(self.least)]])


@dataclass
class KeyComparison:
    """The number of values of each group, and the values that groups share."""

    values: dict[str, int]
    """Distinct values of each group."""
    shared: dict[tuple[str, str], SharedHashes]
    """Of each two groups that have a value in common, those values."""


def compare(groups: Mapping[str, Sequence[Hashes]], most: int = SLICE) -> KeyComparison:
    """Find the values in more than one group; the order of a group's sets does not matter."""
    result = KeyComparison(dict.fromkeys(groups, 0), {})
    whose = [name for name, sets in groups.items() for _ in sets]
    for piece in slices([hashes for sets in groups.values() for hashes in sets], most):
        hashes_of = {
            name: distinct(_whole([hashes for owner, hashes in zip(whose, piece, strict=True) if owner == name]))
            for name in groups
        }
        for name, values in hashes_of.items():
            result.values[name] += len(values)
        for pair in itertools.combinations(groups, 2):
            both = np.intersect1d(hashes_of[pair[0]], hashes_of[pair[1]], assume_unique=True)
            if len(both):
                result.shared.setdefault(pair, SharedHashes()).add(both)
    return result


def _whole(piece: Sequence[Hashes]) -> Hashes:
    return np.concatenate(piece) if piece else np.zeros(0, np.uint64)


KEPT = 512
_MANY = 8


class Distinct:
    """A sample of rows: the `kept` least distinct hashes and their counts."""

    def __init__(self, size: int = KEPT) -> None:
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
        """Add another sample, which may have kept fewer hashes."""
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
        """The number of rows that have these hashes."""
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
        """Whether the sample holds all hashes."""
        return not self._full

    def of(self, rows: int) -> int:
        """Returns the number of distinct hashes among all `rows` rows that were added; estimated unless `whole`."""
        return self.values if self.whole else round(rows * self.values / self.rows)

    def to_text(self) -> str:
        """Returns the sample as text for JSON."""
        data = np.concatenate([self._hashes, self._counts.astype(np.uint64)]).astype("<u8").tobytes()
        return ("full:" if self._full else "all:") + base64.b64encode(data).decode("ascii")

    @classmethod
    def from_text(cls, text: str, size: int = KEPT) -> Distinct:
        """Read what `to_text` wrote; ValueError when it is damaged."""
        kind, _, data = text.partition(":")
        whole = np.frombuffer(base64.b64decode(data, validate=True), "<u8").astype(np.uint64)
        if kind not in ("full", "all") or len(whole) % 2:
            raise ValueError("a sample of distinct rows is cut off")
        sample = cls(size)
        sample._full = kind == "full"
        sample._hashes, sample._counts = whole[: len(whole) // 2], whole[len(whole) // 2 :].astype(np.int64)
        return sample
