"""Signs in single columns that their values were written down after the label, though none tells it as a copy would.

    for sign in column_signs(train, names, alone, "binary"):
        sign.columns, sign.says, sign.fix

A column is not a leak because it is strong: what predicts a label well also has to do with other columns that do. What tells
apart:

    sign                what holds of a leak, and hardly of a cause
    noise around it     among rows of one label it has nothing to do with any other column: a permutation test within labels
    missing             it is filled in rows of one class, and in no others
    own value           all rows of a class have a value that no other row has
    label's mean        the label's mean among rows of one value is that value, in the label's own units
    total               a value that many rows have is of one class alone, without one exception
    time                a time, or the time between two, tells the label

All of it looks at a sample of some thousand rows: `SplitStatistics.sample` and `by_label`. At most `_SUSPECTS` columns are
tested for noise, against `_OTHERS` others; at most `_TIMES` times are compared with each other; all else looks at each
column once.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.messages import number, percent
from headway.schema.calendar_days import PER_DAY
from headway.schema.columns import LABEL, column_yaml
from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.row_sample import numbers
from headway.statistics.split_statistics import SplitStatistics
from headway.tabular.splits import column_hash
from headway.validation.anomaly import value_text
from headway.validation.leaks.label_strength import (
    buckets,
    owned,
    places,
    sampled_rows,
    strength,
    target_of,
    tells,
)
from headway.validation.stratification import chi_square_tail

_STRONG = {"binary": 0.9, "multiclass": 0.7, "regression": 0.75}
"""What a column alone reaches on the label, for its noise to be looked at."""
_TOLD_BY_A_TIME = {"binary": 0.95, "multiclass": 0.9, "regression": 0.9}
_SUSPECTS, _OTHERS, _TIMES = 8, 64, 8
_SHUFFLES, _CHANCE = 200, 0.005
_CELLS, _ROWS_OF_A_CELL = 64, 20
_FEW, _MOST_APART, _LEAST_SHARE = 30, 0.8, 0.1
_OWN = 0.99
_DRAWN_IN = 3.0
"""The greatest slope of a mean that was drawn towards the overall mean, as means of few rows are."""
_RISING = 0.75
_HEAVY, _HEAVY_ROWS = 0.05, 100
_RECURS = 3
"""A label that more sampled rows have may be that of a column by chance, such as 0."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sign:
    """Why columns may be of the time after the label."""

    columns: tuple[str, ...]
    says: str
    """What follows the name of the first."""
    fix: str


def column_signs(
    train: SplitStatistics, names: Collection[str], alone: Mapping[str, float], task: str
) -> Iterator[Sign]:
    """The signs in single columns, and between times.

    Args:
        names: the columns that are looked at, none of which is known as a leak.
        alone: `strengths` of the columns.
        task: binary, multiclass or regression.
    """
    rows = sampled_rows(train, task)
    label = None if rows is None else target_of(rows.column(LABEL), task)
    if rows is None or label is None:
        return
    classes = _classes(rows.column(LABEL), train.columns[LABEL]) if task != "regression" else []
    seen, found = _Rows(rows, names, label, task, classes), set[str]()
    times = [name for name, column in train.columns.items() if column.temporal]
    uniform = train.sample.table()
    searches = (
        _missing(seen),
        _own_values(seen),
        _times(train, seen, times, alone),
        _noise(seen, alone),
        _label_means(uniform, train, seen.names, task),
        _totals(seen),
    )
    for sign in itertools.chain.from_iterable(searches):
        if not found & {*sign.columns}:
            found |= {*sign.columns}
            yield sign


class _Rows:
    """The sampled rows as arrays."""

    def __init__(self, rows: pa.Table, names: Collection[str], label: NDArray[Any], task: str, classes: list[str]):
        self.rows, self.label, self.task = rows, label, task
        self.names = [name for name in places(rows, names) if name != LABEL]
        self._at = places(rows, rows.column_names)
        self.classes = classes
        """In words, in the order of the codes of the label."""

    def column(self, name: str) -> pa.ChunkedArray:
        return self.rows.column(self._at[name])

    def lacking(self, name: str) -> NDArray[np.bool_]:
        """Whether each row has no value, or one that is not a number."""
        values = self.column(name)
        missing: NDArray[np.bool_] = values.is_null().to_numpy()
        return ~numbers(values)[1] if pa.types.is_floating(values.type) else missing


