"""The groups of a split's rows: runs of rows that agree in the group column and lie together in one record.

    found = group_runs(shards, "query")
    found.shards.runs           # rows of each group, by shard
    found.notes                 # what there is to say: groups that ranges of files cut

Only the group column is read. A group whose rows are scattered over a shard is a mistake in the input: most of its pairs
would never meet. One that has rows in several shards (of several spans, files or ranges of a file) is that many groups, and
counted. A row whose group is null is a group by itself.
"""

import dataclasses
import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headway.errors import DataError
from headway.messages import agree, counted
from headway.tabular.hashing import U64, mix64
from headway.tabular.list_arrays import run_starts
from tfcore.data.groups.group_ids import NO_GROUP, group_ids
from tfcore.data.pipeline import by_shard, look_through
from tfcore.data.shards import Shards

_WHERE = "training.ranking"
MOST_IDS = 1 << 22
"""Of more groups, those that several shards have a part of are counted in a random sample."""
_SALT = 0x7061727473  # "parts"


@dataclasses.dataclass(frozen=True, eq=False)
class GroupRuns:
    shards: Shards
    """With `runs`."""
    column: str
    notes: tuple[str, ...] = ()

    def check_sizes(self, sizes: NDArray[np.int64], batch: int) -> None:
        """DataError where a group has more rows than a batch.

        Args:
            sizes: of each run at most, through all shards; int64 [runs].
        """
        every = np.append(sizes, 0)
        largest = int(np.argmax(every))
        if every[largest] <= batch:
            return
        begin = int(np.concatenate(self.shards.runs or ())[:largest].sum())
        many = int(np.sum(every > batch))
        raise DataError(
            f"{counted(many, 'group')} of {self.column!r} {agree(many, 'has', 'have')} more rows than a batch, which "
            f"is to hold whole ones: {_value(self.shards, self.column, begin)} has {int(every[largest]):,}, "
            f"training.batch_size is {batch:,}",
            where=_WHERE,
            fix=f"training.batch_size: {1 << math.ceil(math.log2(int(every[largest])))} (better several times a group), "
            "or smaller groups",
        )


def group_runs(shards: Shards, column: str) -> GroupRuns:
    """Find the groups' runs in the shards; see the module.

    Raises:
        DataError: the rows of a group do not lie together, or a shard is damaged.
    """
    runs: list[NDArray[Any]] = []
    parts, scattered, where, at = _Parts(), list[NDArray[np.int64]](), -1, 0
    for records, ids in zip(shards.rows, by_shard(shards, column, group_ids), strict=True):
        starts = run_starts(ids) | (ids == NO_GROUP)
        cuts = np.cumsum(records)
        starts[cuts[cuts < len(ids)]] = True
        begins = np.flatnonzero(starts)
        lengths = np.diff(begins, append=len(ids))
        runs.append(lengths.astype(np.min_scalar_type(-1 - int(lengths.max(initial=0)))))
        there = ids[begins]
        # parts that lie together were cut by the edge of a record
        whole = np.flatnonzero(run_starts(there) & (there != NO_GROUP))
        groups, first, counts = np.unique(there[whole], return_index=True, return_counts=True)
        if (twice := counts > 1).any():
            scattered.append(groups[twice])
            where = at + int(begins[whole[first[twice].min()]]) if where < 0 else where
        parts.add(there[there != NO_GROUP])
        at += len(ids)
    parts.count()
    if scattered:
        many = len(np.unique(np.concatenate(scattered)))  # one may be scattered in several shards
        raise DataError(
            f"the rows of {counted(many, 'group')} of {parts.groups:,} in {column!r} do not lie together, as those "
            f"of {_value(shards, column, where)}",
            where=_WHERE,
            fix=f"sort the input by {column}, so that the rows of a group follow each other",
        )
    return GroupRuns(dataclasses.replace(shards, runs=tuple(runs)), column, _notes(shards, column, parts))


class _Parts:
    """How many groups there are, and how many of them in several parts; of more than `MOST_IDS` groups by a random sample."""

    def __init__(self) -> None:
        self._ids, self._counts, self._halved = np.zeros(0, np.int64), np.zeros(0, np.int64), 0
        self._waiting: list[NDArray[np.int64]] = []

    def add(self, ids: NDArray[np.int64]) -> None:
        self._waiting.append(self._some(ids))
        if sum(map(len, self._waiting)) >= MOST_IDS:
            self.count()

    def count(self) -> Self:
        """Count what was added; before anything is asked."""
        more, counts = np.unique(np.concatenate([self._ids[:0], *self._waiting]), return_counts=True)
        self._ids, at = np.unique(np.concatenate([self._ids, more]), return_inverse=True)
        self._counts = np.bincount(at, np.concatenate([self._counts, counts])).astype(np.int64)
        self._waiting = []
        while len(self._ids) > MOST_IDS:
            self._halved += 1
            kept = np.isin(self._ids, self._some(self._ids), assume_unique=True)
            self._ids, self._counts = self._ids[kept], self._counts[kept]
        return self

    def _some(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        return ids if not self._halved else ids[mix64(ids.view(U64), _SALT) >> U64(64 - self._halved) == 0]

    @property
    def groups(self) -> int:
        return len(self._ids) << self._halved

    @property
    def cut(self) -> int:
        return int((self._counts > 1).sum()) << self._halved

    @property
    def one(self) -> int:
        """A group in several parts."""
        return int(self._ids[np.argmax(self._counts > 1)])


def _notes(shards: Shards, column: str, parts: _Parts) -> tuple[str, ...]:
    """Return a note on groups that are in several parts."""
    if not (cut := parts.cut):
        return ()
    at, one = 0, parts.one
    for ids in by_shard(shards, column, group_ids):
        if (found := ids == one).any():
            at += int(found.argmax())
            break
        at += len(ids)
    return (
        f"{counted(cut, 'group')} of {parts.groups:,} in {column!r}, such as {_value(shards, column, at)}, "
        f"{agree(cut, 'lies', 'lie')} in several spans, files or ranges of a file: each part is ranked by itself",
    )


def _value(shards: Shards, column: str, row: int) -> str:
    """The group of a row, for a message."""
    at = 0
    for piece in look_through(shards, [column], lambda columns: columns[column].plain()):
        if row < at + len(piece):
            value = piece[row - at].numpy()
            if isinstance(value, bytes):
                return repr(value.decode("utf-8", "backslashreplace"))
            return f"{value:.9g}" if isinstance(value, np.floating) else str(value)
        at += len(piece)
    raise AssertionError(f"there is no row {row}")
