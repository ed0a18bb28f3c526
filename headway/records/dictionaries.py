"""Codes of a shared dictionary as codes of each record's own dictionary, in order of first appearance.

orders, places = places_together(codes, present, starts, size)
orders[i]                                # the shared codes that record i uses, in order of first appearance
places                                   # for each row its code's place in the order of its record
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray


def worth_a_table(size: int, records: int, rows: int) -> bool:
    """Whether `places_together` pays; else a record uses little of a large dictionary, and `places_apart` does."""
    return records * size <= 4 * rows


def places_together(
    codes: NDArray[np.integer], present: NDArray[np.bool_] | None, starts: NDArray[np.int64], size: int
) -> tuple[list[NDArray[np.int64]], NDArray[Any]]:
    """For each record its distinct codes, each below `size`, as they first appear; for each row its code's place there."""
    rows, records = len(codes), len(starts) - 1
    slots = codes.astype(np.int64)
    if records > 1:
        slots += np.repeat(np.arange(records) * size, np.diff(starts))
    at = np.arange(rows - 1, -1, -1)
    first = np.full(records * size, rows, np.int64)
    # backwards, so that the earliest row is written last
    if present is None:
        first[slots[::-1]] = at
    else:
        held = present[::-1]
        first[slots[::-1][held]] = at[held]
    table = first.reshape(records, size)
    order = np.argsort(table, axis=1, kind="stable")
    used = np.count_nonzero(table < rows, axis=1)
    small = int(used.max(initial=0)) <= 0x80
    place = np.zeros((records, size), np.uint8 if small else np.int64)
    np.put_along_axis(place, order, np.arange(size).astype(place.dtype)[None, :], axis=1)
    return [order[i, : used[i]] for i in range(records)], place.reshape(-1)[slots]


def places_apart(
    codes: NDArray[np.integer], present: NDArray[np.bool_] | None, starts: NDArray[np.int64]
) -> tuple[list[NDArray[np.int64]], NDArray[Any]]:
    """The same, one record after the other."""
    orders, places = [], np.zeros(len(codes), np.int64)
    for start, end in pairwise(starts.tolist()):
        held = slice(start, end) if present is None else start + np.flatnonzero(present[start:end])
        distinct, at, which = np.unique(codes[held], return_index=True, return_inverse=True)
        order = np.argsort(at, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        places[held] = place[which]
        orders.append(distinct[order].astype(np.int64))
    return orders, places
