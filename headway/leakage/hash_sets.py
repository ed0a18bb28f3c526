"""Sets of hashes on disk, and the hashes that several of them share.

    write(path, distinct(hashes))                # any order, any repeats
    compare({"train": [a, b], "eval": [c]})      # hashes that both sides have

A set is a file of distinct uint64 in rising order, little endian, without a header. Sets are compared slice by slice of
the hashes' range, about a million values at a time: memory does not grow with the sets.
"""

from __future__ import annotations

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
"""The number of values in memory at a time."""
MOST_SHARED = 5
"""The most shared values that are kept, to name their rows; the others are only counted."""


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
class CommonHashes:
    """The values that two groups share: their number, and the smallest of these values."""

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
    shared: dict[tuple[str, str], CommonHashes]
    """For each pair of groups with values in common, these values."""


def compare(groups: Mapping[str, Sequence[Hashes]], most: int = SLICE) -> KeyComparison:
    """Returns how many distinct values each group has, and which ones groups share; a group's sets are in any order."""
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
                result.shared.setdefault(pair, CommonHashes()).add(both)
    return result


def _whole(piece: Sequence[Hashes]) -> Hashes:
    return np.concatenate(piece) if piece else np.zeros(0, np.uint64)
