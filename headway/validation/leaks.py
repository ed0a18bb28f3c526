"""Finds features that alone predict the label, repeat another feature, or hold one value, from statistics and a sample.

    alone = strengths(train, names, "binary")              # {"delay": 0.97, "hour": 0.58}
    list(check_leakage(train, alone, "binary", LEAKAGE))   # findings, with the question that only a person can answer

Each half of the sampled rows is used to predict the label of the other half from one feature. A number predicts by a line, and by
a line in each of its quantile ranges. Other values, and numbers of few values, predict by the mean label of each value. A missing
value is a value too, and whether there is one is also tried. So a column of unique values predicts nothing. The figure is the
AUC; for several classes the mean AUC of up to five against the others; for a number R2 of values or ranks.

A strong feature need not be a leak. So a column is reported only if it predicts the label almost without error: with `LEAKAGE`,
one pair of rows in a thousand may be in the wrong order. Labels themselves have more errors: in ten much used test sets at least
3.3% were wrong on average (Northcutt, Athalye and Mueller, "Pervasive label errors in test sets", 2021). An honest feature does
not repeat these errors, and a leak does. Driverless AI drops a feature at the same AUC or R2.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.messages import number
from headway.metrics.classification import auc
from headway.schema.columns import LABEL, column_yaml
from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.row_sample import numbers, ranks
from headway.statistics.split_statistics import SplitStatistics
from headway.tabular.list_arrays import is_number
from headway.validation.anomaly import Anomaly, finding
from headway.validation.config import LEAKAGE

LEAST_ROWS, LEAST_OF_A_CLASS = 150, 30
"""The least number of sampled rows, and of rows of a class. With fewer, chance may make a feature look like a leak: of features
of AUC 0.99, one in 18 did in 100 rows, and one in 100 in 150 rows."""
_RANGES, _ROWS_OF_A_RANGE, _ROWS_OF_A_VALUE = 32, 64, 16
"""The most quantile ranges of a number; the least sampled rows of a range; and the least rows per value, on average, of a number
that is predicted from value by value. With these, a line or a mean label is more than noise."""
_CLASSES = 5
"""The most classes that are predicted, the commonest ones. Each class takes as long as a table of two classes."""
_FEW_ROWS = 0.1
"""The weight of the overall mean label, in rows, when the mean label of a value or range is computed."""
Codes = NDArray[np.int64]
Floats = NDArray[np.float64]


def check_leakage(train: SplitStatistics, alone: Mapping[str, float], task: str, bound: float) -> Iterator[Anomaly]:
    """Yields a finding for each column whose strength reaches `bound`, or a note if a class is too rare. Few rows yield nothing.

    Args:
        alone: by column, how well it alone predicts the label (`strengths`).
        task: binary, multiclass or regression.
        bound: the AUC or R2 from which on a column is reported.
    """
    rows = sampled_rows(train, task)
    if rows is None:
        return
    label = rows.column(LABEL)
    if task != "regression" and not len(_targets(label, task)):
        if len(label.unique()) > 1:
            message = f"leakage was not checked: fewer than {LEAST_OF_A_CLASS} of {train.rows:,} train rows have "
            message += "another label than the commonest one"
            fix = "widen the window, or check that every column is available at prediction time"
            yield finding("info", "leakage", "train", message, fix)
        return
    for leak in leaks(train, alone, task, bound):
        message = f"column {leak.column!r} alone {leak.how} (in {len(rows):,} sampled train rows): is it known when a "
        message += "prediction is needed?"
        fix = f"if not, leave it out: {column_yaml(leak.column, 'ignore')}; if it is: "
        fix += f"validation.columns.{leak.column}.severity: {{leakage: ignore}}"
        yield finding(
            "warning", "leakage", "train", message, fix, column=leak.column, value=alone[leak.column], expected=bound
        )


@dataclass(frozen=True)
class Leak:
    """A column that alone predicts the label nearly without error, and so may be a leak."""

    column: str
    how: str
    """How the column predicts, as a predicate: "ranks the label with an AUC of 0.9996"."""


def leaks(train: SplitStatistics, alone: Mapping[str, float], task: str, bound: float = LEAKAGE) -> Iterator[Leak]:
    """Yields the columns whose strength in `alone` reaches `bound`. Yields none if too few rows were sampled."""
    rows = sampled_rows(train, task)
    if rows is None:
        return
    targets = _targets(rows.column(LABEL), task)
    for name, score in alone.items():
        if score < bound:
            continue
        how = {
            "binary": f"ranks the label with an AUC of {number(score)}",
            "multiclass": f"tells the classes apart with a mean AUC of {number(score)}",
            "regression": f"explains the label with an R2 of {number(score)}",
        }[task]
        by_presence = task != "regression" and _presence(rows.column(name), targets) >= bound
        yield Leak(name, how + (" by whether it is there" if by_presence else ""))


def strengths(train: SplitStatistics, names: Collection[str], task: str) -> dict[str, float]:
    """Returns how well each column alone predicts the label, out of fold. Empty if too few rows or classes were sampled.

    Args:
        task: binary, multiclass or regression.

    Returns:
        By column: the AUC, for several classes their mean AUC, or for a regression R2.
    """
    rows = sampled_rows(train, task)
    if rows is None or not len(targets := _targets(rows.column(LABEL), task)):
        return {}
    at = column_indices(rows, names)
    found = dict[str, float]()
    for name in train.columns:
        if name != LABEL and name in at:
            values = rows.column(at[name])
            score = _regression(values, targets) if task == "regression" else _classification(values, targets)
            found[name] = score if task == "regression" else max(score, _presence(values, targets))
    return found


def sampled_rows(train: SplitStatistics, task: str) -> pa.Table | None:
    """Returns the sampled train rows; with classes, those of the sample by class, if there is one. None: too few, or no label."""
    rows = train.by_label.table() if task != "regression" else None
    rows = train.sample.table() if rows is None else rows
    return None if rows is None or LABEL not in rows.column_names or len(rows) < LEAST_ROWS else rows


def column_indices(rows: pa.Table, names: Collection[str]) -> dict[str, int]:
    """Returns the position of each named column, found in one pass: pyarrow would search all names for each."""
    named = set(names)
    return {name: place for place, name in enumerate(rows.column_names) if name in named}


def _targets(label: pa.ChunkedArray, task: str) -> Floats:
    """Returns the targets to predict, one per row of the array. For classes: 0 and 1 for each of at most five frequent classes
    against the others (of two classes only the second). For a regression: the label's values, and their ranks.

    The array has no row if too few rows are outside the largest class, or if numbers are all equal or not all finite.
    """
    nothing = np.empty((0, len(label)))
    if task == "regression":
        if not is_number(label.type):
            return nothing
        values, good = numbers(label)
        return np.stack([values, ranks(values)]) if good.all() and values.min() < values.max() else nothing
    found, codes, counts = np.unique(label.to_numpy(), return_inverse=True, return_counts=True)
    if len(found) < 2 or np.sort(counts)[:-1].sum() < LEAST_OF_A_CLASS or (task == "binary" and len(found) != 2):
        return nothing
    common = np.argsort(-counts, kind="stable")[:_CLASSES]
    classes = np.array([1]) if len(found) == 2 else common[counts[common] >= LEAST_OF_A_CLASS]
    return (codes == classes[:, None]).astype(np.float64)


def _classification(values: pa.ChunkedArray, targets: Floats) -> float:
    """Returns the mean AUC with which the column predicts the targets, by the best of all ways to predict (`_ways`)."""
    return max(_mean_auc(codes, along, targets) for codes, along in _ways(values))


def _regression(values: pa.ChunkedArray, targets: Floats) -> float:
    """Returns the greatest R2 of all ways (`_ways`): the label's values from the column's values, or ranks from ranks.

    Ranks find a copy on another scale, such as a logarithm. Values find a copy with noise that is small beside the largest value.
    """
    scores = []
    floats = numbers(values)[0] if _is_quantity(values) else None
    of_values, of_ranks = targets
    for codes, along in _ways(values):
        by = floats if floats is not None and along.any() else along
        for target, of in ((of_values, by), (of_ranks, along)):
            predicted = _out_of_fold(codes, of, target).clip(target.min(), target.max())
            missed = ((target - predicted) ** 2).sum()
            scores.append(1.0 - float(missed / ((target - target.mean()) ** 2).sum()))
    return max(scores)


def _presence(values: pa.ChunkedArray, targets: Floats) -> float:
    """Returns the mean AUC with which the targets follow from whether a row has a value; 0.5 if all rows have one."""
    missing = _missing(values)
    return _mean_auc(missing.astype(np.int64), np.zeros(len(missing)), targets) if missing.any() else 0.5


def _mean_auc(codes: Codes, along: Floats, targets: Floats) -> float:
    """Returns the mean AUC over the targets and the two halves of the rows. Each half is predicted from the other half."""
    scores = []
    for target in targets:
        predicted = _out_of_fold(codes, along, target)
        scores += [auc(target[half::2], predicted[half::2]) for half in (0, 1)]
    known = [score for score in scores if score is not None]
    return float(np.mean(known)) if known else 0.5


def _missing(values: pa.ChunkedArray) -> NDArray[np.bool_]:
    return values.is_null(nan_is_null=pa.types.is_floating(values.type)).to_numpy()


def _is_quantity(values: pa.ChunkedArray) -> bool:
    return is_number(values.type) and values.type != pa.uint64()  # the hash of a text


def _ways(values: pa.ChunkedArray) -> Iterator[tuple[Codes, Floats]]:
    """Yields each way to predict from a column, as two arrays: a code of each row (its value, its range, or whether it has a
    number), and the row's position along a line. A position of 0 in all rows means that there is no line."""
    missing = _missing(values)
    _, codes, counts = np.unique(values.fill_null(0).to_numpy(), return_inverse=True, return_counts=True)
    rows, quantity = len(codes), _is_quantity(values)
    if not quantity or _ROWS_OF_A_VALUE * len(counts) <= rows:
        yield np.where(missing, len(counts), codes), np.zeros(rows)
    if not quantity:
        return
    floats, good = numbers(values)
    along = ranks(floats) * good
    # a line has less noise than its ranges, so that it orders the rows of a class better
    yield good.astype(np.int64), along
    many = min(_RANGES, rows // _ROWS_OF_A_RANGE)
    frequent = counts[codes] * many >= rows  # a value that fills a range is one by itself
    ranges = np.where(frequent, many + codes, (along * many).astype(np.int64).clip(max=many - 1))
    ranges = np.where(good, ranges, many + len(counts))
    yield np.unique(np.where(missing, many + len(counts) + 1, ranges), return_inverse=True)[1], along


def _out_of_fold(codes: Codes, along: Floats, target: Floats) -> Floats:
    """Returns a prediction for each row, from the rows of the same code in the other half: their mean target, and a line through
    them."""
    half, width = np.arange(len(codes)) % 2, int(codes.max()) + 1
    predicted = np.empty(len(codes))
    for judged in (0, 1):
        learn, judge = half != judged, half == judged
        of, x, y = codes[learn], along[learn], target[learn]
        count = np.bincount(of, minlength=width)
        mean = (np.bincount(of, y, width) + _FEW_ROWS * y.mean()) / (count + _FEW_ROWS)
        middle = np.bincount(of, x, width) / np.maximum(count, 1)
        away = x - middle[of]
        spread = np.bincount(of, away**2, width)
        slope = np.divide(np.bincount(of, away * y, width), spread, out=np.zeros(width), where=spread > 0)
        predicted[judge] = mean[codes[judge]] + slope[codes[judge]] * (along[judge] - middle[codes[judge]])
    return predicted


def check_constant(column: ColumnStatistics) -> Iterator[Anomaly]:
    """Yields a finding if a column has the same value in every train row. A missing value would be another value."""
    if column.distinct == 1 and not (column.missing or column.nan or column.infinite):
        message = f"column {column.name!r} has the same value in all {column.rows:,} train rows"
        fix = f"leave it out: {column_yaml(column.name, 'ignore')}"
        yield finding("warning", "constant", "train", message, fix, column=column.name)


def repeated(train: SplitStatistics, names: Collection[str]) -> dict[str, str]:
    """Returns the columns that repeat an earlier column, each with the name of the earlier one. The two have equal statistics
    over all rows, and equal values in each sampled row."""
    rows, found = train.sample.table(), dict[str, str]()
    if rows is None:
        return found
    first: dict[Any, str] = {}
    at = column_indices(rows, names)
    for name, column in train.columns.items():
        if name not in at or column.distinct < 2:
            continue
        figures = json.dumps(column.to_json() | {"name": ""}, sort_keys=True)
        values = rows.column(at[name])
        cells = np.packbits(values.is_null().to_numpy()).tobytes() + values.fill_null(0).to_numpy().tobytes()
        same = (figures, column.distinct, cells)
        if same in first:
            found[name] = first[same]
        else:
            first[same] = name
    return found
