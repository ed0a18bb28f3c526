"""Resampling units: which rows are resampled together, and whether there are enough of them to compare models by.

    rows, sentence = with_resampling_units(units, table, rows)
    why_not_comparable(AUC, rows)          # "under 20 rows of one class", or None

Rows that the split keeps together, or that share a value of the column with the role group, are one unit. A split by
a hash of the rows keeps equal rows together. So where many rows repeat others, equal rows are one unit too: resampled
one by one, copies would look like more evidence than they are.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.config import Frozen
from headway.metrics.base import Metric, Rows, unit_weights
from headway.metrics.ranking import NO_GROUP, codes_of
from headway.tabular.list_arrays import factorize

LEAST_ROWS = 20
"""The standard error of fewer rows is too uncertain to judge by."""
CLASS_ROWS = 20
"""An AUC over fewer rows of either class is too uncertain to compare models by."""
FIRST_CLASS_ROWS = 10
"""The same for the AUC of a first model: from so many rows on, its test by Student's t keeps to its error rate
(tests/headway/evaluation/test_baseline.py)."""
LEAST_GROUPS = 5
"""An interval from fewer groups, widened as it has to be, hardly excludes anything."""
RANKED_GROUPS = 20
"""The standard error of fewer groups with an order to judge is too uncertain to judge by."""
_TOLD_APART = 0.9
"""The share of a split's distinct rows that the stored columns must tell apart for equal rows to be one unit."""


class SplitUnits(Frozen):
    """The units that the split keeps together."""

    key: str | None = None
    """The column that the split's key is; None: there is none. Predictions have each row's unit in the column `UNIT`."""
    equal: tuple[str, ...] = ()
    """Columns of the predictions. Rows with the same values in all these columns are in one split."""
    distinct: int = 0
    """Set if the split hashes columns that are not stored: the number of distinct rows, most of which `equal` must tell apart."""


def with_resampling_units(
    units: SplitUnits, table: pa.Table, rows: Rows, *, group: str | None = None
) -> tuple[Rows, str | None]:
    """Returns the rows with their resampling units, and a sentence that says which rows are resampled together. The
    sentence is None where each row is resampled by itself.

    Args:
        table: the rows' predictions, with the columns `units.equal`.
        group: the name of the column that the rows' groups come from.
    """
    if rows.resample_unit is not None:
        known = group if rows.units is None else units.key
        count = resampling_units(rows)[1]
        return rows, f"rows of one {known or 'unit of the split'} are drawn together ({count:,} of them)"
    if not units.equal:
        return rows, None
    codes = _equal_rows(table, units.equal)
    if (count := int(codes.max()) + 1) < _TOLD_APART * units.distinct:
        return rows, None
    sentence = f"equal rows, which are in one split, are drawn together ({count:,} distinct of {len(table):,})"
    return replace(rows, units=codes, memo={}, shared_memo={}), sentence


def _equal_rows(table: pa.Table, columns: Sequence[str]) -> NDArray[np.int64]:
    """Returns a number for each row, [rows]: the same for rows with the same values in all these columns."""
    codes = np.zeros(len(table), np.int64)
    for name in columns:
        _, values = np.unique(codes_of(table.column(name)), return_inverse=True)
        codes = np.unique(codes * (int(values.max()) + 1) + values, return_inverse=True)[1]
    return codes


def resampling_units(rows: Rows) -> tuple[NDArray[np.int64] | None, int]:
    """Returns the resampling unit of each row (None: each row is its own unit), and the number of units; cached."""
    return rows.cached_for_all_models(
        "drawn", lambda: (None, len(rows)) if rows.resample_unit is None else unit_numbers(rows.resample_unit)
    )