def _classes(label: pa.ChunkedArray, statistics: ColumnStatistics) -> list[str]:
    """The values of a label in words, in rising order of what is kept of them in a sample: of texts, hashes."""
    values = np.unique(label.to_numpy()).tolist()
    if not pa.types.is_uint64(label.type):
        return [number(value) for value in values]
    known = [value for value, _ in statistics.top()] if statistics.complete else []
    hashes = column_hash(pa.array(known, pa.binary())).tolist() if known else []
    words = dict(zip(hashes, known, strict=True))
    return [value_text(words[value]) if value in words else "of one class" for value in values]


def leave_out(name: str) -> str:
    """The fix of a sign in a column."""
    return f"unless it is known when a prediction is needed, leave it out: {column_yaml(name, 'ignore')}"


# --- missing values


def _missing(seen: _Rows) -> Iterator[Sign]:
    """Report columns that are filled, or missing, by the label."""
    for name in seen.names:
        lacking = seen.lacking(name)
        if not _FEW <= lacking.sum() <= len(lacking) - _FEW:
            continue
        if seen.task == "regression":
            told = strength(lacking.astype(np.int64), seen.label, "regression") or 0.0
            if told >= 0.6:  # of at most 0.75, which a cut at the label's median reaches
                says = f"is missing where the label is on one side: that alone explains {percent(told)} of its ranks"
                yield Sign((name,), says, leave_out(name))
            continue
        found = [(_by_class(lacking, seen.label == code), code) for code in range(len(seen.classes))]
        (apart, filled, others), code = max(found)
        if apart > 0:
            says = f"is filled in {percent(filled)} of the rows with label {seen.classes[code]}, and in {percent(others)} of the "
            says += f"others: that it is missing tells the label (AUC {0.5 + apart / 2:.2f})"
            yield Sign((name,), says, leave_out(name))


def _by_class(lacking: NDArray[np.bool_], of_class: NDArray[np.bool_]) -> tuple[float, float, float]:
    """(the difference of two shares, 0: not a sign, the share of a class's rows that are filled, that of the others)."""
    rows = of_class.sum(), len(of_class) - of_class.sum()
    filled = 1 - float(lacking[of_class].mean()), 1 - float(lacking[~of_class].mean())
    apart = abs(filled[0] - filled[1])
    # filled, or missing, in rows of one side alone, where chance would have put many into the other
    none = min(filled) == 0 or max(filled) == 1
    only = none and apart >= _LEAST_SHARE and min(rows) * apart >= _FEW / 2
    return apart if min(rows) >= _FEW and (only or apart >= _MOST_APART) else 0.0, *filled


# --- values of one class


def _own_values(seen: _Rows) -> Iterator[Sign]:
    """Report columns of which a value stands for one of several classes."""
    if seen.task != "multiclass":
        return
    for name in seen.names:
        owners, counts = owned(seen.column(name), seen.label, _OWN)
        if len(many := np.flatnonzero(counts >= _FEW)):
            which, count = seen.classes[int(owners[many[0]])], int(counts[many[0]])
            says = f"has a value that the rows with label {which} have ({count:,} sampled ones), and no others: "
            yield Sign((name,), says + "is it written down after the label?", leave_out(name))


def _totals(seen: _Rows) -> Iterator[Sign]:
    """Report numbers of which one value that many rows have is of one class alone, as no event in a total of them."""
    if seen.task != "binary":
        return
    rows = len(seen.label)
    for name in seen.names:
        if pa.types.is_uint64(seen.column(name).type):
            continue
        values, good = numbers(seen.column(name))
        if not good.all() or len(np.unique(values)) < 3:
            continue
        of = seen.label[values == values.min()]
        if max(_HEAVY_ROWS, _HEAVY * rows) <= len(of) < rows and of.min() == of.max():
            says = f"is {number(float(values.min()))} in {len(of):,} sampled rows, all of one class: is it a total of "
            yield Sign((name,), says + "what the label counts?", leave_out(name))


# --- times


