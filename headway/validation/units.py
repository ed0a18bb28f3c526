"""Finds the unit that rows belong to, such as a patient or a machine. Warns if rows of one unit are in train and in eval.

    rows = shards_to_sample({"train": [Examples(...)], "eval": [Examples(...)]})  # which shards to read, and how far
    list(torn_units(rows, train_statistics, "binary"))
    unit = find_unit(batch, ["mrn", "age", "sex", "dose"], "binary")             # batch has the column `label`
    unit.column, unit.constant, unit.correlation                                 # "mrn", ("age", "sex"), 0.31

A unit is a column, whatever its name, whose values come again in most rows. Two other columns must be the same in all rows of a
unit, and neither may be a function of the other: a city and its country, or a price with and without tax, are no evidence. And
the labels of a unit's rows must be more alike than the columns explain. If a model learns units by heart, it must not be judged
by further rows of the same units.

Without two such columns, a unit looks like a category of many values. Then the column is reported only if its values look like
serial numbers (17, P00417). A number that the label follows, such as an age or a distance, is no unit.

For all splits, rows are read from the same ranges of the raw files. Rows of a unit are often neighbours there, so that both sides
have some. At most `most_rows` rows and `MOST_COLUMNS` columns are read.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.config import Frozen
from headway.messages import agree, counted, number, percent, some
from headway.records.decode import decode
from headway.records.encode import total_rows
from headway.records.tfrecord import read_records
from headway.schema.columns import LABEL, Column, column_yaml
from headway.schema_inference.identifiers import TIMES, words_of
from headway.stages.refs import Examples, Input
from headway.statistics.split_statistics import SplitStatistics
from headway.tabular.list_arrays import as_batch, decoded, is_number, is_text, value_type
from headway.validation.anomaly import Anomaly, finding

MOST_CELLS, MOST_ROWS = 1_000_000, 100_000
"""The most cells and the most rows that are looked at, in blocks spread evenly over the rows."""
MOST_COLUMNS = 40
"""The most columns that are looked at. In a wider table the columns with the most recurring values are looked at."""
LEAST_UNITS = 50
"""The least number of units, counted as the inverse of Simpson's index. A column with fewer values is a category."""
_RANGES = 16
"""The number of ranges of the raw files that are read, spread evenly over all ranges."""
_TORN = 0.1
"""The share of eval rows whose unit is in train too from which on a finding is reported."""
_BLOCK = 512
_FEW_ROWS, _NEARLY_ALL = 5_120, 0.9
_AGAIN = 0.5
"""The least share of rows whose unit has another row."""
_SAME = 0.9
"""The share of equal pairs among the rows of a unit, beyond chance, from which on a column is the same in all of them."""
_BEYOND = 5.0
"""The z score beyond which an F ratio is not chance. With a thousand tests a table, one table in three thousand reaches it."""
_LEAST_ALIKE, _ALIKE_ALONE = 0.03, 0.05
"""The least correlation of the label within a unit. With it, 16 other rows of a unit raise a model's AUC of 0.60 by 0.014. The
second is the least one if no other columns confirm the unit; it raises the AUC by 0.03."""
_UNITS_ALONE, _ROWS_ALONE = 100, 3
"""The least number of units, and of rows per unit on average, if no other columns confirm the unit."""
_CODE = r"^[[:alpha:]]{0,8}[-_#/ ]?[0-9]{3,}$|^[0-9A-Fa-f]{8}[-0-9A-Fa-f]{8,}$"
"""A pattern of serial numbers: a number, with letters before it or not, or hexadecimal digits."""
_CLASSES, _RANGES_OF_A_NUMBER = 5, 32
_MONOTONE = 0.999
Codes = NDArray[np.int64]
Floats = NDArray[np.float64]


class SampledShard(Input):
    path: Path
    rows: int
    """The number of rows to read from the beginning of the shard."""

    def paths(self) -> Sequence[Path]:
        return (self.path,)


class SampledShards(Frozen):
    """The shards from which rows of train and eval are read."""

    columns: tuple[Column, ...]
    shards: dict[str, tuple[SampledShard, ...]]
    """The shards of each split; train comes first."""


