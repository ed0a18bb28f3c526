"""The key index of a span: hashes of keys, times and split rules, per split. Ingest writes it for the leakage proof.

    index = KeyIndex(split_config, columns)         # of one range
    index.add(batch, schema_of_the_file, assigned)
    index.save(folder)                           # notes.json + <split>.<key>.u64
    merge([folder_of_range_0, folder_of_range_1], folder_of_span)
    read(folder)                                 # SpanIndex

A set holds the 64-bit hashes of one key in one split (`headway.leakage.keys`). A span's file holds the sets of its ranges one
after the other. Of a time column the least and greatest value are kept. If rows are split by a hash of all columns, the least and
greatest split hash of each split are kept: if those of two splits do not overlap, no equal rows are in both. With any other rule,
equal rows may be in two splits. Then a sample of row hashes is kept, computed without the key, the split column and the time. So
duplicates under different ids are found.

    sampler = ContentSampler(config, columns)    # sampler.names: the compared columns; without any nothing is drawn
    sampler.draw(batch, codes, {0: DistinctSample(DRAWN), 1: DistinctSample(DRAWN)})
    overlap(train, eval)                         # Overlap(share=0.88, beyond=0.85, values=210, whole=False)
    seen = DistinctSample()
    seen.add(hashes)                             # any number of batches; merge() adds another sample
    seen.values, seen.rows, seen.whole           # distinct hashes kept, rows that have them, whether none was dropped

Hashing every column of every row would cost as much as the split itself. So each row has an order hash over a few columns, and
only rows of the least order hashes are hashed over all columns. Equal rows have equal order hashes everywhere.

A sample is the least distinct row hashes, with the number of rows of each. Whether a hash is among the least does not depend on
how often it occurs. So the sampled rows repeat as often as all rows do (Gibbons, "Distinct sampling for highly-accurate answers
to distinct values queries", VLDB 2001).
"""

from __future__ import annotations

import base64
import functools
import json
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field

from headway.config import Frozen
from headway.errors import DataError
from headway.leakage import hash_sets
from headway.leakage.hash_sets import Hashes
from headway.leakage.keys import key_hashes
from headway.leakage.time_range import TimeRange, raw_kind, time_range
from headway.schema.columns import Column, named_for
from headway.statistics.row_sample import hashed_texts
from headway.storage.manifest import FORMAT, check_format
from headway.tabular import hashing
from headway.tabular.hashing import NULL
from headway.tabular.list_arrays import np_view
from headway.tabular.splits import SplitCodes, SplitConfig, column_hash

FILE = "notes.json"
_PENDING = 1 << 21
"""The number of hashes that are collected in memory before they are sorted."""
KeyName = Literal["key", "group"]
KeyColumns = dict[str, str]
"""The stored type of each column of a key, by the column's name."""


class KeyEntry(Frozen):
    """The index of one key in one split: what the file of its hash sets holds."""

    sets: tuple[int, ...]
    """The number of hashes in the set of each range."""
    missing: int = 0
    """The number of rows without a key, because a column of the key is null or NaN."""


class SplitIndex(Frozen):
    """The index of one split of a span."""

    rows: int
    hashes: tuple[int, int] | None = None
    """The least and greatest split hash, if rows are split by a hash without a key; else None."""
    repeats: str | None = None
    """A sample of the split hashes as text, to count repeated rows, if rows are split by a hash without a key; else None."""
    contents: str | None = None
    """A sample of row hashes as text, to find equal rows in two splits, if rows are split in another way; else None."""
    time: TimeRange | None = None
    keys: dict[KeyName, KeyEntry] = Field(default_factory=dict)


class SpanIndex(Frozen):
    """The key index of a span. The hash sets are files in the same folder."""

    format: int = FORMAT
    rule: dict[str, Any]
    """How rows were split. Under equal rules, equal rows are in the same split."""
    keys: dict[KeyName, KeyColumns] = Field(default_factory=dict)
    time: str | None = None
    """The name of the time column; None: there is none."""
    content: tuple[str, ...] = ()
    """The columns that are hashed for the samples in `SplitIndex.contents`."""
    apart: tuple[str, ...] = ()
    """The columns that were read but are not in `content`: keys, identifiers, times, the split column."""
    splits: dict[str, SplitIndex]


