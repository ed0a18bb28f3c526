"""Lists the shard files of a split, with the rows of each record, and says which rows are the holdout.

    shards = Shards.of([(ingest_folder, ingest_result, "train"), ...])
    shards.total                                          # rows
    kept_rows(shards, Holdout.of(held_out))               # of each record, by shard; held_out is a mask of each shard

Which rows are held out stands in a bit of each row: NumPy counts with it, and the graph picks with it.
`tfcore.train.rows` draws them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from headway.errors import ConfigError, DataError
from headway.records.encode import unpacked
from headway.schema.columns import UNIT_COLUMN, Column
from headway.stages.refs import Examples
from headway.storage.prefetch import Stager
from headway.tabular.hashing import GOLDEN, U64, mix64

_PLACE_BITS = 20
_RESAMPLE_SALT = 0x726573 << 32
_BITS = 24
_ONES = 0xFFFFFFFFFFFFFFFF

Batch = dict[str, tf.Tensor]


@dataclass(frozen=True)
class Shards:
    """The shard files of one split over a window, with the facts of their manifests."""

    paths: tuple[str, ...]
    rows: tuple[Sequence[int] | NDArray[np.int64], ...]
    """Rows of each record, by shard."""
    columns: tuple[Column, ...]
    stager: Stager | None = None
    """Brings the files as they are read; None: they are here."""
    runs: tuple[NDArray[Any], ...] | None = field(default=None, compare=False)
    """Rows of each group, signed integers, by shard, one behind the other: no holdout cuts one. None: nobody asked for groups."""
    unit: bool = False
    """Whether records say which rows the split keeps together, as `UNIT_COLUMN`."""
    spans: tuple[int, ...] | None = field(default=None, compare=False)
    """The place of each shard's span in the window; None: all are of one."""

    @classmethod
    def of(cls, parts: Sequence[tuple[Path, Mapping[str, Any], str]], stager: Stager | None = None) -> Self:
        """Make shards from (folder, ingest result, split) of each span, in window order.

        Raises:
            DataError: the spans were ingested with different columns.
        """
        paths, rows, spans = [], [], []
        first = parts[0][1]
        for span, (folder, result, split) in enumerate(parts):
            if result["columns"] != first["columns"]:
                raise DataError(f"{result['span']} holds other columns than {first['span']}", where=str(folder))
            for shard in result["splits"][split]["shards"]:
                paths.append(str(folder / shard["file"]))
                rows.append(unpacked(shard["rows"]))
                spans.append(span)
        columns = tuple(Column.model_validate(column) for column in first["columns"])
        unit = first["unit"]
        return cls(tuple(paths), tuple(rows), columns, stager, unit=unit, spans=tuple(spans))

    def ahead(self, *orders: Iterable[int]) -> None:
        """Announce the order in which the shards will be read; by default their own."""
        if self.stager is not None:
            self.stager.ahead(self.paths[i] for order in orders or [range(len(self.paths))] for i in order)

    @property
    def record_columns(self) -> tuple[Column, ...]:
        """What records hold: the columns, and the unit."""
        return (*self.columns, UNIT_COLUMN) if self.unit else self.columns

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Rows of each shard."""
        return tuple(int(np.sum(rows)) for rows in self.rows)

    @property
    def total(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True, eq=False)
class Holdout:
    """Which rows take part: the held-out ones, on which early stopping measures, or all others."""

    bits: tuple[NDArray[np.uint8], ...]
    """By shard, a bit of each row: whether it is held out; `np.packbits` with the first row in the lowest bit."""
    inside: bool = False
    """True: only the held-out rows. False: all others."""

    @classmethod
    def of(cls, held_out: Iterable[NDArray[np.bool_]], *, inside: bool = False) -> Self:
        """Make a holdout of a mask of each shard's rows."""
        return cls(tuple(np.packbits(mask, bitorder="little") for mask in held_out), inside)

    @classmethod
    def by_place(cls, shards: Shards, share: float, *, inside: bool = False) -> Self:
        """Hold out single rows by a hash of their place in their shard."""
        limit = round(share * (1 << _PLACE_BITS))
        hashes = (mix64(np.arange(rows, dtype=U64), shard + 1) for shard, rows in enumerate(shards.counts))
        return cls.of((each >> U64(64 - _PLACE_BITS) < limit for each in hashes), inside=inside)

    @property
    def inverse(self) -> Self:
        """The other rows."""
        return replace(self, inside=not self.inside)

    def keeps(self, shard: int, rows: int) -> NDArray[np.bool_]:
        """Which rows of a shard stay; bool [rows]. `HoldoutRows` does the same in the graph."""
        return np.unpackbits(self.bits[shard], count=rows, bitorder="little").view(np.bool_) == self.inside


