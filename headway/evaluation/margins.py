"""Margins: how much worse than the champion a candidate may be by a metric.

    tolerance: {auc: 0.002, rmse: 1%, loss: 5% of gain}

A number is in the metric's unit, a percentage is of the champion's value. A share of the gain is of what the champion gains
over the constant baseline on the same rows: a rare class leaves a log loss so little to gain that a fixed margin would
forgive all of it (0.002 is 4% of what a model gains at 20% positives and 440% at 0.1%).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from headway.evaluation.baseline import constant
from headway.evaluation.verdict import ShareOf
from headway.metrics.base import Metric, Rows
from headway.tasks.base import LabelFacts, Task

_OF_GAIN = "% of gain"
_WITHOUT_GAIN = 1.0
"""Percent of the champion's value where the constant is not known, or the champion does not beat it."""


@dataclass(frozen=True)
class Margin:
    """A margin in the metric's unit, and what it is a share of."""

    value: float
    share: float | None = None
    """Percent; None: the margin is a number of its own."""
    share_of: ShareOf | None = None
    gain: float | None = None
    """Of the champion over the constant, where the margin is a share of it."""


def parse_tolerance(tolerance: float | str) -> tuple[float, str]:
    """(number, unit): the unit is "", "%" or "% of gain".

    Raises:
        ValueError: it is none of these.
    """
    text = " ".join(str(tolerance).split())
    unit = next((unit for unit in (_OF_GAIN, "%") if text.endswith(unit)), "")
    try:
        value = float(text.removesuffix(unit))
    except ValueError:
        value = math.nan
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(
            f"a tolerance is a number that is not negative, a percentage like '1%', or '5% of gain', not {tolerance!r}"
        )
    return value, unit


def allowed(tolerance: float | str, value: float, gain: float | None) -> float:
    """The margin where only a model's value, and its gain over the constant, are known."""
    share, unit = parse_tolerance(tolerance)
    if not unit:
        return share
    if unit == "%":
        return abs(value) * share / 100
    return gain * share / 100 if gain is not None and gain > 0 else abs(value) * _WITHOUT_GAIN / 100


class Margins:
    """The margin of each compared metric on any of the rows.

    Args:
        tolerances: by metric.
        facts: of the train labels, which say what the constant predicts.
        rows: all rows, with the champion's predictions.
    """

    def __init__(
        self,
        task: Task,
        tolerances: Mapping[str, float | str],
        facts: LabelFacts | None,
        rows: Rows,
        *,
        judging: Mapping[str, Metric],
    ):
        self._task, self._tolerances, self._facts = task, tolerances, facts
        self._overall = {
            name: self._gain(judging[name], rows)
            for name, tolerance in tolerances.items()
            if parse_tolerance(tolerance)[1] == _OF_GAIN
        }

    def of(self, metric: Metric, rows: Rows, champion: float | None) -> Margin:
        """The margin on some of the rows, which have the champion's predictions.

        A share is of the gain on these rows, or of that on all rows where that is more: on a slice without anything to
        gain no difference would be small enough.
        """
        value, unit = parse_tolerance(self._tolerances[metric.name])
        if not unit:
            return Margin(value)
        size = abs(champion or 0.0)
        if unit == "%":
            return Margin(size * value / 100, value, "champion")
        gains = [gain for gain in (self._gain(metric, rows), self._overall[metric.name]) if gain is not None]
        if not gains:
            return Margin(size * _WITHOUT_GAIN / 100, _WITHOUT_GAIN, "champion, the constant not known")
        if max(gains) <= 0:
            return Margin(size * _WITHOUT_GAIN / 100, _WITHOUT_GAIN, "champion, no gain")
        return Margin(max(gains) * value / 100, value, "gain", max(gains))

    def _gain(self, metric: Metric, rows: Rows) -> float | None:
        """How much better than the constant the champion is; None where either has no value."""
        if self._facts is None or not rows.total > 0:
            return None
        ours, theirs = metric.value(rows), (constant(self._task, self._facts, rows, (metric,)) or {}).get(metric.name)
        if ours is None or theirs is None:
            return None
        return ours - theirs if metric.higher_is_better else theirs - ours
