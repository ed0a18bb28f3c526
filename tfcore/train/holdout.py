"""Draws the holdout of the train rows by what the split keeps together, so that it is as far from them as eval is.

    drawn = draw(shards, 0.1, group="query", latest=None)
    drawn.holdout               # the rows that are held out; None: nothing can be, and drawn.problem says why

In this order: of a split by time the latest rows; else whole units by a hash, those of the split's key or of the group column;
else single rows by a hash of their place. What is drawn depends on the shards and the share alone: a training that goes on after
a kill draws it again. Only the one column is read for it, again for each look at more than `KEPT_ROWS` rows; a row takes a bit.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.messages import counted
from headway.schema.columns import UNIT
from headway.tabular.hashing import U64, mix64
from tfcore.data.groups.group_ids import NO_GROUP, group_ids
from tfcore.data.pipeline import by_shard
from tfcore.data.shards import Holdout, Shards
from tfcore.train.request import Latest
from tfcore.transform.raw_column import RawColumn

KEPT_ROWS = 1 << 24
"""What is read of so many rows is kept for the next look; of more it is read again."""
MOST_VALUES = 1 << 22
"""Of more distinct values the share that is held out may be off by a thousandth."""
SLOT_BITS = 26
"""Of more than `KEPT_ROWS` rows, units with so many equal bits of their hash are as late as the latest of them."""
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
    unit = UNIT if shards.unit else group
    if latest is None:
        if unit is None:
            return Drawn(Holdout.by_place(shards, share, inside=True))
        held = _top(_of_runs(_kept(lambda: _units(shards, unit), shards), shards), shards, share, shuffled=True)
        what = "one unit that the split keeps together"
    elif latest.column in [column.name for column in shards.columns]:
        held = _top(_of_runs(_times(shards, latest.column, unit), shards), shards, share)
        what = f"one value of {latest.column!r}"
    else:
        held, what = _last(shards, share), "one group"
    if held is None:
        return Drawn(None, f"{what} takes more than half of the {counted(shards.total, 'train row')}, or all of them")
    return Drawn(Holdout.of(held, inside=True))


ByShard = Callable[[], Iterable[NDArray[Any]]]
"""Something of each row, by shard; it can be asked for again."""


def _kept(read: ByShard, shards: Shards) -> ByShard:
    """The same, read once where rows are not too many."""
    if shards.total > KEPT_ROWS:
        return read
    kept = list(read())
    return lambda: kept


def _units(shards: Shards, column: str) -> Iterator[NDArray[np.uint32]]:
    """A hash of each row's unit, by shard; a row without one has its own."""
    at = 0  # of 32 bits: units with the same hash go together
    for ids in by_shard(shards, column, group_ids):
        hashes = mix64(ids.view(U64), _SALT)
        if len(alone := np.flatnonzero(ids == NO_GROUP)):
            hashes[alone] = mix64((at + alone).astype(U64), _SALT + 1)
        yield (hashes >> U64(32)).astype(np.uint32)
        at += len(ids)


def _times(shards: Shards, column: str, unit: str | None) -> ByShard:
    """How late each row is, the greater the later. A unit is as late as its latest row."""

    def plain() -> Iterator[NDArray[Any]]:
        for times in by_shard(shards, column, RawColumn.plain):
            times = times.astype(np.bytes_) if times.dtype == object else times
            yield np.where(np.isnan(times), -np.inf, times) if times.dtype.kind == "f" else times

    times = _kept(plain, shards)
    values, _ = _tally(times())

    def ranks() -> Iterator[NDArray[np.int32]]:
        return ((np.searchsorted(values, each, "right") - 1).astype(np.int32) for each in times())

    if unit is None:
        return ranks
    units = _kept(lambda: _units(shards, unit), shards)
    known = np.unique(np.concatenate([*units()])) if shards.total <= KEPT_ROWS else None

    def slots() -> Iterator[NDArray[Any]]:
        for each in units():
            yield each >> np.uint32(32 - SLOT_BITS) if known is None else np.searchsorted(known, each)

    latest = np.full(1 << SLOT_BITS if known is None else len(known), -1, np.int32)
    for slot, rank in zip(slots(), ranks(), strict=True):
        np.maximum.at(latest, slot, rank)
    return lambda: (latest[slot] for slot in slots())


