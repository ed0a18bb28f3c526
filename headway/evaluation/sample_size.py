"""Checks whether there are enough rows to compare two models by a metric.

uncompared("auc", label, weight)          # "under 20 rows of one class", or None
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headway.evaluation.bootstrap import resampling_units
from headway.evaluation.metrics import Floats
from headway.evaluation.ranking_metrics import NO_GROUP
from headway.evaluation.tasks import HIGHER_IS_BETTER, RANKED

LEAST_ROWS = 20
"""Fewer rows have a spread too uncertain to judge by."""
CLASS_ROWS = 20
"""An AUC over fewer rows of either class is too uncertain to hold against anybody."""
LEAST_GROUPS = 20
"""So is the spread of a few groups: that of a single one is none at all, and any difference would seem certain."""


def uncompared(metric: str, label: Floats, weight: Floats, groups: NDArray[np.int64] | None = None) -> str | None:
    """Why two models cannot be compared by this metric on these rows; rows of weight 0 do not count."""
    weighty = weight > 0
    if (rows := int(weighty.sum())) < LEAST_ROWS:
        return f"under {LEAST_ROWS} rows" + (" of weight above 0" if rows < len(label) else "")
    if groups is not None and resampling_units(groups[weighty])[1] < LEAST_GROUPS:
        return f"under {LEAST_GROUPS} groups"
    if metric == "auc" and _rarer(label, weighty) < CLASS_ROWS:
        return f"under {CLASS_ROWS} rows of one class"
    if metric in RANKED and groups is not None and _telling(label, weighty, groups) < LEAST_GROUPS:
        return f"under {LEAST_GROUPS} groups with a positive label"
    return None


def units(metric: str, label: Floats, weight: Floats, groups: NDArray[np.int64] | None = None) -> int:
    """How many rows, or groups, the metric's spread rests on; of auc twice the rows of the rarer class."""
    weighty = weight > 0
    count = int(weighty.sum()) if groups is None else resampling_units(groups[weighty])[1]
    if metric == "auc":
        count = min(count, 2 * _rarer(label, weighty))
    if metric in RANKED and groups is not None:
        count = min(count, _telling(label, weighty, groups))
    return count


def upward(metric: str, interval: tuple[float, float] | None) -> tuple[float, float] | None:
    """The interval of a difference, turned so that up is good."""
    if interval is None or metric in HIGHER_IS_BETTER:
        return interval
    return -interval[1], -interval[0]


def _rarer(label: Floats, weighty: NDArray[np.bool_]) -> int:
    positives = int((weighty & (label > 0.5)).sum())
    return min(positives, int(weighty.sum()) - positives)


def _telling(label: Floats, weighty: NDArray[np.bool_], groups: NDArray[np.int64]) -> int:
    """Groups in which an order can be better or worse."""
    return len(np.unique(groups[(label > 0) & weighty & (groups != NO_GROUP)]))
