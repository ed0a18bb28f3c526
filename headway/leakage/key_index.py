"""The key index of a span, written by ingest for the leakage proof: hashes of keys, times and split rules, per split.

    index = KeyIndex(split_config, columns)         # of one range
    index.add(batch, schema_of_the_file, assigned)
    index.save(folder)                           # notes.json + <split>.<key>.u64
    merge([folder_of_range_0, folder_of_range_1], folder_of_span)
    read(folder)                                 # SpanIndex

A set holds the 64-bit hashes of one key in one split (`headway.leakage.keys`); a span's file holds the sets of its
ranges one after the other. Of a time column the least and greatest value are kept. Of a split by a hash of all columns
the least and greatest split hash are kept: when those of two splits do not overlap, no equal rows are in both, and not
every hash has to be kept. Of any other split a sample of row hashes is kept, without the key, split column and time, as
equal rows may be in two splits.
"""

import functools
import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from headway.config import Frozen
from headway.errors import DataError
from headway.leakage import equal_rows, hash_sets
from headway.leakage.equal_rows import SAMPLE_SIZE, Distinct
from headway.leakage.keys import key_hashes
from headway.leakage.time_range import TimeRange, raw_kind, time_range
from headway.schema.columns import Column, named_for
from headway.storage.manifest import FORMAT, check_format
from headway.tabular import hashing
from headway.tabular.splits import SplitCodes, SplitConfig

FILE = "notes.json"
_PENDING = 1 << 21
"""The number of hashes that wait in memory before they are sorted."""
KeyName = Literal["key", "group"]
KeyColumns = dict[str, str]
"""The columns of a key and their stored types."""


class KeyEntry(Frozen):
    """The index of one key in one split."""

    sets: tuple[int, ...]
    """The length of each range's set."""
    missing: int = 0
    """Rows without a key: a part of it is null or NaN."""


class SplitIndex(Frozen):
    """The index of one split of a span."""

    rows: int
    hashes: tuple[int, int] | None = None
    """The least and greatest split hash, where rows are split by a hash of their columns."""
    repeats: str | None = None
    """A sample of the split hashes as text (`headway.leakage.equal_rows`), to count repeated rows; else None."""
    contents: str | None = None
    """A sample of row hashes as text (`headway.leakage.equal_rows`), where rows are split in another way."""
    time: TimeRange | None = None
    keys: dict[KeyName, KeyEntry] = Field(default_factory=dict)


class SpanIndex(Frozen):
    """The key index of a span; the hash sets lie in files beside it."""

    format: int = FORMAT
    rule: dict[str, Any]
    """How rows were split: equal rules put equal rows into one split."""
    keys: dict[KeyName, KeyColumns] = Field(default_factory=dict)
    time: str | None = None
    """The time column."""
    content: tuple[str, ...] = ()
    """The columns that are hashed for `SplitIndex.contents`."""
    apart: tuple[str, ...] = ()
    """The columns that were read and are not in `content`: keys, identifiers, times, the split column."""
    splits: dict[str, SplitIndex]


def indexed_keys(config: SplitConfig, columns: Sequence[Column]) -> dict[KeyName, KeyColumns]:
    """Returns the columns and types of each key to index: split.key, and the group where it is another column."""
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
    """Returns the rule that decides a row's split: the config, the hash, and the types of the hashed columns.

    Args:
        columns: the columns that are read, as they are stored.
        hashed: the columns that are hashed without a key; empty: all of `columns`.
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
    """Collects the key index of one range.

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
        self._sampler = equal_rows.ContentSampler(config, columns)
        self._splits: dict[str, _Split] = {}

    def add(self, batch: pa.RecordBatch, raw: pa.Schema, assigned: SplitCodes) -> None:
        """Index the rows of a coerced batch; `raw` is its schema in the file, `assigned` has the splits of its rows."""
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
        self.repeats = Distinct()
        self.contents = Distinct(equal_rows.DRAWN)
        self.time: TimeRange | None = None
        self.sets = {name: _Set() for name in keys}

    def fold_hashes(self, hashes: hash_sets.Hashes) -> None:
        self.hashes = _wider(self.hashes, (int(hashes.min()), int(hashes.max())))
        self.repeats.add(hashes)


class _Set:
    """The hashes of one key in one split."""

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


def sets(folder: Path, note: SplitIndex, split: str, key: KeyName) -> list[hash_sets.Hashes]:
    """Returns a key's hash sets in a split, memory-mapped, one per range with any; DataError if the file is cut off."""
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
    """Merge the key indexes of one or more ranges into one of their span, in the new folder `out`."""
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
        contents=_merged_samples(first.contents, second.contents, equal_rows.KEPT),
        time=time,
        keys=keys,
    )


def _merged_samples(first: str | None, second: str | None, size: int) -> str | None:
    """Merge two samples, as texts, into one of at most `size` hashes; returns `first` where either is None."""
    if first is None or second is None:
        return first
    both = Distinct.from_text(first, size)
    both.merge(Distinct.from_text(second, size))
    return both.to_text()


def _write(folder: Path, index: SpanIndex) -> None:
    text = json.dumps(index.model_dump(mode="json", exclude_defaults=True) | {"format": index.format}, indent=1)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")


def read(folder: Path) -> SpanIndex:
    """Read the key index in a folder.

    Raises:
        DataError: it is missing or damaged.
        StoreError: its format is another.
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
