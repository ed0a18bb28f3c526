"""Sets of hashes on disk: rising distinct uint64, little endian, eight bytes each and nothing else.

    values, repeated = distinct(hashes)          # any order, any repeats
    write(path, values)
    for piece in common([a, b], [c]): ...        # hashes of a or b that c has too, rising
    for piece in repeated([a, b, c]): ...        # those that two of them have

Whatever is asked of any number of sets is answered slice by slice of the hashes' range, about a million values at a
time: memory does not grow with the sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headway.errors import DataError

Hashes = NDArray[np.uint64]
SLICE = 1 << 20
"""Values that are held at a time."""


def distinct(hashes: Hashes) -> tuple[Hashes, Hashes]:
    """(the values that occur, those of them that occur more than once), both rising."""
    ordered = np.sort(hashes)
    if not len(ordered):
        return ordered, ordered
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    if first.all():
        return ordered, ordered[:0]
    values = ordered[first]
    counts = np.diff(np.append(np.flatnonzero(first), len(ordered)))
    return values, values[counts > 1]


def write(path: Path, hashes: Hashes) -> None:
    """Write a set that `distinct` made."""
    path.write_bytes(memoryview(np.ascontiguousarray(hashes, "<u8")).cast("B") if len(hashes) else b"")


def read(path: Path) -> Hashes:
    """A set, by reference; the file must stay.

    Raises:
        DataError: the file is missing or cut off.
    """
    try:
        size = path.stat().st_size
        if size % 8:
            raise ValueError(f"{size} bytes are no whole number of hashes")
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


def repeated(sets: Sequence[Hashes], most: int = SLICE) -> Iterator[Hashes]:
    """The values that more than one of the sets has, rising, piece by piece; empty pieces are left out."""
    for piece in slices(sets, most):
        _, twice = distinct(_whole(piece))
        if len(twice):
            yield twice


def union(sets: Sequence[Hashes], most: int = SLICE) -> Iterator[Hashes]:
    """The values of all sets, rising, piece by piece."""
    for piece in slices(sets, most):
        values, _ = distinct(_whole(piece))
        if len(values):
            yield values


def common(left: Sequence[Hashes], right: Sequence[Hashes], most: int = SLICE) -> Iterator[Hashes]:
    """The values that a set of `left` and one of `right` both have, rising, piece by piece."""
    for piece in slices([*left, *right], most):
        a, _ = distinct(_whole(piece[: len(left)]))
        b, _ = distinct(_whole(piece[len(left) :]))
        shared = np.intersect1d(a, b, assume_unique=True)
        if len(shared):
            yield shared


def has(one: Hashes, value: int) -> bool:
    """Whether a set has a value."""
    at = int(np.searchsorted(one, np.uint64(value)))
    return at < len(one) and int(one[at]) == value


def _whole(piece: Sequence[Hashes]) -> Hashes:
    return np.concatenate(piece) if piece else np.zeros(0, np.uint64)