def indexed_keys(config: SplitConfig, columns: Sequence[Column]) -> dict[KeyName, KeyColumns]:
    """Returns the columns and types of each key to index: split.key, and another group column unless mode is time or by row."""
    types = {column.name: column.type for column in columns}
    keys: dict[KeyName, KeyColumns] = {}
    if config.key:
        keys["key"] = {name: types[name] for name in sorted(config.key)}
    group = named_for(columns, "group")
    if group is not None and config.mode != "time" and set(config.key) != {group} and not config.by_row:
        keys["group"] = {group: types[group]}
    return keys


def rule(
    config: SplitConfig, columns: Sequence[Column], hashed: Sequence[Column] = (), *, by_place: bool = False
) -> dict[str, Any]:
    """Returns all that decides which split a row gets, to be compared: the config, and with mode hash the hash's version and
    the columns' types.

    Args:
        columns: the columns that are read, as they are stored.
        hashed: the columns that a split without a key hashes; empty: all of `columns`.
        by_place: whether a row's position in its span is hashed too.
    """
    value = config.at_ingest()
    if config.mode == "hash":
        of = hashed if hashed and config.by_row else columns
        by = {column.name: f"{column.type}{list(column.shape) or ''}" for column in of}
        names = config.key or tuple(by)
        value |= {"hash": hashing.VERSION, "columns": {name: by[name] for name in sorted(names)}}
        value |= {"by_place": True} if by_place else {}
    return value


class KeyIndex:
    """Collects the key index of one range of a raw file.

    Args:
        columns: the columns that are read, as they are stored; the one with the role time is the time column.
        hashed: the columns that a split without a key hashes; empty: all of `columns`.
        by_place: whether the split hashes a row's position in its span too.
    """

    def __init__(
        self, config: SplitConfig, columns: Sequence[Column], hashed: Sequence[Column] = (), *, by_place: bool = False
    ):
        self._names = config.names()
        self._rule = rule(config, columns, hashed, by_place=by_place)
        self._keys = indexed_keys(config, columns)
        self._time = named_for(columns, "time")
        self._temporal = next((column.temporal for column in columns if column.name == self._time), None)
        self._sampler = ContentSampler(config, columns)
        self._splits: dict[str, _Split] = {}

    def add(self, batch: pa.RecordBatch, raw: pa.Schema, assigned: SplitCodes) -> None:
        """Index the rows of a coerced batch. `raw` is the schema of the file, `assigned` holds the split of each row."""
        keys = {name: key_hashes(batch, list(key), assigned.columns) for name, key in self._keys.items()}
        time = batch.column(self._time) if self._time else None
        for code, name in enumerate(self._names):
            in_split = assigned.codes == code
            if not (count := int(np.count_nonzero(in_split))):
                continue
            rows = in_split if count < batch.num_rows else None
            split = self._splits.setdefault(name, _Split(self._keys))
            split.rows += count
            if assigned.hashes is not None and not self._keys.get("key"):
                split.fold_hashes(_of_rows(assigned.hashes, rows))
            for key, (hashes, missing) in keys.items():
                split.sets[key].add(_of_rows(hashes, rows), None if missing is None else _of_rows(missing, rows))
            if time is not None and self._time is not None:
                kind = self._temporal or raw_kind(raw, self._time)  # parsed text is dates or times by now
                times = time_range(time if rows is None else time.filter(pa.array(rows)), kind)
                split.time = times if split.time is None else split.time.merged(times)
        samples = {code: self._splits[name].contents for code, name in enumerate(self._names) if name in self._splits}
        self._sampler.draw(batch, assigned.codes, samples)

    def save(self, folder: Path) -> None:
        """Create the folder and write the index into it."""
        folder.mkdir()
        splits = {}
        for name in self._names:
            if (split := self._splits.get(name)) is not None:
                keys = {key: hashes.save(folder, name, key) for key, hashes in split.sets.items()}
                splits[name] = SplitIndex(
                    rows=split.rows,
                    hashes=split.hashes,
                    repeats=split.repeats.to_text() if split.hashes is not None else None,
                    contents=split.contents.to_text() if self._sampler.names else None,
                    time=split.time,
                    keys=keys,
                )
        content, apart = self._sampler.names, self._sampler.apart
        index = SpanIndex(
            rule=self._rule, keys=self._keys, time=self._time, content=content, apart=apart, splits=splits
        )
        _write(folder, index)