def unit_numbers(group: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
    """Returns the unit of each row, numbered from 0, and the number of units. A row without a group
    (`headway.metrics.ranking.NO_GROUP`) is a unit by itself."""
    codes, units = factorize(group)
    alone = np.flatnonzero(group == NO_GROUP)
    if len(alone):  # it is the greatest of the values
        codes[alone] = units - 1 + np.arange(len(alone))
        units += len(alone) - 1
    return codes, units


def effective_units(rows: Rows) -> float:
    """Returns the effective number of units: how many units of equal weight would vary as much. Infinite where rows
    are resampled one by one."""
    codes, units = resampling_units(rows)
    if codes is None or not rows.total > 0:
        return math.inf
    return float(rows.total**2 / (unit_weights(rows, codes, units) ** 2).sum())


def why_not_comparable(metric: Metric, rows: Rows, class_rows: int = CLASS_ROWS) -> str | None:
    """Returns why two models cannot be compared by this metric on these rows; None: they can. Rows of weight 0 are ignored."""
    weighty, count = _weighty(rows)
    if count < LEAST_ROWS:
        return f"under {LEAST_ROWS} rows" + (" of weight above 0" if count < len(rows) else "")
    codes, groups = _weighty_units(rows, weighty)
    if codes is not None:
        if groups < LEAST_GROUPS:
            return f"under {LEAST_GROUPS} groups"
        if groups < LEAST_ROWS and _different(rows, weighty, codes) < LEAST_ROWS:
            return f"under {LEAST_ROWS} different rows"
    if metric.unit == "classes" and _rarer(rows, weighty) < class_rows:
        return f"under {class_rows} rows of one class"
    if metric.unit == "groups" and _telling(rows, weighty) < RANKED_GROUPS:
        return f"under {RANKED_GROUPS} groups with a positive label"
    return None


def count_units(metric: Metric, rows: Rows) -> int:
    """Returns the number of units that the metric's error rests on: for auc, at most twice the rows of the rarer class."""
    weighty, _ = _weighty(rows)
    _, count = _weighty_units(rows, weighty)
    if metric.unit == "classes":
        count = min(count, 2 * _rarer(rows, weighty))
    if metric.unit == "groups":
        count = min(count, _telling(rows, weighty))
    return count


def _weighty(rows: Rows) -> tuple[NDArray[np.bool_], int]:
    """Returns whether each row has positive weight, [rows], and the number of rows that have."""

    def found() -> tuple[NDArray[np.bool_], int]:
        weighty = rows.weight > 0
        return weighty, int(weighty.sum())

    return rows.cached("weighty", found)


def _weighty_units(rows: Rows, weighty: NDArray[np.bool_]) -> tuple[NDArray[np.int64] | None, int]:
    """Returns the unit of each row of positive weight (None: each row is its own unit), and the number of these units."""
    codes, units = resampling_units(rows)
    if codes is None:
        return None, int(weighty.sum())

    def found() -> tuple[NDArray[np.int64], int]:
        if weighty.all():
            return codes, units
        some = codes[weighty]
        return some, int(np.count_nonzero(np.bincount(some, minlength=units)))

    return rows.cached("weighty_units", found)


def _rarer(rows: Rows, weighty: NDArray[np.bool_]) -> int:
    def found() -> int:
        positives = int((weighty & (rows.label > 0.5)).sum())
        return min(positives, int(weighty.sum()) - positives)

    return rows.cached("rarer", found)


def _different(rows: Rows, weighty: NDArray[np.bool_], codes: NDArray[np.int64]) -> int:
    """Returns the number of different rows by unit, label and prediction: copies of a row are no further evidence."""
    predictions = rows.prediction[weighty].reshape(len(codes), -1).astype(np.float32)
    return len(np.unique(np.column_stack([codes, rows.label[weighty], predictions]), axis=0))


def _telling(rows: Rows, weighty: NDArray[np.bool_]) -> int:
    """Returns the number of groups that have a label above 0: only the order of these groups can be judged."""
    assert rows.groups is not None
    return len(np.unique(rows.groups[(rows.label > 0) & weighty & (rows.groups != NO_GROUP)]))
