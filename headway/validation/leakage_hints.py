"""Hints about features, from column statistics and a small sample of rows: constant, duplicate, or leaking the label.

A column of one value; two columns with the same content; a column that alone predicts the label too well, which is often
one that is only known after the answer. The last is judged out of sample: each half of the sampled rows is predicted from
the other half, number columns cut into buckets by their quantiles, so a column of unique values predicts nothing. The rows
are sampled by class, so that a rare class has as many as a common one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.metrics.classification import auc
from headway.schema.columns import LABEL, column_yaml
from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.row_sample import numbers
from headway.statistics.split_statistics import SplitStatistics
from headway.validation.anomaly import Anomaly, finding

_BUCKETS = 64
_LEAST_ROWS, _LEAST_OF_A_CLASS = 200, 30
"""Below these a column may predict the label by chance."""
_COPY = {"binary": 0.9995, "multiclass": 0.9995, "regression": 0.998}
"""What almost a copy of the label reaches; 64 buckets leave 0.02% of a number's variance, and few rows somewhat more."""
_ONE_VALUE = 0.999
_OWN = 0.99
"""The share of a class's rows that have its own value."""
Codes = NDArray[np.int64]


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
    places = _places(rows, names)
    for name, column in train.columns.items():
        if name not in places or column.distinct < 2:
            continue
        figures = column.to_json() | {"name": ""}
        values = _bits(rows.column(places[name]))
        same = (json.dumps(figures, sort_keys=True), column.distinct, values)
        if same in first:
            found[name] = first[same]
        else:
            first[same] = name
    return found


def _places(rows: pa.Table, names: Collection[str]) -> dict[str, int]:
    """The place of each named column. A table searches all of its names for one, and there may be thousands."""
    named = set(names)
    return {name: place for place, name in enumerate(rows.column_names) if name in named}


def _bits(values: pa.ChunkedArray) -> bytes:
    missing = values.is_null().to_numpy()
    filled = values.fill_null(0).to_numpy()
    return np.packbits(missing).tobytes() + filled.tobytes()


def strengths(train: SplitStatistics, names: Collection[str], task: str) -> dict[str, float]:
    """How well each column alone predicts the label; empty where there is too little of it to say.

    Args:
        task: binary, multiclass or regression.

    Returns:
        The AUC; else the share of the label that is explained: of the mistakes that guessing the commonest class makes, or
        of the variance of the label's rank.
    """
    rows = _rows(train, task)
    target = None if rows is None else _target(rows.column(LABEL), task)
    if rows is None or target is None:
        return {}
    places = _places(rows, names)
    columns = [name for name in train.columns if name != LABEL and name in places]
    scores = ((name, _score(_codes(rows.column(places[name])), target, task)) for name in columns)
    return {name: score for name, score in scores if score is not None}


def _rows(train: SplitStatistics, task: str) -> pa.Table | None:
    """The sampled rows, where they are enough."""
    rows = train.by_label.table() if task != "regression" else None
    rows = train.sample.table() if rows is None else rows
    return None if rows is None or LABEL not in rows.column_names or len(rows) < _LEAST_ROWS else rows


