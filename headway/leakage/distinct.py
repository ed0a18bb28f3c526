"""Estimates how many rows repeat others, from the least distinct row hashes and their counts.

    seen = Distinct()
    seen.add(hashes)                        # any number of batches; merge() adds another piece's
    seen.values, seen.rows, seen.whole      # distinct hashes kept, rows that have them, whether these are all there are

Which hashes are least has nothing to do with how often they occur, so that the rows kept are as repetitive as all of them
are (Gibbons, "Distinct sampling for highly-accurate answers to distinct values queries", VLDB 2001).
"""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import NDArray

from headway.leakage.hash_sets import Hashes

KEPT = 512
_MANY = 8


class Distinct:
    """The `kept` least distinct hashes and their counts."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._hashes: Hashes = np.zeros(0, np.uint64)
        self._counts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._full = False
        """Whether more distinct hashes were seen than are kept."""

    def add(self, hashes: Hashes) -> None:
        """Add a batch of rows."""
        if self._full:
            hashes = hashes[hashes <= self._hashes[-1]]
        elif len(hashes) > 4 * (many := _MANY * self._kept):
            # sorting a part of them will do, unless they are few again and again
            some = hashes[hashes <= np.partition(hashes, many)[many]]
            values, counts = np.unique(some, return_counts=True)
            if len(values) > self._kept:
                self._fold(values, counts)
                return
        if len(hashes):
            self._fold(*np.unique(hashes, return_counts=True))

    def _fold(self, hashes: Hashes, counts: NDArray[np.int64]) -> None:
        values, places = np.unique(np.concatenate([self._hashes, hashes]), return_inverse=True)
        total = np.bincount(places, weights=np.concatenate([self._counts, counts]), minlength=len(values))
        self._full = self._full or len(values) > self._kept
        self._hashes, self._counts = values[: self._kept], total[: self._kept].astype(np.int64)

    def merge(self, other: Distinct) -> None:
        """Add the rows of another piece, which may have kept fewer hashes."""
        bounds = [bound for bound in (self.bound, other.bound) if bound is not None]
        least = min(bounds) if bounds else None
        self._hashes, self._counts = self.upto(least)  # further not all that occurred are known
        self._full = self._full or other._full
        self._fold(*other.upto(least))

    @property
    def values(self) -> int:
        """Distinct hashes that are kept."""
        return len(self._hashes)

    @property
    def rows(self) -> int:
        """Rows that have them."""
        return int(self._counts.sum())

    @property
    def bound(self) -> np.uint64 | None:
        """No hash above it is kept; None while all are."""
        return self._hashes[-1] if self._full else None

    def upto(self, bound: np.uint64 | None) -> tuple[Hashes, NDArray[np.int64]]:
        """The hashes that are kept up to `bound`, and how many rows have each; None: all."""
        end = len(self._hashes) if bound is None else int(np.searchsorted(self._hashes, bound, side="right"))
        return self._hashes[:end], self._counts[:end]

    @property
    def whole(self) -> bool:
        """Whether these are all there are."""
        return not self._full

    def of(self, rows: int) -> int:
        """The number of distinct hashes among `rows` rows, all that were added; estimated unless `whole`."""
        return self.values if self.whole else round(rows * self.values / self.rows)

    def to_text(self) -> str:
        """For JSON."""
        data = np.concatenate([self._hashes, self._counts.astype(np.uint64)]).astype("<u8").tobytes()
        return ("full:" if self._full else "all:") + base64.b64encode(data).decode("ascii")

    @classmethod
    def from_text(cls, text: str, kept: int = KEPT) -> Distinct:
        """What `to_text` wrote; ValueError when it is damaged."""
        kind, _, data = text.partition(":")
        whole = np.frombuffer(base64.b64decode(data, validate=True), "<u8").astype(np.uint64)
        if kind not in ("full", "all") or len(whole) % 2:
            raise ValueError("a sample of distinct rows is cut off")
        made = cls(kept)
        made._full = kind == "full"
        made._hashes, made._counts = whole[: len(whole) // 2], whole[len(whole) // 2 :].astype(np.int64)
        return made
