"""Draws the holdout of the train rows by what the split keeps together, so that it is as far from them as eval is.

    drawn = draw(shards, 0.1, group="query", latest=None)
    drawn.holdout               # the rows that are held out; None: nothing can be, and drawn.problem says why

In this order: of a split by time the latest rows; else whole units by a hash, those of the split's key or of the group column;
else single rows by a hash of their place. What is drawn depends on the shards and the share alone: a training that goes on after
a kill draws it again. Only the one column is read for it; a row takes at most 16 bytes in memory meanwhile, and then a bit.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf
from numpy.typing import NDArray

from headway.messages import counted
from headway.schema.columns import UNIT
from headway.tabular.hashing import U64, mix64
from tfcore.data.groups.group_ids import NO_GROUP, group_ids
from tfcore.data.pipeline import look_through
from tfcore.data.shards import Holdout, Shards
from tfcore.train.request import Latest
from tfcore.transform.raw_column import RawColumn

_SALT = 0x686F6C64  # "hold": another draw than the split's


@dataclasses.dataclass(frozen=True, eq=False)
class Drawn:
    holdout: Holdout | None
    problem: str = ""


def draw(shards: Shards, share: float, *, group: str | None, latest: Latest | None) -> Drawn:
    """Hold out about `share` of the rows; see the module.

    Args:
        group: the group column.
        latest: the split is by time.
    """
    if latest is None:
        units = _units(shards, group)
        if units is None:
            return Drawn(Holdout.by_place(shards, share, inside=True))
        held = _top(_of_runs(units, shards), share, shuffled=True)
        what = "one unit that the split keeps together"
    elif latest.column in [column.name for column in shards.columns]:
        held = _top(_of_runs(_times(shards, latest.column, group), shards), share)
        what = f"one value of {latest.column!r}"
    else:
        held, what = _last(shards, share), "one group"
    if held is None:
        return Drawn(None, f"{what} takes more than half of the {counted(shards.total, 'train row')}, or all of them")
    return Drawn(Holdout.of(np.split(held, np.cumsum(shards.counts)[:-1]), inside=True))


def _read(shards: Shards, column: str, of: Callable[[RawColumn], tf.Tensor]) -> Iterator[NDArray[Any]]:
    for piece in look_through(shards, [column], lambda columns: of(columns[column])):
        yield piece.numpy()


def _units(shards: Shards, group: str | None) -> NDArray[np.uint32] | None:
    """A hash of each row's unit; a row without one has its own. None: every row is a unit."""
    column = UNIT if shards.unit else group
    if column is None:
        return None
    units, at = np.empty(shards.total, np.uint32), 0  # of 32 bits: units with the same hash go together
    for ids in _read(shards, column, group_ids):
        hashes = mix64(ids.view(U64), _SALT)
        if len(alone := np.flatnonzero(ids == NO_GROUP)):
            hashes[alone] = mix64((at + alone).astype(U64), _SALT + 1)
        units[at : at + len(ids)] = hashes >> U64(32)
        at += len(ids)
    return units


def _times(shards: Shards, column: str, group: str | None) -> NDArray[Any]:
    """What says how late each row is, the greater the later. A unit is as late as its latest row."""
    pieces = list(_read(shards, column, RawColumn.plain))
    if pieces[0].dtype == object:
        texts = pa.chunked_array([pa.array(piece, pa.binary()).dictionary_encode() for piece in pieces])
        encoded = texts.unify_dictionaries().combine_chunks()
        times = pc.rank(encoded.dictionary).to_numpy()[encoded.indices.to_numpy()]
    else:
        times = np.concatenate(pieces)
        times = np.where(np.isnan(times), -np.inf, times) if times.dtype.kind == "f" else times
    units = _units(shards, group)
    if units is None:
        return times
    order = np.argsort(units, kind="stable")
    lengths = np.diff(np.append(np.flatnonzero(np.diff(units[order].astype(np.int64), prepend=-1)), len(units)))
    latest = np.empty_like(times)
    latest[order] = _latest_of_each(times[order], lengths)
    return latest


def _of_runs(order: NDArray[Any], shards: Shards) -> NDArray[Any]:
    """Give all rows of a run the place of its last one."""
    return order if shards.runs is None else _latest_of_each(order, np.concatenate(shards.runs))


def _latest_of_each(order: NDArray[Any], lengths: NDArray[np.int64]) -> NDArray[Any]:
    return np.repeat(np.maximum.reduceat(order, np.cumsum(lengths) - lengths), lengths)


def _top(order: NDArray[Any], share: float, *, shuffled: bool = False) -> NDArray[np.bool_] | None:
    """The last rows of an order, as near to `share` as whole values allow; None: there are none, or more than half.

    Args:
        shuffled: the order means nothing, so a value that more than half of the rows have can be the first.
    """
    values, counts = np.unique(order, return_counts=True)
    if shuffled and counts.max() * 2 > len(order):
        order = np.where(order == values[counts.argmax()], order.dtype.type(0), order)
        values, counts = np.unique(order, return_counts=True)
    first = _nearest(np.cumsum(counts[::-1])[::-1], share, len(order))
    return None if first is None else order >= values[first]


def _nearest(held: NDArray[Any], share: float, rows: int) -> int | None:
    """Which of some numbers of rows to hold out is nearest to `share`; None: each is more than half."""
    off = np.where(held * 2 <= rows, np.abs(held - share * rows), np.inf)
    return int(off.argmin()) if np.isfinite(off).any() else None


def _last(shards: Shards, share: float) -> NDArray[np.bool_] | None:
    """The rows that come last in the window: whole spans where these are about `share`."""
    total = shards.total
    starts = np.cumsum(shards.counts) - shards.counts
    begins: NDArray[Any] = starts[np.flatnonzero(np.diff(shards.spans or [0] * len(starts), prepend=-1))]
    first = _nearest(total - begins, share, total)
    if first is None or not share / 2 <= (total - begins[first]) / total <= share * 2:
        runs = np.ones(total, np.int64) if shards.runs is None else np.concatenate(shards.runs)
        begins = np.cumsum(runs) - runs
        first = _nearest(total - begins, share, total)
    return None if first is None else np.arange(total) >= begins[first]