class _Split:
    def __init__(self, keys: Iterable[KeyName]):
        self.rows = 0
        self.hashes: tuple[int, int] | None = None
        self.repeats = DistinctSample()
        self.contents = DistinctSample(DRAWN)
        self.time: TimeRange | None = None
        self.sets = {name: _Set() for name in keys}

    def fold_hashes(self, hashes: hash_sets.Hashes) -> None:
        self.hashes = _wider(self.hashes, (int(hashes.min()), int(hashes.max())))
        self.repeats.add(hashes)


class _Set:
    """Collects the hashes of one key in one split."""

    def __init__(self) -> None:
        self._missing = 0
        self._pending: list[hash_sets.Hashes] = []
        self._waiting = 0
        self._values = np.zeros(0, np.uint64)

    def add(self, hashes: hash_sets.Hashes, missing: NDArray[np.bool_] | None) -> None:
        if missing is not None:
            self._missing += int(missing.sum())
            hashes = hashes[~missing]
        self._pending.append(hashes)
        self._waiting += len(hashes)
        if self._waiting > max(_PENDING, len(self._values)):
            self._sort()

    def _sort(self) -> None:
        self._values = hash_sets.distinct(np.concatenate([self._values, *self._pending]))
        self._pending, self._waiting = [], 0

    def save(self, folder: Path, split: str, key: KeyName) -> KeyEntry:
        self._sort()
        hash_sets.write(folder / set_name(split, key), self._values)
        return KeyEntry(sets=(len(self._values),), missing=self._missing)


def _of_rows(values: NDArray[Any], rows: NDArray[np.bool_] | None) -> NDArray[Any]:
    return values if rows is None else values[rows]


def _wider(first: tuple[int, int] | None, second: tuple[int, int] | None) -> tuple[int, int] | None:
    if first is None or second is None:
        return first or second
    return min(first[0], second[0]), max(first[1], second[1])


def set_name(split: str, key: str) -> str:
    """Returns the name of the file that holds the hashes of a key in a split."""
    return f"{split}.{key}.u64"


def load_sets(folder: Path, note: SplitIndex, split: str, key: KeyName) -> list[hash_sets.Hashes]:
    """Returns the hash sets of a key in a split, memory-mapped, one per range that has any. DataError if the file is cut off."""
    lengths = note.keys[key].sets
    path = folder / set_name(split, key)
    whole = hash_sets.read(path)
    if len(whole) != sum(lengths):
        raise DataError(
            f"holds {len(whole):,} hashes in place of {sum(lengths):,}", where=str(path), fix="delete its output"
        )
    ends = np.cumsum(lengths).tolist()
    return [whole[end - n : end] for n, end in zip(lengths, ends, strict=True) if n]


def merge(folders: Sequence[Path], out: Path) -> None:
    """Merge the key indexes of the ranges of a span, at least one, into the span's index in the new folder `out`."""
    out.mkdir()
    parts = [(folder, read(folder)) for folder in folders]
    first, splits = parts[0][1], {}
    for name in sorted({name for _, note in parts for name in note.splits}):
        of = [(folder, note.splits[name]) for folder, note in parts if name in note.splits]
        splits[name] = functools.reduce(_merged, [note for _, note in of])
        for key in first.keys:
            file = set_name(name, key)
            with (out / file).open("wb") as sink:
                for folder, _ in of:
                    with (folder / file).open("rb") as source:
                        shutil.copyfileobj(source, sink, 1 << 20)
    _write(out, first.model_copy(update={"splits": splits}))


