"""Signs that several columns give the label away together.

    for sign in relations(train, names, "regression", by_row=True): ...

    sign            what is found
    identity        the label is a sum, difference, product or ratio of number columns: least squares on the columns, or on their
                    logarithms, leaves less than 0.05% of its variance, out of sample
    threshold       a binary label is decided by the difference or ratio of two columns
    period          year and month (quarter, week) together have a level that neither has alone, and rows are split by chance

At most `_NUMBERS` number columns are looked at, and pairs of at most `_PAIRED`, evenly spread over the table.
"""

import itertools
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.messages import listed, percent
from headway.metrics.classification import auc
from headway.schema.columns import LABEL
from headway.schema_inference.identifiers import words_of
from headway.statistics.row_sample import numbers
from headway.statistics.split_statistics import SplitStatistics
from headway.validation.leaks.label_strength import places, sampled_rows, spread, target_of
from headway.validation.leaks.leak_signs import Sign, leave_out
from headway.validation.stratification import chi_square_tail

_NUMBERS, _PAIRED, _PAIR_ROWS = 128, 24, 1024
_ROWS = 200
_IDENTITY, _DECIDES, _ALREADY = 0.9995, 0.9995, 0.95
_PARTS = 8
"""Columns that an identity may be of."""
_PERIODS = {"month", "months", "mon", "mnth", "mo", "quarter", "qtr", "week", "wk", "day", "period", "season", "half"}
_LEVEL = 0.02
Floats = NDArray[np.float64]


def relations(train: SplitStatistics, names: Collection[str], task: str, *, by_row: bool) -> Iterator[Sign]:
    """The signs of several columns.

    Args:
        names: the columns that are looked at.
        task: binary, multiclass or regression.
        by_row: whether rows of one time may be in several splits.
    """
    uniform = train.sample.table()
    if uniform is None or len(uniform) < _ROWS:
        return
    label = uniform.column(LABEL)
    if not pa.types.is_uint64(label.type) and task != "binary":
        yield from _identities(uniform, names, numbers(label)[0])
    if task == "binary":
        yield from _thresholds(train, names)
    if by_row:
        yield from _periods(uniform, names, task)


def _number_columns(rows: pa.Table, names: Collection[str], most: int) -> dict[str, Floats]:
    """The values of the columns of numbers, NaN where there is none; constant and sparse ones are left out."""
    at = {name: place for name, place in places(rows, names).items() if name != LABEL}
    of_numbers = [name for name, place in at.items() if not pa.types.is_uint64(rows.column(place).type)]
    found = dict[str, Floats]()
    for name in spread(of_numbers, most):
        values, good = numbers(rows.column(at[name]))
        if good.mean() >= 0.8 and values[good].min() < values[good].max():
            found[name] = np.where(good, values, np.nan)
    return found


# --- identities


def _identities(rows: pa.Table, names: Collection[str], label: Floats) -> Iterator[Sign]:
    """Report columns of which the label is a sum or difference, product or ratio."""
    columns = _number_columns(rows, names, _NUMBERS)
    used: list[str] = _decided_by(columns, label)
    how = "a sum or difference"
    if not used:
        positive = {name: np.log(values) for name, values in columns.items() if np.nanmin(values) > 0}
        whole = label > 0
        if whole.mean() >= 0.8 and positive:
            logs = {name: values[whole] for name, values in positive.items()}
            used, how = _decided_by(logs, np.log(label[whole])), "a product or ratio"
    if used:
        what = f"and {listed([repr(name) for name in used[1:]])} decide" if used[1:] else "decides"
        says = f"{what} the label: it is {how} of {'them' if used[1:] else 'it'}, to {_IDENTITY:.2%} of its variance: "
        says += f"{'are they' if used[1:] else 'is it'} known before the label?"
        yield Sign(tuple(used), says, leave_out(used[-1]))


