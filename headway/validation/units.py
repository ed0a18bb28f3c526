"""Finds the unit that rows belong to, such as a patient or a machine, in the data alone, whatever its column is called.

    unit = find_unit(batch, ["mrn", "age", "sex", "dose"], "binary")       # batch has the column `label`
    unit.columns, unit.constant, unit.correlation                         # ("mrn",), ("age", "sex"), 0.31

A unit is a column, or a set of columns, whose values come again in most rows. Other columns are the same in all rows of one
unit, and its rows agree in their label beyond what the columns explain. A model that learns units by heart must not be judged
by further rows of the same ones.

Two rows that agree in the columns S agree in a column v by chance, or because they are of one unit. With P the chance that
any two rows agree in v, (P(v | S) - P) / (1 - P) is the share of pairs that are of one unit; it is 1 where S determines v.
A set grows by the column of greatest share until it determines others. City, state and country, or a price with and without
tax, are functions of one another and no evidence: a unit determines two columns that do not determine each other.

A category of many values looks like a unit where no column tells more of it, so such a column is named only if its values are
numbers of things (17, P00417), and numbers only if their labels do not change smoothly with them.

The search is bounded: by `most_rows`, `MOST_COLUMNS`, and sets of `MOST_JOINED` columns that grow from `_SEEDS` of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.messages import agree, number, some
from headway.schema.columns import LABEL
from headway.schema_inference.identifiers import TIMES, words_of
from headway.tabular.list_arrays import decoded, is_number, is_text, value_type

MOST_CELLS, MOST_ROWS = 1_000_000, 100_000
"""So many cells and rows are looked at, in blocks spread evenly over the rows."""
MOST_COLUMNS = 40
"""Of a wider table the columns with most values that come again."""
MOST_JOINED = 4
"""The most columns that name a unit together."""
_SEEDS = 12
"""Sets grow from the columns of most values that come again."""
LEAST_UNITS = 50
"""Fewer values, or fewer that hold most rows, are categories. Counted as the inverse of Simpson's index."""
_BLOCK = 512
_FEW_ROWS, _NEARLY_ALL = 5_120, 0.9
_AGAIN = 0.5
"""The least share of the rows whose unit has another row."""
_SAME = 0.9
"""From this share of pairs on a column is the same in all rows of a unit."""
_LEAST_SHARE, _LIKELY = 0.0005, 0.7
"""The least share of pairs for a column to join a set, and the part of the greatest one."""
_BEYOND = 5.0
"""Standard deviations of the F test: in a thousand looks chance does it once in three thousand tables."""
_LEAST_ALIKE, _ALIKE_ALONE = 0.015, 0.05
"""The least correlation of the label within a unit, and that where no other column tells of the unit."""
_UNITS_ALONE, _ROWS_ALONE = 100, 3
"""The least units, and rows of each on average, where no other column tells of them."""
_CODE = r"^[[:alpha:]]{0,8}[-_#/ ]?[0-9]{3,}$|^[0-9A-Fa-f]{8}[-0-9A-Fa-f]{8,}$"
"""Texts that number things: a number, after some letters or not, and hexadecimal digits."""
_CLASSES = 5
_MONOTONE = 0.999
Codes = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Unit:
    """What rows belong to."""

    columns: tuple[str, ...]
    """That name it together."""
    constant: tuple[str, ...]
    """Other columns that are the same in all rows of a unit."""
    units: int
    """In the rows that were looked at."""
    rows: int
    """That were looked at."""
    correlation: float
    """Of the labels of two rows of a unit, beyond what the columns explain; 1: the label is the same in all its rows."""
    sure: bool
    """Whether columns that have nothing else in common are the same in its rows; else it may be a category."""
    codes: Codes
    """The unit of each row that was looked at; rows without a value have one each."""

    @property
    def name(self) -> str:
        return self.columns[0] if len(self.columns) == 1 else f"({', '.join(self.columns)})"

    @property
    def why(self) -> str:
        """What shows it, as a sentence without a full stop."""
        labels = (
            f"the labels of {'its rows' if self.constant else f'one {self.name}'} are more alike than chance gives "
        )
        labels += f"(intraclass correlation {number(round(self.correlation, 3))})"
        if not self.constant:
            return labels
        same = f"{some(self.constant, 3, repr)} {agree(len(self.constant), 'is', 'are')} the same in all rows of one"
        return f"{same} {self.name}, and {labels}"