def _merged(first: SplitIndex, second: SplitIndex) -> SplitIndex:
    keys = {
        name: KeyEntry(sets=(*entry.sets, *second.keys[name].sets), missing=entry.missing + second.keys[name].missing)
        for name, entry in first.keys.items()
    }
    time = first.time.merged(second.time) if first.time and second.time else first.time or second.time
    return SplitIndex(
        rows=first.rows + second.rows,
        hashes=_wider(first.hashes, second.hashes),
        repeats=_merged_samples(first.repeats, second.repeats, SAMPLE_SIZE),
        contents=_merged_samples(first.contents, second.contents, KEPT),
        time=time,
        keys=keys,
    )


def _merged_samples(first: str | None, second: str | None, size: int) -> str | None:
    """Merge two samples, given as texts, into one of at most `size` hashes. Returns `first` if either is None."""
    if first is None or second is None:
        return first
    both = DistinctSample.from_text(first, size)
    both.merge(DistinctSample.from_text(second, size))
    return both.to_text()


def _write(folder: Path, index: SpanIndex) -> None:
    text = json.dumps(index.model_dump(mode="json", exclude_defaults=True) | {"format": index.format}, indent=1)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")


def read(folder: Path) -> SpanIndex:
    """Read the key index in a folder.

    Raises:
        DataError: the index is missing or damaged.
        StoreError: the index has another format.
    """
    try:
        value = json.loads((folder / FILE).read_text(encoding="utf-8"))
        check_format(value, str(folder))
        return SpanIndex.model_validate(value)
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"the key index cannot be read: {reason}", where=str(folder), fix="delete the output and run again"
        ) from None


DRAWN, KEPT = 256, 1024
"""The most distinct rows in the sample of a split: of one range, and of a whole span or window."""
MOST_COLUMNS = 128
"""The most columns that are compared. In a wider table, every few columns one is taken."""
_ORDERED_BY = 2
_HALF, _HIGH = np.uint64(32), np.uint64(0xFFFFFFFF00000000)
_NULL_FLOAT = 1.2345679e-33
_ODD = np.uint64(0x9E3779B97F4A7C15)


def compared_columns(config: SplitConfig, columns: Sequence[Column]) -> tuple[str, ...]:
    """Returns the columns by which rows are compared to find equal rows. Left out are identifiers, keys, the split column and, if
    eval is later than train, the time. Empty for a split by a hash of the row: there, equal rows are in one split."""
    if config.by_row:
        return ()
    apart = config.columns()
    if config.by_time and (time := named_for(columns, "time")) is not None:
        apart |= {time}
    return tuple(
        column.name
        for column in columns
        if column.name not in apart and column.meaning != "identifier" and column.role != "key"
    )


SAMPLE_SIZE = 512
_MANY = 8


