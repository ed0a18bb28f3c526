"""Checks whether there are enough rows to compare two models by a metric.

uncompared(AUC, rows)          # "under 20 rows of one class", or None
"""

import numpy as np
from numpy.typing import NDArray

from headway.evaluation.bootstrap import drawn_units, resampling_units
from headway.evaluation.verdict import SampleSize
from headway.metrics.base import Metric, Rows
from headway.metrics.ranking import NO_GROUP

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


def uncompared(metric: Metric, rows: Rows, class_rows: int = CLASS_ROWS) -> str | None:
    """Why two models cannot be compared by this metric on these rows; rows of weight 0 do not count."""
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
    """How many rows, or groups, the metric's spread rests on; of auc twice the rows of the rarer class."""
    weighty, _ = _weighty(rows)
    _, count = _weighty_units(rows, weighty)
    if metric.unit == "classes":
        count = min(count, 2 * _rarer(rows, weighty))
    if metric.unit == "groups":
        count = min(count, _telling(rows, weighty))
    return count


def sample_size(metric: Metric, rows: Rows) -> SampleSize:
    """What the metric's spread rests on, as a person counts it."""
    weighty, units = rows.weight > 0, None
    if metric.unit == "groups":
        return SampleSize(count=_telling(rows, weighty), of="groups with a positive label")
    if rows.groups is None:
        of, count = "rows", int(weighty.sum())
        if rows.units is not None:
            units = resampling_units(rows.units[weighty])[1]
    else:
        of, count = "groups", resampling_units(rows.groups[weighty])[1]
    few = metric.unit == "classes" and count >= LEAST_ROWS
    rarer = _rarer(rows, weighty) if few else None
    if rarer is not None and rarer >= max(FIRST_CLASS_ROWS, count / 4):
        rarer = None
    return SampleSize(count=count, of=of, units=units, rarer=rarer)


def upward(metric: Metric, interval: tuple[float, float] | None) -> tuple[float, float] | None:
    """The interval of a difference, turned so that up is good."""
    if interval is None or metric.higher_is_better:
        return interval
    return -interval[1], -interval[0]


def _weighty(rows: Rows) -> tuple[NDArray[np.bool_], int]:
    """(whether each row has weight, how many have)"""

    def found() -> tuple[NDArray[np.bool_], int]:
        weighty = rows.weight > 0
        return weighty, int(weighty.sum())

    return rows.once("weighty", found)


def _weighty_units(rows: Rows, weighty: NDArray[np.bool_]) -> tuple[NDArray[np.int64] | None, int]:
    """(the unit of each row of weight above 0, None where each is one by itself; how many units have such rows)"""
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
    """Rows that differ in their unit, their label or their prediction: copies tell no more than one of them."""
    predictions = rows.prediction[weighty].reshape(len(codes), -1).astype(np.float32)
    return len(np.unique(np.column_stack([codes, rows.label[weighty], predictions]), axis=0))


def _telling(rows: Rows, weighty: NDArray[np.bool_]) -> int:
    """Groups in which an order can be better or worse."""
    assert rows.groups is not None
    return len(np.unique(rows.groups[(rows.label > 0) & weighty & (rows.groups != NO_GROUP)]))
