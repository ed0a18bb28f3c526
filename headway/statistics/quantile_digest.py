"""Estimates quantiles of any number of values by a t-digest, live, or packed where there are thousands of them.

Dunning, "The t-digest: efficient estimates of distributions", 2021; the implementation is Apache DataSketches'.

    digest = Packed(200)
    digest.feed(values)                      # in any order; merge() adds another one
    digest.whole().get_quantile(0.5)

A live t-digest of 200 takes 20 kB, of which 3 are what it knows. A packed one is those 3 kB, and up to `GATHERED` values in
their own type that wait to be taken in together. Both repeat exactly for the same values in the same order.
"""

from __future__ import annotations

import base64
from typing import Any

import datasketches
import numpy as np
from numpy.typing import NDArray

GATHERED = 512
_OTHERS = 4
"""So many packed digests of other pieces wait to be merged together."""


class Live:
    """A t-digest as it is."""

    def __init__(self, size: int) -> None:
        self._digest = datasketches.tdigest_double(size)

    def feed(self, values: NDArray[Any]) -> None:
        if len(values):
            self._digest.update(np.array(values, np.float64))  # a copy: datasketches wants a writable array

    def merge(self, other: Live | Packed) -> None:
        self._digest.merge(other.whole())

    def whole(self) -> Any:
        """The t-digest; feeding it feeds this one."""
        return self._digest

    def copy(self) -> Live:
        made = Live(self._digest.k)
        made._digest = datasketches.tdigest_double.deserialize(self._digest.serialize())
        return made


class Packed:
    """A t-digest in its serialised form, and values and digests that wait to go in."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._packed: list[bytes] = []
        self._values: list[NDArray[Any]] = []
        self._count = 0

    def feed(self, values: NDArray[Any]) -> None:
        if len(values):
            self._values.append(np.array(values))  # a copy: not a view of a whole batch
            self._count += len(values)
            if self._count >= GATHERED:
                self._pack()

    def merge(self, other: Live | Packed) -> None:
        if isinstance(other, Live):
            self._packed.append(other.whole().serialize())
        else:
            self._packed += other._packed
            for values in other._values:
                self.feed(values)
        if len(self._packed) > _OTHERS:
            self._pack()

    def _pack(self) -> None:
        self._packed, self._values, self._count = [self.whole().serialize()], [], 0

    def whole(self) -> Any:
        """A t-digest of all there is; a new one."""
        if self._packed:
            digest = datasketches.tdigest_double.deserialize(self._packed[0])
        else:
            digest = datasketches.tdigest_double(self._size)
        for other in self._packed[1:]:
            digest.merge(datasketches.tdigest_double.deserialize(other))
        if self._values:
            digest.update(np.concatenate(self._values, dtype=np.float64))
        return digest

    def copy(self) -> Packed:
        made = Packed(self._size)
        made._packed, made._values, made._count = [*self._packed], [*self._values], self._count
        return made


def to_text(digest: Live | Packed) -> str:
    return base64.b64encode(digest.whole().serialize()).decode()


def from_text(text: str, packed: int) -> Live | Packed:
    """What `to_text` wrote; packed if its size is `packed`.

    Raises:
        ValueError, RuntimeError: it is damaged.
    """
    raw = base64.b64decode(text)
    digest = datasketches.tdigest_double.deserialize(raw)
    if digest.k == packed:
        few = Packed(packed)
        few._packed = [raw]
        return few
    made = Live(digest.k)
    made._digest = digest
    return made
