"""Warns where rows of one unit, such as a patient, are in train and in eval, though no setting names the unit.

    rows = sample_of({"train": [Examples(...)], "eval": [Examples(...)]})      # which shards to read, and how far
    list(torn_units(rows, train_statistics, "binary"))

What the unit is `headway.validation.units` finds in the rows themselves. They are read from the same ranges of the raw files
for all splits, so that rows of one unit, which are often neighbours, are seen on both sides.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from headway.config import Frozen
from headway.messages import agree, counted, percent
from headway.records.decode import decode
from headway.records.encode import total
from headway.records.tfrecord import read_records
from headway.schema.columns import LABEL, Column, column_yaml
from headway.stages.refs import Examples, Input
from headway.statistics.split_statistics import SplitStatistics
from headway.tabular.list_arrays import as_batch
from headway.validation.anomaly import Anomaly, finding
from headway.validation.units import MOST_COLUMNS, Unit, find_unit, most_rows

_RANGES = 16
"""So many ranges of the raw files are looked at, spread evenly over them."""
_TORN = 0.1
"""From this share of the eval rows on it is said."""


class SampledShard(Input):
    path: Path
    rows: int
    """To read from its beginning."""

    def paths(self) -> Sequence[Path]:
        return (self.path,)


class SampledRows(Frozen):
    """Where rows of train and eval are read from."""

    columns: tuple[Column, ...]
    shards: dict[str, tuple[SampledShard, ...]]
    """By split, train first."""


def sample_of(parts: Mapping[str, Sequence[Examples]]) -> SampledRows | None:
    """The beginnings of some shards; None where train or eval has none."""
    ranges: dict[tuple[Path, str], dict[str, tuple[Examples, str, int]]] = {}
    for split in ("train", "eval"):
        for part in parts.get(split, ()):
            for shard in part.result["splits"][part.split]["shards"]:
                place = shard["file"].removeprefix(f"{part.split}-")  # the number of the range
                ranges.setdefault((part.path, place), {})[split] = part, shard["file"], total(shard["rows"])
    both = [place for place, of in ranges.items() if len(of) == 2]
    if not both:
        return None
    first = next(part.result for of in parts.values() for part in of)
    columns = tuple(Column.model_validate(column) for column in first["columns"])
    # a set, since NumPy's unique imports its masked arrays
    chosen = [both[i] for i in sorted({*np.linspace(0, len(both) - 1, _RANGES).round().astype(int).tolist()})]
    rows = sum(count for place in chosen for _, _, count in ranges[place].values())
    share = min(1.0, most_rows(len(columns)) / max(rows, 1))
    shards: dict[str, tuple[SampledShard, ...]] = {}
    for split in ("train", "eval"):
        shards[split] = tuple(
            SampledShard(
                fingerprint=part.fingerprint, stage=part.stage, path=part.path / file, rows=math.ceil(share * count)
            )
            for part, file, count in (ranges[place][split] for place in chosen)
        )
    return SampledRows(columns=columns, shards=shards)


def torn_units(sampled: SampledRows, train: SplitStatistics, task: str) -> Iterator[Anomaly]:
    """Report a unit that has rows in train and in eval.

    Args:
        train: statistics of the train rows, by which columns are chosen.
        task: binary, multiclass or regression.

    Raises:
        DataError: a shard is damaged.
    """
    columns = _columns(sampled.columns, train)
    if len(columns) < 2:
        return
    batches = [_rows(sampled, shards, columns) for shards in sampled.shards.values()]
    whole = as_batch(pa.Table.from_batches(batches))
    unit = find_unit(whole, [column.name for column in columns], task)
    if unit is None:
        return
    mine, theirs = unit.codes[: batches[0].num_rows], unit.codes[batches[0].num_rows :]
    torn = float(np.isin(theirs, mine).mean()) if len(theirs) else 0.0
    if torn < _TORN:
        return
    message = f"rows of one {unit.name} are in train and in eval ({percent(torn)} of the eval rows, in "
    values = agree(len(unit.columns), "its values", "their values")
    message += (
        f"{counted(unit.rows, 'sampled row')}): {unit.why}. A model that learns {values} by heart is judged too well"
    )
    if not unit.sure:
        message += ", unless it is a category whose values come again in new rows"
    yield finding("warning", "torn unit", "train, eval", message, _fix(unit, columns), column=unit.columns[0])


def _fix(unit: Unit, columns: Sequence[Column]) -> str:
    names = [name if name.isidentifier() else json.dumps(name, ensure_ascii=False) for name in unit.columns]
    key = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
    fix = f"split by it: split: {{key: {key}}}"
    kinds = {column.name: column.type for column in columns}
    if len(names) > 1 or kinds[unit.columns[0]] == "float32":
        fix += f", with {column_yaml(unit.columns, '{role: [key, feature]}')}"
    return fix + "; if new rows will be of the same ones: validation.severity: {torn_unit: ignore}"


def _columns(stored: Sequence[Column], train: SplitStatistics) -> list[Column]:
    """The columns to look at: no labels, lists, times and weights; of many those of most values that come again."""
    plain = [
        column
        for column in stored
        if column.name != LABEL and column.name in train.columns
        if not column.shape and column.temporal is None and column.role != "weight"
    ]
    if len(plain) <= MOST_COLUMNS:
        return plain
    distinct = {column.name: train.columns[column.name].distinct for column in plain}
    plain.sort(key=lambda column: (2 * distinct[column.name] > train.rows, -distinct[column.name]))
    return plain[:MOST_COLUMNS]


def _rows(sampled: SampledRows, shards: Sequence[SampledShard], columns: Sequence[Column]) -> pa.RecordBatch:
    """The sampled rows of one split."""
    label = next(column for column in sampled.columns if column.name == LABEL)
    batches = []
    for shard in shards:
        left = shard.rows
        for record in read_records(shard.path):
            batch = decode(record, [*columns, label])
            batches.append(batch.slice(0, left))
            left -= batch.num_rows
            if left <= 0:
                break
    return as_batch(pa.Table.from_batches(batches))