class DistinctSample:
    """A sample of distinct rows: the `size` smallest row hashes, and the number of rows with each hash."""

    def __init__(self, size: int = SAMPLE_SIZE) -> None:
        self._size = size
        self._hashes: Hashes = np.zeros(0, np.uint64)
        self._counts: NDArray[np.int64] = np.zeros(0, np.int64)
        self._full = False
        """Whether hashes were dropped, because there were more distinct ones than are kept."""

    def add(self, hashes: Hashes) -> None:
        """Add the hashes of a batch of rows."""
        if self._full:
            hashes = hashes[hashes <= self._hashes[-1]]
        elif len(hashes) > 4 * (many := _MANY * self._size):
            # sorting a part of them will do, unless they are few again and again
            least = hashes[hashes <= np.partition(hashes, many)[many]]
            values, counts = np.unique(least, return_counts=True)
            if len(values) > self._size:
                self._fold(values, counts)
                return
        if len(hashes):
            self._fold(*np.unique(hashes, return_counts=True))

    def _fold(self, hashes: Hashes, counts: NDArray[np.int64]) -> None:
        values, places = np.unique(np.concatenate([self._hashes, hashes]), return_inverse=True)
        total = np.bincount(places, weights=np.concatenate([self._counts, counts]), minlength=len(values))
        self._full = self._full or len(values) > self._size
        self._hashes, self._counts = values[: self._size], total[: self._size].astype(np.int64)

    def merge(self, other: DistinctSample) -> None:
        """Add the hashes of another sample, which may have another size."""
        bounds = [bound for bound in (self.bound, other.bound) if bound is not None]
        least = min(bounds) if bounds else None
        self._hashes, self._counts = self.upto(least)  # further not all that occurred are known
        self._full = self._full or other._full
        self._fold(*other.upto(least))

    @property
    def values(self) -> int:
        """The number of distinct hashes in the sample."""
        return len(self._hashes)

    @property
    def rows(self) -> int:
        """The number of rows that have a hash in the sample."""
        return int(self._counts.sum())

    @property
    def bound(self) -> np.uint64 | None:
        """The greatest hash in the sample if greater hashes were dropped; None if none was dropped."""
        return self._hashes[-1] if self._full else None

    def upto(self, bound: np.uint64 | None) -> tuple[Hashes, NDArray[np.int64]]:
        """Returns the hashes up to `bound` (None: all), and the number of rows of each."""
        end = len(self._hashes) if bound is None else int(np.searchsorted(self._hashes, bound, side="right"))
        return self._hashes[:end], self._counts[:end]

    @property
    def whole(self) -> bool:
        """Whether the sample holds all distinct hashes that were added, so that none was dropped."""
        return not self._full

    def estimate(self, rows: int) -> int:
        """Returns the number of distinct hashes among all `rows` rows that were added. Unless `whole`, this is an estimate."""
        return self.values if self.whole else round(rows * self.values / self.rows)

    def to_text(self) -> str:
        """Returns the sample as text for JSON."""
        data = np.concatenate([self._hashes, self._counts.astype(np.uint64)]).astype("<u8").tobytes()
        return ("full:" if self._full else "all:") + base64.b64encode(data).decode("ascii")

    @classmethod
    def from_text(cls, text: str, size: int = SAMPLE_SIZE) -> DistinctSample:
        """Returns the sample that `to_text` wrote. ValueError if the text is damaged."""
        kind, _, data = text.partition(":")
        whole = np.frombuffer(base64.b64decode(data, validate=True), "<u8").astype(np.uint64)
        if kind not in ("full", "all") or len(whole) % 2:
            raise ValueError("a sample of distinct rows is cut off")
        sample = cls(size)
        sample._full = kind == "full"
        sample._hashes, sample._counts = whole[: len(whole) // 2], whole[len(whole) // 2 :].astype(np.int64)
        return sample


class ContentSampler:
    """Samples the rows of each split by their content, to find equal rows. `names` are the columns that are compared."""

    def __init__(self, config: SplitConfig, columns: Sequence[Column]):
        whole = compared_columns(config, columns)
        few = np.linspace(0, len(whole) - 1, MOST_COLUMNS).round().astype(int).tolist()
        self.names = tuple(whole[i] for i in few) if len(whole) > MOST_COLUMNS else whole
        compared = {*whole}
        self.apart = tuple(column.name for column in columns if column.name not in compared) if whole else ()
        """The columns that are not compared. Empty if no column is compared."""
        ranks = {column.name: _rank(column) for column in columns}
        ranked = sorted(self.names, key=ranks.__getitem__)  # stable
        self._by = [name for name in ranked if ranks[name] < _COSTLY][:_ORDERED_BY] or ranked[:1]

    def draw(self, batch: pa.RecordBatch, codes: NDArray[np.int8], samples: Mapping[int, DistinctSample]) -> None:
        """Add each row of a batch to its split's sample in `samples`, which is by split code. Without `names` none is added."""
        if not self.names:
            return
        order = _folded({name: batch.column(name) for name in self._by}, self._by)
        for code, sample in samples.items():
            rows = np.flatnonzero(codes == code)
            own, many = order[rows], 4 * DRAWN
            if sample.bound is not None:
                sample.add(self._hashed(batch, order, rows[own <= sample.bound | ~_HIGH]))
                continue
            hashes = np.zeros(0, np.uint64)
            if len(own) > many:
                hashes = self._hashed(batch, order, rows[own <= np.partition(own, many)[many] | ~_HIGH])
            few = len(np.unique(hashes)) <= DRAWN  # they are few, again and again, or the batch is small
            sample.add(self._hashed(batch, order, rows) if few else hashes)

    def _hashed(self, batch: pa.RecordBatch, order: Hashes, at: NDArray[np.int64]) -> Hashes:
        """Returns a hash of each row at the positions `at`. Its high half is the order hash's, its low half is of all `names`."""
        columns = pa.RecordBatch.from_arrays([batch.column(name) for name in self.names], names=self.names)
        few = hashed_texts(columns, at)
        hashes = _folded(dict(zip(self.names, few.columns, strict=True)), self.names)
        return (order[at] & _HIGH) | (hashes >> _HALF)


def _folded(arrays: Mapping[str, pa.Array], names: Sequence[str]) -> Hashes:
    """Returns a uint64 hash of each row over the columns `names`. The high half of the hash is well mixed."""
    state: Hashes | None = None
    for name in names:
        if state is None:
            state = np.multiply(_bits(arrays[name]), _ODD, dtype=np.uint64)
        else:
            state += _bits(arrays[name])
            state *= _ODD
    assert state is not None
    state ^= state >> np.uint64(29)
    state *= _ODD
    return state


_COSTLY = 3


def _rank(column: Column) -> int:
    """Returns a column's rank for the order hash, lowest first. Numbers are cheapest to hash; fractions tell rows apart best."""
    if column.shape:
        return _COSTLY
    return {"float32": 0, "int64": 1}.get(column.type, 2 if column.encoding == "dictionary" else _COSTLY)


def _bits(array: pa.Array) -> Hashes | NDArray[np.uint32]:
    """Returns a number for each value: its bits or a hash. Values of equal bits have equal numbers."""
    kind = array.type
    if pa.types.is_float32(kind):
        return np_view(pc.fill_null(array, _NULL_FLOAT) if array.null_count else array, np.dtype(np.uint32))
    if pa.types.is_int64(kind) or pa.types.is_uint64(kind):
        return np_view(
            pc.fill_null(array, pa.scalar(int(NULL), kind)) if array.null_count else array, np.dtype(np.uint64)
        )
    return column_hash(array)


@dataclass(frozen=True)
class Overlap:
    """How many rows of a split also occur in train, estimated from a sample of each."""

    share: float
    """The share of the split's rows that occur in train."""
    beyond: float
    """`share` minus the share of train rows that repeat within train, minus three standard errors. Rows of few categories repeat
    everywhere. A month that was delivered twice repeats only between splits."""
    values: int
    """The number of distinct rows of the split that were compared."""
    whole: bool
    """Whether all distinct rows were compared: sampling left out none."""


def overlap(train: DistinctSample, rows: DistinctSample) -> Overlap | None:
    """Returns how many rows of a split, given by its sample `rows`, occur in train. None if a sample has no hash to compare."""
    bounds = [sample.bound for sample in (train, rows) if sample.bound is not None]
    hashes, counts = rows.upto(min(bounds) if bounds else None)
    known, times = train.upto(None)
    if not len(hashes) or not len(known):
        return None
    # kind: tables of hashes that lie close together overflow in NumPy 2.0
    found, noise = _share(np.isin(hashes, known, kind="sort"), counts)
    again, noise_again = _share(times > 1, times)
    return Overlap(found, found - again - 3 * math.hypot(noise, noise_again), len(hashes), not bounds)


def _share(which: NDArray[np.bool_], counts: NDArray[np.int64]) -> tuple[float, float]:
    """Returns the share of the rows that `which` marks, with its standard error. The unit of sampling is a distinct row."""
    rows = float(counts.sum())
    drawn = rows**2 / float((counts.astype(np.float64) ** 2).sum())
    share = float(counts[which].sum()) / rows
    likely = (share * drawn + 1) / (drawn + 2)  # none of a few is not never
    return share, math.sqrt(likely * (1 - likely) / drawn)