def shards_to_sample(parts: Mapping[str, Sequence[Examples]]) -> SampledShards | None:
    """Returns which shards to read, and how many rows of each. None: no range of the raw files has both train and eval rows."""
    ranges: dict[tuple[Path, str], dict[str, tuple[Examples, str, int]]] = {}
    for split in ("train", "eval"):
        for part in parts.get(split, ()):
            for shard in part.result["splits"][part.split]["shards"]:
                place = shard["file"].removeprefix(f"{part.split}-")  # the number of the range
                ranges.setdefault((part.path, place), {})[split] = part, shard["file"], total_rows(shard["rows"])
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
    return SampledShards(columns=columns, shards=shards)


def torn_units(sampled: SampledShards, train: SplitStatistics, task: str) -> Iterator[Anomaly]:
    """Yields a finding if many eval rows belong to units that train has too.

    Args:
        train: the statistics of the train rows, by which the columns to look at are chosen.
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
    message = f"rows of one {unit.column} are in train and in eval ({percent(torn)} of the eval rows, in "
    message += f"{counted(unit.rows, 'sampled row')}): {unit.why}. A model that learns its values by heart is judged "
    message += "too well"
    if not unit.sure:
        message += ", unless it is a category whose values come again in new rows"
    yield finding("warning", "torn unit", "train, eval", message, _fix(unit, columns), column=unit.column)


def _fix(unit: Unit, columns: Sequence[Column]) -> str:
    name = unit.column if unit.column.isidentifier() else json.dumps(unit.column, ensure_ascii=False)
    fix = f"split by it: split: {{key: {name}}}"
    if any(column.name == unit.column and column.type == "float32" for column in columns):
        fix += f", with {column_yaml([unit.column], '{role: [key, feature]}')}"
    return fix + "; if new rows will be of the same ones: validation.severity: {torn_unit: ignore}"


def _columns(stored: Sequence[Column], train: SplitStatistics) -> list[Column]:
    """Returns the columns that may be a unit: no labels, lists, times or weights. At most 40, those of most values that recur."""
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


def _rows(sampled: SampledShards, shards: Sequence[SampledShard], columns: Sequence[Column]) -> pa.RecordBatch:
    """Returns the sampled rows of one split."""
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


@dataclass(frozen=True)
class Unit:
    """A column whose values tell which rows belong together, such as a patient's number."""

    column: str
    constant: tuple[str, ...]
    """The other columns that are the same in all rows of a unit."""
    units: int
    """The number of units among the rows that were looked at."""
    rows: int
    """The number of rows that were looked at."""
    correlation: float
    """The correlation of the labels of two rows of a unit, beyond what the columns explain. 1: all labels of a unit are equal."""
    sure: bool
    """Whether other columns, independent of each other, are constant in each unit. If not, the column may be a category."""
    codes: Codes
    """The code of each looked-at row's unit. A row without a value is a unit of its own."""

    @property
    def why(self) -> str:
        """The evidence that the column is a unit, as a sentence without a full stop."""
        of = "its rows" if self.constant else f"one {self.column}"
        labels = f"the labels of {of} are more alike than chance gives "
        labels += f"(intraclass correlation {number(round(self.correlation, 3))})"
        if not self.constant:
            return labels
        same = f"{some(self.constant, 3, repr)} {agree(len(self.constant), 'is', 'are')} the same in all rows of one"
        return f"{same} {self.column}, and {labels}"


@dataclass(frozen=True)
class _Column:
    name: str
    codes: Codes
    """The code of each row's value, from 0; a null has a code of its own."""
    values: int
    missing: NDArray[np.bool_] | None
    numbers: Floats | None
    """The values of a column of numbers, 0 for a null; None for text."""
    measured: bool
    """Whether the numbers of the column have fractions."""
    coded: bool
    """Whether the values may be serial numbers: whole numbers, or texts such as P00417."""

    @property
    def units(self) -> Codes:
        """The code of each row's unit, from 0, if this column is the unit. A row without a value is a unit of its own."""
        if self.missing is None:
            return self.codes
        codes = np.where(self.missing, self.values + np.arange(len(self.codes)), self.codes)
        return np.unique(codes, return_inverse=True)[1]


