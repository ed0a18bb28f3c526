"""Sets of hashes on disk: rising distinct uint64, little endian, eight bytes each and nothing else.

    values, repeated = distinct(hashes)          # any order, any repeats
    write(path, values)
    compare({"train": [a, b], "eval": [c]})      # hashes that both sides have
    repeated([a, b, c], [])                      # those that two of the sets have

Whatever is asked of any number of sets is answered slice by slice of the hashes' range, about a million values at a
time: memory does not grow with the sets.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headway.errors import DataError

Hashes = NDArray[np.uint64]
SLICE = 1 << 20
"""Values that are held at a time."""
KEPT = 4096
"""So many found values are kept for a second look; the rest is counted."""


def distinct(hashes: Hashes) -> tuple[Hashes, Hashes]:
    """(the values that occur, those of them that occur more than once), both rising."""
    values, counts = np.unique(hashes, return_counts=True)
    return values, values[counts > 1]


def write(path: Path, hashes: Hashes) -> None:
    """Write a set that `distinct` made."""
    np.ascontiguousarray(hashes, "<u8").tofile(path)


def read(path: Path) -> Hashes:
    """A set, by reference; the file must stay.

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
    """The sets cut at the same values, so that a value is in one slice only; together some `most` values a slice."""
    total = sum(map(len, sets))
    parts = max(1, -(-total // most))
    edges = np.array([(i << 64) // parts for i in range(1, parts)], np.uint64)
    cuts = [np.concatenate([[0], np.searchsorted(one, edges), [len(one)]]) for one in sets]
    for i in range(parts):
        yield [np.asarray(one[cut[i] : cut[i + 1]]) for one, cut in zip(sets, cuts, strict=True)]


@dataclass
class Found:
    """The values that two groups share: how many, and the least of them."""

    count: int = 0
    least: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    """At most `KEPT`, rising."""

    def add(self, values: Hashes) -> None:
        """Add values greater than all before."""
        self.count += len(values)
        self.least = np.concatenate([self.least, values[: KEPT - len(self.least)]])


@dataclass
class Compared:
    """The values that groups of sets share."""

    values: dict[str, int]
    """Distinct values of each group."""
    shared: dict[tuple[str, str], Found]
    """Of each two groups that have a value in common, those values."""


def compare(groups: Mapping[str, Sequence[Hashes]], most: int = SLICE) -> Compared:
    """Which values are in more than one group; the order of a group's sets does not matter."""
    result = Compared(dict.fromkeys(groups, 0), {})
    whose = [name for name, sets in groups.items() for _ in sets]
    for piece in slices([one for sets in groups.values() for one in sets], most):
        mine = {
            name: distinct(_whole([one for owner, one in zip(whose, piece, strict=True) if owner == name]))[0]
            for name in groups
        }
        for name, values in mine.items():
            result.values[name] += len(values)
        for pair in itertools.combinations(groups, 2):
            both = np.intersect1d(mine[pair[0]], mine[pair[1]], assume_unique=True)
            if len(both):
                result.shared.setdefault(pair, Found()).add(both)
    return result


def repeated(sets: Sequence[Hashes], within: Sequence[Hashes], most: int = SLICE) -> Found:
    """The values that more than one of `sets` has, or one of `within`: sets of those that one set had repeatedly."""
    result = Found()
    for piece in slices([*sets, *within], most):
        _, twice = distinct(_whole(piece[: len(sets)]))
        values, _ = distinct(np.concatenate([twice, *piece[len(sets) :]]))
        result.add(values)
    return result


def has(one: Hashes, value: int) -> bool:
    """Whether a set has a value."""
    at = int(np.searchsorted(one, np.uint64(value)))
    return at < len(one) and int(one[at]) == value


def _whole(piece: Sequence[Hashes]) -> Hashes:
    return np.concatenate(piece) if piece else np.zeros(0, np.uint64)