def leakage(train: SplitStatistics, alone: Mapping[str, float], task: str, bound: float) -> Iterator[Anomaly]:
    """Report columns that alone predict the label too well; one that is almost a copy of it is an error.

    Args:
        alone: `strengths` of the columns.
        task: binary, multiclass or regression.
        bound: what a column may reach.
    """
    rows = _rows(train, task)
    if rows is None:
        return
    if task != "regression" and _target(rows.column(LABEL), task) is None:
        if len(pc.unique(rows.column(LABEL))) > 1:
            message = (
                f"leakage was not checked: fewer than {_LEAST_OF_A_CLASS} of {train.rows:,} train rows have another "
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
    rows = _rows(train, task)
    for name, score in alone.items() if rows is not None else ():
        if score < bound:
            continue
        how = {
            "binary": f"ranks the label with an AUC of {score:.4f}",
            "multiclass": f"predicts the label with {score:.2%} fewer mistakes than guessing the commonest class",
            "regression": f"explains {score:.2%} of the variance of the label's rank",
        }[task]
        assert rows is not None
        values, label = rows.column(name), rows.column(LABEL)
        only = task == "regression" or _one_value_a_class(values, label)
        own = task != "regression" and own_values(values, label, _OWN)
        yield Leak(name, how, copy=score >= _COPY[task] and only, own_values=own)


def own_values(values: pa.ChunkedArray, label: pa.ChunkedArray, share: float) -> bool:
    """Whether each class, but for one at most, has one value that stands for it, in that share of the rows at least: the
    class's have it, and those that have it are of the class. That a value is missing is a value."""
    codes = np.unique(values.fill_null(0).to_numpy(), return_inverse=True)[1] + 1
    codes = np.where(values.is_null().to_numpy(), 0, codes)
    classes = np.unique(label.to_numpy(), return_inverse=True)[1]
    of_class, of_value = np.bincount(classes), np.bincount(codes)
    places = codes * len(of_class) + classes
    pairs, counts = np.unique(places, return_counts=True)
    value, owner = pairs // len(of_class), pairs % len(of_class)
    fits = (counts >= share * of_value[value]) & (counts >= share * of_class[owner])
    return len(np.unique(owner[fits])) >= max(1, len(of_class) - 1)


def _one_value_a_class(values: pa.ChunkedArray, label: pa.ChunkedArray) -> bool:
    """Whether the label tells the column as well as the column the label: it is the label in other words, and more than
    what the label is decided by."""
    codes = _codes(values)
    classes = np.unique(label.to_numpy(), return_inverse=True)[1]
    _, pairs = np.unique(codes * (int(classes.max()) + 1) + classes, return_inverse=True)
    counts = np.bincount(pairs)
    commonest = np.zeros(int(classes.max()) + 1, np.int64)
    np.maximum.at(commonest, classes, counts[pairs])
    return int(commonest.sum()) >= _ONE_VALUE * len(codes)


def _target(label: pa.ChunkedArray, task: str) -> NDArray[Any] | None:
    """The label as 0/1, as class codes, or as ranks from 0 to 1; None when there is too little of it."""
    if task == "regression":
        if not (pa.types.is_integer(label.type) or pa.types.is_floating(label.type)):
            return None
        values, good = numbers(label)
        if not good.all() or values.min() == values.max():
            return None
        _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
        return ((np.cumsum(counts) - counts / 2) / len(values))[codes]
    _, codes, counts = np.unique(label.to_numpy(), return_inverse=True, return_counts=True)
    common = np.sort(counts)[::-1]
    if len(counts) < 2 or common[1:].sum() < _LEAST_OF_A_CLASS or (task == "binary" and len(counts) != 2):
        return None
    return codes.astype(np.int64)


def _codes(values: pa.ChunkedArray) -> Codes:
    """The bucket of each row; missing values have their own."""
    missing = values.is_null().to_numpy()
    if (pa.types.is_integer(values.type) and values.type != pa.uint64()) or pa.types.is_floating(values.type):
        floats, good = numbers(values)
        if not good.any():
            return np.zeros(len(values), np.int64)
        # with both ends: a few least values are told from the rest as well as a few greatest
        edges = np.unique(np.quantile(floats[good], np.linspace(0, 1, _BUCKETS + 1), method="inverted_cdf"))
        edges = _alone(edges, floats[good])
        codes = np.searchsorted(edges, floats, "left")
        codes = np.where(good, codes + 1, 0)
    else:
        codes = np.unique(values.fill_null(0).to_numpy(), return_inverse=True)[1] + 1
    return np.where(missing, codes.max() + 1, codes).astype(np.int64)


def _alone(edges: NDArray[np.float64], floats: NDArray[np.float64]) -> NDArray[np.float64]:
    """The edges, with another below each value that fills a bucket or more, so that the value has a bucket of its own."""
    if len(edges) > _BUCKETS:
        return edges  # none does
    ordered = np.sort(floats)
    places = np.searchsorted(ordered, edges, "left")
    heavy = (np.searchsorted(ordered, edges, "right") - places) * _BUCKETS >= len(ordered)
    return np.unique(np.concatenate([edges, ordered[places[heavy & (places > 0)] - 1]]))


def _score(codes: Codes, target: NDArray[Any], task: str) -> float | None:
    halves = np.arange(len(codes)) % 2
    width = int(codes.max()) + 1
    if task == "multiclass":
        return _explained_classes(codes, target, halves, width)
    predicted = np.zeros(len(codes))
    for half in (0, 1):
        learn, judge = halves != half, halves == half
        prior = float(target[learn].mean())
        count = np.bincount(codes[learn], minlength=width)
        total = np.bincount(codes[learn], weights=target[learn], minlength=width)
        predicted[judge] = ((total + 0.1 * prior) / (count + 0.1))[codes[judge]]
    if task == "binary":
        return auc(target, predicted)
    return 1.0 - float(((target - predicted) ** 2).sum() / ((target - target.mean()) ** 2).sum())


def _explained_classes(codes: Codes, target: NDArray[Any], halves: Codes, width: int) -> float | None:
    classes = int(target.max()) + 1
    right = guessed = 0
    for half in (0, 1):
        learn, judge = halves != half, halves == half
        commonest = int(np.bincount(target[learn], minlength=classes).argmax())
        pairs, counts = np.unique(codes[learn] * classes + target[learn], return_counts=True)
        choice = np.full(width, commonest)
        order = np.argsort(counts, kind="stable")  # the most frequent class of a bucket is written last
        choice[pairs[order] // classes] = pairs[order] % classes
        right += int((choice[codes[judge]] == target[judge]).sum())
        guessed += int((target[judge] == commonest).sum())
    wrong = len(codes) - guessed
    return (right - guessed) / wrong if wrong else None