def most_rows(columns: int) -> int:
    """Returns the largest number of rows that are looked at in a table of `columns` columns."""
    return min(MOST_ROWS, MOST_CELLS // max(1, min(columns, MOST_COLUMNS)))


def find_unit(batch: pa.RecordBatch, names: Sequence[str], task: str) -> Unit | None:
    """Returns the unit of a table's rows: of the columns that surely are units, the coarsest. If there is none, of those that may
    be units, the one with the highest correlation. None: no column may be a unit, or there are too few rows or labels.

    Args:
        batch: the columns `names` in their stored types, and `label`, in any order of rows.
        names: the columns to look at; lists and vectors are passed over.
        task: binary, multiclass or regression.
    """
    places = {name: place for place, name in enumerate(batch.schema.names)}
    names = _likeliest(batch, [name for name in names if name != LABEL], places)
    at = _blocks(batch.num_rows, most_rows(len(names)))
    targets = _targets(batch.column(places[LABEL]).take(at), task)
    if not targets or len(at) < 2 * LEAST_UNITS:
        return None
    columns = [_column(name, batch.column(places[name]).take(at)) for name in names]
    columns = [column for column in columns if column.values > 1]
    likely = [
        column for column in columns if _repeats(column.units) and not {*words_of(column.name)} & (TIMES - {"age"})
    ]
    found = [unit for column in likely if (unit := _unit(column, columns, targets)) is not None]
    if not found:
        return None
    measured = {column.name: column.measured for column in columns}
    sure = [unit for unit in found if unit.sure]
    if sure:  # measures name a unit worse than codes do
        coarsest = min(sure, key=lambda unit: (unit.units, measured[unit.column], -len(unit.constant)))
        # of columns that are the same in each other's units the finer one is the unit: two units share a value of another
        same = [unit for unit in sure if unit.column in coarsest.constant and coarsest.column in unit.constant]
        return max([coarsest, *same], key=lambda unit: unit.units)
    return max(found, key=lambda unit: unit.correlation)


def _repeats(codes: Codes) -> bool:
    """Returns whether a column has many values, at most one per two rows, and at least half of the rows share their value."""
    counts = np.bincount(codes).astype(np.float64)
    many = len(codes) ** 2 >= LEAST_UNITS * float((counts**2).sum())
    return many and counts[counts > 1].sum() >= _AGAIN * len(codes) and 2 * len(counts) <= len(codes)


def _unit(column: _Column, columns: Sequence[_Column], targets: Sequence[Floats]) -> Unit | None:
    codes = column.units
    others = [other for other in columns if other is not column]
    constant = [other for other in others if _constant_within_units(codes, other)]
    if len(constant) == len(others):  # equal rows, which one hash keeps together
        return None
    sure = _crossed(column, constant)
    if (not sure and not _may_hold_serial_numbers(column)) or _is_quantity(column, codes, targets):
        return None
    same = tuple(other.name for other in constant)
    correlation = _alike(codes, [column, *constant], [other for other in others if other.name not in same], targets)
    if correlation is None or correlation < (_LEAST_ALIKE if sure else _ALIKE_ALONE):
        return None
    return Unit(column.name, same, int(codes.max()) + 1, len(codes), correlation, sure, codes)


def _constant_within_units(codes: Codes, column: _Column) -> bool:
    """Returns whether rows of the same unit nearly always have the same value of a column; `codes` are the rows' units. Each
    row counts once, so that one unit of very many rows does not decide for all."""
    sizes = np.bincount(codes)
    pairs, counts = np.unique(codes * column.values + column.codes, return_counts=True)
    size = sizes[pairs // column.values]
    several = size > 1
    if not several.any():
        return False
    counts, size = counts[several].astype(np.float64), size[several]
    share = float((counts * (counts - 1) / (size - 1)).sum() / counts.sum())
    of_value, rows = np.bincount(column.codes).astype(np.float64), len(codes)
    by_chance = float((of_value * (of_value - 1)).sum()) / (rows * (rows - 1))
    return by_chance < 1 and (share - by_chance) / (1 - by_chance) >= _SAME


def _crossed(unit: _Column, constant: Sequence[_Column]) -> bool:
    """Returns whether two of the `constant` columns, the same in all rows of a unit, confirm it: neither is a function of the
    other, or both are measures of many values. Columns that rise or fall with the unit's numbers or each other do not count."""
    free = [column for column in constant if not _ordered(unit, column)]
    for first, second in itertools.combinations(free, 2):
        if _ordered(first, second):
            continue
        if first.measured and second.measured and min(first.values, second.values) > unit.values // 2:
            return True
        if not _constant_within_units(first.codes, second) and not _constant_within_units(second.codes, first):
            return True
    return False


def _is_quantity(column: _Column, codes: Codes, targets: Sequence[Floats]) -> bool:
    """Returns whether the label follows a column's numbers: their order explains most of what the column's values tell of
    the label."""
    if column.numbers is None:
        return False
    for target in targets:
        said, beside = (intraclass(values, codes) for values in (target, _residual(target, [column], codes)))
        if said is not None and beside is not None and said[1] > _BEYOND and 2 * beside[0] < said[0]:
            return True
    return False


def _may_hold_serial_numbers(column: _Column) -> bool:
    """Returns whether a column may hold serial numbers: many values, each in about the same number of rows, no measures."""
    counts = np.bincount(column.codes)
    alone = _UNITS_ALONE * _ROWS_ALONE <= _ROWS_ALONE * len(counts) <= len(column.codes)
    return alone and counts.std() <= counts.mean() and column.coded


def _alike(
    codes: Codes, constant: Sequence[_Column], others: Sequence[_Column], targets: Sequence[Floats]
) -> float | None:
    """Returns the correlation between labels of one unit (a patient, a machine), beyond what the columns explain. None: it may be
    chance.

    It is the residuals' correlation times their share of the label's variance; 1 if all labels of each unit are equal.
    """
    best: float | None = None
    for target in targets:
        if _same_in_all(codes, target):
            return 1.0
        residual = _residual(target, constant, codes, others)
        found = intraclass(residual, codes)
        if found is not None and found[1] > _BEYOND:
            best = max(best or 0.0, found[0] * float(residual.var() / target.var()))
    return best


def intraclass(values: Floats, codes: Codes) -> tuple[float, float] | None:
    """Returns the intraclass correlation by analysis of variance, and the z score of its F ratio (by chance a standard normal).
    None: there are too few groups or rows, or no variance within groups.

    Donner, "A review of inference procedures for the intraclass correlation coefficient in the one-way random effects model",
    1986; Wilson and Hilferty, "The distribution of chi-square", 1931; Paulson, 1942.
    """
    size = np.bincount(codes).astype(np.float64)
    rows, groups = len(values), len(size)
    if groups < 2 or rows - groups < 2:
        return None
    means = np.bincount(codes, values) / size
    within = float(((values - means[codes]) ** 2).sum()) / (rows - groups)
    between = float((size * (means - values.mean()) ** 2).sum()) / (groups - 1)
    if not (within > 0 and math.isfinite(within) and math.isfinite(between)):
        return None
    usual = (rows - float((size**2).sum()) / rows) / (groups - 1)
    above, below, root = 2 / (9 * (groups - 1)), 2 / (9 * (rows - groups)), (between / within) ** (1 / 3)
    score = ((1 - below) * root - (1 - above)) / math.sqrt(below * root * root + above)
    return (between - within) / (between + (usual - 1) * within), score


def _likeliest(batch: pa.RecordBatch, names: Sequence[str], places: Mapping[str, int]) -> list[str]:
    """Returns the columns of numbers and text to look at. Of a wide table, those with most distinct values in some of its rows;
    columns in which nearly all values differ come last."""
    kinds = {name: value_type(batch.column(places[name]).type) for name in names}
    names = [name for name in names if is_number(kinds[name]) or is_text(kinds[name])]
    if len(names) <= MOST_COLUMNS:
        return list(names)
    at = _blocks(batch.num_rows, _FEW_ROWS)
    values = {name: pc.count_distinct(decoded(batch.column(places[name]).take(at))).as_py() for name in names}
    order = sorted(names, key=lambda name: (values[name] > _NEARLY_ALL * len(at), -values[name]))
    return order[:MOST_COLUMNS]


def _blocks(rows: int, most: int) -> pa.Array:
    """Returns the indices of the rows to look at: blocks of neighbours, spread evenly. Neighbours are often of one unit."""
    if rows <= most:
        return pa.array(np.arange(rows))
    starts = np.linspace(0, rows - _BLOCK, max(1, most // _BLOCK)).astype(np.int64)
    return pa.array((starts[:, None] + np.arange(_BLOCK)).ravel())


def _column(name: str, values: pa.Array) -> _Column:
    values = decoded(values)
    numeric = not is_text(values.type)
    missing = pc.is_null(values, nan_is_null=True).to_numpy(zero_copy_only=False)
    numbers, measured, coded = None, False, False
    if numeric:
        numbers = pc.fill_null(values.cast(pa.float64(), safe=False), 0.0).to_numpy(zero_copy_only=False)
        numbers = np.where(missing, 0.0, numbers)
        finite = numbers[np.isfinite(numbers)]
        measured = bool((finite != np.floor(finite)).any())
        coded = not measured
        codes = np.unique(numbers, return_inverse=True)[1]
    else:
        encoded = values.dictionary_encode()
        coded = (pc.mean(pc.match_substring_regex(encoded.dictionary, _CODE)).as_py() or 0.0) >= _NEARLY_ALL
        codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    lacks = bool(missing.any())
    codes = np.unique(np.where(missing, int(codes.max()) + 1, codes), return_inverse=True)[1] if lacks else codes
    return _Column(name, codes, int(codes.max()) + 1, missing if lacks else None, numbers, measured, coded)


def _targets(label: pa.Array, task: str) -> list[Floats]:
    """Returns the label as numbers: its ranks, or 0 and 1 for each of the commonest classes. Empty if all labels are equal."""
    _, codes, counts = np.unique(label.to_numpy(zero_copy_only=False), return_inverse=True, return_counts=True)
    if len(counts) < 2:
        return []
    if task == "regression":
        return [((np.cumsum(counts) - counts / 2) / len(codes))[codes]]
    common = np.argsort(-counts, kind="stable")[: 1 if len(counts) == 2 else _CLASSES]
    return [(codes == value).astype(np.float64) for value in common.tolist()]


def _ordered(first: _Column, second: _Column) -> bool:
    """Returns whether one column of numbers rises or falls with the other, as a price with tax does with the price."""
    if first.numbers is None or second.numbers is None:
        return False
    by = first if first.values >= second.values else second
    of = second if by is first else first
    assert by.numbers is not None and of.numbers is not None
    _, at = np.unique(by.codes, return_index=True)
    steps = np.diff(of.numbers[at][np.argsort(by.numbers[at], kind="stable")])
    moves = np.count_nonzero(steps)
    return bool(moves == 0 or max(np.count_nonzero(steps > 0), np.count_nonzero(steps < 0)) >= _MONOTONE * moves)


def _same_in_all(codes: Codes, target: Floats) -> bool:
    counts = np.bincount(codes)
    sums, squares = np.bincount(codes, target), np.bincount(codes, target**2)
    return bool(np.allclose(squares * counts, sums**2))


def _residual(target: Floats, constant: Sequence[_Column], units: Codes, others: Sequence[_Column] = ()) -> Floats:
    """Returns the label minus what the columns, but not the units, explain one by one (backfitting; Hastie and Tibshirani, 1986).
    A number explains by a line in each of its ranges, a text by the mean of its rows in other units.

    Args:
        constant: the columns that are the same in all rows of a unit. Their ranges are too few to tell units apart.
    """
    residual = target - target.mean()
    few = max(2, min(_RANGES_OF_A_NUMBER, (int(units.max()) + 1) // (8 * len(constant))))
    ranges = [(column, few) for column in constant] + [(column, _RANGES_OF_A_NUMBER) for column in others]
    for column, most in ranges * 2:
        of_number = column.numbers is not None
        residual = residual - (
            _by_lines(residual, column, most) if of_number else _means_of_other_units(residual, column, units)
        )
    return residual


def _by_lines(residual: Floats, column: _Column, most: int) -> Floats:
    """Returns the residual that a column of numbers predicts for each row: the mean residual of the row's value or, of more
    than `most` values, a line in each of `most` ranges."""
    assert column.numbers is not None
    codes, along = column.codes, np.zeros(len(residual))
    if column.values > most:
        edges = np.unique(np.quantile(column.numbers, np.linspace(0, 1, most + 1)[1:-1]))
        codes, along = np.searchsorted(edges, column.numbers, "right"), column.codes.astype(np.float64)
    counts = np.maximum(np.bincount(codes), 1)
    away = along - (np.bincount(codes, along) / counts)[codes]
    spread = np.bincount(codes, away**2)
    slope = np.divide(np.bincount(codes, away * residual), spread, out=np.zeros(len(counts)), where=spread > 0)
    return (np.bincount(codes, residual) / counts)[codes] + slope[codes] * away


def _means_of_other_units(residual: Floats, column: _Column, units: Codes) -> Floats:
    """Returns for each row the mean residual of its value in other units, shrunk to 0 as if by one more unit."""
    of_value, of_both = column.codes, np.unique(column.codes * (int(units.max()) + 1) + units, return_inverse=True)[1]
    sums, counts = np.bincount(of_value, residual)[of_value], np.bincount(of_value)[of_value]
    others = sums - np.bincount(of_both, residual)[of_both]
    return others / (counts - np.bincount(of_both)[of_both] + len(units) / (int(units.max()) + 1))
