"""Lists the shard files of a split, with the rows of each record, and chooses the holdout.

    shards = Shards.of([(ingest_folder, ingest_result, "train"), ...])
    shards.total                                          # rows
    kept_rows(shards, Holdout(0.1, inside=False))           # of each record, by shard

A holdout is decided by NumPy, which counts, and again in the graph, which picks; both hash a row's place in its shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import DataError
from headway.records.spec import unpacked
from headway.schema.columns import Column
from headway.storage.prefetch import Stager
from headway.tabular.hashing import U64, mix64
from tfcore.augment.draws import mix64 as hash_of

_HOLDOUT_BITS = 20

Batch = dict[str, tf.Tensor]


@dataclass(frozen=True)
class Shards:
    """The shard files of one split over a window, with the facts of their manifests."""

    paths: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]
    """Rows of each record, by shard."""
    columns: tuple[Column, ...]
    rows_per_record: int
    stager: Stager | None = None
    """Brings the files as they are read; None: they are here."""
    runs: tuple[NDArray[np.int64], ...] | None = field(default=None, compare=False)
    """Rows of each group, by shard, one behind the other: no holdout cuts one. None: nobody asked for groups."""

    @classmethod
    def of(cls, parts: Sequence[tuple[Path, Mapping[str, Any], str]], stager: Stager | None = None) -> Shards:
        """Make shards from (folder, ingest result, split) of each span, in window order.

        Raises:
            DataError: the spans were ingested with different columns.
        """
        paths, rows = [], []
        first = parts[0][1]
        for folder, result, split in parts:
            if result["columns"] != first["columns"] or result["rows_per_record"] != first["rows_per_record"]:
                raise DataError(f"{result['span']} holds other columns than {first['span']}", where=str(folder))
            for shard in result["splits"][split]["shards"]:
                paths.append(str(folder / shard["file"]))
                rows.append(tuple(unpacked(shard["rows"])))
        columns = tuple(Column.model_validate(column) for column in first["columns"])
        return cls(tuple(paths), tuple(rows), columns, first["rows_per_record"], stager)

    def ahead(self, *orders: Iterable[int]) -> None:
        """Announce the order in which the shards will be read; by default their own."""
        if self.stager is not None:
            self.stager.ahead(self.paths[i] for order in orders or [range(len(self.paths))] for i in order)

    def runs_of(self, shard: int) -> NDArray[np.int64] | None:
        return None if self.runs is None else self.runs[shard]

    @property
    def total(self) -> int:
        return sum(sum(rows) for rows in self.rows)


@dataclass(frozen=True)
class Holdout:
    """A share of the train rows that early stopping measures on, chosen by a hash of a row's place in its shard (with
    groups, of the place of its group's first row)."""

    share: float
    inside: bool
    """True: only the held_out rows. False: all others."""

    @property
    def limit(self) -> int:
        return round(self.share * (1 << _HOLDOUT_BITS))

    def keeps(self, shard: int, rows: int, runs: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
        """Which rows of a shard stay; bool [rows]. `HoldoutRows` does the same in the graph.

        Args:
            runs: rows of each group, all of which stay or go.
        """
        if runs is not None:
            return np.repeat(self._of(shard, np.cumsum(runs) - runs), runs)
        return self._of(shard, np.arange(rows))

    def _of(self, shard: int, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        hashes = mix64(places.astype(U64), shard + 1)
        return ((hashes >> U64(64 - _HOLDOUT_BITS)) < self.limit) == self.inside


class HoldoutRows:
    """`Holdout` in the graph."""

    def __init__(self, holdout: Holdout, shards: Shards):
        self._holdout = holdout
        starts = [np.cumsum(rows) - np.asarray(rows) for rows in shards.rows]
        # the first row of every record within its shard, and where each shard's records begin in that list
        self._first = tf.constant(np.concatenate(starts) if starts else np.zeros(0), tf.int64)
        self._begin = tf.constant(np.cumsum([0] + [len(s) for s in starts])[:-1], tf.int64)
        self._groups: tuple[tf.Tensor, tf.Tensor] | None = None
        if shards.runs is not None:
            # groups and shards counted through, so that a row's group is one search
            first_rows = np.cumsum([0] + [sum(rows) for rows in shards.rows])[:-1]
            runs = np.concatenate([*shards.runs, np.zeros(0, np.int64)])
            self._groups = tf.constant(first_rows, tf.int64), tf.constant(np.cumsum(runs) - runs, tf.int64)

    def __call__(self, rows: Batch, shard: tf.Tensor, number: tf.Tensor) -> Batch:
        """The rows of record `number` of a shard that stay; of several classic records when both are vectors."""
        _, keep = self.keeps(tf.shape(rows["label"], tf.int64)[0], shard, number)
        places = tf.where(keep)[:, 0]  # looked up once, where boolean_mask would for each tensor
        return {name: tf.gather(value, places) for name, value in rows.items()}

    def keeps(self, count: tf.Tensor, shard: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """(place in its shard, whether it stays) of each of `count` rows: int64 and bool [count]."""
        first = tf.gather(self._first, tf.gather(self._begin, shard) + number)
        places = first if number.shape.rank else tf.range(first, first + count)
        hashed = places
        if self._groups is not None:
            rows, groups = self._groups
            before = tf.gather(rows, shard)
            hashed = tf.gather(groups, tf.searchsorted(groups, before + places, side="right") - 1) - before
        hashes = hash_of(tf.cast(hashed, tf.uint64), tf.cast(shard + 1, tf.uint64))
        low = tf.cast(tf.bitwise.right_shift(hashes, tf.constant(64 - _HOLDOUT_BITS, tf.uint64)), tf.int64)
        return places, tf.equal(low < self._holdout.limit, self._holdout.inside)


def kept_rows(shards: Shards, holdout: Holdout | None) -> list[NDArray[np.int64]]:
    """The rows of each record that take part in training, by shard."""
    by_shard = []
    for shard, rows in enumerate(shards.rows):
        counts = np.asarray(rows, np.int64)
        if holdout is not None:
            mask = holdout.keeps(shard, int(counts.sum()), shards.runs_of(shard))
            ends = np.cumsum(mask)[np.cumsum(counts) - 1] if len(counts) else counts
            counts = np.diff(ends, prepend=0)
        by_shard.append(counts)
    return by_shard
