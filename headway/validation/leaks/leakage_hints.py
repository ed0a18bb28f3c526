"""Hints about features, from column statistics and a small sample of rows: constant, duplicate, or leaking the label.

A column of one value; two columns with the same content; a column that alone predicts the label too well, which is often
one that is only known after the answer. Other signs: `leak_signs` and `leak_relations` beside this module.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headway.schema.columns import LABEL, column_yaml
from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.split_statistics import SplitStatistics
from headway.validation.anomaly import Anomaly, finding
from headway.validation.leaks.label_strength import (
    LEAST_OF_A_CLASS,
    buckets,
    owned,
    places,
    sampled_rows,
    target_of,
    tells,
)
from headway.validation.leaks.leak_relations import relations
from headway.validation.leaks.leak_signs import Sign, column_signs

_COPY = {"binary": 0.9995, "multiclass": 0.9995, "regression": 0.998}
"""What almost a copy of the label reaches; 64 buckets leave 0.02% of a number's variance, and few rows somewhat more."""
_ONE_VALUE = 0.999
_OWN = 0.99
"""The share of a class's rows that have its own value."""


def constant(column: ColumnStatistics) -> Iterator[Anomaly]:
    """Report columns with the same value in every train row; missing values would be information."""
    if column.distinct == 1 and not (column.missing or column.nan or column.infinite):
        message = f"column {column.name!r} has the same value in all {column.rows:,} train rows"
        fix = f"leave it out: {column_yaml(column.name, 'ignore')}"
        yield finding("warning", "constant", "train", message, fix, column=column.name)


def duplicates(train: SplitStatistics, names: Collection[str]) -> Iterator[Anomaly]:
    """Report columns that repeat an earlier one."""
    found = repeated(train, names)
    rows = len(train.sample.table() or ()) if found else 0
    for name, first in found.items():
        message = f"column {name!r} repeats column {first!r}: the same values in each of {rows:,} sampled "
        message += f"train rows, and the same figures over all {train.rows:,}"
        fix = f"leave one of them out: {column_yaml(name, 'ignore')}"
        yield finding("warning", "duplicate", "train", message, fix, column=name)


def repeated(train: SplitStatistics, names: Collection[str]) -> dict[str, str]:
    """Each column that repeats an earlier one, and that one: equal statistics over all rows, and equal values in each
    sampled row."""
    rows, found = train.sample.table(), dict[str, str]()
    if rows is None:
        return found
    first: dict[Any, str] = {}
    at = places(rows, names)
    for name, column in train.columns.items():
        if name not in at or column.distinct < 2:
            continue
        figures = column.to_json() | {"name": ""}
        values = _bits(rows.column(at[name]))
        same = (json.dumps(figures, sort_keys=True), column.distinct, values)
        if same in first:
            found[name] = first[same]
        else:
            first[same] = name
    return found


def _bits(values: pa.ChunkedArray) -> bytes:
    missing = values.is_null().to_numpy()
    filled = values.fill_null(0).to_numpy()
    return np.packbits(missing).tobytes() + filled.tobytes()


def leakage(
    train: SplitStatistics, alone: Mapping[str, float], task: str, bound: float, *, by_row: bool = False
) -> Iterator[Anomaly]:
    """Report columns that alone predict the label too well, of which one that is almost a copy of it is an error, and other
    signs of a leak.

    Args:
        alone: `strengths` of the columns.
        task: binary, multiclass or regression.
        bound: what a column may reach.
        by_row: whether rows of one time may be in several splits.
    """
    rows = sampled_rows(train, task)
    if rows is None:
        return
    if task != "regression" and target_of(rows.column(LABEL), task) is None:
        if len(pc.unique(rows.column(LABEL))) > 1:
            message = (
                f"leakage was not checked: fewer than {LEAST_OF_A_CLASS} of {train.rows:,} train rows have another "
            )
            message += "label than the commonest one"
            fix = "widen the window, or check that every column is available at prediction time"
            yield finding("info", "leakage", "train", message, fix)
        return
    for leak in leaks(train, alone, task, bound):
        message = f"column {leak.column!r} alone {leak.how} (in {len(rows):,} sampled train rows)"
        message += ", almost as a copy of it would: " if leak.copy else ": "
        message += "is it available at prediction time?"
        fix = f"leave it out: {column_yaml(leak.column, 'ignore')}; if it is: "
        fix += f"validation.columns.{leak.column}.severity: {{leakage: ignore}}"
        yield finding("error" if leak.copy else "warning", "leakage", "train", message, fix, column=leak.column)
    for sign in signs(train, alone, task, bound, by_row=by_row):
        message = f"{'columns' if sign.columns[1:] else 'column'} {sign.columns[0]!r} {sign.says}"
        yield finding("warning", "leakage", "train", message, sign.fix, column=sign.columns[0])


def signs(
    train: SplitStatistics, alone: Mapping[str, float], task: str, bound: float, *, by_row: bool
) -> Iterator[Sign]:
    """The signs of a leak beside the strength of a column, of columns that are not `leaks`; arguments as of `leakage`."""
    names, found = [name for name, told in alone.items() if told < bound], set[str]()
    for sign in relations(train, names, task, by_row=by_row):
        found |= {*sign.columns}
        yield sign
    yield from column_signs(train, [name for name in names if name not in found], alone, task)


@dataclass(frozen=True)
class Leak:
    """A column that alone predicts the label too well."""

    column: str
    how: str
    """A verb and what follows it: ranks the label with an AUC of 0.9996."""
    copy: bool
    """Whether it is almost a copy of the label."""
    own_values: bool
    """Whether each class, but for one at most, has one value (or none) that no other has, as what is written down after
    the label does."""


def leaks(train: SplitStatistics, alone: Mapping[str, float], task: str, bound: float) -> Iterator[Leak]:
    """The columns whose strength reaches `bound`."""
    rows = sampled_rows(train, task)
    for name, score in alone.items() if rows is not None else ():
        if score < bound:
            continue
        assert rows is not None
        values, label = rows.column(name), rows.column(LABEL)
        only = task == "regression" or _one_value_a_class(values, label)
        own = task != "regression" and own_values(values, label, _OWN)
        yield Leak(name, tells(score, task), copy=score >= _COPY[task] and only, own_values=own)


def own_values(values: pa.ChunkedArray, label: pa.ChunkedArray, share: float) -> bool:
    """Whether each class, but for one at most, has one value that stands for it (`owned`). That a value is missing is a value."""
    found, classes = np.unique(label.to_numpy(), return_inverse=True)
    return len(np.unique(owned(values, classes, share)[0])) >= max(1, len(found) - 1)


def _one_value_a_class(values: pa.ChunkedArray, label: pa.ChunkedArray) -> bool:
    """Whether the label tells the column as well as the column the label: it is the label in other words, and more than
    what the label is decided by."""
    codes = buckets(values)
    classes = np.unique(label.to_numpy(), return_inverse=True)[1]
    _, pairs = np.unique(codes * (int(classes.max()) + 1) + classes, return_inverse=True)
    counts = np.bincount(pairs)
    commonest = np.zeros(int(classes.max()) + 1, np.int64)
    np.maximum.at(commonest, classes, counts[pairs])
    return int(commonest.sum()) >= _ONE_VALUE * len(codes)