class HoldoutRows:
    """`Holdout` in the graph; without one every row stays."""

    def __init__(self, holdout: Holdout | None, shards: Shards):
        starts = [np.cumsum(rows) - np.asarray(rows) for rows in shards.rows]
        # the first row of every record within its shard, and where each shard's records begin in that list
        self._first = tf.constant(np.concatenate(starts) if starts else np.zeros(0), tf.int64)
        self._begin = tf.constant(np.cumsum([0] + [len(s) for s in starts])[:-1], tf.int64)
        self._inside = None if holdout is None else holdout.inside
        if holdout is not None:
            self._bits = tf.constant(np.concatenate([*holdout.bits, np.zeros(0, np.uint8)]))
            self._bytes = tf.constant(np.cumsum([0] + [len(bits) for bits in holdout.bits])[:-1], tf.int64)

    def __call__(self, rows: Batch, shard: tf.Tensor, number: tf.Tensor) -> Batch:
        """The rows of record `number` of a shard that stay."""
        _, keep = self.keeps(tf.shape(rows["label"], tf.int64)[0], shard, number)
        places = tf.where(keep)[:, 0]  # looked up once, where boolean_mask would for each tensor
        return {name: tf.gather(value, places) for name, value in rows.items()}

    def keeps(self, count: tf.Tensor, shard: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """(place in its shard, whether it stays) of each of `count` rows: int64 and bool [count]."""
        first = tf.gather(self._first, tf.gather(self._begin, shard) + number)
        places = tf.range(first, first + count)
        if self._inside is None:
            return places, tf.ones_like(places, tf.bool)
        eight = tf.gather(self._bits, tf.gather(self._bytes, shard) + places // 8)
        bit = tf.bitwise.right_shift(tf.cast(eight, tf.int32), tf.cast(places % 8, tf.int32)) & 1
        return places, tf.equal(tf.cast(bit, tf.bool), self._inside)


def kept_rows(shards: Shards, holdout: Holdout | None) -> list[NDArray[Any]]:
    """The rows of each record that take part in training, by shard; integers."""
    if holdout is None:
        return [np.asarray(rows) for rows in shards.rows]
    return [by_record(rows, holdout.keeps(shard, shards.counts[shard])) for shard, rows in enumerate(shards.rows)]


def by_record(rows: Sequence[int] | NDArray[np.int64], of_row: NDArray[Any]) -> NDArray[Any]:
    """The sum of an integer, or a truth, of each row over each record of so many `rows`; of the least type that holds it."""
    found = of_row
    if len(rows) < len(of_row) or not np.all(np.asarray(rows) == 1):
        found = np.diff(np.append(0, np.cumsum(of_row))[np.cumsum(rows)], prepend=0)
    return found.astype(np.min_scalar_type(int(found.max(initial=0))))


def shards_of(examples: Sequence[Examples], stager: Stager | None = None) -> Shards:
    """The shards of all examples, in their order.

    Raises:
        ConfigError: there are none.
    """
    if not examples:
        raise ConfigError("there are no rows: neither examples nor shards", where="examples")
    return Shards.of([(part.path, part.result, part.split) for part in examples], stager)


class Resample:
    """Decides how often each row occurs in an epoch; see the module.

    Args:
        rates: [classes], how often a row of each comes.
        classes: of each row, by shard; int [rows].
        inverse: let each row count 1 / rate times.
    """

    def __init__(self, rates: Sequence[float], classes: Sequence[NDArray[Any]], *, seed: int, inverse: bool = False):
        self.seed, self._classes = seed + _RESAMPLE_SALT, classes
        self.whole = np.floor(rates).astype(np.int64)
        self.part = np.round((np.asarray(rates) - self.whole) * (1 << _BITS)).astype(np.int64)
        self.weights = 1.0 / np.asarray(rates, np.float64) if inverse else None
        self._rates = np.asarray(rates, np.float64)

    def copies(self, shard: int, epoch: int) -> NDArray[np.int64]:
        """How often each row of a shard occurs in an epoch; int64 [rows]. `Resampling` is its twin in the graph."""
        classes = self._classes[shard]
        place = mix64(np.arange(len(classes), dtype=U64), shard + 1)
        drawn = mix64(place ^ U64(epoch), self.seed) >> U64(64 - _BITS)
        return self.whole[classes] + (drawn.astype(np.int64) < self.part[classes])

    def rows_of_records(self, shards: Shards, holdout: Holdout | None, epoch: int) -> list[NDArray[Any]]:
        """Rows that each record contributes to an epoch, by shard."""
        by_shard = []
        for shard, rows in enumerate(shards.rows):
            copies = self.copies(shard, epoch)
            if holdout is not None:
                copies = copies * holdout.keeps(shard, len(copies))
            by_shard.append(by_record(rows, copies))
        return by_shard

    def most(self, shard: int) -> NDArray[np.int64]:
        """How often each row of a shard occurs in an epoch at most; int64 [rows]."""
        return (self.whole + (self.part > 0))[self._classes[shard]]

    def expected(self, shards: Shards, holdout: Holdout | None) -> int:
        """The mean number of rows in an epoch."""
        total = 0.0
        for shard, classes in enumerate(self._classes):
            rates = self._rates[classes]
            if holdout is not None:
                rates = rates * holdout.keeps(shard, len(classes))
            total += float(rates.sum())
        return round(total)


class Resampling:
    """`Resample` and the holdout in the graph."""

    def __init__(self, resample: Resample, shards: Shards, holdout: Holdout | None):
        self._resample = resample
        self._holdout_rows = HoldoutRows(holdout, shards)

    def __call__(self, rows: Batch, shard: tf.Tensor, number: tf.Tensor, epoch: tf.Tensor) -> Batch:
        """Repeat or drop rows of record `number` of a shard for the epoch."""
        resample = self._resample
        places, keep = self._holdout_rows.keeps(tf.shape(rows["label"], tf.int64)[0], shard, number)
        classes = tf.cast(rows["label"], tf.int32)
        place = hash64(tf.cast(places, tf.uint64), tf.cast(shard + 1, tf.uint64))
        drawn = hash64(tf.bitwise.bitwise_xor(place, tf.cast(epoch, tf.uint64)), resample.seed)
        drawn = tf.cast(tf.bitwise.right_shift(drawn, tf.constant(64 - _BITS, tf.uint64)), tf.int64)
        extra = tf.cast(drawn < tf.gather(resample.part, classes), tf.int64)
        copies = (tf.gather(resample.whole, classes) + extra) * tf.cast(keep, tf.int64)
        if resample.weights is not None:
            factor = tf.gather(tf.constant(resample.weights, tf.float32), classes)
            rows = rows | {"weight": rows["weight"] * factor}
        order = tf.repeat(tf.range(tf.size(copies)), copies)
        return {name: tf.gather(value, order) for name, value in rows.items()}


def hash64(x: tf.Tensor, seed: int | tf.Tensor = 0) -> tf.Tensor:
    """Compute headway.tabular.hashing.mix64 in the graph; uint64, shape as `x` (and as `seed`, if a uint64 tensor)."""
    if isinstance(seed, int):
        z = x + _u64((seed + 1) * GOLDEN & _ONES)
    else:
        z = x + (seed + _u64(1)) * _u64(GOLDEN)
    shift, xor = tf.bitwise.right_shift, tf.bitwise.bitwise_xor
    z = xor(z, shift(z, _u64(30))) * _u64(0xBF58476D1CE4E5B9)
    z = xor(z, shift(z, _u64(27))) * _u64(0x94D049BB133111EB)
    return xor(z, shift(z, _u64(31)))


def _u64(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint64)