def _decided_by(columns: dict[str, Floats], label: Floats) -> list[str]:
    """The few columns of which the label is a linear function; none where it is not."""
    names = [*columns]
    if not names:
        return []
    matrix = np.stack([columns[name] for name in names], 1)
    whole = np.isfinite(matrix).all(1) & np.isfinite(label)
    if whole.sum() < max(_ROWS // 2, 3 * len(names)):
        return []
    matrix, y = matrix[whole], label[whole]
    matrix = matrix - matrix.mean(0)
    spread = matrix.std(0)
    keep = spread > 0
    matrix, names = matrix[:, keep] / spread[keep], [name for name, kept in zip(names, keep, strict=True) if kept]
    y = (y - y.mean()) / max(y.std(), 1e-300)
    if not names or _explained(matrix, y) < _IDENTITY:
        return []
    fitted = np.linalg.lstsq(_with_one(matrix), y, rcond=1e-12)[0][:-1]
    used = np.argsort(-np.abs(fitted))[: 2 * _PARTS].tolist()  # those that matter come first
    while len(used) > 1:
        best, least = max((_explained(matrix[:, [j for j in used if j != i]], y), i) for i in used)
        if best < _IDENTITY:
            break
        used.remove(least)
    if _explained(matrix[:, used], y) < _IDENTITY:
        return []
    return [names[i] for i in used] if len(used) <= _PARTS else []


def _explained(matrix: Floats, y: Floats) -> float:
    """The share of the variance that least squares explains, each half of the rows predicted from the other."""
    rest = np.empty(len(y))
    for half in (0, 1):
        learn, judge = slice(half, None, 2), slice(1 - half, None, 2)
        coefficients = np.linalg.lstsq(_with_one(matrix[learn]), y[learn], rcond=1e-12)[0]
        rest[judge] = y[judge] - _with_one(matrix[judge]) @ coefficients
    return 1 - float((rest**2).sum() / ((y - y.mean()) ** 2).sum())


def _with_one(matrix: Floats) -> Floats:
    return np.concatenate([matrix, np.ones((len(matrix), 1))], 1)


def _thresholds(train: SplitStatistics, names: Collection[str]) -> Iterator[Sign]:
    """Report two columns whose difference or ratio decides a binary label that neither decides alone."""
    rows = sampled_rows(train, "binary")
    label = None if rows is None else target_of(rows.column(LABEL), "binary")
    if rows is None or label is None:
        return
    few = np.linspace(0, len(label) - 1, min(len(label), _PAIR_ROWS)).astype(int)
    columns, label = _number_columns(rows, names, _PAIRED), label[few]
    columns = {name: values[few] for name, values in columns.items() if np.isfinite(values).all()}
    alone = {name: _apart(values, label) for name, values in columns.items()}
    for a, b in itertools.combinations([name for name in columns if alone[name] < _ALREADY], 2):
        first, second = columns[a], columns[b]
        relations = {"difference": first - second}
        if first.min() > 0 and second.min() > 0:
            relations |= {"ratio": np.log(first / second), "product": np.log(first) + np.log(second)}
        for how, between in relations.items():
            if _apart(between, label) >= _DECIDES:
                says = f"and {b!r} decide the label together: their {how} ranks it without a mistake, and neither does alone: "
                yield Sign((a, b), says + "are both known before it?", leave_out(b))
                return


def _apart(values: Floats, label: NDArray[Any]) -> float:
    found = auc(label, values) or 0.5
    return max(found, 1 - found)


# --- periods


def _periods(rows: pa.Table, names: Collection[str], task: str) -> Iterator[Sign]:
    """Report a year and a part of it that have a level of the label which neither has alone."""
    y = _level_of(rows.column(LABEL), task)
    at = {name: place for name, place in places(rows, names).items() if name != LABEL}
    years = {name: codes for name in at if (codes := _years(name, rows.column(at[name]))) is not None}
    if y is None or not years:
        return
    for name, place in at.items():
        parts = _parts_of_a_year(name, rows.column(place))
        for year, of_year in years.items() if parts is not None else ():
            if year == name or parts is None:
                continue
            share = _interaction(y, of_year, parts)
            if share >= _LEVEL:
                says = (
                    f"and {name!r} tell a row's period, and the label has a level of its own in each, which explains "
                )
                says += f"{percent(share)} of its variance beyond year and season: split by row, eval has the periods of train"
                fix = f"split by time, such as split: {{mode: column, column: {year}, eval_from: ...}}, or leave out {name}"
                yield Sign((year, name), says, fix)
                return


def _level_of(label: pa.ChunkedArray, task: str) -> Floats | None:
    if task == "regression":
        return target_of(label, task)
    codes = np.unique(label.to_numpy(), return_inverse=True)[1]
    return (codes == np.bincount(codes).argmax()).astype(np.float64)


def _whole(values: pa.ChunkedArray) -> NDArray[np.int64] | None:
    if pa.types.is_uint64(values.type):
        return None
    floats, good = numbers(values)
    return floats.astype(np.int64) if good.all() and (floats == np.floor(floats)).all() else None


def _years(name: str, values: pa.ChunkedArray) -> NDArray[np.int64] | None:
    """A code of each year; None: the column holds none."""
    whole = _whole(values)
    named = {*words_of(name)} & {"year", "yr", "yyyy", "fy", "jahr", "annee", "ano"}
    if whole is None or not (named or (whole.min() >= 1900 and whole.max() <= 2100)):
        return None
    codes = np.unique(whole, return_inverse=True)[1]
    return codes if 2 <= codes.max() + 1 <= 60 else None


def _parts_of_a_year(name: str, values: pa.ChunkedArray) -> NDArray[np.int64] | None:
    named = {*words_of(name)} & _PERIODS
    whole = _whole(values)
    months = whole is not None and whole.min() == 1 and whole.max() == 12 and len(np.unique(whole)) == 12
    if not named and not months:
        return None
    codes = np.unique(values.fill_null(0).to_numpy(), return_inverse=True)[1].astype(np.int64)
    return codes if 2 <= codes.max() + 1 <= 366 else None


def _interaction(y: Floats, a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    """The share of the variance between the cells of a and b beyond their sum; 0 where it may be chance."""
    rest = y - y.mean()
    for _ in range(20):
        for codes in (a, b):
            rest = rest - (np.bincount(codes, rest) / np.maximum(np.bincount(codes), 1))[codes]
    cell = np.unique(a * (int(b.max()) + 1) + b, return_inverse=True)[1]
    count = np.bincount(cell)
    mean = np.bincount(cell, rest) / count
    degrees = len(count) - int(a.max()) - int(b.max()) - 1
    left = len(y) - len(count)
    if degrees < 3 or left < 50:
        return 0.0
    within = float(((rest - mean[cell]) ** 2).sum()) / left
    between = float((count * mean**2).sum())
    if within <= 0 or chi_square_tail(between / within, degrees) > 1e-6:
        return 0.0
    return max(0.0, (between - degrees * within) / float(((y - y.mean()) ** 2).sum()))