@dataclass(frozen=True)
class _Column:
    name: str
    codes: Codes
    """Of each row, from 0; a null has one of its own."""
    values: int
    missing: NDArray[np.bool_] | None
    numbers: Floats | None
    """Of a column of numbers."""
    measured: bool
    """Whether its numbers have fractions."""
    coded: bool
    """Whether its values may be numbers of things: whole numbers, or texts such as P00417."""
    may_name: bool
    """Whether it may be a part of a unit's name."""


def most_rows(columns: int) -> int:
    """The most rows that are looked at of a table of so many columns."""
    return min(MOST_ROWS, MOST_CELLS // max(1, min(columns, MOST_COLUMNS)))


def find_unit(batch: pa.RecordBatch, names: Sequence[str], task: str) -> Unit | None:
    """The unit of a table's rows; None where the data show none.

    Args:
        batch: the columns `names` in their stored types, and `label`, in any order of rows.
        names: what is looked at; lists and vectors are passed over.
        task: binary, multiclass or regression.
    """
    search = _Search.of(batch, names, task)
    return None if search is None else search.best()


class _Search:
    def __init__(self, columns: list[_Column], targets: list[Floats]):
        self.columns = {column.name: column for column in columns}
        self.targets, self.rows = targets, len(targets[0])
        pairs = self.rows * (self.rows - 1) / 2
        self._any = {column.name: _pairs(column.codes) / pairs for column in columns}

    @classmethod
    def of(cls, batch: pa.RecordBatch, names: Sequence[str], task: str) -> _Search | None:
        places = {name: place for place, name in enumerate(batch.schema.names)}
        names = _likeliest(batch, [name for name in names if name != LABEL], places)
        at = _blocks(batch.num_rows, most_rows(len(names)))
        targets = _targets(batch.column(places[LABEL]).take(at), task)
        if not targets or len(at) < 2 * LEAST_UNITS:
            return None
        columns = [_column(name, batch.column(places[name]).take(at)) for name in names]
        return cls([column for column in columns if column.values > 1], targets)

    def best(self) -> Unit | None:
        """The coarsest column that is surely a unit, else a set of columns that is, else a column that may be one."""
        naming = [name for name, column in self.columns.items() if column.may_name and self._repeats(column.codes)]
        found = [unit for name in naming if (unit := self._unit((name,))) is not None]
        sure = [unit for unit in found if unit.sure]
        if not sure:
            sure = [unit for unit in self._sets() if unit.sure]
        if sure:
            return min(sure, key=self._order)
        return max(found, key=lambda unit: unit.correlation) if found else None

    def _order(self, unit: Unit) -> tuple[int, ...]:
        """The coarsest first, of few columns; measures name a unit worse than codes do."""
        measures = sum(self.columns[name].measured for name in unit.columns)
        return unit.units, len(unit.columns), measures, -len(unit.constant)

    def _repeats(self, codes: Codes) -> bool:
        """Whether there are many units, and most rows are of one that has others."""
        counts = _counts(codes)
        many = self.rows**2 >= LEAST_UNITS * float((counts.astype(np.float64) ** 2).sum())
        return many and counts[counts > 1].sum() >= _AGAIN * self.rows and 2 * len(counts) <= self.rows

    def _shares(self, codes: Codes, names: Iterator[str] | Sequence[str]) -> dict[str, float]:
        """For each column the share of pairs of `codes` that agree in it, less those that any two rows do."""
        pairs, shares = _pairs(codes), dict[str, float]()
        for name in names:
            column = self.columns[name]
            both = _pairs(codes * column.values + column.codes) / pairs if pairs else 0.0
            by_chance = self._any[name]
            shares[name] = (both - by_chance) / (1 - by_chance) if by_chance < 1 else 0.0
        return shares

    def _same(self, codes: Codes, column: _Column) -> bool:
        """Whether a column is the same in nearly all rows of a unit. Each row counts once, or a unit of many rows, such as
        all zeros, would speak for all."""
        sizes = np.bincount(codes)
        pairs, counts = np.unique(codes * column.values + column.codes, return_counts=True)
        size = sizes[pairs // column.values]
        several = size > 1
        if not several.any():
            return False
        counts, size = counts[several].astype(np.float64), size[several]
        share = float((counts * (counts - 1) / (size - 1)).sum() / counts.sum())
        by_chance = self._any[column.name]
        return by_chance < 1 and (share - by_chance) / (1 - by_chance) >= _SAME

    def _unit(self, names: tuple[str, ...], codes: Codes | None = None) -> Unit | None:
        codes = self._joined(names) if codes is None else codes
        others = [name for name in self.columns if name not in names]
        constant = [name for name in others if self._same(codes, self.columns[name])]
        if len(constant) == len(others):  # equal rows, which one hash keeps together
            return None
        sure = self._crossed(names, constant)
        if not sure and (len(names) > 1 or not self._coded(self.columns[names[0]])):
            return None
        correlation = self._alike(codes, [*names, *constant])
        if correlation is None or correlation < (_LEAST_ALIKE if sure else _ALIKE_ALONE):
            return None
        return Unit(names, tuple(constant), len(_counts(codes)), self.rows, correlation, sure, codes)

    def _joined(self, names: Sequence[str]) -> Codes:
        """The unit of each row, from 0; rows that lack a part of its name have one each."""
        codes = self.columns[names[0]].codes
        for name in names[1:]:
            column = self.columns[name]
            codes = np.unique(codes * column.values + column.codes, return_inverse=True)[1]
        for name in names:
            if (missing := self.columns[name].missing) is not None:
                codes = np.where(missing, int(codes.max()) + 1 + np.arange(len(codes)), codes)
        return np.unique(codes, return_inverse=True)[1]

    def _crossed(self, names: tuple[str, ...], constant: Sequence[str]) -> bool:
        """Whether two columns are the same in all rows of a unit that are functions neither of one part of its name nor of
        each other; or two measures that no part of the name orders."""
        told = set[str]()
        for part in names if len(names) > 1 else ():
            told |= {name for name in constant if self._same(self.columns[part].codes, self.columns[name])}
        by = [self.columns[name] for name in names]
        free = [self.columns[name] for name in constant if name not in told]
        free = [column for column in free if not any(_ordered(part, column) for part in by)]
        own = max(part.values for part in by)
        for first, second in itertools.combinations(free, 2):
            if _ordered(first, second):
                continue
            if first.measured and second.measured and min(first.values, second.values) > own // 2:
                return True
            if not self._same(first.codes, second) and not self._same(second.codes, first):
                return True
        return False

    def _coded(self, column: _Column) -> bool:
        """Whether a column's values may be numbers of things, of about as many rows each: not words, not measures."""
        counts = _counts(column.codes)
        alone = _UNITS_ALONE * _ROWS_ALONE <= _ROWS_ALONE * len(counts) <= self.rows and counts.std() <= counts.mean()
        return alone and column.coded

    def _alike(self, codes: Codes, names: Sequence[str]) -> float | None:
        """The correlation of the label within a unit, less what the columns that tell of it explain by themselves; None
        where chance may give it."""
        explained = [self.columns[name] for name in names]
        best: float | None = None
        for target in self.targets:
            if _same_in_all(codes, target):
                return 1.0
            found = alike(_residual(target, explained, len(_counts(codes))), codes)
            if found is not None and found.score > _BEYOND and (best is None or found.correlation > best):
                best = found.correlation
        return best

    def _sets(self) -> Iterator[Unit]:
        """Sets of columns that grow from each column until they determine others."""
        parts = [name for name, column in self.columns.items() if column.may_name and 2 * column.values <= self.rows]
        tried = set[frozenset[str]]()
        for seed in sorted(parts, key=lambda name: -self.columns[name].values)[:_SEEDS]:
            names: tuple[str, ...] = (seed,)
            codes = self._joined(names)
            while len(names) < MOST_JOINED:
                shares = self._shares(codes, [name for name in parts if name not in names])
                growing = {name: share for name, share in shares.items() if _LEAST_SHARE <= share < _SAME}
                if not growing:
                    break
                # all columns of a unit have one share; the one that most rows differ in tells most
                likely = [name for name, share in growing.items() if share >= _LIKELY * max(growing.values())]
                names = (*names, min(likely, key=self._any.__getitem__))
                if frozenset(names) in tried:
                    break
                tried.add(frozenset(names))
                codes = self._joined(names)
                counts = _counts(codes)
                if counts[counts > 1].sum() < _AGAIN * self.rows:
                    break
                if self._repeats(codes) and (unit := self._unit(names, codes)) is not None:
                    yield unit
                    break


def _likeliest(batch: pa.RecordBatch, names: Sequence[str], places: Mapping[str, int]) -> list[str]:
    """Of a wide table the columns of most values that come again, by some of its rows; those of the others come last."""
    kinds = {name: value_type(batch.column(places[name]).type) for name in names}
    names = [name for name in names if is_number(kinds[name]) or is_text(kinds[name])]
    if len(names) <= MOST_COLUMNS:
        return list(names)
    at = _blocks(batch.num_rows, _FEW_ROWS)
    values = {name: pc.count_distinct(decoded(batch.column(places[name]).take(at))).as_py() for name in names}
    order = sorted(names, key=lambda name: (values[name] > _NEARLY_ALL * len(at), -values[name]))
    return order[:MOST_COLUMNS]


def _blocks(rows: int, most: int) -> pa.Array:
    """The rows to look at: blocks of neighbours, spread evenly, since the rows of one unit are often neighbours."""
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
    may_name = not {*words_of(name)} & (TIMES - {"age"})
    return _Column(name, codes, int(codes.max()) + 1, missing if lacks else None, numbers, measured, coded, may_name)


def _targets(label: pa.Array, task: str) -> list[Floats]:
    """The label as numbers: ranks, or 0 and 1 for each of the commonest classes."""
    _, codes, counts = np.unique(label.to_numpy(zero_copy_only=False), return_inverse=True, return_counts=True)
    if len(counts) < 2:
        return []
    if task == "regression":
        return [((np.cumsum(counts) - counts / 2) / len(codes))[codes]]
    common = np.argsort(-counts, kind="stable")[: 1 if len(counts) == 2 else _CLASSES]
    return [(codes == value).astype(np.float64) for value in common.tolist()]


def _counts(codes: Codes) -> Codes:
    """How often each code comes."""
    ordered = np.sort(codes)
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    return np.diff(ends, prepend=-1)


def _pairs(codes: Codes) -> float:
    counts = _counts(codes).astype(np.float64)
    return float((counts * (counts - 1)).sum()) / 2


def _ordered(first: _Column, second: _Column) -> bool:
    """Whether one is a rising or falling function of the other, such as a price with and without tax."""
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


def _residual(target: Floats, columns: Sequence[_Column], units: int) -> Floats:
    """The label less what the columns explain one by one (backfitting; Hastie and Tibshirani, 1986), each in so few
    intervals or values that units cannot be told by them."""
    residual = target - target.mean()
    most = max(2, min(32, units // (4 * max(1, len(columns)))))
    bins = [_bins(column, most) for column in columns]
    for codes in bins + bins:
        counts = np.bincount(codes)
        residual = residual - (np.bincount(codes, residual) / np.maximum(counts, 1))[codes]
    return residual


def _bins(column: _Column, most: int) -> Codes:
    if column.values <= most:
        return column.codes
    if column.numbers is not None:
        edges = np.unique(np.quantile(column.numbers, np.linspace(0, 1, most + 1)[1:-1]))
        return np.searchsorted(edges, column.numbers, "right")
    common = np.argsort(-np.bincount(column.codes), kind="stable")[: most - 1]
    table = np.zeros(column.values, np.int64)
    table[common] = 1 + np.arange(len(common))
    return table[column.codes]


@dataclass(frozen=True)
class Alikeness:
    """How alike the values of one unit are."""

    correlation: float
    """Of two rows of a unit."""
    score: float
    """Standard deviations beyond chance."""


def alike(values: NDArray[np.float64], codes: NDArray[np.int64]) -> Alikeness | None:
    """The intraclass correlation by analysis of variance (Donner, "A review of inference procedures for the intraclass
    correlation coefficient in the one-way random effects model", 1986); None where there is nothing to compare."""
    _, codes, size = np.unique(codes, return_inverse=True, return_counts=True)
    rows, groups = len(values), len(size)
    if groups < 2 or rows - groups < 2:
        return None
    means = np.bincount(codes, values, groups) / size
    within = float(((values - means[codes]) ** 2).sum()) / (rows - groups)
    between = float((size * (means - values.mean()) ** 2).sum()) / (groups - 1)
    if not (within > 0 and math.isfinite(within) and math.isfinite(between)):
        return None
    usual = (rows - (size.astype(np.float64) ** 2).sum() / rows) / (groups - 1)
    correlation = (between - within) / (between + (usual - 1) * within)
    return Alikeness(correlation, _normal_score(between / within, groups - 1, rows - groups))


def _normal_score(f: float, above: int, below: int) -> float:
    """An F ratio as a standard normal (Wilson and Hilferty, "The distribution of chi-square", 1931; Paulson, 1942)."""
    a, b, root = 2 / (9 * above), 2 / (9 * below), f ** (1 / 3)
    return ((1 - b) * root - (1 - a)) / math.sqrt(b * root * root + a)
