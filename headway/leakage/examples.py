"""Finds the rows behind a hash that occurs in two places, and separates real overlaps from hash collisions.

    look(["customer"], hashes, ["2013-01"])       # a caller's function: [KeyOccurrence(...), ...]
    examine(found, look_at, whether_real)         # RealOverlaps(count, examples)

Two keys may share a 64-bit hash: of 5 million keys about one window in a million has such a pair. A hash whose rows hold
one key is what it seems; one whose rows hold several is judged by each of them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headway.leakage.hash_sets import Hashes, SharedHashes

EXAMPLES = 5
_FIRST = 8
PLACES = 3
"""Rows that are shown of a key in one split of one span."""


@dataclass(frozen=True)
class KeyOccurrence:
    """A row in which a key occurs."""

    hash: int
    value: tuple[Any, ...]
    """The key as it is compared."""
    written: str
    """The key as the row has it."""
    span: str
    split: str
    """Of the window."""
    file: str
    row: int
    """Counted from 1 within the file."""


RowFinder = Callable[[Sequence[str], Hashes, Sequence[str]], list[KeyOccurrence]]
"""(columns of a key, rising hashes, spans) -> rows of these spans with a key of such a hash, in their order."""


@dataclass(frozen=True)
class RealOverlaps:
    """The overlaps that are real, with example rows."""

    count: int
    examples: list[list[KeyOccurrence]]
    """Of each key shown, rows that have it; none when its rows are not found again."""


def examine(
    keys: SharedHashes,
    look_at: Callable[[Hashes], Iterable[KeyOccurrence]],
    real: Callable[[Sequence[KeyOccurrence]], bool],
) -> RealOverlaps:
    """Look up the rows of a few hashes, and of more as long as all of them are collisions.

    Args:
        look_at: the rows behind some hashes.
        real: whether rows of one key are what was looked for.
    """
    refuted, at, size = 0, 0, _FIRST
    examples: list[list[KeyOccurrence]] = []
    while at < len(keys.least) and not examples:
        hashes = keys.least[at : at + size]
        rows: dict[int, dict[tuple[Any, ...], list[KeyOccurrence]]] = {int(value): {} for value in hashes}
        for occurrence in look_at(hashes):
            rows[occurrence.hash].setdefault(occurrence.value, []).append(occurrence)
        for by_value in rows.values():
            if len(by_value) < 2:
                examples.append(next(iter(by_value.values()), []))
            elif guilty := [each for each in by_value.values() if real(each)]:
                examples += guilty
            else:
                refuted += 1
        at, size = at + size, size * 8
    return RealOverlaps(keys.count - refuted, examples[:EXAMPLES])


def rows_text(rows: Sequence[KeyOccurrence], *, splits: bool) -> str:
    """`id '7' (train: 2013-01 a.csv row 3; eval: 2013-02 b.csv row 9, as id '7.0')`: a row of each split, or the first few."""
    first = rows[0].written
    places = []
    for row in _first_of_each(rows) if splits else rows[:PLACES]:
        place = f"{row.span} {row.file} row {row.row:,}"
        place += f", as {row.written}" if row.written != first else ""
        places.append(f"{row.split}: {place}" if splits else place)
    return f"{first} ({'; '.join(places)})"


def _first_of_each(rows: Sequence[KeyOccurrence]) -> list[KeyOccurrence]:
    """Returns the first row of each split."""
    first: dict[str, KeyOccurrence] = {}
    for row in rows:
        first.setdefault(row.split, row)
    return list(first.values())