def _times(train: SplitStatistics, seen: _Rows, times: list[str], alone: Mapping[str, float]) -> Iterator[Sign]:
    """Report times that tell the label, and times between two of them that do."""
    bound = _TOLD_BY_A_TIME[seen.task]
    alone_told = seen.names if seen.task != "regression" else []  # numbers rise and fall with the years
    for name in (name for name in times if name in alone_told):
        if (told := alone.get(name, 0.0)) >= bound:
            says = f"is a time that alone {tells(told, seen.task)}: is it a time after the outcome?"
            yield Sign((name,), says, leave_out(name))
    for a, b in itertools.combinations(times[:_TIMES], 2):
        if not {a, b} & {*seen.names}:
            continue
        days = [_days(train, seen, name) for name in (a, b)]
        between = days[1] - days[0]
        codes = buckets(pa.chunked_array([pa.array(between, mask=~np.isfinite(between))]))
        told = strength(codes, seen.label, seen.task) or 0.0
        if told >= bound:
            says = f"and {b!r} are times, and the time between them {tells(told, seen.task)}: is one of them after the outcome?"
            yield Sign((a, b), says, leave_out(b))


def _days(train: SplitStatistics, seen: _Rows, name: str) -> Floats:
    values, good = numbers(seen.column(name))
    temporal = train.columns[name].temporal
    assert temporal is not None
    return np.where(good, values / PER_DAY[temporal], np.nan)


# --- means of the label


def _label_means(rows: pa.Table | None, train: SplitStatistics, names: Collection[str], task: str) -> Iterator[Sign]:
    """Report numbers that are the label's mean among the rows that share them: calibrated in the label's own units.

    The label's regression on such a column has slope 1 (more if the mean was drawn towards the overall mean) and no curve, and
    both have the same mean.
    """
    if rows is None or len(rows) < 200:
        return
    raw = rows.column(LABEL)
    labels = [numbers(raw)[0]] if not pa.types.is_uint64(raw.type) else []
    if task != "regression":
        codes = np.unique(raw.to_numpy(), return_inverse=True)[1]
        labels = [(codes == code).astype(np.float64) for code in range(min(int(codes.max()) + 1, 10))]
    for name, at in places(rows, names).items():
        if pa.types.is_uint64(rows.column(at).type) or train.columns[name].distinct < 5:
            continue
        values, good = numbers(rows.column(at))
        if good.mean() < 0.95 or good.sum() < 200:
            continue
        if task == "regression" and (same := _in_part(values, labels[0], good)) is not None:
            says = (
                f"is the label itself in {percent(same)} of the rows: is it a total or mean that the label is part of?"
            )
            yield Sign((name,), says, leave_out(name))
            continue
        for label in labels:
            if (shown := _calibrated(values[good], label[good])) is not None:
                says = f"is the label's mean among the rows that share its value (slope {shown[0]:.2f}, explains "
                says += f"{percent(shown[1])} of its variance): was it computed from the labels of these rows?"
                yield Sign((name,), says, leave_out(name))
                break


def _in_part(values: Floats, label: Floats, good: NDArray[np.bool_]) -> float | None:
    """The share of the rows in which a column is the label, where so many are no chance: labels hardly recur."""
    _, codes, counts = np.unique(label, return_inverse=True, return_counts=True)
    if len(counts) < len(label) / 4:
        return None
    same = good & np.isclose(values, label, rtol=1e-6, atol=0) & (counts[codes] <= _RECURS)
    return float(same.mean()) if same.sum() >= _FEW and same.mean() >= 0.02 else None


def _calibrated(x: Floats, y: Floats) -> tuple[float, float] | None:
    """(slope, explained share) of y on x, where x is the mean of y among rows of one x."""
    n = len(x)
    if y.std() == 0 or x.std() == 0 or x.min() < y.min() - 1e-6 or x.max() > y.max() + 1e-6:
        return None
    centred = x - x.mean()
    slope = float((centred * y).sum() / (centred**2).sum())
    rest = y - y.mean() - slope * centred
    explained = 1 - rest.var() / y.var()
    error = float(np.sqrt((rest**2 * centred**2).sum())) / float((centred**2).sum())
    if slope < 6 * error or error > 1 / 6 or not 1 - 3 * error <= slope <= _DRAWN_IN:
        return None
    if abs(x.mean() - y.mean()) > 3 * (y - x).std() / np.sqrt(n):
        return None
    edges = np.unique(np.quantile(x, np.linspace(0, 1, 21)[1:-1]))
    cell = np.searchsorted(edges, x)
    count = np.bincount(cell, minlength=len(edges) + 1)
    full = count >= 10
    means = [np.bincount(cell, of, len(count))[full] / count[full] for of in (y, rest, rest**2)]
    if full.sum() < 4:
        return None
    if slope > 1 + 3 * error:  # drawn towards the overall mean: by how much depends on the rows of each value
        return (slope, float(explained)) if (np.diff(means[0]) >= 0).mean() >= _RISING else None
    misfit = float((count[full] * means[1] ** 2 / np.maximum(means[2], 1e-300)).sum())
    return (slope, float(explained)) if chi_square_tail(misfit, int(full.sum()) - 1) >= 1e-4 else None