def _of_runs(orders: ByShard, shards: Shards) -> ByShard:
    """Give all rows of a run the place of its last one."""
    if (runs := shards.runs) is None:
        return orders
    return lambda: (
        np.repeat(np.maximum.reduceat(order, np.cumsum(lengths) - lengths), lengths) if len(order) else order
        for order, lengths in zip(orders(), runs, strict=True)
    )


def _tally(pieces: Iterable[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """(distinct values, the least first; how often each comes). Of more than `MOST_VALUES`, neighbours go together."""
    values, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    waiting: list[NDArray[Any]] = []

    def merged() -> tuple[NDArray[Any], NDArray[np.int64]]:
        more, of_more = np.unique(np.concatenate(waiting), return_counts=True)
        every, at = np.unique(np.concatenate([values, more]) if len(values) else more, return_inverse=True)
        found = np.zeros(len(every), np.int64)
        np.add.at(found, at, np.concatenate([counts, of_more]))
        while len(every) > MOST_VALUES:
            every, found = every[::2], np.add.reduceat(found, np.arange(0, len(every), 2))
        return every, found

    for piece in pieces:
        waiting.append(piece)
        if sum(map(len, waiting)) >= MOST_VALUES:
            values, counts = merged()
            waiting = []
    return merged() if waiting else (values, counts)


def _top(
    orders: ByShard, shards: Shards, share: float, *, shuffled: bool = False
) -> Iterator[NDArray[np.bool_]] | None:
    """The last rows of an order, as near to `share` as whole values allow, by shard; None: there are none, or more than half.

    Args:
        shuffled: the order means nothing, so a value that more than half of the rows have can be the first.
    """
    values, counts = _tally(orders())
    most = int(counts.argmax())
    first_of_all = shuffled and counts[most] * 2 > shards.total
    ends = [*values[most : most + 2], None][:2]
    if first_of_all:
        values, counts = (np.append(of[most], np.delete(of, most)) for of in (values, counts))
    first = _nearest(np.cumsum(counts[::-1])[::-1], share, shards.total)
    if first is None:
        return None

    def held(order: NDArray[Any]) -> NDArray[np.bool_]:
        late: NDArray[np.bool_] = order >= values[first]
        if first_of_all:
            late &= (order < ends[0]) | (False if ends[1] is None else order >= ends[1])
        return late

    return map(held, orders())


def _nearest(held: NDArray[Any], share: float, rows: int) -> int | None:
    """Which of some numbers of rows to hold out is nearest to `share`; None: each is more than half."""
    off = np.where(held * 2 <= rows, np.abs(held - share * rows), np.inf)
    return int(off.argmin()) if np.isfinite(off).any() else None


def _last(shards: Shards, share: float) -> Iterator[NDArray[np.bool_]] | None:
    """The rows that come last in the window, by shard: whole spans where these are about `share`."""
    total, runs = shards.total, shards.runs
    starts = np.cumsum(shards.counts) - shards.counts
    begins: NDArray[Any] = starts[np.flatnonzero(np.diff(shards.spans or [0] * len(starts), prepend=-1))]
    first = _nearest(total - begins, share, total)
    if first is None or not share / 2 <= (total - begins[first]) / total <= share * 2:
        shard = int(np.searchsorted(starts, (1 - share) * total, "right")) - 1
        within = np.arange(shards.counts[shard]) if runs is None else np.cumsum(runs[shard]) - runs[shard]
        begins = np.append(starts[shard] + within, starts[shard + 1 : shard + 2])
        first = _nearest(total - begins, share, total)
    if first is None:
        return None
    begin = begins[first]
    return (start + np.arange(rows) >= begin for start, rows in zip(starts, shards.counts, strict=True))
