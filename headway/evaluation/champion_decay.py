"""Tests whether a champion has become worse since its promotion: its metrics at that time against those on today's rows.

    kept = worth(task, rows, metrics, label=facts, ...)          # with the version, at its promotion
    decayed(kept, worth(task, todays_rows, ...), tolerances, judging, version=3, confidence=0.95)

The two sets of rows differ, so the interval is that of two samples. Where a constant prediction has the metric too, the test
compares the gain over the constant on the same rows: a log loss rises for every model when a class becomes more frequent, and
the champion is not worse for it.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from headway.evaluation.baseline import constant_predictions
from headway.evaluation.compare import Difference, compare
from headway.evaluation.tolerance import allowed
from headway.evaluation.verdict import BEYOND, DECAY, Check, Worth
from headway.metrics.base import Metric, Rows
from headway.tasks.base import LabelFacts, Task


def worth(
    task: Task,
    rows: Rows,
    metrics: Sequence[Metric],
    *,
    label: LabelFacts | None,
    seed: int,
    check: Callable[[], None] = lambda: None,
) -> Worth:
    """What a model is worth on these rows, by each metric that can be compared on them.

    Args:
        rows: with its predictions, and the units that they are drawn by.
        label: of the train rows.
    """
    found: Worth = {}
    for metric in metrics:
        against = None if label is None or metric.of_the_mean else constant_predictions(task, label, metric, len(rows))
        measured = compare(rows, against, metrics=(metric,), seed=seed, check=check)[metric.name]
        if measured.difference is None or measured.error is None:
            continue
        gain = None if against is None else measured.difference * (1 if metric.higher_is_better else -1)
        found[metric.name] = {
            "value": measured.value,
            "gain": gain,
            "error": measured.error,
            "freedom": None if math.isinf(measured.freedom) else measured.freedom,
        }
    return found


def decayed(
    then: Worth,
    today: Worth,
    tolerances: Mapping[str, float | str],
    judging: Mapping[str, Metric],
    *,
    version: int,
    confidence: float,
) -> list[Check]:
    """A check of each metric by which a model has become worse by more than the tolerance, beyond chance.

    The confidence is that of all metrics together (Bonferroni). As in other checks, the sign of a change is the metric's.
    """
    both = [name for name in tolerances if name in then and name in today]
    shared = 1 - (1 - confidence) / max(len(both), 1)
    found = []
    for name in both:
        before, now, metric = then[name], today[name], judging[name]
        was, value, error, error_now = before["value"], now["value"], before["error"], now["error"]
        gained, gains = before["gain"], now["gain"]
        if was is None or value is None or error is None or error_now is None or (gained is None) != (gains is None):
            continue  # of one alone the constant is known
        up = 1 if metric.higher_is_better else -1
        rise = (value - was) * up if gained is None or gains is None else gains - gained
        measured = Difference(
            metric=name,
            value=value,
            other=was,
            difference=rise * up,
            error=math.hypot(error, error_now),
            freedom=min(math.inf if free is None else free for free in (before["freedom"], now["freedom"])),
        )
        margin, gains_of_both = allowed(tolerances[name], was, gained), None
        if gained is not None and gains is not None:
            gains_of_both = gained, gains
        facts = {"against": f"version {version} at its promotion", "allowed": margin, "gains": gains_of_both}
        check = measured.check(DECAY, metric, shared, outcome=BEYOND, **facts)
        if check.upward is not None and check.upward[1] < -margin:
            found.append(check)
    return found


def made_up_for(decay: Check, gained: float) -> bool:
    """Whether a candidate that is better by `gained` than a champion that became worse is back within the tolerance."""
    return decay.gained + gained >= -(decay.allowed or 0.0)