# --- the label and noise


def _noise(seen: _Rows, alone: Mapping[str, float]) -> Iterator[Sign]:
    """Report strong columns that have nothing to do with any other among rows of one label."""
    strong = [name for name in seen.names if alone.get(name, 0.0) >= _STRONG[seen.task]]
    if seen.task == "regression":
        strong = [name for name in strong if not pa.types.is_uint64(seen.column(name).type)]
    strong = sorted(strong, key=lambda name: -alone[name])[:_SUSPECTS]
    if not strong:
        return
    cells = _Cells(seen.label, seen.task)
    few = np.linspace(0, len(seen.names) - 1, min(len(seen.names), _OTHERS)).round().astype(int)
    others = {name: cells.standard(_numeric(seen.column(name))) for name in (seen.names[i] for i in few)}
    for name in strong:
        own = cells.standard(_numeric(seen.column(name))[:1])
        rest = [block for other, block in others.items() if other != name and len(block)]
        if not len(own) or not rest or not cells.independent(own[0], np.concatenate(rest)):
            continue
        best = max((alone.get(other, 0.0) for other in seen.names if other != name), default=0.0)
        says = f"alone {tells(alone[name], seen.task)}, and among rows of one label it has nothing to do with any other column "
        says += f"(of which the best {tells(best, seen.task)}): it is the label with noise, "
        yield Sign((name,), says + "unless it is known before the outcome", leave_out(name))


def _numeric(values: pa.ChunkedArray) -> Floats:
    """Numbers of shape (k, rows) that stand for a column: its ranks, or which of its commonest values; whether it is missing."""
    missing = values.is_null().to_numpy()
    if pa.types.is_uint64(values.type):
        _, codes, counts = np.unique(values.fill_null(0).to_numpy(), return_inverse=True, return_counts=True)
        common = np.argsort(-counts, kind="stable")[:8]
        found = [codes == code for code in common.tolist()]
    else:
        floats, good = numbers(values)
        missing = ~good
        ranks = np.unique(floats, return_inverse=True)[1].astype(np.float64)
        middle = ranks[good].mean() if good.any() else 0.0
        found = [np.where(good, ranks, middle)]
    return np.array([*found, missing], np.float64)


class _Cells:
    """Rows of one label, or of nearly one number."""

    def __init__(self, label: NDArray[Any], task: str):
        if task == "regression":
            many = max(2, min(_CELLS, len(label) // _ROWS_OF_A_CELL))
            self.of = np.minimum((label * many).astype(np.int64), many - 1)
        else:
            self.of = label.astype(np.int64)
        self._within = label if task == "regression" else None
        self.order = np.argsort(self.of, kind="stable")
        self.count = np.bincount(self.of)

    def standard(self, values: Floats) -> Floats:
        """Each row of `values` less the mean of its cell, and less what the label tells within it; those that still vary."""
        values = np.array([self._centred(row) for row in values]).reshape(len(values), -1)
        if self._within is not None:
            label = self._centred(self._within)
            values = values - np.outer(values @ label / max(float(label @ label), 1e-12), label)
        spread = np.sqrt((values**2).mean(1, keepdims=True))
        return (values / np.maximum(spread, 1e-12))[spread[:, 0] > 1e-6]

    def _centred(self, values: Floats) -> Floats:
        mean = np.bincount(self.of, values, len(self.count)) / np.maximum(self.count, 1)
        return values - mean[self.of]

    def independent(self, own: Floats, others: Floats) -> bool:
        """Whether products with the others are no larger than those of the same values shuffled within cells."""
        random = np.random.default_rng(0)
        shuffled = np.empty((_SHUFFLES, len(own)), np.float32)
        for row in shuffled:
            order = np.lexsort((random.random(len(own)), self.of))
            row[self.order] = own[order]
        by_chance = np.abs(shuffled @ others.T.astype(np.float32))
        found = np.abs(own @ others.T)
        for sums in (lambda products: products.max(-1), lambda products: (products**2).sum(-1)):
            if (sums(by_chance) >= sums(found)).mean() < _CHANCE:
                return False
        return True
