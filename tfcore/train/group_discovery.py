"""The groups of a split's rows: runs of rows that agree in the group column and lie together in one record.

    found = group_runs(shards, "query")
    found.shards.runs           # rows of each group, by shard
    found.notes                 # what there is to say: groups that ranges of files cut

Only the group column is read. A group whose rows are scattered over a shard is a mistake in the input: most of its pairs
would never meet. One that has rows in several shards (of several spans, files or ranges of a file) is that many groups, and
counted. A row whose group is null is a group by itself.
"""

import dataclasses
import itertools
import math

import numpy as np
from numpy.typing import NDArray

from headway.errors import DataError
from headway.messages import agree, counted
from tfcore.data.groups.group_ids import NO_GROUP, group_ids
from tfcore.data.pipeline import look_through
from tfcore.data.shards import Shards

_WHERE = "training.ranking"


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
    begins, ids = _read(shards, column)
    total = shards.total
    rows = np.cumsum([0, *shards.counts])
    places = np.searchsorted(begins, rows)
    lengths = np.diff(begins, append=total)
    lengths = lengths.astype(np.min_scalar_type(-1 - int(lengths.max(initial=0))))
    runs = tuple(lengths[first:last] for first, last in itertools.pairwise(places))
    discovered = GroupRuns(dataclasses.replace(shards, runs=runs), column)
    notes = _look(shards, column, begins, ids, places)
    return dataclasses.replace(discovered, notes=notes)


def _read(shards: Shards, column: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (first row, id) of each run, rows counted through all shards."""
    counts = shards.rows if shards.rows_per_record > 1 else [shards.counts]
    cuts = np.cumsum([0] + [count for rows in counts for count in rows])

    begins, ids = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    at, before = 0, np.int64(NO_GROUP)
    for piece in look_through(shards, [column], lambda columns: group_ids(columns[column])):
        values = piece.numpy()
        if not len(values):
            continue
        starts = np.append(values[:1] != before, values[1:] != values[:-1]) | (values == NO_GROUP)
        first, last = np.searchsorted(cuts, [at, at + len(values)])
        starts[cuts[first:last] - at] = True
        begins.append(at + np.flatnonzero(starts))
        ids.append(values[starts])
        at, before = at + len(values), values[-1]
    return np.concatenate(begins), np.concatenate(ids)


def _look(
    shards: Shards, column: str, begins: NDArray[np.int64], ids: NDArray[np.int64], places: NDArray[np.int64]
) -> tuple[str, ...]:
    """Return notes on groups that are in several shards; DataError if a group's rows are scattered in one shard."""
    parts, scattered, where = [], 0, -1
    for first, last in itertools.pairwise(places):
        there = ids[first:last]
        # parts that lie together were cut by the edge of a record
        whole = np.append(True, there[1:] != there[:-1])[: len(there)] & (there != NO_GROUP)
        _, at, counts = np.unique(there[whole], return_index=True, return_counts=True)
        if (twice := counts > 1).any():
            scattered += int(twice.sum())
            where = int(first + np.flatnonzero(whole)[at[twice].min()]) if where < 0 else where
        parts.append(there[there != NO_GROUP])
    groups = np.unique(np.concatenate([np.zeros(0, np.int64), *parts]), return_counts=True)
    if scattered:
        raise DataError(
            f"the rows of {counted(scattered, 'group')} of {len(groups[0]):,} in {column!r} do not lie together, as those "
            f"of {_value(shards, column, int(begins[where]))}",
            where=_WHERE,
            fix=f"sort the input by {column}, so that the rows of a group follow each other",
        )
    if not (cut := int((groups[1] > 1).sum())):
        return ()
    repeated_id = groups[0][np.argmax(groups[1] > 1)]
    value = _value(shards, column, int(begins[np.flatnonzero(ids == repeated_id)[0]]))
    return (
        f"{counted(cut, 'group')} of {len(groups[0]):,} in {column!r}, such as {value}, "
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
