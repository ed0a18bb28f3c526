"""Signs that several columns give the label away together.

    for sign in relations(train, names, "regression"): ...

    sign            what is found
    identity        the label is a sum, difference, product or ratio of number columns: least squares on the columns, or on their
                    logarithms, leaves less than 0.05% of its variance, out of sample
    threshold       a binary label is decided by the difference or ratio of two columns

At most `_NUMBERS` number columns are looked at, and pairs of at most `_PAIRED`, evenly spread over the table.
"""

import itertools
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.messages import listed
from headway.metrics.classification import auc
from headway.schema.columns import LABEL
from headway.statistics.row_sample import numbers
from headway.statistics.split_statistics import SplitStatistics
from headway.validation.leaks.label_strength import places, sampled_rows, spread, target_of
from headway.validation.leaks.leak_signs import Sign, leave_out

_NUMBERS, _PAIRED, _PAIR_ROWS = 128, 24, 1024
_ROWS = 200
_IDENTITY, _DECIDES, _ALREADY = 0.9995, 0.9995, 0.95
_PARTS = 8
"""Columns that an identity may be of."""
Floats = NDArray[np.float64]


def relations(train: SplitStatistics, names: Collection[str], task: str) -> Iterator[Sign]:
    """The signs of several columns.

    Args:
        names: the columns that are looked at.
        task: binary, multiclass or regression.
    """
    uniform = train.sample.table()
    if uniform is None or len(uniform) < _ROWS:
        return
    label = uniform.column(LABEL)
    if not pa.types.is_uint64(label.type) and task != "binary":
        yield from _identities(uniform, names, numbers(label)[0])
    if task == "binary":
        yield from _thresholds(train, names)


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
        for how, between in _between(columns[a], columns[b]):
            if _apart(between, label) >= _DECIDES:
                says = f"and {b!r} decide the label together: their {how} ranks it without a mistake, and neither does alone: "
                yield Sign((a, b), says + "are both known before it?", leave_out(b))
                return


def _between(a: Floats, b: Floats) -> Iterator[tuple[str, Floats]]:
    yield "difference", a - b
    if a.min() > 0 and b.min() > 0:
        yield "ratio", np.log(a / b)
        yield "product", np.log(a) + np.log(b)


def _apart(values: Floats, label: NDArray[Any]) -> float:
    found = auc(label, values) or 0.5
    return max(found, 1 - found)
