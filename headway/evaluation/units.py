"""The units of a split: which rows are drawn together, and whether there are enough of them to say something by.

    rows, sentence = drawn_together(units, table, rows)
    uncompared(AUC, rows)          # "under 20 rows of one class", or None

What the split keeps together, or a column with the role group, is drawn together. A split by a hash of the rows keeps equal rows
together, so where many rows repeat others, equal rows are drawn together too: drawn one by one, copies would look like more
evidence than they are.
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
from headway.tabular.list_arrays import value_numbers

LEAST_ROWS = 20
"""Fewer rows have a spread too uncertain to judge by."""
CLASS_ROWS = 20
"""An AUC over fewer rows of either class is too uncertain to hold against anybody."""
FIRST_CLASS_ROWS = 10
"""Of either class, for the AUC of a first model: Student's t and the share of the error that it gets keep to their rate from
there on (tests/headway/evaluation/test_baseline.py)."""
LEAST_GROUPS = 5
"""Of fewer groups an interval, widened as it has to be, hardly excludes anything."""
RANKED_GROUPS = 20
"""Fewer groups with an order to judge have a spread too uncertain to judge by."""
_TOLD_APART = 0.9
"""Of the distinct rows of a split, by the columns that are stored."""


class SplitUnits(Frozen):
    """The units that the split keeps together."""

    key: str | None = None
    """Its name: `headway.evaluation.predictions.UNIT` has each row's."""
    equal: tuple[str, ...] = ()
    """Columns of the predictions: rows with the same values in all of them are in one split."""
    distinct: int = 0
    """How many rows they have to tell apart, nearly, where the split hashes further columns that are not stored."""


def drawn_together(
    units: SplitUnits, table: pa.Table, rows: Rows, *, group: str | None = None
) -> tuple[Rows, str | None]:
    """Returns (the rows with the units that they are drawn by; a sentence about these, None where rows are drawn one by
    one)

    Args:
        table: of the rows' predictions; it has the columns that tell equal rows.
        group: the name of the column that the rows' groups come from.
    """
    if rows.drawn is not None:
        known = group if rows.units is None else units.key
        count = drawn_units(rows)[1]
        return rows, f"rows of one {known or 'unit of the split'} are drawn together ({count:,} of them)"
    if not units.equal:
        return rows, None
    codes = _equal_rows(table, units.equal)
    if (count := int(codes.max()) + 1) < _TOLD_APART * units.distinct:
        return rows, None
    sentence = f"equal rows, which are in one split, are drawn together ({count:,} distinct of {len(table):,})"
    return replace(rows, units=codes, memo={}, shared={}), sentence


def _equal_rows(table: pa.Table, columns: Sequence[str]) -> NDArray[np.int64]:
    """Returns the number of each row among the distinct ones, [rows]."""
    codes = np.zeros(len(table), np.int64)
    for name in columns:
        _, values = np.unique(codes_of(table.column(name)), return_inverse=True)
        codes = np.unique(codes * (int(values.max()) + 1) + values, return_inverse=True)[1]
    return codes


def drawn_units(rows: Rows) -> tuple[NDArray[np.int64] | None, int]:
    """Returns (which unit each row is drawn with, None where each is one by itself; how many there are), found once for
    these rows."""
    return rows.once_for_all("drawn", lambda: (None, len(rows)) if rows.drawn is None else unit_numbers(rows.drawn))


def unit_numbers(group: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
    """Returns (which unit each row is drawn with; how many there are). A row without a group
    (`headway.metrics.ranking.NO_GROUP`) is one by itself."""
    codes, units = value_numbers(group)
    alone = np.flatnonzero(group == NO_GROUP)
    if len(alone):  # it is the greatest of the values
        codes[alone] = units - 1 + np.arange(len(alone))
        units += len(alone) - 1
    return codes, units


def effective_units(rows: Rows) -> float:
    """Returns as how many units of equal weight the units count; infinite where rows are drawn one by one."""
    codes, units = drawn_units(rows)
    if codes is None or not rows.total > 0:
        return math.inf
    return float(rows.total**2 / (unit_weights(rows, codes, units) ** 2).sum())


def uncompared(metric: Metric, rows: Rows, class_rows: int = CLASS_ROWS) -> str | None:
    """Returns why two models cannot be compared by this metric on these rows; rows of weight 0 do not count."""
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


def units(metric: Metric, rows: Rows) -> int:
    """Returns how many rows, or groups, the metric's spread rests on; of auc twice the rows of the rarer class."""
    weighty, _ = _weighty(rows)
    _, count = _weighty_units(rows, weighty)
    if metric.unit == "classes":
        count = min(count, 2 * _rarer(rows, weighty))
    if metric.unit == "groups":
        count = min(count, _telling(rows, weighty))
    return count


def _weighty(rows: Rows) -> tuple[NDArray[np.bool_], int]:
    """Returns (whether each row has weight, how many have)"""

    def found() -> tuple[NDArray[np.bool_], int]:
        weighty = rows.weight > 0
        return weighty, int(weighty.sum())

    return rows.once("weighty", found)


def _weighty_units(rows: Rows, weighty: NDArray[np.bool_]) -> tuple[NDArray[np.int64] | None, int]:
    """Returns (the unit of each row of weight above 0, None where each is one by itself; how many units have such
    rows)"""
    codes, units = drawn_units(rows)
    if codes is None:
        return None, int(weighty.sum())

    def found() -> tuple[NDArray[np.int64], int]:
        if weighty.all():
            return codes, units
        some = codes[weighty]
        return some, int(np.count_nonzero(np.bincount(some, minlength=units)))

    return rows.once("weighty_units", found)


def _rarer(rows: Rows, weighty: NDArray[np.bool_]) -> int:
    def found() -> int:
        positives = int((weighty & (rows.label > 0.5)).sum())
        return min(positives, int(weighty.sum()) - positives)

    return rows.once("rarer", found)


def _different(rows: Rows, weighty: NDArray[np.bool_], codes: NDArray[np.int64]) -> int:
    """Returns the number of rows that differ in their unit, their label or their prediction: copies tell no more than
    one of them."""
    predictions = rows.prediction[weighty].reshape(len(codes), -1).astype(np.float32)
    return len(np.unique(np.column_stack([codes, rows.label[weighty], predictions]), axis=0))


def _telling(rows: Rows, weighty: NDArray[np.bool_]) -> int:
    """Groups in which an order can be better or worse."""
    assert rows.groups is not None
    return len(np.unique(rows.groups[(rows.label > 0) & weighty & (rows.groups != NO_GROUP)]))
