"""Histories of keys: for each row, the last items of earlier rows with the same key.

    histories(users, times, movies, last=50)                       # list array [rows], oldest first
    histories(users, times, movies, last=50, counted=ratings >= 4)  # only items of rows that count

A row's history has no items of the row itself, of rows of the same time, or of later rows. So rows after a time can be left out
or changed, and the histories of rows up to that time stay as they are.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.tabular.list_arrays import run_starts


def histories(
    keys: NDArray[Any],
    times: NDArray[Any],
    items: NDArray[Any],
    *,
    last: int,
    counted: NDArray[np.bool_] | None = None,
) -> pa.ListArray:
    """Returns for each row the last items of its key strictly before its time, oldest first. The rows keep their order.

    Args:
        keys, times, items: [rows], in any order. In a history, rows of the same time keep their order.
        last: the most items of a history.
        counted: a mask of the rows whose items become history; default: all. Every row gets a history.

    Raises:
        ValueError: `last` is not positive, or the arrays differ in length.
    """
    if last < 1:
        raise ValueError(f"last is {last}; a history has at least one item")
    if len({len(keys), len(times), len(items), *(() if counted is None else (len(counted),))}) > 1:
        raise ValueError("keys, times, items and counted differ in length")
    ids = np.unique(keys, return_inverse=True)[1].reshape(-1)
    order = np.lexsort((times, ids))
    new_key = run_starts(ids[order])
    new_time = new_key | run_starts(times[order])
    place = np.arange(len(order))
    kept = np.ones(len(order), np.bool_) if counted is None else np.asarray(counted, np.bool_)[order]
    before = np.append(0, np.cumsum(kept))
    end = before[np.maximum.accumulate(np.where(new_time, place, 0))]
    begin = np.maximum(before[np.maximum.accumulate(np.where(new_key, place, 0))], end - last)
    begins, lengths = np.empty_like(begin), np.empty_like(begin)
    begins[order], lengths[order] = begin, end - begin
    offsets = np.append(0, np.cumsum(lengths))
    places = np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], lengths)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(items[order][kept][places]))
