"""Sets of hashes on disk, and a comparison that finds the hashes in several sets.

    write(path, distinct(hashes))                # any order, any repeats
    compare({"train": [a, b], "eval": [c]})      # hashes that both sides have

The file of a set holds distinct uint64 in rising order, little endian, without a header. Sets are compared one range of hash
values at a time, with about a million values. So the memory does not grow with the sets.
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
"""About the number of values in memory at a time."""
MOST_SHARED = 5
"""The most shared values that are kept, so that messages can name their rows. Further values are only counted."""


def distinct(hashes: Hashes) -> Hashes:
    """Returns the distinct values in rising order."""
    ordered = np.sort(hashes)  # np.unique takes twice as long
    first = run_starts(ordered)
    return ordered if first.all() else ordered[first]


def write(path: Path, hashes: Hashes) -> None:
    """Write a set, as `distinct` returns it, to a file."""
    np.ascontiguousarray(hashes, "<u8").tofile(path)


def read(path: Path) -> Hashes:
    """Returns the set in a file, memory-mapped. The file must exist as long as the set is used.

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
    """Yields slices of the sets, of about `most` values together. All sets are cut at the same values."""
    total = sum(map(len, sets))
    parts = max(1, -(-total // most))
    edges = np.array([(i << 64) // parts for i in range(1, parts)], np.uint64)
    cuts = [np.concatenate([[0], np.searchsorted(hashes, edges), [len(hashes)]]) for hashes in sets]
    for i in range(parts):
        yield [np.asarray(hashes[cut[i] : cut[i + 1]]) for hashes, cut in zip(sets, cuts, strict=True)]


@dataclass
class CommonHashes:
    """The values that two groups of sets share: the number of these values, and the smallest of them."""

    count: int = 0
    least: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    """The smallest shared values in rising order, at most `MOST_SHARED`."""

    def add(self, values: Hashes) -> None:
        """Add shared values. They must be greater than all values that were added before."""
        self.count += len(values)
        self.least = np.concatenate([self.least, values[: MOST_SHARED - len(self.least)]])


@dataclass
class KeyComparison:
    """The result of `compare`: the number of values in each group of sets, and the values that two groups share."""

    values: dict[str, int]
    """The number of distinct values in each group, by its name."""
    shared: dict[tuple[str, str], CommonHashes]
    """The shared values of each pair of groups that has any, by the names of the two groups."""


def compare(groups: Mapping[str, Sequence[Hashes]], most: int = SLICE) -> KeyComparison:
    """Returns how many distinct values each group of sets has, and which values two groups share."""
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
