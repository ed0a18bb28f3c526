"""Confidence intervals of one model's metrics, in one pass over the rows.

    intervals(rows, metrics)          # {"auc": (0.70, 0.74), "loss": (0.41, 0.44), ...}

The standard error comes from how much a metric moves with the weight of each row (`Metric.influence`), added up by group where
rows have groups: what a bootstrap of the rows converges to, without drawing. A metric of the user's own has no derivative: it is
computed twenty times, each time without a twentieth of the rows (the delete-a-group jackknife: Kott, "The delete-a-group
jackknife", 2001), of many rows on a sample. Intervals are normal, or Student's t of few groups, and end where the metric ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headway.evaluation.bootstrap import effective_groups, quantile, resampling_units
from headway.evaluation.sample_size import uncompared
from headway.metrics.base import Metric, Rows

Interval = tuple[float, float]
BLOCKS = 20
"""Parts of the rows, each of which is left out once."""
MOST_UNITS = 50_000
"""A metric without a derivative is computed on so many rows, or groups, at most; the error of all follows from theirs."""


def intervals(
    rows: Rows, metrics: Sequence[Metric], *, confidence: float = 0.95, seed: int = 0
) -> dict[str, Interval | None]:
    """The two-sided interval of each metric, by name.

    None where a metric has no value or no spread, and on too few rows (`headway.evaluation.sample_size`). Rows of one group
    are drawn together.
    """
    codes, units = (None, len(rows)) if rows.drawn is None else resampling_units(rows.drawn)
    effective = effective_groups(rows)
    found: dict[str, Interval | None] = {}
    for metric in metrics:
        found[metric.name] = None
        if uncompared(metric, rows) or (value := metric.on(rows)) is None:
            continue
        error = _error(metric, rows, codes, units, seed)
        if error is None or not (error > 1e-12 * abs(value) and math.isfinite(error)):
            continue
        freedom = effective - 1
        if not math.isinf(effective):
            error *= math.sqrt(effective / freedom) if freedom > 0 else math.inf
        reach = quantile(0.5 + confidence / 2, max(freedom, 0.5)) * error
        least, most = metric.within
        found[metric.name] = (max(value - reach, least), min(value + reach, most))
    return found


def _error(metric: Metric, rows: Rows, codes: NDArray[np.int64] | None, units: int, seed: int) -> float | None:
    """The standard error of the metric; None where it has none."""
    influence = metric.influence(rows)
    if influence is None:
        return _jackknifed(metric, rows, codes, units, seed)
    moved = np.multiply(influence, rows.weight, out=influence)
    if codes is not None:
        moved = np.asarray(np.bincount(codes, moved, units), np.float64)
    return math.sqrt(float(np.square(moved, out=moved).sum()))


def _jackknifed(metric: Metric, rows: Rows, codes: NDArray[np.int64] | None, units: int, seed: int) -> float | None:
    random = np.random.Philox(key=seed).random_raw(units)
    place = np.argsort(random, kind="stable")[:MOST_UNITS]
    block = np.full(units, -1)
    block[place] = np.arange(len(place)) % BLOCKS
    of_row = block if codes is None else block[codes]
    kept = rows.at(of_row >= 0) if len(place) < units else rows
    of_row = of_row[of_row >= 0]
    values = [metric.on(kept.at(of_row != number)) for number in range(BLOCKS)]
    known = np.asarray([value for value in values if value is not None], np.float64)
    if len(known) < BLOCKS // 2:
        return None
    spread = float(((known - known.mean()) ** 2).sum()) * (len(known) - 1) / len(known)
    return math.sqrt(spread * len(place) / units)
