"""The rows of a shard's records, as a manifest keeps them: equal ones in a row as one pair.

packed([4096, 4096, 4096, 17])            # [[4096, 3], [17, 1]]
unpacked([[4096, 3], [17, 1]])            # [4096, 4096, 4096, 17]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

Packed = Sequence[Sequence[int] | int]
"""Pairs of (rows, how many records in a row have them); a plain number is one record, as older manifests have it."""


def packed(rows: Sequence[int]) -> list[list[int]]:
    """A million records of one row take as little as one."""
    return [[size, sum(1 for _ in records)] for size, records in groupby(rows)]


def unpacked(value: Packed) -> list[int]:
    """The rows of each record."""
    found: list[int] = []
    for pair in value:
        if isinstance(pair, int):
            found.append(pair)
        else:
            found += [pair[0]] * pair[1]
    return found


def total(value: Packed) -> int:
    """All rows."""
    return sum(pair if isinstance(pair, int) else pair[0] * pair[1] for pair in value)
